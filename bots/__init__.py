"""Who answers: each bot knows core, never a platform."""

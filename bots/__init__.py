"""The bots and the program around them; each bot knows core, never a platform."""

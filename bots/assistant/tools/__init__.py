"""What the assistant can do besides talking, each with a declared effect."""

"""The memory of conversations and of people."""

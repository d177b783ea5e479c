"""The application: its settings, its bots, and their start and reload."""

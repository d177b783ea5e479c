"""Tasks: background work that reports its end where it was asked for."""

"""Schedules: work that starts later."""

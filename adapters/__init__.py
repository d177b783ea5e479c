"""Platforms: each knows core and adapters.shared, never another platform."""

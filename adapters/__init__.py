"""Platforms: each knows core and tidings.adapters.shared, never another platform."""

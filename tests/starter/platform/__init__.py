"""Starter: the smallest platform that keeps every promise, to be copied and rewritten."""

"""One run: its events, their journal and whoever watches."""

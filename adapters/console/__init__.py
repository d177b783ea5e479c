"""The console: the reference platform, small; `tidings chat` is its client."""

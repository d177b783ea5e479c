"""One run of an agent: its events, their journal, and the readers that follow it."""

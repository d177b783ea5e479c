"""Commands: those that run in the foreground, and those that go on in the background."""

"""The starter: the smallest platform that keeps every promise, with a simulator and a contract test, to be copied."""

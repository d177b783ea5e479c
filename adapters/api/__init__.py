"""The HTTP API: OpenAI-compatible, a platform like the others; its answers are the journal, not deliveries."""

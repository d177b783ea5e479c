"""The assistant: an agent with a model and tools, whose every run ends in words."""

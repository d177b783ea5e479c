"""What the gateway remembers of a conversation and of a person."""

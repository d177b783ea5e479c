"""A simulated server of starter."""

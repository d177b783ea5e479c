"""A strict simulator of model providers, with its own ground truth."""

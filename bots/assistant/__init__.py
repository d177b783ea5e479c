"""The model-and-tools agent: it always ends in words."""

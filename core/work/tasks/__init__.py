"""Tasks: work that ends later and reports back to where it was asked for."""

"""Work that ends later than the run that began it."""

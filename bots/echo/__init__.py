"""Says back what it was told: the smallest agent there is."""

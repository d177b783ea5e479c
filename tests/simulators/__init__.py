"""Small honest platforms with a ground truth of their own."""

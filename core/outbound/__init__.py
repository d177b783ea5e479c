"""What we owe and how it gets there: the only way out."""

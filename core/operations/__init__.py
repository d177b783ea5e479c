"""What an operator does with a gateway: look it over, back it up, prune it, repair it."""

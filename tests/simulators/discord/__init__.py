"""A strict simulator of Discord, over real sockets, with its own ground truth."""

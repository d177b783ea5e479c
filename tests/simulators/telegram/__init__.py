"""A strict simulator of Telegram, over real sockets, with its own ground truth."""

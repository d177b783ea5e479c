"""A strict simulator of Slack, over real sockets, with its own ground truth."""

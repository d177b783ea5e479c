"""From a platform's event to a settled run: the door, the inbox, the dispatcher, and recovery after a crash."""

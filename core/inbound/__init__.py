"""From the platform's event to a settled run: the entrance, the queue and what follows a crash."""

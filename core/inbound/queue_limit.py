"""The limit for all waiting messages, which counts the rows only when the limit may be reached."""

from __future__ import annotations

from tidings.core.inbound import inbox
from tidings.core.store.store import Transaction


class QueueLimit:
    def __init__(self) -> None:
        # How many messages can be waiting at most: those of the last count, and each one that was let in since.
        self._at_most: int | None = None

    def is_full(self, tx: Transaction, limit: int) -> bool:
        """Asked once for each message that is about to wait."""
        if self._at_most is None or self._at_most >= limit:
            self._at_most = inbox.count_waiting(tx)
        if self._at_most >= limit:
            return True
        self._at_most += 1
        return False

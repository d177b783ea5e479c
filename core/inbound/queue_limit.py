"""The limit of waiting messages; rows are counted only when the limit may be reached."""

from __future__ import annotations

from tidings.core.inbound import inbox
from tidings.core.store.store import Transaction


class QueueLimit:
    def __init__(self) -> None:
        # An upper bound of waiting messages: the last count, plus each message accepted since.
        self._at_most: int | None = None

    def is_full(self, tx: Transaction, limit: int) -> bool:
        """Tells whether the queue is full; call this once for each message that will wait."""
        if self._at_most is None or self._at_most >= limit:
            self._at_most = inbox.count_waiting(tx)
        if self._at_most >= limit:
            return True
        self._at_most += 1
        return False

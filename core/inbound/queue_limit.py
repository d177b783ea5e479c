"""The limit of waiting messages; rows are counted only when the limit may be reached."""

from __future__ import annotations

from tidings.core.inbound import inbox
from tidings.core.store.store import Transaction


class QueueLimit:
    def __init__(self) -> None:
        # The last count of waiting messages, and the newest row at that time.
        self._counted: tuple[int, int] | None = None

    def is_full(self, tx: Transaction, limit: int, newest: int) -> bool:
        """Tells whether the queue is full; `newest` is the number of the newest row.

        No more messages can wait than were counted, plus every row since: errands of tasks, schedules and cards too.
        """
        if self._counted is None or self._counted[0] + newest - self._counted[1] >= limit:
            self._counted = inbox.count_waiting(tx), newest
            return self._counted[0] >= limit
        return False

"""The limits of waiting messages, of one person and of all; rows are counted only when a limit may be reached."""

from __future__ import annotations

from tidings.core.inbound import inbox
from tidings.core.people import names
from tidings.core.roles import Person
from tidings.core.settings import Limits
from tidings.core.store.store import Transaction

# More than any limit, until the first count.
UNKNOWN = 1 << 62
# While many messages wait, all of them are counted again after so many rows.
RECOUNTED = 500


class QueueLimit:
    def __init__(self) -> None:
        # The last count of waiting messages, and the newest row at that time.
        self._counted = UNKNOWN, 0

    def is_full(self, tx: Transaction, limits: Limits, newest: int, person: Person) -> bool:
        """Tells whether the queue is full for this person; `newest` is the number of the newest row.

        No more messages can wait than were counted, plus every row since: errands of tasks, schedules and cards too.
        """
        if self._may_wait(newest) >= limits.queued_per_person and self._since(newest) >= RECOUNTED:
            self._counted = inbox.count_waiting(tx), newest
        if self._may_wait(newest) >= limits.queued:
            self._counted = inbox.count_waiting(tx), newest
        most = self._may_wait(newest)
        is_near = most >= limits.queued_per_person
        return most >= limits.queued or (is_near and _of_person(tx, person) >= limits.queued_per_person)

    def _since(self, newest: int) -> int:
        """How many rows came since the last count."""
        return newest - self._counted[1]

    def _may_wait(self, newest: int) -> int:
        return self._counted[0] + self._since(newest)


def _of_person(tx: Transaction, person: Person) -> int:
    """Counts what waits from all identities of a person."""
    identities = {names.without_account(each) for each in person.identities}
    return sum(inbox.count_waiting_of(tx, each) for each in identities)

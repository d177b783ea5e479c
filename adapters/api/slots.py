"""How many answers are in work, and for whom: a client that wants them all leaves some to the others."""

from __future__ import annotations

from collections import Counter

from tidings.adapters.api.errors import Problem

# One client never has the last eighth of the places.
LEFT_TO_OTHERS = 8


class Slots:
    def __init__(self, most: int) -> None:
        self._most = most
        self._most_of_one = most - most // LEFT_TO_OTHERS
        self._taken: Counter[str] = Counter()
        self._owners: dict[str, str] = {}

    def take(self, owner: str) -> None:
        """Raises Problem 429 when all are taken, or all that one client may have."""
        if self._taken.total() >= self._most or self._taken[owner] >= self._most_of_one:
            raise Problem(429, "too many answers are in work", "rate_limit_exceeded", headers={"Retry-After": "1"})
        self._taken[owner] += 1

    def give_back(self, owner: str) -> None:
        self._taken[owner] -= 1
        if not self._taken[owner]:
            del self._taken[owner]

    def keep(self, run: str, owner: str) -> None:
        """Gives the taken slot to a run until the run ends."""
        self._owners[run] = owner

    def free(self, run: str) -> None:
        """The run has ended; it may be said more than once."""
        if owner := self._owners.pop(run, None):
            self.give_back(owner)

"""Slots for runs: how many runs may go on at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Slots:
    def __init__(self, count: int) -> None:
        self._count = count
        self._free = count
        self._hearers: list[Callable[[], None]] = []

    @property
    def is_free(self) -> bool:
        return self._free > 0

    def subscribe(self, hear: Callable[[], None]) -> None:
        """`hear` is called whenever a slot may have become free."""
        self._hearers.append(hear)

    def take(self) -> None:
        """Takes a slot, even beyond the limit, for a run that is already claimed."""
        self._free -= 1

    def give_back(self) -> None:
        self._add(1)

    def renew(self, count: int) -> None:
        """Changes the number of slots; runs in progress keep theirs, even if there are now fewer."""
        more, self._count = count - self._count, count
        self._add(more)

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Frees the slot of a run while it waits for another run."""
        self.give_back()
        try:
            yield
        finally:
            self.take()

    def _add(self, more: int) -> None:
        self._free += more
        for hear in self._hearers:
            hear()

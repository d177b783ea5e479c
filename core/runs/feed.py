"""Passes new entries of the journal to every reader; a slow reader loses its connection, never an event."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tidings.core.agent import Ended
from tidings.core.desk.runs import Numbered
from tidings.core.errors import Lagged, Unknown
from tidings.core.runs import journal
from tidings.core.store.store import Store, Transaction

# Entries that a reader may be behind before it is disconnected; the reader then continues after its last number.
BUFFERED_ENTRIES = 256
PAGE = 500


class Subscription:
    """One reader of one run; ten thousand may wait for a run, so a subscription holds little while it waits."""

    __slots__ = ("_entries", "_lagged", "_news")

    def __init__(self) -> None:
        self._entries: list[Numbered] = []
        self._news: asyncio.Future[None] | None = None
        self._lagged = False

    def push(self, entries: list[Numbered]) -> None:
        """Adds entries for the reader; called by the writer, so it never waits and never raises."""
        # A reader is slow if earlier entries are still untaken; one commit alone may add more than this limit.
        if self._lagged or len(self._entries) > BUFFERED_ENTRIES:
            self._lagged = True
            self._entries.clear()
        else:
            self._entries += entries
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    async def take(self) -> list[Numbered]:
        """Returns all new entries; waits if there are none."""
        while not self._entries:
            if self._lagged:
                raise Lagged("too slow: reconnect with the last number you saw")
            self._news = asyncio.get_running_loop().create_future()
            await self._news
        taken, self._entries = self._entries, []
        return taken


class Feed:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._readers: dict[str, set[Subscription]] = {}

    def publish(self, run: str, entries: list[Numbered]) -> None:
        """Shows entries to the readers; call this only after their commit."""
        for reader in self._readers.get(run, ()):
            reader.push(entries)

    def is_followed(self, run: str) -> bool:
        return run in self._readers

    async def follow(self, run: str, after: int = 0) -> AsyncIterator[Numbered]:
        """Yields stored entries, then live ones; ends after the terminal event, or at once if `after` is past it."""
        reader = Subscription()
        self._readers.setdefault(run, set()).add(reader)
        try:
            # The reader subscribed before reading, so an entry committed meanwhile comes twice; its number tells.
            while True:
                page, is_over = await self._store.read(lambda tx, after=after: _page(tx, run, after))  # type: ignore[misc]
                for entry in page:
                    yield entry
                    after = entry.seq
                    if isinstance(entry.event, Ended):
                        return
                if len(page) < PAGE:
                    if is_over:
                        return
                    break
            del page
            while True:
                for entry in await reader.take():
                    if entry.seq <= after:
                        continue
                    yield entry
                    after = entry.seq
                    if isinstance(entry.event, Ended):
                        return
        finally:
            readers = self._readers[run]
            readers.discard(reader)
            if not readers:
                del self._readers[run]


def _page(tx: Transaction, run: str, after: int) -> tuple[list[Numbered], bool]:
    """The next entries, and whether the run is over."""
    row = tx.one("SELECT state FROM inbox WHERE run = ? AND state IN ('waiting', 'running', 'done')", run)
    if row is None:
        raise Unknown(f"there is no run {run}")
    return journal.read(tx, run, after, PAGE), row["state"] == "done"

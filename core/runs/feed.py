"""Passes new entries of the journal to every reader; a slow reader loses its connection, never an event."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from tidings.core.agent import Ended
from tidings.core.desk.runs import Numbered
from tidings.core.errors import Lagged, Unknown
from tidings.core.part import Part
from tidings.core.runs import journal
from tidings.core.store.store import Store, Transaction
from tidings.core.store.wakeups import RunGrew

# Entries that a reader may be behind before it is disconnected; the reader then continues after its last number.
BUFFERED_ENTRIES = 256
PAGE = 500


class Subscription:
    """One reader of one run; ten thousand may wait for a run, so a subscription holds little while it waits."""

    __slots__ = ("_entries", "_lagged", "_news", "missed", "seen")

    def __init__(self, after: int) -> None:
        self._entries: list[Numbered] = []
        self._news: asyncio.Future[None] | None = None
        self._lagged = False
        # The number of the last entry that was read or pushed.
        self.seen = after
        # Whether a wake-up was lost before a later one: the entries between them are only in the store.
        self.missed = False

    def push(self, entries: Sequence[Numbered]) -> None:
        """Adds entries for the reader; never waits and never raises."""
        if not entries or entries[-1].seq <= self.seen:
            return
        new = entries if entries[0].seq > self.seen else [entry for entry in entries if entry.seq > self.seen]
        if new[0].seq > self.seen + 1:
            self.missed = True
        else:
            self._add(new)
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def _add(self, new: Sequence[Numbered]) -> None:
        self.seen = new[-1].seq
        # A reader is slow if earlier entries are still untaken; one commit alone may add more than this limit.
        if self._lagged or len(self._entries) > BUFFERED_ENTRIES:
            self._lagged = True
            self._entries.clear()
        else:
            self._entries += new

    async def take(self) -> list[Numbered]:
        """Returns all new entries; waits if there are none, unless the reader has missed some."""
        while not self._entries and not self.missed:
            if self._lagged:
                raise Lagged("too slow: reconnect with the last number you saw")
            self._news = asyncio.get_running_loop().create_future()
            await self._news
        taken, self._entries = self._entries, []
        return taken


class Feed(Part):
    def __init__(self, store: Store) -> None:
        self._store = store
        self._readers: dict[str, set[Subscription]] = {}
        store.wakeups.subscribe(RunGrew, self._show)

    def _show(self, grown: RunGrew) -> None:
        for reader in self._readers.get(grown.run, ()):
            reader.push(grown.entries)

    async def sweep(self) -> None:
        """Shows what was stored without its readers being woken."""
        for run, readers in list(self._readers.items()):
            seen = min((reader.seen for reader in readers), default=0)
            entries = await self._store.insist(lambda tx, run=run, seen=seen: journal.read(tx, run, seen, PAGE))  # type: ignore[misc]
            self._show(RunGrew(run, tuple(entries)))

    def is_followed(self, run: str) -> bool:
        return run in self._readers

    async def follow(self, run: str, after: int = 0) -> AsyncIterator[Numbered]:
        """Yields stored entries, then live ones; ends after the terminal event, or at once if `after` is past it."""
        reader = Subscription(after)
        self._readers.setdefault(run, set()).add(reader)
        try:
            # The reader subscribed before reading, so an entry committed meanwhile may come twice; its number tells.
            while True:
                reader.missed = False
                page, is_over = await self._store.read(lambda tx, after=after: _page(tx, run, after))  # type: ignore[misc]
                is_last = len(page) < PAGE
                reader.seen = max(reader.seen, page[-1].seq if page else 0)
                for entry in page:
                    yield entry
                    after = entry.seq
                    if isinstance(entry.event, Ended):
                        return
                if is_last and is_over:
                    return
                del page
                while is_last and not reader.missed:
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

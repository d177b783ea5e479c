"""The journal of a run: every event is numbered, stored before it is shown, and can be read again from any point.

The start of a tool with an effect is stored with its entry in the audit trail.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

import msgspec

from tidings.core.agent import (
    Checkpoint,
    Effect,
    Ended,
    JournalEvent,
    Outcome,
    OutcomeKind,
    ReasoningDelta,
    Restarted,
    TextDelta,
    ToolStarted,
)
from tidings.core.clock import Clock
from tidings.core.desk.runs import Numbered
from tidings.core.errors import Fenced
from tidings.core.people import audit
from tidings.core.store.store import Row, Store, Transaction
from tidings.core.store.wakeups import RunGrew

log = logging.getLogger(__name__)

# Deltas within this time become one entry, or deltas within one commit if that takes longer.
JOIN_SECONDS = 0.05
# The first write waits this many turns of the event loop, since an answer that is ready at once needs no own commit.
HOPS = 4

_decode = msgspec.json.Decoder(JournalEvent).decode
_encode = msgspec.json.Encoder().encode
UNREADABLE = "the outcome was written by a newer version and cannot be read"

# Stores the checkpoint of a run with the number of its last event, in the transaction of those events.
KeepCheckpoint = Callable[[Transaction, str, Checkpoint, int], None]


class Journal:
    """The writer of one run: one write at a time, numbers without gaps; a writer with an old fence is refused."""

    def __init__(
        self, store: Store, clock: Clock, keep: KeepCheckpoint, run: str, *, person: str, fence: int, last: int
    ) -> None:
        """`person` is the id of the person that the run works for."""
        self._store = store
        self._clock = clock
        self._keep = keep
        self._run = run
        self.person = person
        self._fence = fence
        self._last = last
        self._pending: list[JournalEvent] = []
        # Deltas of the last pending event, joined once at the end: joining each time would slow down long answers.
        self._pieces: list[str] = []
        self._checkpoint: Checkpoint | None = None
        self._writer: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        self._closed = False

    def add(self, event: JournalEvent) -> None:
        if self._closed:
            raise Fenced(f"{self._run} has ended")
        if not self._pieces or type(event) is not type(self._pending[-1]):
            self._join()
            self._pending.append(event)
        if isinstance(event, TextDelta | ReasoningDelta):
            self._pieces.append(event.text)
        self._start_writing()

    def _join(self) -> None:
        if self._pieces:
            self._pending[-1] = msgspec.structs.replace(self._pending[-1], text="".join(self._pieces))
            self._pieces = []

    def _take(self) -> list[JournalEvent]:
        self._join()
        pending, self._pending = self._pending, []
        return pending

    def save(self, checkpoint: Checkpoint) -> None:
        """Stores a checkpoint together with the events before it; the new checkpoint replaces the last one."""
        if self._closed:
            raise Fenced(f"{self._run} has ended")
        self._checkpoint = checkpoint
        self._start_writing()

    async def flush(self) -> None:
        """Returns when everything added so far is durable."""
        while (self._pending or self._checkpoint is not None or self._writer) and not self._closed:
            self._hurry.set()
            self._start_writing()
            assert self._writer
            await asyncio.shield(self._writer)

    async def close(self) -> list[JournalEvent]:
        """Stops writing and returns the events not stored yet, for the transaction that settles the run."""
        self._closed = True
        self._hurry.set()
        while self._writer:
            await asyncio.shield(self._writer)
        return self._take()

    @property
    def last(self) -> int:
        return self._last

    def _start_writing(self) -> None:
        if self._writer is None and not self._closed:
            self._writer = asyncio.create_task(self._write())

    async def _write(self) -> None:
        try:
            for _ in range(HOPS):
                if self._hurry.is_set():
                    break
                await asyncio.sleep(0)
            while (self._pending or self._checkpoint is not None) and not self._closed:
                await self._write_once()
                if self._pending and not self._hurry.is_set():
                    await self._pause()
        finally:
            self._writer = None
            self._hurry.clear()

    async def _pause(self) -> None:
        timer = self._clock.call_later(JOIN_SECONDS, self._hurry.set)
        try:
            await self._hurry.wait()
        finally:
            timer.cancel()
        if not self._closed:
            self._hurry.clear()

    async def _write_once(self) -> None:
        events = self._take()
        checkpoint, self._checkpoint = self._checkpoint, None
        entries = number(self._last, events, self._clock.wall())
        self._last += len(entries)

        def unit(tx: Transaction) -> None:
            check_fence(tx, self._run, self._fence)
            write(tx, self._run, entries, self.person)
            if checkpoint is not None:
                self._keep(tx, self._run, checkpoint, self._last)

        await self._store.insist(unit)


def check_fence(tx: Transaction, run: str, fence: int) -> None:
    row = tx.one("SELECT 1 FROM inbox WHERE run = ? AND fence = ? AND state = 'running'", run, fence)
    if row is None:
        raise Fenced(f"{run} is no longer ours")


def number(last: int, events: Sequence[JournalEvent], wall: float) -> list[Numbered]:
    return [Numbered(seq, event, wall) for seq, event in enumerate(events, start=last + 1)]


def write(tx: Transaction, run: str, entries: list[Numbered], person: str) -> None:
    """Stores entries of a run that works for this person; effects become part of the audit trail."""
    for entry in entries:
        tx.execute(
            "INSERT INTO journal (run, seq, kind, event, at) VALUES (?, ?, ?, ?, ?)",
            run,
            entry.seq,
            _kind(entry.event),
            _encode(entry.event),
            entry.at,
        )
        if isinstance(entry.event, ToolStarted) and entry.event.effect is Effect.EFFECT:
            audit.write(tx, person, "tool", entry.event.name, entry.at, run)
    tx.announce(RunGrew(run, tuple(entries)))


def _kind(event: JournalEvent) -> str:
    """The kinds of entries that are looked for; all others are plain events."""
    match event:
        case Ended():
            return "ended"
        case Restarted():
            return "restarted"
        case _:
            return "event"


def outcome(tx: Transaction, run: str) -> Outcome | None:
    row = tx.one("SELECT seq, kind, event, at FROM journal WHERE run = ? AND kind = 'ended'", run)
    entry = _entry(run, row) if row else None
    return entry.event if entry and isinstance(entry.event, Outcome) else None


def trim(tx: Transaction, run: str, *, rehearsal: bool = False) -> int:
    """Removes the entries of an ended run but its end, which stays as long as the run; returns how many."""
    if rehearsal:
        row = tx.one("SELECT count(*) AS n FROM journal WHERE run = ? AND kind <> 'ended'", run)
        return int(row["n"]) if row else 0
    return tx.count("DELETE FROM journal WHERE run = ? AND kind <> 'ended'", run)


def erase(tx: Transaction, run: str) -> None:
    tx.execute("DELETE FROM journal WHERE run = ?", run)


def void(tx: Transaction, run: str) -> int:
    """The number of the newest restart, which makes all earlier entries void; 0 without a restart."""
    row = tx.one("SELECT coalesce(max(seq), 0) AS last FROM journal WHERE run = ? AND kind = 'restarted'", run)
    return int(row["last"]) if row else 0


def last(tx: Transaction, run: str) -> int:
    row = tx.one("SELECT coalesce(max(seq), 0) AS last FROM journal WHERE run = ?", run)
    return int(row["last"]) if row else 0


def read(tx: Transaction, run: str, after: int, limit: int) -> list[Numbered]:
    """Reads entries after a number; skips unreadable ones, so fewer than `limit` means that there are no more."""
    query = "SELECT seq, kind, event, at FROM journal WHERE run = ? AND seq > ? ORDER BY seq LIMIT ?"
    found: list[Numbered] = []
    while len(found) < limit and (rows := tx.all(query, run, after, limit - len(found))):
        found += [entry for row in rows if (entry := _entry(run, row))]
        after = rows[-1]["seq"]
    return found


def _entry(run: str, row: Row) -> Numbered | None:
    """None for an entry that only a newer version can read, which stays stored; an unreadable end becomes a failure."""
    try:
        return Numbered(row["seq"], _decode(row["event"]), row["at"])
    except msgspec.DecodeError as error:
        log.warning("entry %d of %s is of no kind that is known here: %s", row["seq"], run, error)
        if row["kind"] != "ended":
            return None
        return Numbered(row["seq"], Ended(OutcomeKind.FAILED, UNREADABLE, ""), row["at"])

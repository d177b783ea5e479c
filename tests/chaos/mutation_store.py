"""Seeded bugs in what is kept and for how long: what should go stays, what should stay goes."""

from __future__ import annotations

import math

from msgspec.structs import replace

from tests.chaos.mutation_seams import swap
from tidings.core.clock import Clock
from tidings.core.inbound import inbox, pruning
from tidings.core.memory import conversations
from tidings.core.operations import erasure, retention
from tidings.core.outbound import outbox
from tidings.core.runs.feed import Feed
from tidings.core.store import sqlite, steady_time
from tidings.core.store.sqlite import SqliteTransaction
from tidings.core.store.store import Row, Transaction
from tidings.core.store.wakeups import Due
from tidings.core.types import Inbound


def far_clock_believed_at_once() -> None:
    """The clock of a machine that boots forty days ahead ends all that was owed."""
    swap(steady_time, "BELIEVED_SECONDS", math.inf)


def pruned_by_a_clock_that_may_be_wrong() -> None:
    def check(clock: Clock) -> None:
        return

    swap(retention, "check", check)


def single_requests_kept_for_ever() -> None:
    """Every conversation keeps its last ten, also one that nobody can ever name again."""
    swap(pruning, "is_passing", lambda conversation: False)


def wish_to_forget_only_in_memory() -> None:
    """A kill between the request and its answer, and it is kept like any other."""
    real = inbox.put

    def put(tx: Transaction, inbound: Inbound, run: str, now: float, burst: float = 0.0) -> str:
        return real(tx, replace(inbound, forget=False), run, now, burst)

    swap(inbox, "put", put)


def forgotten_before_it_was_delivered() -> None:
    def deliveries(tx: Transaction, run: str) -> list[Row]:
        return []

    swap(erasure, "_deliveries", deliveries)


def forgotten_but_remembered() -> None:
    """The row goes, and what the bot remembers of it does not."""

    def restore(tx: Transaction, conversation: str, generation: int) -> None:
        return

    swap(conversations, "restore_checkpoint", restore)


def announced_before_the_commit() -> None:
    """A part is woken while the row that it shall find can still be undone."""

    def announce(self: SqliteTransaction, due: Due) -> None:
        if self._wakeups is not None:
            self._wakeups.publish([due])

    swap(SqliteTransaction, "announce", announce)


def undone_step_announces() -> None:
    """Rows of a step are undone, and what they made due is told all the same."""

    def undo(self: sqlite._Step) -> None:
        self._transaction.execute(f"ROLLBACK TO {self._name}")

    swap(sqlite._Step, "undo", undo)


def lanes_only_by_wakeup() -> None:
    """The sweep does not look for deliveries: what nobody heard of stays."""
    swap(outbox, "open_lanes", lambda tx: [])


def stops_only_by_wakeup() -> None:
    swap(inbox, "asked_to_stop", lambda tx: [])


def readers_only_by_wakeup() -> None:
    async def sweep(self: Feed) -> None:
        return

    swap(Feed, "sweep", sweep)

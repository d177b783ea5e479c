"""The end of a run, however it ends: outcome, terminal event and memory belong to one transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from core import ids
from core.agent import JournalEvent, Outcome, OutcomeKind
from core.clock import Clock
from core.desk import Numbered
from core.inbound import answer, inbox, usage
from core.inbound.inbox import Claim
from core.outbound import outbox
from core.outbound.outbox import Class, Owed
from core.runs import journal
from core.store.database import Transaction
from core.types import Capabilities, Target

Can = Callable[[Target], Capabilities | None]


class Settled(NamedTuple):
    outcome: Outcome
    entries: list[Numbered]


def settle(
    tx: Transaction,
    claimed: Claim,
    outcome: Outcome,
    pending: list[JournalEvent],
    last: int,
    now: float,
    wall: float,
    *,
    remembered: bool = True,
) -> Settled:
    """A stop that was asked for in time wins over the outcome; raises Fenced when the run is not ours."""
    asked = inbox.stop_asked(tx, claimed.run)
    if asked is not None and outcome.kind is not OutcomeKind.CANCELLED:
        outcome = msgspec.structs.replace(outcome, kind=OutcomeKind.CANCELLED, reason=f"stopped by {asked}")
    entries = journal.number(last, [*pending, outcome], wall)
    inbox.finish(tx, claimed, outcome, now)
    journal.write(tx, claimed.run, entries)
    if remembered:
        inbox.keep_memory(tx, claimed, outcome, wall)
    else:
        # It is no exchange that could be tried again.
        tx.execute("UPDATE inbox SET undone = 1 WHERE run = ?", claimed.run)
    if outcome.usage:
        usage.add(tx, claimed.inbound.conversation.id, outcome.usage, wall)
    return Settled(outcome, entries)


def close(
    tx: Transaction, claimed: Claim, outcome: Outcome, clock: Clock, can: Can, *, remembered: bool = True
) -> list[Numbered]:
    """Ends a run that nobody runs, and owes its final; the entries are to be shown after the commit."""
    now, target = clock.now(), claimed.inbound.target
    settled = settle(tx, claimed, outcome, [], claimed.journalled, now, clock.wall(), remembered=remembered)
    if may_push(can, target):
        body = answer.body_of(claimed.run, settled.outcome)
        outbox.put(tx, Owed(ids.new("dlv"), Class.FINAL, target, body, claimed.run), now)
    return settled.entries


def may_push(can: Can, target: Target) -> bool:
    """What is owed to an adapter that is no longer configured is held; only a refusal up front is none."""
    abilities = can(target)
    return abilities is None or abilities.async_delivery

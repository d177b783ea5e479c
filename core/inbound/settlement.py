"""The end of a run, however it ends: outcome, terminal event and memory belong to one transaction."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from core.agent import JournalEvent, Outcome, OutcomeKind
from core.desk import Numbered
from core.inbound import inbox
from core.inbound.inbox import Claim
from core.runs import journal
from core.store.database import Transaction


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
) -> Settled:
    """A stop that was asked for in time wins over the outcome; raises Fenced when the run is not ours."""
    asked = inbox.stop_asked(tx, claimed.run)
    if asked is not None and outcome.kind is not OutcomeKind.CANCELLED:
        outcome = msgspec.structs.replace(outcome, kind=OutcomeKind.CANCELLED, reason=f"stopped by {asked}")
    entries = journal.number(last, [*pending, outcome], wall)
    inbox.finish(tx, claimed.run, claimed.fence, outcome, now)
    journal.write(tx, claimed.run, entries)
    inbox.keep_memory(tx, claimed, outcome, wall)
    return Settled(outcome, entries)

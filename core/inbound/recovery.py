"""What becomes of runs a dead process left open; it only rewrites rows, before anything listens."""

from __future__ import annotations

import logging
from collections.abc import Callable

from core import ids
from core.agent import (
    Effect,
    JournalEvent,
    Outcome,
    OutcomeKind,
    Restarted,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from core.clock import Clock
from core.failpoints import fail_here
from core.inbound import answer, inbox, settlement
from core.inbound.inbox import Claim
from core.outbound import doubts, outbox
from core.outbound.outbox import Class, Owed
from core.runs import journal
from core.store.database import Store, Transaction
from core.types import Capabilities, Target

log = logging.getLogger(__name__)

# The first run and two more: a message that kills the process must not do so for ever.
ATTEMPTS = 3

Can = Callable[[Target], Capabilities | None]


async def recover(store: Store, clock: Clock, can: Can) -> None:
    fail_here("boot.pre_recover")
    doubtful = await store.insist(doubts.recover)
    open_runs = await store.insist(inbox.open_runs)
    for run in open_runs:
        fail_here("boot.mid_recover")
        await store.insist(lambda tx, run=run: recover_run(tx, run, clock, can))  # type: ignore[misc]
    fail_here("boot.post_recover")
    if open_runs or doubtful:
        log.warning("after an unclean end: %d runs were open, %d sends in flight", len(open_runs), doubtful)


def recover_run(tx: Transaction, run: str, clock: Clock, can: Can) -> None:
    """Runs again from its checkpoint when nothing would be done twice; else ends with a visible sentence."""
    row = tx.one("SELECT * FROM inbox WHERE run = ? AND state = 'running'", run)
    assert row is not None, "recovery alone touches open runs"
    claimed = inbox.claim_of(row, journal.last(tx, run))
    events = [entry.event for entry in journal.read(tx, run, 0, claimed.journalled)]
    unknown = _unknown_tool(events, row["checkpoint_after"])
    if row["stop_asked"] is not None:
        _end(tx, claimed, events, OutcomeKind.CANCELLED, f"stopped by {row['stop_asked']}", clock, can)
    elif unknown:
        reason = f"interrupted by a restart while {unknown} was at work; whether it took effect is unknown"
        _end(tx, claimed, events, OutcomeKind.FAILED, reason, clock, can)
    elif claimed.inbound.attended:
        _end(tx, claimed, events, OutcomeKind.FAILED, "interrupted by a restart", clock, can)
    elif row["attempt"] >= ATTEMPTS:
        reason = f"interrupted {row['attempt']} times in a row"
        _end(tx, claimed, events, OutcomeKind.FAILED, reason, clock, can)
    else:
        restarted = journal.number(claimed.journalled, [Restarted(row["attempt"] + 1)], clock.wall())
        journal.write(tx, run, restarted)
        tx.execute("UPDATE inbox SET state = 'waiting', fence = fence + 1 WHERE run = ?", run)


def _unknown_tool(events: list[JournalEvent], checkpoint_after: int) -> str:
    """The first effectful tool that a run from the checkpoint would repeat, or that nobody saw end."""
    open_calls: dict[str, str] = {}
    for position, event in enumerate(events):
        if isinstance(event, ToolStarted) and event.effect is Effect.EFFECT:
            open_calls[event.call] = event.name
        elif isinstance(event, ToolFinished) and position < checkpoint_after:
            open_calls.pop(event.call, None)
    return next(iter(open_calls.values()), "")


def _end(
    tx: Transaction,
    claimed: Claim,
    events: list[JournalEvent],
    kind: OutcomeKind,
    reason: str,
    clock: Clock,
    can: Can,
) -> None:
    outcome = Outcome(kind, reason, _text_of(events))
    settlement.settle(tx, claimed, outcome, [], claimed.journalled, clock.now(), clock.wall())
    abilities = can(claimed.inbound.target)
    if abilities is None or abilities.async_delivery:
        body = answer.body_of(outcome)
        outbox.put(tx, Owed(ids.new("dlv"), Class.FINAL, claimed.inbound.target, body, claimed.run), clock.now())


def _text_of(events: list[JournalEvent]) -> str:
    text = ""
    for event in events:
        if isinstance(event, Restarted):
            text = ""
        elif isinstance(event, TextDelta):
            text += event.text
    return text

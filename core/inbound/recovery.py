"""Recovers runs that a dead process left open, by rewriting rows before anything listens."""

from __future__ import annotations

import logging

from tidings.core.agent import Effect, Outcome, OutcomeKind, Restarted, ToolFinished, ToolStarted
from tidings.core.clock import Clock
from tidings.core.desk.runs import Numbered
from tidings.core.failpoints import fail_here
from tidings.core.inbound import inbox
from tidings.core.inbound.inbox import Claim
from tidings.core.inbound.settlement import Settlement
from tidings.core.runs import journal, stops, transcript
from tidings.core.store.store import Row, Store, Transaction

log = logging.getLogger(__name__)

# The first run and two repetitions: a message that kills the process must not do so for ever.
ATTEMPTS = 3
INTERRUPTED = "interrupted by a restart"


async def recover(store: Store, clock: Clock, settlement: Settlement) -> None:
    """Decides about every run that a dead process left open."""
    open_runs = await store.insist(inbox.open_runs)
    for run in open_runs:
        fail_here("boot.mid_recover")
        await store.insist(lambda tx, run=run: recover_run(tx, run, clock, settlement))  # type: ignore[misc]
    for run in await store.insist(inbox.waiting_attended):
        await store.insist(lambda tx, run=run: _abandon(tx, run, settlement))  # type: ignore[misc]
    if open_runs:
        log.warning("after an unclean end: %d runs were open", len(open_runs))


def _abandon(tx: Transaction, run: str, settlement: Settlement) -> None:
    """Ends a run that its client can no longer receive, because the connection died with the process."""
    claimed = inbox.waiting_claim(tx, run)
    if claimed is not None:
        settlement.close(tx, claimed, claimed.ended(OutcomeKind.FAILED, INTERRUPTED))


def recover_run(tx: Transaction, run: str, clock: Clock, settlement: Settlement) -> None:
    """Lets a run start again from its checkpoint if no effect would be repeated; otherwise ends it visibly."""
    row = tx.one("SELECT * FROM inbox WHERE run = ? AND state = 'running'", run)
    if row is None:
        return
    claimed = inbox.claim_of(tx, row)
    entries = journal.read(tx, run, 0, claimed.journalled)
    kind, reason = _verdict(row, claimed, entries)
    if kind is not None:
        settlement.close(tx, claimed, Outcome(kind, reason, transcript.said(tx, run).text, claimed.used))
        # Later messages of the conversation waited for this run's end.
        inbox.announce_next(tx, row["conversation"])
        return
    restarted = journal.number(claimed.journalled, [Restarted(row["attempt"] + 1)], clock.wall())
    journal.write(tx, run, restarted, person="")
    inbox.let_wait(tx, run, row["conversation"])


def _verdict(row: Row, claimed: Claim, entries: list[Numbered]) -> tuple[OutcomeKind | None, str]:
    """How the run must end; None as kind means that it may run again."""
    if row["stop_asked"] is not None:
        return OutcomeKind.CANCELLED, stops.reason(row["stop_asked"])
    if open_tool := _unknown_tool(entries, row["checkpoint_after"]):
        ended = any(isinstance(each.event, ToolFinished) and each.event.call == open_tool.call for each in entries)
        if ended:
            return OutcomeKind.FAILED, f"interrupted by a restart after {open_tool.name} had done its work"
        unknown = "whether it took effect is unknown"
        return OutcomeKind.FAILED, f"interrupted by a restart while {open_tool.name} was at work; {unknown}"
    if claimed.inbound.attended:
        return OutcomeKind.FAILED, INTERRUPTED
    if row["attempt"] >= ATTEMPTS:
        return OutcomeKind.FAILED, f"interrupted {row['attempt']} times in a row"
    return None, ""


def _unknown_tool(entries: list[Numbered], checkpoint_after: int) -> ToolStarted | None:
    """The first tool with an effect that the run would repeat, or whose end was not seen."""
    open_calls: dict[str, ToolStarted] = {}
    for entry in entries:
        event = entry.event
        if isinstance(event, ToolStarted) and event.effect is Effect.EFFECT:
            open_calls[event.call] = event
        elif isinstance(event, ToolFinished) and entry.seq <= checkpoint_after:
            open_calls.pop(event.call, None)
    return next(iter(open_calls.values()), None)

"""The end of a run, however it ends: outcome, terminal event, memory and what is owed are one transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from tidings.core import ids
from tidings.core.agent import JournalEvent, Outcome, OutcomeKind
from tidings.core.clock import Clock
from tidings.core.desk.runs import Numbered
from tidings.core.inbound import answer, inbox
from tidings.core.inbound.inbox import Claim
from tidings.core.memory import usage
from tidings.core.outbound import outbox
from tidings.core.outbound.outbox import Class, Owed
from tidings.core.runs import journal
from tidings.core.store.store import Transaction
from tidings.core.types import Capabilities, Origin, Target

Can = Callable[[Target], Capabilities | None]


class After(NamedTuple):
    """What a transaction has brought about elsewhere, to be hurried once it is committed."""

    lanes: tuple[str, ...] = ()
    # Where a message waits now.
    conversations: tuple[str, ...] = ()

    def __add__(self, other: object) -> After:
        assert isinstance(other, After)
        return After((*self.lanes, *other.lanes), (*self.conversations, *other.conversations))


# Told of the end of a run that it has sent, in the transaction that ends it.
Sent = Callable[[Transaction, Claim, Outcome], After]


class Settled(NamedTuple):
    outcome: Outcome
    entries: list[Numbered]


class Closed(NamedTuple):
    """The entries are to be shown after the commit."""

    entries: list[Numbered]
    after: After


class Settlement:
    def __init__(self, clock: Clock, can: Can) -> None:
        self._clock = clock
        self._can = can
        self._senders: dict[Origin, Sent] = {}

    def report_to(self, origin: Origin, sent: Sent) -> None:
        """Runs with an errand of this origin report there and owe nothing themselves."""
        self._senders[origin] = sent

    def settle(
        self,
        tx: Transaction,
        claimed: Claim,
        outcome: Outcome,
        pending: list[JournalEvent],
        last: int,
        *,
        remembered: bool = True,
    ) -> Settled:
        """A stop that was asked for in time wins over the outcome; raises Fenced when the run is not ours."""
        now, wall = self._clock.now(), self._clock.wall()
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

    def report(self, tx: Transaction, claimed: Claim, outcome: Outcome) -> After | None:
        """Tells whoever sent the run; None where a plain final is owed."""
        if claimed.inbound.errand is None:
            return None
        return self._senders[claimed.inbound.origin](tx, claimed, outcome)

    def close(self, tx: Transaction, claimed: Claim, outcome: Outcome, *, remembered: bool = True) -> Closed:
        """Ends a run that nobody runs, and owes its final."""
        settled = self.settle(tx, claimed, outcome, [], claimed.journalled, remembered=remembered)
        after, target = self.report(tx, claimed, settled.outcome), claimed.inbound.target
        if after is None and self.may_push(target):
            body = answer.body_of(claimed.run, claimed.inbound, settled.outcome)
            # A person who saw it begin is shown how it ends.
            signal = answer.signal_of(settled.outcome) if claimed.attempt else None
            final = Owed(ids.new("dlv"), Class.FINAL, target, body, claimed.run, signal=signal)
            outbox.put(tx, final, self._clock.now())
            after = After((target.lane,))
        return Closed(settled.entries, after or After())

    def may_push(self, target: Target) -> bool:
        """What is owed to an adapter that is no longer configured is held; only a refusal up front is none."""
        abilities = self._can(target)
        return abilities is None or abilities.async_delivery

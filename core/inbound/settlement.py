"""The end of a run, however it ends: outcome, terminal event, memory and what is owed are one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from tidings.core.agent import JournalEvent, Outcome, OutcomeKind
from tidings.core.clock import Clock
from tidings.core.inbound import answer, inbox
from tidings.core.inbound.abilities import Can
from tidings.core.inbound.inbox import Claim
from tidings.core.memory import usage
from tidings.core.outbound import outbox
from tidings.core.outbound.outbox import Owed
from tidings.core.runs import journal
from tidings.core.store.store import Transaction
from tidings.core.types import Body, Origin, Target

# Told of the end of a run that it has sent, in the transaction that ends it.
Sent = Callable[[Transaction, Claim, Outcome], None]


class Ending(NamedTuple):
    """A run that ends, and what the transaction that ends it must know."""

    claimed: Claim
    outcome: Outcome
    # Whether a final is owed to the person; an errand reports to its sender instead.
    owes: bool
    # Events that are not stored yet, and the number of the last one that is.
    pending: Sequence[JournalEvent] = ()
    last: int = 0
    # Whether the exchange becomes part of the conversation's memory.
    remembered: bool = True
    # Whether the person was shown a sign of the run, so that its end is shown, too.
    signals: bool = False
    # The final for this outcome, where it was made before the transaction.
    final: Owed | None = None


class Settled(NamedTuple):
    """`final` must be put in the same transaction; it is None where nothing is owed."""

    outcome: Outcome
    final: Owed | None


class Settlement:
    def __init__(self, clock: Clock, can: Can) -> None:
        self._clock = clock
        self._can = can
        self._senders: dict[Origin, Sent] = {}

    def report_to(self, origin: Origin, sent: Sent) -> None:
        """Runs with an errand of this origin report there and owe nothing themselves."""
        self._senders[origin] = sent

    def settle(self, tx: Transaction, ending: Ending) -> Settled:
        """A stop that was asked for in time wins over the outcome; raises Fenced when the run is not ours."""
        claimed, outcome = ending.claimed, self._close(tx, ending)
        if claimed.inbound.errand is not None:
            self._senders[claimed.inbound.origin](tx, claimed, outcome)
            return Settled(outcome, None)
        final = ending.final if outcome is ending.outcome else None
        final = final or answer.final_of(claimed.run, claimed.inbound, outcome, signals=ending.signals)
        return Settled(outcome, final if ending.owes and final.body != Body() else None)

    def close(self, tx: Transaction, claimed: Claim, outcome: Outcome, *, remembered: bool = True) -> None:
        """Ends a run that nobody runs, and owes its final."""
        # A person who saw it begin is shown how it ends.
        owes, signals = self.may_push(claimed.inbound.target), claimed.attempt > 0
        settled = self.settle(tx, Ending(claimed, outcome, owes, (), claimed.journalled, remembered, signals))
        if settled.final is not None:
            outbox.put(tx, settled.final, self._clock.now())

    def _close(self, tx: Transaction, ending: Ending) -> Outcome:
        """Stores the outcome, the terminal event, the memory and the usage."""
        claimed, outcome = ending.claimed, ending.outcome
        now, wall = self._clock.now(), self._clock.wall()
        asked = inbox.stop_asked(tx, claimed.run)
        if asked is not None and outcome.kind is not OutcomeKind.CANCELLED:
            outcome = msgspec.structs.replace(outcome, kind=OutcomeKind.CANCELLED, reason=f"stopped by {asked}")
        inbox.finish(tx, claimed, outcome, now)
        journal.write(tx, claimed.run, journal.number(ending.last, [*ending.pending, outcome], wall))
        if ending.remembered:
            inbox.keep_memory(tx, claimed, outcome, wall)
        else:
            # It is no exchange that could be tried again.
            tx.execute("UPDATE inbox SET undone = 1 WHERE run = ?", claimed.run)
        if outcome.usage:
            usage.add(tx, claimed.inbound.conversation.id, outcome.usage, wall)
        return outcome

    def may_push(self, target: Target) -> bool:
        """What is owed to an adapter that is no longer configured is held; only a refusal up front is none."""
        abilities = self._can(target)
        return abilities is None or abilities.async_delivery

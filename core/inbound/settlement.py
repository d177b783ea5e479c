"""Settles a run: outcome, terminal event, memory and delivery are stored in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from tidings.core.agent import JournalEvent, Outcome, OutcomeKind
from tidings.core.allowances.allowances import Allowances
from tidings.core.clock import Clock
from tidings.core.inbound import answer, inbox, joining, signs
from tidings.core.inbound.abilities import Can
from tidings.core.inbound.inbox import Claim
from tidings.core.outbound import outbox, signed_messages
from tidings.core.outbound.outbox import Owed
from tidings.core.runs import journal, stops
from tidings.core.store.store import Transaction
from tidings.core.store.wakeups import RunEnded
from tidings.core.types import Body, Origin, Signal, Target

# Called with the end of an errand's run, in the transaction that ends it.
Sent = Callable[[Transaction, Claim, Outcome], None]


class Ending(NamedTuple):
    """A run that ends, with all that its last transaction needs."""

    claimed: Claim
    outcome: Outcome
    # Whether an answer is delivered to the person; an errand reports to its sender instead.
    owes: bool
    # Events not stored yet, the number of the last stored one, and the id of the person that the run works for.
    pending: Sequence[JournalEvent] = ()
    last: int = 0
    person: str = ""
    # Whether the exchange becomes part of the conversation's memory.
    remembered: bool = True
    # Whether the message may carry a sign, so that the end of the run is shown too.
    signals: bool = False
    # The answer for this outcome, if it was built before the transaction.
    final: Owed | None = None
    # Messages that the agent has read since its last checkpoint: a completed answer covers them.
    heard: Sequence[str] = ()


class Settled(NamedTuple):
    """The stored outcome; `final` must be put in the same transaction, and is None if there is no answer."""

    outcome: Outcome
    final: Owed | None


class Settlement:
    def __init__(
        self, clock: Clock, can: Can, senders: Mapping[Origin, Sent], allowances: Allowances | None = None
    ) -> None:
        """A run with an errand reports to the sender of its origin, and owes nothing itself."""
        self._clock = clock
        self._allowances = allowances
        self._can = can
        self._senders = senders

    def settle(self, tx: Transaction, ending: Ending) -> Settled:
        """Settles a run; a stop that was asked for in time overrides the outcome. Raises Fenced if it is not ours."""
        claimed, outcome = ending.claimed, self._close(tx, ending)
        if claimed.inbound.errand is not None:
            self._senders[claimed.inbound.origin](tx, claimed, outcome)
            tx.announce(RunEnded(claimed.run, claimed.inbound.conversation.id))
            return Settled(outcome, None)
        final = ending.final if outcome is ending.outcome else None
        final = final or answer.final_of(claimed.run, claimed.inbound, outcome, signals=ending.signals)
        settled = Settled(outcome, final if ending.owes and final.body != Body() else None)
        sign = self._sign_without_answer(settled, ending)
        targets = (claimed.inbound.target, *signed_messages.targets(tx, claimed.run)) if sign else ()
        tx.announce(RunEnded(claimed.run, claimed.inbound.conversation.id, sign, targets))
        return settled

    def _sign_without_answer(self, settled: Settled, ending: Ending) -> Signal | None:
        """The sign to show at once because no answer will arrive; the courier shows any other when the answer has."""
        abilities = self._can(ending.claimed.inbound.target) if ending.signals else None
        if settled.final is not None or abilities is None or not abilities.reactions:
            return None
        is_silent = abilities.async_delivery and settled.outcome.kind is not OutcomeKind.FAILED
        # Where an answer could have been delivered, there is none on purpose.
        return Signal.NONE if is_silent else answer.signal_of(settled.outcome)

    def close(self, tx: Transaction, claimed: Claim, outcome: Outcome, *, remembered: bool = True) -> None:
        """Ends a run that no task works on, and stores its answer."""
        owes = self.may_push(claimed.inbound.target)
        # A run that another process began may have shown that it was seen.
        signals = signs.may_stand(claimed, self._clock.now()) or (claimed.attempt > 0 and not claimed.inbound.overheard)
        settled = self.settle(
            tx, Ending(claimed, outcome, owes, (), claimed.journalled, remembered=remembered, signals=signals)
        )
        if settled.final is not None:
            outbox.put(tx, settled.final, self._clock.now())

    def cancel(self, tx: Transaction, run: str, reason: str, *, remembered: bool = True) -> bool:
        """Ends a run that still waits; False for any other, which stays as it is."""
        claimed = inbox.waiting_claim(tx, run)
        if claimed is not None:
            self.close(tx, claimed, claimed.ended(OutcomeKind.CANCELLED, reason), remembered=remembered)
        return claimed is not None

    def drop(self, tx: Transaction, run: str, reason: str) -> None:
        """Ends a run that still waits without an answer, and without a trace in the memory."""
        claimed = inbox.waiting_claim(tx, run)
        if claimed is not None:
            outcome = claimed.ended(OutcomeKind.CANCELLED, reason)
            signals = signs.may_stand(claimed, self._clock.now())
            self.settle(
                tx, Ending(claimed, outcome, owes=False, last=claimed.journalled, remembered=False, signals=signals)
            )

    def _close(self, tx: Transaction, ending: Ending) -> Outcome:
        """Stores the outcome, the terminal event, the memory and the usage."""
        claimed, outcome = ending.claimed, ending.outcome
        now, wall = self._clock.now(), self._clock.wall()
        if outcome.usage is None and claimed.used is not None:
            # A run that is ended from outside has used what its last checkpoint says.
            outcome = msgspec.structs.replace(outcome, usage=claimed.used)
        asked, reservation = inbox.stop_and_reservation(tx, claimed.run)
        if asked is not None and outcome.kind is not OutcomeKind.CANCELLED:
            outcome = msgspec.structs.replace(outcome, kind=OutcomeKind.CANCELLED, reason=stops.reason(asked))
        if ending.heard and outcome.kind is OutcomeKind.COMPLETED:
            joining.contain(tx, claimed.run, claimed.fence, ending.heard)
            claimed = claimed._replace(followed=True)
        inbox.finish(tx, claimed, outcome, now)
        entries = journal.number(ending.last, [*ending.pending, outcome], wall)
        journal.write(tx, claimed.run, entries, ending.person)
        if ending.remembered:
            inbox.keep_memory(tx, claimed, outcome, wall)
        else:
            # This exchange cannot be retried.
            tx.execute("UPDATE inbox SET undone = 1 WHERE run = ?", claimed.run)
        if self._allowances and (claimed.attempt or reservation):
            self._allowances.settle(tx, claimed.inbound, reservation, outcome)
        return outcome

    def loosen(self, tx: Transaction, run: str) -> None:
        """Lets a run that waits, for people or for another run, hold no more of the allowances than it has used."""
        reservation, used = inbox.reservation_at_work(tx, run)
        if self._allowances and reservation:
            inbox.keep_reservation(tx, run, self._allowances.loosen(tx, reservation, used))

    def can_push(self, target: Target) -> bool:
        """Tells whether a configured adapter can send messages there."""
        abilities = self._can(target)
        return abilities is not None and abilities.async_delivery

    def has_buttons(self, target: Target) -> bool:
        abilities = self._can(target)
        return abilities is not None and abilities.buttons

    def can_edit(self, target: Target) -> bool:
        """Tells whether a message there can be changed after it was sent."""
        abilities = self._can(target)
        return abilities is not None and abilities.streaming_edits

    def may_push(self, target: Target) -> bool:
        """Tells whether a target can get messages; for an adapter that is not configured, they are stored and held."""
        abilities = self._can(target)
        return abilities is None or abilities.async_delivery

"""Asks people whether a tool call may run: finds where somebody can answer, and stores and delivers the question."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tidings.core import ids
from tidings.core.agent import (
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalRequested,
    JournalEvent,
    Outcome,
    OutcomeKind,
)
from tidings.core.clock import Clock
from tidings.core.desk.approvals import Answer, Choice
from tidings.core.desk.people import Scope
from tidings.core.inbound import approval_rows, inbox, questions
from tidings.core.inbound.approval_rows import Decision, NewQuestion
from tidings.core.inbound.inbox import Claim
from tidings.core.inbound.settlement import Settlement
from tidings.core.outbound import homes, outbox
from tidings.core.outbound.outbox import Class, Owed
from tidings.core.people.people import People
from tidings.core.roles import OWNER, Permission, Person, Role
from tidings.core.runs import journal, stops
from tidings.core.settings import Approvals as ApprovalSettings
from tidings.core.store import wakeups
from tidings.core.store.store import Row, Transaction
from tidings.core.types import Body, Inbound, Target, is_passing


class Place(NamedTuple):
    """Where a question is asked."""

    target: Target
    # Whether it stands in the conversation that it is about.
    here: bool


class Asked(NamedTuple):
    """A run that asks, with all that its transaction needs."""

    claimed: Claim
    event: ApprovalAsked
    bot: str
    # How the run ends if it was stopped meanwhile.
    so_far: Outcome
    # Events not stored yet, the number of the last stored one, and the id of the person that the run works for.
    pending: Sequence[JournalEvent]
    last: int
    person: str


class Asking:
    def __init__(
        self,
        clock: Clock,
        settings: ApprovalSettings,
        people: People,
        settlement: Settlement,
        owner: Target | None,
        is_down: Callable[[str], bool],
    ) -> None:
        """`owner` is where the owner is asked if there is no home chat."""
        self._clock = clock
        self._settings = settings
        self._people = people
        self._settlement = settlement
        self._owner = owner
        self._is_down = is_down

    def renew(self, settings: ApprovalSettings) -> None:
        """Applies new settings to questions that are asked from now on."""
        self._settings = settings

    def ask(self, tx: Transaction, asked: Asked) -> None:
        """Stores the question of a run and lets the run wait; a run that needs no answer goes on at once.

        A run that was stopped meanwhile ends instead.
        """
        claimed = asked.claimed
        stop = inbox.stop_asked(tx, claimed.run)
        if stop is not None:
            self._write(tx, asked, ())
            ended = claimed._replace(journalled=asked.last + len(asked.pending))
            self._settlement.close(tx, ended, _cancelled(asked.so_far, stops.reason(stop)))
            inbox.announce_next(tx, claimed.inbound.conversation.id)
            return
        person, now = self._people.of_asker(claimed.inbound.asker), self._clock.now()
        place = self._place(tx, claimed.inbound, person)
        new = NewQuestion(
            id=ids.new("ask"),
            run=claimed.run,
            bot=asked.bot,
            conversation=claimed.inbound.conversation.id,
            generation=claimed.generation,
            event=asked.event,
            choices=_choices(asked.event, claimed.inbound, person, place),
            person=person,
            asked=now,
            deadline=now + self._patience(claimed.inbound),
        )
        decision = self._decided_already(tx, new, claimed.inbound, person, place)
        if decision is not None:
            self._write(tx, asked, (answer_event(new.id, asked.event.call, decision),))
            approval_rows.add(tx, new, decision)
            inbox.go_on(tx, claimed.run, new.conversation)
            return
        requested = ApprovalRequested(
            *(new.id, asked.event.call, asked.event.tool, asked.event.detail, new.choices),
            expires=new.deadline + self._clock.ahead,
            read=asked.event.read,
        )
        self._write(tx, asked, (requested,))
        if place is not None:
            new = new._replace(delivery=ids.new("dlv"), target=place.target)
        approval_rows.add(tx, new)
        inbox.let_ask(tx, claimed, new.id)
        self._settlement.loosen(tx, claimed.run)
        if place is not None:
            self._deliver(tx, new, claimed.inbound, place)
        tx.announce(wakeups.QuestionAsked(new.deadline))

    def _write(self, tx: Transaction, asked: Asked, events: Sequence[JournalEvent]) -> None:
        entries = journal.number(asked.last, [*asked.pending, *events], self._clock.wall())
        journal.check_fence(tx, asked.claimed.run, asked.claimed.fence)
        if entries:
            journal.write(tx, asked.claimed.run, entries, asked.person)

    def _patience(self, inbound: Inbound) -> float:
        minutes = self._settings.minutes * 60
        return min(minutes, self._settings.api_seconds) if inbound.impatient else minutes

    def _decided_already(
        self, tx: Transaction, new: NewQuestion, inbound: Inbound, person: Person, place: Place | None
    ) -> Decision | None:
        """A decision that needs nobody: a standing approval covers the call, or nobody can be asked."""
        for row in approval_rows.covering(tx, new, self._clock.now()):
            if self._still_holds(row):
                choice = Choice.TALK if row["conversation"] else Choice.ALWAYS
                return Decision(Answer.GRANTED, choice, row["giver"])
        if len(new.event.detail) > questions.LONGEST_DETAIL:
            return Decision(Answer.DENIED, reason=questions.TOO_LONG)
        if place is None and not self._client_may_answer(inbound, person):
            return Decision(Answer.DENIED, reason=questions.UNREACHABLE)
        return None

    def _still_holds(self, row: Row) -> bool:
        """Tells whether the person who gave a standing approval may still give it."""
        needed = Permission.APPROVE if row["conversation"] else Permission.OPERATE
        return self._people.may(self._people.with_id(row["person"]), needed)

    def _place(self, tx: Transaction, inbound: Inbound, person: Person) -> Place | None:
        """Where somebody can answer: in the conversation if its person may, else at the home of the owner."""
        asker = inbound.asker
        places = [inbound.target, *([asker.target] if asker and inbound.errand else [])]
        if self._people.may(person, Permission.APPROVE):
            for target in places:
                if self._settlement.can_push(target):
                    return Place(target, here=True)
        home = homes.elsewhere(tx, "", self._owner, self._is_down)
        return Place(home, here=False) if home else None

    def _client_may_answer(self, inbound: Inbound, person: Person) -> bool:
        """Tells whether the client that follows the run can answer by a request of its own."""
        key = self._people.key(inbound.sender.key)
        # The key in the gateway's home is the owner's, and no row.
        has_scope = inbound.sender.key == OWNER.id or (key is not None and key.may(Scope.APPROVE))
        return has_scope and self._people.may(person, Permission.APPROVE)

    def _deliver(self, tx: Transaction, new: NewQuestion, inbound: Inbound, place: Place) -> None:
        now, row = self._clock.now(), approval_rows.get(tx, new.id)
        assert row is not None, "the question was just stored"
        question = approval_rows.question_of(row, self._clock.ahead)
        body = questions.body_of(question, buttons=self._settlement.has_buttons(place.target), here=place.here)
        editable = self._settlement.can_edit(place.target)
        outbox.put(
            tx,
            Owed(new.delivery, Class.REPLY, place.target, body, None, "question", new.id, editable=editable),
            now,
        )
        if not place.here and inbound.errand is None and self._settlement.can_push(inbound.target):
            told = Body(text=questions.ELSEWHERE)
            outbox.put(tx, Owed(ids.new("dlv"), Class.NOTICE, inbound.target, told, None, f"told of {new.id}"), now)

    def tell_waiting(self, tx: Transaction, inbound: Inbound) -> None:
        """Tells a person once that their message waits for somebody's answer."""
        id = inbox.question_of(tx, inbound.conversation.id)
        row = approval_rows.get(tx, id) if id else None
        if row is None or not self._settlement.can_push(inbound.target):
            return
        if inbox.stop_asked(tx, row["run"]) is not None:
            # The message has withdrawn the question.
            return
        here = row["target"] is not None and approval_rows.target_of(row).lane == inbound.target.lane
        text = questions.NEXT_HERE if here else questions.NEXT_ELSEWHERE
        notice = Owed(ids.new("dlv"), Class.NOTICE, inbound.target, Body(text=text), None, f"{id} {inbound.sender.id}")
        outbox.put_notice(tx, notice, self._clock.now(), every=self._settings.minutes * 60)


def _choices(event: ApprovalAsked, inbound: Inbound, person: Person, place: Place | None) -> tuple[Choice, ...]:
    """What may be answered; an approval for always is offered only where an owner is asked."""
    choices = [Choice.ONCE]
    if event.covers and not is_passing(inbound.conversation.id):
        choices.append(Choice.TALK)
    if event.covers and (person.role is Role.OWNER or (place is not None and not place.here)):
        choices.append(Choice.ALWAYS)
    return (*choices, Choice.DENY)


def answer_event(id: str, call: str, decision: Decision) -> ApprovalAnswered:
    return ApprovalAnswered(id, call, decision.granted, decision.choice, decision.by, decision.reason)


def _cancelled(so_far: Outcome, reason: str) -> Outcome:
    return Outcome(OutcomeKind.CANCELLED, reason, so_far.text, so_far.usage, so_far.files)

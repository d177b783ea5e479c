"""Approvals: stores one answer to each question whether a tool call may run, and lets the run go on with it."""

from __future__ import annotations

import logging
from typing import NamedTuple

import msgspec

from tidings.core import ids
from tidings.core.agent import (
    OutcomeKind,
)
from tidings.core.background import Background
from tidings.core.clock import Timer
from tidings.core.desk.approvals import Answer, Choice, Question, Standing
from tidings.core.errors import Conflict, NotPermitted, Unknown
from tidings.core.failpoints import fail_here
from tidings.core.inbound import approval_rows, inbox, questions
from tidings.core.inbound.affording import Affording
from tidings.core.inbound.approval_rows import Decision
from tidings.core.inbound.asking import Asking, answer_event
from tidings.core.inbound.settlement import Settlement
from tidings.core.outbound import outbox
from tidings.core.outbound.outbox import Class, Owed
from tidings.core.part import Part
from tidings.core.people import audit
from tidings.core.people.people import People
from tidings.core.roles import Permission, Person
from tidings.core.runs import journal, stops
from tidings.core.settings import Approvals as ApprovalSettings
from tidings.core.store import wakeups
from tidings.core.store.essentials import Essentials
from tidings.core.store.store import Row, Transaction
from tidings.core.types import Inbound, Target

log = logging.getLogger(__name__)

# How many questions expire in one transaction.
AT_ONCE = 100
# How many waiting runs are looked at between two turns of others.
PAGE = 200
LISTED = 200
# Two questions never begin alike in so many characters, but a person may write fewer.
SEVERAL = "several questions begin like that; write more of the id"
NOT_YOURS = "only an owner or admin can answer this"
ONLY_OWNERS = "only an owner can approve something for always"
INTERRUPTED = "interrupted by a restart"


class Endings(NamedTuple):
    """How a run leaves its task: settled with an outcome, or waiting for an answer; and which one never starts."""

    settlement: Settlement
    asking: Asking
    approvals: Approvals
    affording: Affording


class Approvals(Part):
    def __init__(
        self,
        essentials: Essentials,
        settings: ApprovalSettings,
        people: People,
        settlement: Settlement,
    ) -> None:
        self._store = essentials.store
        self._clock = essentials.clock
        self._settings = settings
        self._people = people
        self._settlement = settlement
        # One timer for all questions, at the earliest deadline.
        self._timer: Timer | None = None
        self._due = 0.0
        self._people_changed = False
        self._stopped = True
        self._background = Background(log, "questions could not be looked after")
        self._store.wakeups.subscribe(wakeups.QuestionAsked, lambda due: self._look_at(due.at))
        self._store.wakeups.subscribe(wakeups.StopAsked, lambda due: self._begin_ending())
        people.subscribe(self._begin_lapsing)

    def renew(self, settings: ApprovalSettings) -> None:
        """Applies new settings to answers that are given from now on."""
        self._settings = settings

    async def recover(self) -> None:
        """Ends runs whose client was cut off while they waited for an answer, and those that were asked to stop."""
        for run in await self._store.insist(inbox.asking_attended):
            await self._store.insist(lambda tx, run=run: self._end(tx, run, OutcomeKind.FAILED, INTERRUPTED))  # type: ignore[misc]
        await self._end_stopped()

    async def start(self) -> None:
        self._stopped = False
        self._begin_lapsing()
        await self.sweep()

    async def sweep(self) -> None:
        await self._end_stopped()
        await self._expire()

    def pause(self) -> None:
        self._stopped = True
        if self._timer:
            self._timer.cancel()
            self._timer = None

    async def stop(self, patience: float) -> None:
        self.pause()
        await self._background.close()

    # Answering.

    def press(self, tx: Transaction, press: Inbound) -> Question:
        """Answers by a button. Raises as `answer_in` does; a button of a question that stands elsewhere is unknown."""
        id, _, what = press.choice.partition("/")
        row = approval_rows.get(tx, id)
        if row is None or what not in set(Choice) or not _stands_in(row, press.target):
            raise Unknown("this question is not known")
        # Whoever presses has the question before their eyes, so a refusal reveals nothing.
        return self._answer(tx, self._people.find(press), row, Choice(what))

    def answer_in(self, tx: Transaction, by: Person, id: str, choice: Choice, reason: str = "") -> Question:
        """Answers a question inside a transaction.

        Raises Unknown, NotPermitted for a person who may not answer it, and Conflict for a question that is over.
        """
        found = approval_rows.find(tx, id)
        if len(found) > 1:
            raise Unknown(SEVERAL)
        row = found[0] if found else None
        if row is None or not self._may_see(tx, by, row):
            raise Unknown("there is no such question")
        return self._answer(tx, by, row, choice, reason)

    def _answer(self, tx: Transaction, by: Person, row: Row, choice: Choice, reason: str = "") -> Question:
        if row["state"] != Answer.OPEN:
            raise Conflict(questions.ended(self._question(row)))
        self._check(tx, by, row, choice)
        granted = choice is not Choice.DENY
        denied = f"{by.label} denied it" + (f": {reason}" if reason else "")
        decision = Decision(Answer.GRANTED if granted else Answer.DENIED, choice, by.label, "" if granted else denied)
        if choice in (Choice.TALK, Choice.ALWAYS):
            everywhere = choice is Choice.ALWAYS
            lasts = self._settings.always_days * 86_400 if everywhere else self._settings.talk_minutes * 60
            approval_rows.let_stand(tx, row, by, everywhere=everywhere, expires=self._clock.now() + lasts)
        audit.write(tx, by.id, "approved" if granted else "denied", row["tool"], self._clock.wall(), row["id"])
        return self._decide(tx, row, decision)

    def _check(self, tx: Transaction, by: Person, row: Row, choice: Choice) -> None:
        if not self._may_answer(tx, by, row):
            raise NotPermitted(NOT_YOURS)
        if choice is Choice.ALWAYS and not self._people.may(by, Permission.OPERATE):
            raise NotPermitted(ONLY_OWNERS)
        if choice not in row["choices"].split() and not (choice is Choice.ALWAYS and row["covers"]):
            raise NotPermitted(f"this can be answered with {row['choices'].replace(' ', ', ')}")

    def _may_answer(self, tx: Transaction, by: Person, row: Row) -> bool:
        if self._people.may(by, Permission.APPROVE_OTHERS):
            return True
        return self._people.may(by, Permission.APPROVE) and self._is_own(tx, by, row)

    def _may_see(self, tx: Transaction, by: Person, row: Row) -> bool:
        return self._people.may(by, Permission.APPROVE_OTHERS) or self._is_own(tx, by, row) or _is_in_group(row)

    def _is_own(self, tx: Transaction, by: Person, row: Row) -> bool:
        message = inbox.find_message(tx, row["run"])
        return message is not None and self._people.is_own(message.asker, by)

    def _decide(self, tx: Transaction, row: Row, decision: Decision, *, goes_on: bool = True) -> Question:
        """Ends an open question: its message is changed, and its run goes on with the verdict."""
        now = self._clock.now()
        if not approval_rows.decide(tx, row["id"], decision, now):
            raise Conflict("this question is already over")
        fail_here("approval.decided")
        if goes_on:
            answered = answer_event(row["id"], row["call"], decision)
            entries = journal.number(journal.last(tx, row["run"]), [answered], self._clock.wall())
            journal.write(tx, row["run"], entries, row["person"])
            inbox.go_on(tx, row["run"], row["conversation"])
        after = approval_rows.get(tx, row["id"])
        assert after is not None, "the question was just changed"
        question = self._question(after)
        if row["delivery"]:
            self._replace(tx, row, question, now)
        return question

    def _replace(self, tx: Transaction, row: Row, question: Question, now: float) -> None:
        """Changes the message of a question to how it ended; a question that was never sent is withdrawn."""
        outbox.withdraw(tx, row["id"], now)
        if outbox.is_withdrawn(tx, row["delivery"]):
            return
        target, body = approval_rows.target_of(row), questions.ended_body(question)
        ended = Owed(ids.new("dlv"), Class.REPLY, target, body, None, "question", replaces=row["delivery"])
        outbox.put(tx, ended, now)

    def is_told_in(self, tx: Transaction, id: str, target: Target) -> bool:
        """Tells whether this chat gets a new message that says how the question ended, so that no other is needed."""
        row = approval_rows.get(tx, id)
        asked_here = row is not None and row["target"] is not None and _stands_in(row, target)
        return asked_here and not self._settlement.can_edit(target)

    # Ending without an answer.

    def _look_at(self, deadline: float) -> None:
        """Sets the one timer to the earliest deadline; the sweep finds a deadline that was missed."""
        if self._stopped or (self._timer and self._due <= deadline):
            return
        if self._timer:
            self._timer.cancel()
        self._due = deadline
        self._timer = self._clock.call_later(max(deadline - self._clock.now(), 0.0), self._begin_expiring)

    def _begin_expiring(self) -> None:
        self._timer = None
        if "expiry" not in self._background:
            self._background.begin(self._expire(), key="expiry")

    async def _expire(self) -> None:
        """Expired questions are denials that the model sees; with an unconfirmed clock, nothing expires."""
        if not self._clock.confirmed:
            return
        while not self._stopped and await self._store.insist(self._expire_some) == AT_ONCE:
            continue
        if (earliest := await self._store.insist(approval_rows.next_deadline)) is not None:
            self._look_at(earliest)

    def _expire_some(self, tx: Transaction) -> int:
        now = self._clock.now()
        approval_rows.purge(tx, now)
        due = approval_rows.due(tx, now, AT_ONCE)
        for row in due:
            waited = row["deadline"] - row["asked"]
            told = f"{waited / 60:g} minutes" if waited >= 120 else f"{waited:g} seconds"
            self._decide(tx, row, Decision(Answer.EXPIRED, reason=f"nobody answered within {told}"))
        return len(due)

    def _begin_ending(self) -> None:
        if not self._stopped:
            self._background.begin(self._end_stopped())

    async def _end_stopped(self) -> None:
        """Ends runs that were asked to stop while they waited for an answer, or for their turn after one."""
        for run, by in await self._store.insist(inbox.asking_to_stop):
            await self._store.insist(
                lambda tx, run=run, by=by: self._end(tx, run, OutcomeKind.CANCELLED, stops.reason(by))  # type: ignore[misc]
            )

    def _begin_lapsing(self) -> None:
        """Looks at every waiting run once after a change of people; changes during that lead to one more look."""
        self._people_changed = True
        if not self._stopped and "lapsed" not in self._background:
            self._background.begin(self._end_lapsed(), key="lapsed")

    async def _end_lapsed(self) -> None:
        """Ends waiting runs of people who may no longer talk; page by page, so that nothing else waits for long."""
        while self._people_changed and not self._stopped:
            self._people_changed, after = False, 0
            while page := await self._store.insist(lambda tx, after=after: inbox.asking_page(tx, after, PAGE)):  # type: ignore[misc]
                after = page[-1]["seq"]
                for row in page:
                    asker = msgspec.json.decode(row["message"], type=Inbound).asker
                    if reason := self._people.lapsed(asker):
                        await self._store.insist(
                            lambda tx, run=row["run"], reason=reason: self._end(  # type: ignore[misc]
                                tx, run, OutcomeKind.CANCELLED, reason
                            )
                        )

    def _end(self, tx: Transaction, run: str, kind: OutcomeKind, reason: str) -> None:
        """Ends a run that waits for an answer, or for its turn after one, and withdraws an open question."""
        claimed = inbox.asking_claim(tx, run) or inbox.waiting_claim(tx, run)
        if claimed is None:
            return
        row = approval_rows.open_of_run(tx, run)
        self._settlement.close(tx, claimed, claimed.ended(kind, reason))
        if row is not None:
            self._decide(tx, row, Decision(Answer.WITHDRAWN), goes_on=False)
        inbox.announce_next(tx, claimed.inbound.conversation.id)

    # The desk.

    async def open(self, by: Person) -> list[Question]:
        return await self._store.read(lambda tx: self.open_in(tx, by))

    def open_in(self, tx: Transaction, by: Person) -> list[Question]:
        whose = "" if self._people.may(by, Permission.APPROVE_OTHERS) else by.id
        return [self._question(row) for row in approval_rows.open_page(tx, whose, LISTED)]

    async def get(self, by: Person, id: str) -> Question:
        def unit(tx: Transaction) -> Question:
            row = approval_rows.get(tx, id)
            if row is None or not self._may_see(tx, by, row):
                raise Unknown("there is no such question")
            return self._question(row)

        return await self._store.read(unit)

    async def of_run(self, run: str) -> Question | None:
        row = await self._store.read(lambda tx: approval_rows.open_of_run(tx, run))
        return self._question(row) if row else None

    async def answer(self, by: Person, id: str, choice: Choice, reason: str = "") -> Question:
        return await self._store.write(lambda tx: self.answer_in(tx, by, id, choice, reason))

    async def standing(self, by: Person) -> list[Standing]:
        return await self._store.read(lambda tx: self.standing_in(tx, by))

    def standing_in(self, tx: Transaction, by: Person) -> list[Standing]:
        whose = "" if self._people.may(by, Permission.APPROVE_OTHERS) else by.id
        rows = approval_rows.standing(tx, whose, self._clock.now())
        return [approval_rows.standing_of(row, self._clock.ahead) for row in rows]

    async def revoke(self, by: Person, id: str) -> None:
        await self._store.write(lambda tx: self.revoke_in(tx, by, id))

    def revoke_in(self, tx: Transaction, by: Person, id: str) -> Standing:
        wanted = id.removeprefix("sta_")
        own = self.standing_in(tx, by)
        found = [each for each in own if wanted and each.id.removeprefix("sta_").startswith(wanted)]
        if len(found) != 1:
            raise Unknown("there is no such standing approval" if not found else SEVERAL)
        approval_rows.revoke(tx, found[0].id)
        audit.write(tx, by.id, "approval revoked", found[0].tool, self._clock.wall(), found[0].id)
        return found[0]

    def _question(self, row: Row) -> Question:
        return approval_rows.question_of(row, self._clock.ahead)


def _stands_in(row: Row, target: Target) -> bool:
    """Tells whether the question was asked in this chat, so that its buttons are there."""
    if row["target"] is None:
        return False
    asked = approval_rows.target_of(row)
    return (asked.at, asked.chat) == (target.at, target.chat)


def _is_in_group(row: Row) -> bool:
    """Tells whether others read the question too, so that nothing is revealed by refusing them."""
    return row["target"] is not None and approval_rows.target_of(row).audience != "private"

"""Seeded bugs in approvals: who may answer, how often, for what, and what becomes of the run and of its place."""

from __future__ import annotations

from tests.chaos.mutation_seams import swap
from tidings.core.agent import OutcomeKind, ToolStarted
from tidings.core.desk.approvals import Answer, Choice, Question
from tidings.core.desk.runs import Numbered
from tidings.core.errors import Unknown
from tidings.core.inbound import approval_rows, approvals, inbox, recovery
from tidings.core.inbound.approval_rows import Decision, NewQuestion
from tidings.core.inbound.approvals import Approvals
from tidings.core.inbound.inbox import Claim
from tidings.core.inbound.slots import Slot
from tidings.core.roles import Person
from tidings.core.runs import transcript
from tidings.core.runs.transcript import Said
from tidings.core.store.store import Row, Transaction
from tidings.core.types import Inbound, Target


def anybody_presses() -> None:
    """D5: whoever sees the button may press it."""

    def press(self: Approvals, tx: Transaction, press: Inbound) -> Question:
        id, _, what = press.choice.partition("/")
        row = approval_rows.get(tx, id)
        if row is None or what not in set(Choice):
            raise Unknown("this question is not known")
        return _answer_unchecked(self, tx, row, self._people.find(press), Choice(what))

    swap(Approvals, "press", press)


def anybody_approves_by_command() -> None:
    """The buttons are guarded, the command is not."""

    def answer_in(self: Approvals, tx: Transaction, by: Person, id: str, choice: Choice, reason: str = "") -> Question:
        (row,) = approval_rows.find(tx, id)
        return _answer_unchecked(self, tx, row, by, choice)

    swap(Approvals, "answer_in", answer_in)


def _answer_unchecked(self: Approvals, tx: Transaction, row: Row, by: Person, choice: Choice) -> Question:
    state = Answer.DENIED if choice is Choice.DENY else Answer.GRANTED
    return self._decide(tx, row, Decision(state, choice, by.label))


def verdict_applied_twice() -> None:
    """A run that was cut off behind its tool may run again: its approval is still there."""

    def _unknown_tool(entries: list[Numbered], checkpoint_after: int) -> ToolStarted | None:
        return None

    swap(recovery, "_unknown_tool", _unknown_tool)


def expiry_leaves_the_run() -> None:
    """The question is closed, and whoever waits for it waits for ever."""
    real = Approvals._decide

    def _decide(self: Approvals, tx: Transaction, row: Row, decision: Decision, *, goes_on: bool = True) -> Question:
        return real(self, tx, row, decision, goes_on=goes_on and decision.state is not Answer.EXPIRED)

    swap(Approvals, "_decide", _decide)


def recovery_runs_what_asks() -> None:
    """After a kill every open run is taken for one that was cut off."""

    def open_runs(tx: Transaction) -> list[str]:
        return [row["run"] for row in tx.all("SELECT run FROM inbox WHERE state = 'running' ORDER BY seq")]

    swap(inbox, "open_runs", open_runs)


def stop_leaves_the_question() -> None:
    """The run ends, and its buttons stay."""
    real = Approvals._end

    def _end(self: Approvals, tx: Transaction, run: str, kind: OutcomeKind, reason: str) -> None:
        claimed = inbox.asking_claim(tx, run)
        if claimed is None:
            real(self, tx, run, kind, reason)
        else:
            self._settlement.close(tx, claimed, claimed.ended(kind, reason))

    swap(Approvals, "_end", _end)


def answered_again() -> None:
    """The last answer counts."""
    real = approval_rows.decide

    def decide(tx: Transaction, id: str, decision: Decision, now: float) -> bool:
        tx.execute("UPDATE approvals SET state = 'open' WHERE id = ?", id)
        return real(tx, id, decision, now)

    def _answer(self: Approvals, tx: Transaction, by: Person, row: Row, choice: Choice, reason: str = "") -> Question:
        return answer(self, tx, by, {**dict(row), "state": "open"}, choice, reason)  # type: ignore[arg-type]

    answer = Approvals._answer
    swap(approval_rows, "decide", decide)
    swap(Approvals, "_answer", _answer)


def approval_covers_other_words() -> None:
    """For this talk means the tool, whatever it is to do."""

    def covering(tx: Transaction, new: NewQuestion, now: float) -> list[Row]:
        return tx.all(
            "SELECT * FROM standing_approvals WHERE tool = ? AND conversation = ?",
            *(new.event.tool, new.conversation),
        )

    swap(approval_rows, "covering", covering)


def buttons_work_everywhere() -> None:
    """The data of a button is all that counts, wherever it comes from."""

    def _stands_in(row: Row, target: Target) -> bool:
        return True

    swap(approvals, "_stands_in", _stands_in)


def goes_on_with_its_words_lost() -> None:
    """Going on begins the answer anew, so that what was said before is gone from it."""
    real = transcript.said

    def said(tx: Transaction, run: str) -> Said:
        return real(tx, run)._replace(text="")

    swap(transcript, "said", said)


def asking_holds_a_slot() -> None:
    """E9: whoever waits for an answer keeps others waiting."""
    let_ask, give_back = inbox.let_ask, Slot.give_back
    held: list[str] = []

    def asks(tx: Transaction, claimed: Claim, question: str) -> None:
        let_ask(tx, claimed, question)
        held.append(claimed.run)

    def keep(self: Slot) -> None:
        if held:
            held.pop()
        else:
            give_back(self)

    swap(inbox, "let_ask", asks)
    swap(Slot, "give_back", keep)


def deadline_by_a_doubted_clock() -> None:
    """A machine that woke up with a wrong date denies what nobody had time to answer."""

    async def _expire(self: Approvals) -> None:
        while await self._store.insist(self._expire_some) >= approvals.AT_ONCE:
            pass

    swap(Approvals, "_expire", _expire)


def stop_is_not_heard_after_the_approval() -> None:
    """Who approves and thinks again is told that nothing is running."""

    def going_on(tx: Transaction, conversation: str) -> str | None:
        return None

    swap(inbox, "going_on", going_on)


def standing_approval_outlives_its_run() -> None:
    """What was forgotten stands in the list of approvals."""

    def forget(tx: Transaction, run: str) -> None:
        approval_rows.erase(tx, run)

    swap(approval_rows, "forget", forget)

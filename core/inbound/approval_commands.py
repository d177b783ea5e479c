"""The commands /approve, /deny and /approvals: answers by words to questions whether a tool call may run."""

from __future__ import annotations

from tidings.core.desk.approvals import Choice, Standing
from tidings.core.errors import Conflict, Unkeepable, Unknown
from tidings.core.inbound import inbox, questions
from tidings.core.inbound.approval_rows import SHORT
from tidings.core.inbound.approvals import Approvals
from tidings.core.inbound.commands import Command, Obeyed
from tidings.core.people.people import People
from tidings.core.redaction import one_line
from tidings.core.roles import Permission
from tidings.core.store.store import Transaction
from tidings.core.types import Audience, Inbound

NOTHING_OPEN = "No question is open here. /approvals lists the questions that you can answer."
IN_PRIVATE = "Please send me /approvals in a private chat: the list is not for everyone who reads this group."
REASON_CHARACTERS = 300
HELP = "/approvals – open questions and standing approvals; /approvals revoke ID ends a standing one."


class ApprovalCommands:
    def __init__(self, approvals: Approvals, people: People) -> None:
        self._approvals = approvals
        self._people = people

    def commands(self) -> tuple[Command, ...]:
        return (
            Command("approve", "let a tool run: /approve ID, or /approve ID talk", self._approve, Permission.APPROVE),
            Command(
                "deny", "do not let a tool run: /deny ID, with a reason if you like", self._deny, Permission.APPROVE
            ),
            Command("approvals", "questions that wait for an answer", self._list, Permission.APPROVE),
        )

    def _approve(self, tx: Transaction, inbound: Inbound) -> Obeyed:
        words = inbound.argument.split()
        choice = Choice.ONCE
        if words and (named := _choice_of(words[-1])):
            choice, words = named, words[:-1]
        return self._answer(tx, inbound, " ".join(words), choice)

    def _deny(self, tx: Transaction, inbound: Inbound) -> Obeyed:
        id, _, reason = inbound.argument.partition(" ")
        if not _is_id(id):
            id, reason = "", inbound.argument
        return self._answer(tx, inbound, id, Choice.DENY, one_line(reason)[:REASON_CHARACTERS])

    def _answer(self, tx: Transaction, inbound: Inbound, id: str, choice: Choice, reason: str = "") -> Obeyed:
        """Without an id, the question that this conversation waits for is meant."""
        id = id or inbox.question_of(tx, inbound.conversation.id)
        if not id:
            return Obeyed(NOTHING_OPEN)
        try:
            question = self._approvals.answer_in(tx, self._people.find(inbound), id, choice, reason)
        except (Unknown, Unkeepable, Conflict) as error:
            return Obeyed(_sentence(error))
        if self._approvals.is_told_in(tx, question.id, inbound.target):
            return Obeyed()
        return Obeyed(f"{questions.ended(question)} ({question.tool})")

    def _list(self, tx: Transaction, inbound: Inbound) -> Obeyed:
        by, words = self._people.find(inbound), inbound.argument.split()
        if inbound.target.audience is Audience.GROUP and not words:
            return Obeyed(IN_PRIVATE)
        match words:
            case []:
                asked = [questions.line_of(each) for each in self._approvals.open_in(tx, by)]
                standing = [_standing_line(each) for each in self._approvals.standing_in(tx, by)]
                return Obeyed("\n".join(_parts(asked, standing)))
            case ["revoke", id]:
                try:
                    revoked = self._approvals.revoke_in(tx, by, id)
                except Unknown as error:
                    return Obeyed(_sentence(error))
                return Obeyed(f"I will ask again before {revoked.tool} runs: {revoked.covers}")
            case _:
                return Obeyed(HELP)


def _parts(asked: list[str], standing: list[str]) -> list[str]:
    lines = ["Waiting for an answer:", *asked] if asked else ["No question waits for an answer."]
    if asked:
        lines.append("Answer with /approve ID or /deny ID.")
    if standing:
        lines += ["Approved for longer:", *standing, "/approvals revoke ID ends one."]
    return lines


def _standing_line(standing: Standing) -> str:
    where = f"in {standing.conversation}" if standing.conversation else "everywhere"
    id = standing.id.removeprefix("sta_")[:6]
    return f"{id} · {standing.tool}: {one_line(standing.covers)} · {where} · by {standing.by}"


def _is_id(word: str) -> bool:
    """Tells whether a word can be the id of a question, rather than the beginning of a reason."""
    bare = word.removeprefix(questions.PREFIX)
    return len(bare) >= SHORT and all(each in "0123456789abcdef" for each in bare)


def _choice_of(word: str) -> Choice | None:
    named = {"once": Choice.ONCE, "talk": Choice.TALK, "session": Choice.TALK, "always": Choice.ALWAYS}
    return named.get(word.lower())


def _sentence(error: Exception) -> str:
    words = str(error)
    return f"{words[0].upper()}{words[1:].rstrip('.')}."

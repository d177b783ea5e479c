"""Requests about approvals: questions whether a tool call may run, their answers, and standing approvals."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

import msgspec

from tidings.core.roles import Person


class Choice(StrEnum):
    """How a person answers the question whether a tool call may run."""

    ONCE = "once"
    # The same call may run again in this talk, for a while.
    TALK = "talk"
    # The same call may run again for this bot anywhere, for a longer while; only for owners.
    ALWAYS = "always"
    DENY = "deny"


class Answer(StrEnum):
    """What has become of a question."""

    OPEN = "open"
    GRANTED = "granted"
    DENIED = "denied"
    # Nobody answered in time, which is a denial.
    EXPIRED = "expired"
    # The run ended before anybody answered.
    WITHDRAWN = "withdrawn"


class Question(msgspec.Struct, frozen=True):
    """A stored question whether one tool call may run; times are by the wall clock."""

    id: str
    run: str
    # The name of the bot that wants to run the tool.
    bot: str
    conversation: str
    tool: str
    # What will run, redacted.
    detail: str
    choices: tuple[Choice, ...]
    asked: float
    expires: float
    # The person that the run works for, as words and as id.
    asker: str
    person: str
    # Texts of others that the run has read.
    read: tuple[str, ...] = ()
    state: Answer = Answer.OPEN
    choice: Choice | None = None
    # Who decided, in words, and when.
    by: str = ""
    decided: float = 0.0
    reason: str = ""


class Standing(msgspec.Struct, frozen=True):
    """An approval for longer than once: exactly these words of one tool and one bot, until it expires."""

    id: str
    bot: str
    tool: str
    covers: str
    # The conversation that the approval is for; empty means every conversation.
    conversation: str
    # Who gave it, in words.
    by: str
    # By the wall clock.
    expires: float


class ApprovalDesk(Protocol):
    async def open(self, by: Person) -> list[Question]:
        """The open questions that this person asked for or may answer, oldest first."""
        ...

    async def get(self, by: Person, id: str) -> Question:
        """The question with exactly this id, open or over; raises Unknown also if it is not for this person to see."""
        ...

    async def of_run(self, run: str) -> Question | None:
        """The open question of a run."""
        ...

    async def answer(self, by: Person, id: str, choice: Choice, reason: str = "") -> Question:
        """Answers the question with this id, or with an id that begins like this; also by the id of its run.

        Raises Unknown for a question that does not exist or is not for this person to see, Unkeepable for a person who
        may not answer it or not with this choice, and Conflict for a question that is already over.
        """
        ...

    async def standing(self, by: Person) -> list[Standing]:
        """Approvals for longer than once: all for people who approve for others, else those of the person's own."""
        ...

    async def revoke(self, by: Person, id: str) -> None:
        """Ends a standing approval, by its id or the beginning of it; raises Unknown."""
        ...

"""The contract of an agent: a Turn in, events out, one Outcome last."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from enum import StrEnum
from typing import NamedTuple, Protocol

import msgspec

from tidings.core.desk.approvals import Choice
from tidings.core.desk.desk import Desk
from tidings.core.types import Entry, File, Inbound, Value


class Effect(StrEnum):
    PURE = "pure"
    IDEMPOTENT = "idempotent"
    # Never repeated automatically; a tool that declares no effect counts as this.
    EFFECT = "effect"


class OutcomeKind(StrEnum):
    COMPLETED = "completed"
    HALTED = "halted"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Usage(Value, frozen=True, kw_only=True):
    input_tokens: int = 0
    output_tokens: int = 0
    requests: int = 0
    cost: float = 0.0


class _Event(msgspec.Struct, frozen=True, tag_field="type"):
    pass


class TextDelta(_Event, frozen=True, tag="text"):
    text: str


class ReasoningDelta(_Event, frozen=True, tag="reasoning"):
    text: str


class ToolStarted(_Event, frozen=True, tag="tool_started"):
    """Yield this event before the tool acts: the runner stores the event before it resumes the agent."""

    call: str
    name: str
    arguments: str = ""
    effect: Effect = Effect.EFFECT


class ToolFinished(_Event, frozen=True, tag="tool_finished"):
    call: str
    output: str = ""
    error: str = ""
    # The runner adds the tool's name and duration, so that this event can be read without the one that started it.
    name: str = ""
    seconds: float = 0.0


class Progress(_Event, frozen=True, tag="progress"):
    text: str


class FileMade(_Event, frozen=True, tag="file"):
    path: str
    name: str


class ChoicesOffered(_Event, frozen=True, tag="choices"):
    """The answer ends with buttons; a pressed button comes back as a message with the button's label."""

    choices: tuple[str, ...]


class Checkpoint(_Event, frozen=True, tag="checkpoint"):
    """The agent's own state as bytes: the next attempt gets the newest checkpoint back.

    A checkpoint replaces the one before and is not an entry of the journal.
    """

    data: bytes
    # Tokens and cost so far, in case the run is cut off.
    usage: Usage | None = None


class ApprovalAsked(_Event, frozen=True, tag="approval_asked"):
    """Asks people whether one tool call may run; the agent ends its iterator here and is run again with the verdict.

    Yield a Checkpoint directly before this event. The run then waits in the store, without a task in memory. When it
    goes on, the agent gets that checkpoint and, in `Turn.verdicts`, the verdict with the same `call`.
    """

    call: str
    # The name of the tool.
    tool: str
    # What will run, made from the call itself and never from the model's words about it; people read it.
    detail: str
    # Identifies exactly what will run: compare it again right before the tool starts, and ask anew if it differs.
    digest: str
    # What an answer for longer than once covers, in words; empty if the tool must be asked about every time.
    covers: str = ""
    # The texts of others that the run has read, such as "the file notes.txt" or "the page example.org".
    read: tuple[str, ...] = ()


class Finished(_Event, frozen=True, tag="finished"):
    """The agent's last event; it has no text, because the text of an outcome is the sum of its deltas."""

    kind: OutcomeKind = OutcomeKind.COMPLETED
    reason: str = ""
    usage: Usage | None = None
    # The failure was temporary, such as a provider's outage: the same question may succeed later.
    passing: bool = False


Event = (
    TextDelta
    | ReasoningDelta
    | ToolStarted
    | ToolFinished
    | Progress
    | FileMade
    | ChoicesOffered
    | Checkpoint
    | ApprovalAsked
    | Finished
)


class ApprovalRequested(_Event, frozen=True, tag="approval_requested"):
    """A question to people is stored: the run waits until it is answered, withdrawn or expired."""

    id: str
    call: str
    tool: str
    detail: str
    choices: tuple[Choice, ...]
    # When the question expires, by the wall clock.
    expires: float
    read: tuple[str, ...] = ()


class ApprovalAnswered(_Event, frozen=True, tag="approval_answered"):
    """The question is over: somebody answered, a standing approval covers it, nobody can answer, or it expired."""

    id: str
    call: str
    granted: bool
    # None if no person chose.
    choice: Choice | None
    # Who decided, in words.
    by: str = ""
    reason: str = ""


class Steered(_Event, frozen=True, tag="steered"):
    """The running agent has taken a message into account that came meanwhile."""

    # The name of its sender, and the beginning of its text.
    sender: str
    text: str


class Restarted(_Event, frozen=True, tag="restarted"):
    """The run has started again: all text before this event is void."""

    attempt: int


class Ended(_Event, frozen=True, tag="ended"):
    """The only terminal event of a run, always last; holds the whole outcome."""

    kind: OutcomeKind
    reason: str
    text: str
    usage: Usage | None = None
    files: tuple[File, ...] = ()
    choices: tuple[str, ...] = ()
    # The run failed, but asking again may succeed and would repeat no effect.
    passing: bool = False


JournalEvent = (
    TextDelta
    | ReasoningDelta
    | ToolStarted
    | ToolFinished
    | Progress
    | FileMade
    | ChoicesOffered
    | ApprovalRequested
    | ApprovalAnswered
    | Steered
    | Restarted
    | Ended
)

# An outcome and the terminal event are the same value.
Outcome = Ended


class Verdict(Value, frozen=True, kw_only=True):
    """The answer to an ApprovalAsked: `reason` tells the model why the call may not run."""

    call: str
    granted: bool
    reason: str = ""
    # As the question had it: the verdict holds for this and for nothing else.
    digest: str = ""


class Heard(Protocol):
    """Hands over the messages that came for this run while it is at work; mostly there are none.

    Call it between two steps, such as before asking a model or before using a tool. The next checkpoint, or else the
    completed answer, counts as holding these messages: they are then part of this run. If neither comes, or if the
    agent never calls this, each message is a run of its own afterwards, and nothing is lost.
    """

    async def __call__(self) -> tuple[Inbound, ...]: ...


async def hear_nothing() -> tuple[Inbound, ...]:
    return ()


class Rest(NamedTuple):
    """What allowances leave to one run, everything that it has used included; None is no limit."""

    tokens: int | None = None
    money: float | None = None
    # Whose allowance it is, in words that follow "I stopped here:".
    words: str = ""


def no_limit() -> Rest:
    return Rest()


class Turn(Value, frozen=True, kw_only=True):
    """The input of one run of an agent."""

    run: str
    attempt: int
    bot: str
    message: Inbound
    desk: Desk
    history: tuple[Entry, ...] = ()
    checkpoint: bytes | None = None
    verdicts: tuple[Verdict, ...] = ()
    # The run goes on after a verdict, and what was said before it still stands: do not say it again. After a restart
    # this is false, the text before is void, and an agent that resumes from its checkpoint says it again.
    goes_on: bool = False
    # What people in this conversation have chosen by command, such as another model.
    preferences: Mapping[str, str] = {}
    heard: Heard = hear_nothing
    # What allowances leave to this run right now: look before each further request to a model, and end in time.
    rest: Callable[[], Rest] = no_limit


class Agent(Protocol):
    def run(self, turn: Turn) -> AsyncIterator[Event]: ...

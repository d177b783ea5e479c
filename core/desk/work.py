"""Work that ends later and work that starts later, as one can ask about it: tasks, processes, schedules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from tidings.core.types import Asker, Target

if TYPE_CHECKING:
    from tidings.core.agent import Outcome


class Manner(StrEnum):
    """How the end of a task comes back to where it was begun."""

    # As a notice.
    TELL = "tell"
    # As a turn that goes on with the conversation.
    WAKE = "wake"
    # Not at all: whoever began it looks for itself.
    NOTHING = "nothing"


class TaskState(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"


class Task(msgspec.Struct, frozen=True):
    """Times are by the wall clock."""

    id: str
    # process, delegate, or a kind that an agent has registered.
    kind: str
    title: str
    state: TaskState
    reason: str
    manner: Manner
    conversation: str
    target: Target
    created: float
    started: float | None
    ended: float | None
    # What it has said: an answer, or the end of an output.
    output: str
    # The run that does it, where one does.
    run: str

    @property
    def is_open(self) -> bool:
        return self.state in (TaskState.WAITING, TaskState.RUNNING)


class Goal(msgspec.Struct, frozen=True):
    """What another agent shall do for the current session, in a memory of its own."""

    # Everything it needs to know: it sees nothing of this talk.
    text: str
    title: str
    # None: the caller waits for it and ends it when it goes.
    manner: Manner | None
    tools: tuple[str, ...] | None = None
    requests: int = 0
    # The same goal is begun once, however often it is asked for.
    key: str = ""


class Delegated(msgspec.Struct, frozen=True):
    task: str
    run: str


class TaskDesk(Protocol):
    async def delegate(self, goal: Goal) -> Delegated:
        """Raises Unsupported for a promise that cannot be kept here, Overdrawn where too much runs already."""
        ...

    async def finish(self, begun: Delegated) -> Outcome:
        """Waits for the end of what was delegated, and ends it when the caller goes."""
        ...

    async def all(self, conversation: str, limit: int) -> list[Task]:
        """Of one conversation, or of all for an empty one; what is open first, then the newest."""
        ...

    async def get(self, id: str) -> Task:
        """Raises Unknown."""
        ...

    async def cancel(self, id: str, by: str) -> bool:
        """Asks it to end; false when it has ended already. Its end is told as that of any other."""
        ...


class Launch(msgspec.Struct, frozen=True):
    """A command that goes on in the background; its end is told as `manner` says."""

    command: Sequence[str]
    # As a person reads it.
    title: str
    folder: Path
    environment: Mapping[str, str]
    manner: Manner
    # A line of its output that one of these is found in is told at once.
    patterns: tuple[str, ...] = ()
    # 0 is the longest that the settings permit.
    seconds: float = 0.0
    key: str = ""


class Log(msgspec.Struct, frozen=True):
    """A piece of what a process has written; `end` is where the next piece begins."""

    text: str
    start: int
    end: int


class ProcessDesk(Protocol):
    async def launch(self, launch: Launch) -> str:
        """The task's id. Raises Unsupported before anything starts where a promise cannot be kept, or Overdrawn."""
        ...

    async def log(self, id: str, start: int, limit: int) -> Log:
        """From a byte on; a negative start counts from the end. Raises Unknown."""
        ...

    async def feed(self, id: str, text: str, *, end: bool) -> None:
        """Writes into its standard input, and closes that with `end`. Raises Unknown when it no longer listens."""
        ...

    async def wait(self, id: str, seconds: float) -> Task:
        """Until it has ended, or so long; looking does not use up its notice."""
        ...


class Missed(StrEnum):
    """What becomes of instants that passed while nobody could run them."""

    RUN_ONCE = "run_once"
    SKIP = "skip"


class Plan(msgspec.Struct, frozen=True):
    """What shall happen when; either a prompt or a command."""

    name: str
    # A cron expression, "every 30m", or one moment such as "2026-03-01 09:00" or "in 20m".
    when: str
    target: Target
    prompt: str = ""
    command: str = ""
    bot: str = ""
    # A name such as Europe/Berlin; empty is the machine's.
    zone: str = ""
    # Failures are told there instead.
    failures: Target | None = None
    on_missed: Missed = Missed.RUN_ONCE
    # How often it runs at most; 0 is without end.
    repeat: int = 0
    paused: bool = False
    paused_reason: str = ""
    # Where it was made, and by whom; empty for the command line.
    conversation: str = ""
    sender: str = ""
    asker: Asker | None = None
    tools: tuple[str, ...] | None = None


class Firing(msgspec.Struct, frozen=True):
    """One instant of a schedule: the outcome of its run and that of its delivery are two things."""

    id: str
    schedule: str
    instant: float
    # waiting, running, done or missed.
    state: str
    # completed, halted, failed or cancelled.
    outcome: str
    reason: str
    # none, waiting, held, doubtful, delivered or dead.
    delivery: str
    delivery_reason: str
    run: str
    started: float | None
    ended: float | None
    output: str


class Schedule(msgspec.Struct, frozen=True):
    id: str
    plan: Plan
    created: float
    # None when it never runs again.
    next: float | None
    # How often it has run.
    fired: int
    last: Firing | None


class ScheduleDesk(Protocol):
    async def add(self, plan: Plan) -> Schedule:
        """Raises Unkeepable with what is wrong with it, Unsupported or Unknown where the target could not be told."""
        ...

    async def all(self, conversation: str = "", *, paused: bool = True) -> list[Schedule]: ...

    async def get(self, id: str) -> Schedule: ...

    async def change(self, id: str, plan: Plan) -> Schedule: ...

    async def remove(self, id: str) -> None: ...

    async def fire(self, id: str) -> Firing:
        """Now, besides its own instants."""
        ...

    async def firings(self, id: str, limit: int) -> list[Firing]: ...

    async def firing(self, id: str) -> Firing: ...

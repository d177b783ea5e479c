"""Requests about work that starts or ends later: tasks, processes and schedules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from tidings.core.desk.fence import Fence
from tidings.core.types import Asker, Target

if TYPE_CHECKING:
    from tidings.core.agent import Outcome


class Manner(StrEnum):
    """How the end of a task is reported where the task was started."""

    # By a notice.
    TELL = "tell"
    # By a new turn that continues the conversation.
    WAKE = "wake"
    # Not at all: the caller looks at the task itself.
    NOTHING = "nothing"


class TaskState(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"


class Task(msgspec.Struct, frozen=True):
    """Work that goes on in the background; times are by the wall clock."""

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
    # The answer of an agent, or the end of a process's output.
    output: str
    # The run that does the work, if a run does it.
    run: str
    # The person this work is for; None means the owner.
    asker: Asker | None = None

    @property
    def is_open(self) -> bool:
        return self.state in (TaskState.WAITING, TaskState.RUNNING)


class Goal(msgspec.Struct, frozen=True):
    """A job for another agent, which starts without the current conversation's memory."""

    # Everything that the agent needs to know, since it sees nothing of the conversation.
    text: str
    title: str
    # None means that the caller waits for the task, and ends it when the caller itself ends.
    manner: Manner | None
    tools: tuple[str, ...] | None = None
    requests: int = 0
    # Repeated requests with the same key start one task.
    key: str = ""


class Delegated(msgspec.Struct, frozen=True):
    task: str
    run: str


class TaskDesk(Protocol):
    async def delegate(self, goal: Goal) -> Delegated:
        """Raises Unsupported where the end could not be reported, Overdrawn at the limit of open tasks."""
        ...

    async def finish(self, begun: Delegated) -> Outcome:
        """Waits for the outcome of a delegated task; if the caller is cancelled, so is the task."""
        ...

    async def all(self, conversation: str, limit: int) -> list[Task]:
        """Tasks of one conversation, or of all for an empty name; open tasks first, then the newest."""
        ...

    async def get(self, id: str) -> Task:
        """Raises Unknown."""
        ...

    async def cancel(self, id: str, by: str) -> bool:
        """Asks a task to end; false when it has already ended. The end is reported as usual."""
        ...


class Launch(msgspec.Struct, frozen=True):
    """A command to run in the background; `manner` tells how its end is reported."""

    command: Sequence[str]
    # The name of the task for people.
    title: str
    folder: Path
    environment: Mapping[str, str]
    manner: Manner
    # An output line that matches one of these patterns is reported at once.
    patterns: tuple[str, ...] = ()
    # The time limit; 0 means the limit of the settings.
    seconds: float = 0.0
    key: str = ""


class Log(msgspec.Struct, frozen=True):
    """A piece of a process's output, in bytes; the next piece begins at `end`."""

    text: str
    start: int
    end: int


class ProcessDesk(Protocol):
    # What every command here is put behind.
    @property
    def fence(self) -> Fence: ...

    async def launch(self, launch: Launch) -> str:
        """Starts a command and returns the task's id.

        Starts nothing and raises Unsupported where the end could not be reported, Overdrawn at the limit of processes,
        Unfenced where no fence holds.
        """
        ...

    async def log(self, id: str, start: int, limit: int) -> Log:
        """Output from the byte `start`; a negative start counts from the end. Raises Unknown."""
        ...

    async def feed(self, id: str, text: str, *, end: bool) -> None:
        """Writes to the process's standard input, and closes it with `end`; raises Unknown if the process has ended."""
        ...

    async def wait(self, id: str, seconds: float) -> Task:
        """Waits until the task has ended, at most so many seconds; its end is still reported."""
        ...


class Missed(StrEnum):
    """What happens to instants that passed while the gateway was not running."""

    RUN_ONCE = "run_once"
    SKIP = "skip"


class Plan(msgspec.Struct, frozen=True):
    """A schedule as its maker wrote it: a time, and either a prompt or a command."""

    name: str
    # A cron expression, "every 30m", or one moment such as "2026-03-01 09:00" or "in 20m".
    when: str
    target: Target
    prompt: str = ""
    command: str = ""
    bot: str = ""
    # A time zone such as Europe/Berlin; empty means the machine's zone.
    zone: str = ""
    # Where failures are reported instead.
    failures: Target | None = None
    on_missed: Missed = Missed.RUN_ONCE
    # The number of firings; 0 means no end.
    repeat: int = 0
    paused: bool = False
    paused_reason: str = ""
    # The conversation and sender that made the schedule; empty for the command line.
    conversation: str = ""
    sender: str = ""
    asker: Asker | None = None
    tools: tuple[str, ...] | None = None


class Firing(msgspec.Struct, frozen=True):
    """One firing of a schedule; its run and its delivery each have an outcome."""

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
    # None when the schedule never fires again.
    next: float | None
    # The number of firings so far.
    fired: int
    last: Firing | None


class ScheduleDesk(Protocol):
    async def add(self, plan: Plan) -> Schedule:
        """Raises Unkeepable with what is wrong, Unsupported or Unknown for a target that could not get messages."""
        ...

    async def all(self, conversation: str = "", *, paused: bool = True) -> list[Schedule]: ...

    async def get(self, id: str) -> Schedule: ...

    async def change(self, id: str, plan: Plan) -> Schedule: ...

    async def remove(self, id: str) -> None: ...

    async def fire(self, id: str) -> Firing:
        """Fires the schedule now, in addition to its own times."""
        ...

    async def firings(self, id: str, limit: int) -> list[Firing]: ...

    async def firing(self, id: str) -> Firing: ...

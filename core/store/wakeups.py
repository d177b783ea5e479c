"""Wake-ups: after a commit, tells each part of the gateway which of its rows became due.

A wake-up may be lost without harm: every part also looks for due rows by itself, when it starts and at each sweep.
Equal values of one commit are told once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tidings.core.desk.runs import Numbered
from tidings.core.desk.usage import SpentRow
from tidings.core.types import Inbound, Signal, Target


@dataclass(frozen=True, slots=True)
class Lane:
    """A delivery in this lane may be sent."""

    name: str


@dataclass(frozen=True, slots=True)
class Conversation:
    """A message of this conversation may be claimed, from `at` on; the message tells who waits for what."""

    id: str
    at: float
    message: Inbound = field(compare=False)


@dataclass(frozen=True, slots=True, eq=False)
class MessageStored:
    """A message was accepted at the time `accepted`; `run` names its row, also if it joined another run."""

    run: str
    message: Inbound
    accepted: float


@dataclass(frozen=True, slots=True, eq=False)
class RunBegan:
    """A message that was accepted at the time `accepted` was claimed."""

    run: str
    message: Inbound
    accepted: float


@dataclass(frozen=True, slots=True, eq=False)
class RunEnded:
    """A run is over; `sign` is shown on these messages at once, because no answer will arrive."""

    run: str
    conversation: str
    sign: Signal | None = None
    targets: tuple[Target, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class RunGrew:
    """A run's journal has new entries; each announcement has entries of its own, so none equals another."""

    run: str
    entries: tuple[Numbered, ...]


@dataclass(frozen=True, slots=True)
class StopAsked:
    """A person or the board wants this run to stop."""

    run: str
    by: str


@dataclass(frozen=True, slots=True)
class MessageForRun:
    """A message came for this run while the run is at work."""

    run: str


@dataclass(frozen=True, slots=True)
class QuestionAsked:
    """A question to people expires at the time `at`."""

    at: float


@dataclass(frozen=True, slots=True)
class TaskDue:
    """A task starts at the time `at`."""

    task: str
    at: float


@dataclass(frozen=True, slots=True)
class TaskStopAsked:
    """A task was asked to stop."""

    task: str


@dataclass(frozen=True, slots=True)
class ScheduleDue:
    """A schedule has a new next time."""

    at: float


@dataclass(frozen=True, slots=True)
class CommandDue:
    """A firing of this schedule waits to run its command."""

    schedule: str


@dataclass(frozen=True, slots=True)
class BoardChanged:
    """A card has changed: another card may be ready, or a worker may have lost its card."""


@dataclass(frozen=True, slots=True)
class PeopleChanged:
    """People, their roles or keys have changed."""


@dataclass(frozen=True, slots=True, eq=False)
class AttentionChanged:
    """The bot listens to a sender in a chat until the time `until`; none equals another, since the last one counts."""

    chat: str
    sender: str
    until: float


@dataclass(frozen=True, slots=True, eq=False)
class Spent:
    """These rows of spending have changed, in this order."""

    rows: tuple[SpentRow, ...]


@dataclass(frozen=True, slots=True)
class Loosened:
    """A run that waits holds less of the allowances than before."""

    run: str
    reservation: bytes


@dataclass(frozen=True, slots=True)
class MessageRefused:
    """The message at this target was refused without a word; it is only marked as failed."""

    target: Target


@dataclass(frozen=True, slots=True)
class Changed:
    """An object that people look at has changed, such as a task or a card."""

    kind: str
    id: str


Due = (
    Lane
    | Conversation
    | MessageStored
    | RunBegan
    | RunEnded
    | RunGrew
    | StopAsked
    | MessageForRun
    | QuestionAsked
    | TaskDue
    | TaskStopAsked
    | ScheduleDue
    | CommandDue
    | BoardChanged
    | PeopleChanged
    | AttentionChanged
    | Spent
    | Loosened
    | MessageRefused
    | Changed
)

D = TypeVar("D")


class Wakeups:
    """Passes each announced value to the parts that subscribed to its type."""

    def __init__(self) -> None:
        self._subscribers: dict[type, list[Callable[[Any], None]]] = {}

    def subscribe(self, kind: type[D], hear: Callable[[D], None]) -> None:
        """Calls `hear` on the event loop after the commit; `hear` must return at once and never raise."""
        self._subscribers.setdefault(kind, []).append(hear)

    def is_followed(self, kind: type) -> bool:
        return kind in self._subscribers

    def publish(self, values: Iterable[Due]) -> None:
        for value in values:
            for hear in self._subscribers.get(type(value), ()):
                hear(value)

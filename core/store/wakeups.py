"""Wake-ups: what a transaction made due, told after its commit to the parts that work on it.

Rows stay the truth and a wake-up may be lost: every part also looks for due rows by itself, when it starts and at each
sweep. Values are compared, so that one commit tells each of them once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from tidings.core.desk.runs import Numbered


@dataclass(frozen=True, slots=True)
class Lane:
    """A delivery in this lane may be sent."""

    name: str


@dataclass(frozen=True, slots=True)
class Conversation:
    """A message of this conversation may be claimed, from `at` on."""

    id: str
    at: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class RunGrew:
    """A run's journal has new entries. Two of these are never one: each has entries of its own."""

    run: str
    entries: tuple[Numbered, ...]


@dataclass(frozen=True, slots=True)
class StopAsked:
    """A person or the board wants this run to stop."""

    run: str
    by: str


@dataclass(frozen=True, slots=True)
class TaskDue:
    """A task begins at `at`."""

    task: str
    at: float


@dataclass(frozen=True, slots=True)
class TaskStopAsked:
    """A task was asked to stop."""

    task: str


@dataclass(frozen=True, slots=True)
class ScheduleDue:
    """A schedule has a new next instant."""

    at: float


@dataclass(frozen=True, slots=True)
class CommandDue:
    """An instant of this schedule waits to run its command."""

    schedule: str


@dataclass(frozen=True, slots=True)
class BoardChanged:
    """A card has moved: another may be ready, or a worker may have lost its card."""


@dataclass(frozen=True, slots=True)
class AccessChanged:
    """The list of admitted people has changed."""


@dataclass(frozen=True, slots=True)
class Changed:
    """Something that people look at has changed, such as a task or a card."""

    kind: str
    id: str


Due = (
    Lane
    | Conversation
    | RunGrew
    | StopAsked
    | TaskDue
    | TaskStopAsked
    | ScheduleDue
    | CommandDue
    | BoardChanged
    | AccessChanged
    | Changed
)

D = TypeVar("D")


class Wakeups:
    """Hands each value to the parts that subscribed to its kind."""

    def __init__(self) -> None:
        self._subscribers: dict[type, list[Callable[[Any], None]]] = {}

    def subscribe(self, kind: type[D], hear: Callable[[D], None]) -> None:
        """`hear` is called on the event loop, after the commit; it returns at once and does not raise."""
        self._subscribers.setdefault(kind, []).append(hear)

    def is_followed(self, kind: type) -> bool:
        return kind in self._subscribers

    def publish(self, values: Iterable[Due]) -> None:
        for value in values:
            for hear in self._subscribers.get(type(value), ()):
                hear(value)

"""What adapters, commands, tools and the command line may ask of the gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from tidings.core.desk.board import BoardDesk
from tidings.core.desk.work import ProcessDesk, ScheduleDesk, TaskDesk
from tidings.core.telemetry.metrics import Meters
from tidings.core.types import Attachment, Body, Delivery, Entry, File, Inbound, Target

if TYPE_CHECKING:
    from tidings.core.agent import JournalEvent, Outcome


class Numbered(msgspec.Struct, frozen=True):
    """One entry of a run's journal."""

    seq: int
    event: JournalEvent
    at: float


class Run(msgspec.Struct, frozen=True):
    """One run as one can ask about it; times are by the wall clock."""

    id: str
    message: Inbound
    # waiting, running or done.
    state: str
    accepted: float
    ended: float | None
    stop_asked: bool
    outcome: Outcome | None
    # Up to this number of its journal, a restart has made everything void.
    void: int = 0
    # Who answers.
    bot: str = ""
    # Its client wants nothing kept: it is erased when it is over.
    forgotten: bool = False


class ConversationLine(msgspec.Struct, frozen=True):
    """One conversation of a list; `seq` is where the next page begins."""

    seq: int
    id: str
    messages: int
    updated: float


class HistoryLine(msgspec.Struct, frozen=True):
    seq: int
    entry: Entry
    # Taken back: no longer given to agents.
    undone: bool = False


class Remembered(msgspec.Struct, frozen=True):
    """A note about or for one person, kept across all their conversations on a platform."""

    text: str
    at: float


class PartHealth(msgspec.Struct, frozen=True):
    """How one supervised part fares: starting, up, standing by, degraded or misconfigured."""

    name: str
    state: str
    since: float
    restarts: int
    last_error: str
    # By the wall clock; None for what has not happened, as far as anybody knows.
    last_inbound: float | None = None
    last_outbound: float | None = None


class Alarm(msgspec.Struct, frozen=True):
    """What the owner should look at: how often, and the last reason."""

    name: str
    count: int
    last: str
    at: float


class RunLine(msgspec.Struct, frozen=True):
    """A run that goes on."""

    id: str
    conversation: str
    accepted: float
    attempt: int


class LostLine(msgspec.Struct, frozen=True):
    """A delivery that will not arrive, and why."""

    id: str
    target: str
    reason: str
    cause: str
    at: float


class Overview(msgspec.Struct, frozen=True):
    """What the store tells of runs and queues; times are by the wall clock."""

    queued: int
    oldest_queued: float | None
    deliveries: dict[str, int]
    # By state.
    oldest_owed: dict[str, float]
    runs: tuple[RunLine, ...]
    lost: tuple[LostLine, ...]
    # How many people and groups were let in by command.
    admitted: int = 0


class Moments(msgspec.Struct, frozen=True):
    """When an account was last heard of and last written to."""

    heard: float | None = None
    sent: float | None = None


class Stranger(msgspec.Struct, frozen=True):
    """Who has asked to be let in, as the access list would name them."""

    id: str
    name: str
    at: float
    # Where they can be told.
    target: str


class DeliveryLine(msgspec.Struct, frozen=True):
    """One delivery of a list; `seq` is where the next page begins."""

    seq: int
    id: str
    target: str
    # waiting, held, doubtful or dead.
    state: str
    reason: str
    cause: str
    # How it begins.
    title: str
    # When it was given up, else when we began to owe it; by the wall clock.
    at: float
    attempts: int


class Pruned(msgspec.Struct, frozen=True):
    """How much went, or would go: rows, files and their bytes."""

    runs: int = 0
    events: int = 0
    deliveries: int = 0
    tasks: int = 0
    history: int = 0
    cards: int = 0
    files: int = 0
    bytes: int = 0
    # What the store holds without using it; it is used again before the store grows.
    spare_bytes: int = 0

    def __add__(self, other: Pruned) -> Pruned:
        return Pruned(*(getattr(self, name) + getattr(other, name) for name in self.__struct_fields__))

    def __bool__(self) -> bool:
        return self != Pruned()


class UpkeepDesk(Protocol):
    """What an owner does with what is stored, while the gateway runs."""

    async def snapshot(self) -> Path:
        """A whole copy of the store in a file of its own, which whoever asked removes. Raises Conflict, Unstored."""
        ...

    async def prune(self, older_than: float | None, *, rehearsal: bool) -> Pruned:
        """Removes what is over for longer than so many seconds, or than the settings say; or only counts it."""
        ...

    async def deliveries(self, *, waiting: bool, limit: int, before: int = 0) -> list[DeliveryLine]:
        """Those in trouble, the newest first, and those that only wait if asked for."""
        ...

    async def retry(self, id: str) -> str:
        """Tries a delivery again, and says how. Raises Unknown, or Conflict for one that has arrived."""
        ...

    async def drop(self, id: str) -> None:
        """Gives a delivery up for good, and nobody is told any more. Raises Unknown, Conflict."""
        ...


class Admissions(msgspec.Struct, frozen=True):
    """Who may speak, by the list that admits them."""

    settings: tuple[str, ...]
    # Admitted with `tidings allow`.
    command: tuple[str, ...]


class Health(msgspec.Struct, frozen=True):
    version: str
    store: str
    parts: tuple[PartHealth, ...]
    running: int
    queued: int
    deliveries: dict[str, int]
    alarms: tuple[Alarm, ...]
    # When the gateway started.
    started: float = 0.0
    overview: Overview | None = None
    # The last few who spoke to us alone and are not admitted.
    strangers: tuple[Stranger, ...] = ()


class Desk(Protocol):
    def follow(self, run: str, after: int = 0) -> AsyncIterator[Numbered]:
        """Replays the journal behind `after`, goes on live, ends with the terminal event.

        Raises Unknown for a run that never was, Lagged when the reader is too slow.
        """
        ...

    async def stop(self, run: str, by: str) -> bool:
        """Asks a live run to end as cancelled; false when it has ended already."""
        ...

    def bots(self) -> tuple[str, ...]:
        """Who may be asked for by name; the default is the first."""
        ...

    async def run(self, id: str) -> Run:
        """Raises Unknown."""
        ...

    async def forget(self, run: str) -> None:
        """Erases its text, events and files once it has ended and its deliveries are settled.

        The wish is stored, so it survives a crash. Raises Unknown.
        """
        ...

    async def conversations(
        self, adapter: str, chat: str, limit: int, before: int, member: str = ""
    ) -> list[ConversationLine]:
        """The newest first; an empty adapter, chat or member means all, a `before` of 0 the first page.

        A member is looked for in one chat only.
        """
        ...

    async def memory(self, conversation: str, before: str, limit: int) -> tuple[Entry, ...]:
        """What was said last before that run."""
        ...

    async def history(self, conversation: str, limit: int, after: int) -> list[HistoryLine]: ...

    async def owe(self, target: Target, body: Body, cause: str, key: str = "", digest: str = "") -> str:
        """Durably owes a body to a target and names the delivery; refuses what could never arrive.

        A key that is known names the delivery that it made; with another digest it raises Conflict.
        """
        ...

    async def adopt(self, path: str) -> File:
        """Keeps a copy of a file, so that it can be sent whatever becomes of it; raises Unknown for what is none."""
        ...

    async def permitted(self, target: Target) -> bool:
        """May something be sent there that nobody there asked for? To known conversations and who is admitted."""
        ...

    async def delivery(self, id: str) -> Delivery: ...

    async def begin(self, kind: str, argument: str, after: float) -> str:
        """Starts background work of a registered kind for the current session, which is told how it ends.

        Raises Unsupported where the current interface has no async delivery.
        """
        ...

    async def allow(self, id: str) -> bool:
        """Admits `adapter:sender`, effective at once; false when they were admitted before, also by the settings."""
        ...

    async def withdraw(self, id: str) -> None:
        """Takes back what `allow` gave: stops their running work, and keeps their planned work from beginning.

        Raises Unknown for an id that `allow` did not admit.
        """
        ...

    async def admissions(self) -> Admissions: ...

    async def reachable(self, adapter: str, account: str) -> None:
        """The platform can be reached again: what waits for it is tried now."""
        ...

    def troubled(self, adapter: str, account: str, reason: str) -> None:
        """The platform cannot be heard, and the adapter goes on trying: shown and told until it is `reachable`."""
        ...

    async def moved(self, adapter: str, account: str, chat: str, to: str) -> None:
        """A chat goes on under another id: what we owe it goes there, and its memory stays one."""
        ...

    async def missed(self, adapter: str, account: str, words: str, *, tell: bool) -> None:
        """Something may have been said that nobody heard: the owner is told, and whoever spoke lately if `tell`."""
        ...

    async def fetch(self, attachment: Attachment) -> Path:
        """Fetches what came with the current session's message."""
        ...

    async def knows(self, conversation: str) -> bool: ...

    async def remember(self, text: str) -> bool:
        """Keeps a note of the current bot for the sender of the session's message; false when it is already known.

        Raises Unkeepable for one that is empty or too long.
        """
        ...

    async def recall(self, words: str, limit: int) -> list[Remembered]:
        """This bot's notes about that person, the newest first: those with any of the words, or all for no words.

        In a group, only those that were not made in private.
        """
        ...

    @property
    def tasks(self) -> TaskDesk: ...

    @property
    def processes(self) -> ProcessDesk: ...

    @property
    def schedules(self) -> ScheduleDesk: ...

    @property
    def board(self) -> BoardDesk: ...

    async def homes(self) -> dict[str, Target]:
        """Where each platform's own news go, by `adapter@account`."""
        ...

    async def set_home(self, target: Target) -> None:
        """Raises Unknown or Unsupported for a place that could not be told."""
        ...

    @property
    def upkeep(self) -> UpkeepDesk: ...

    @property
    def meters(self) -> Meters: ...

    async def health(self) -> Health: ...

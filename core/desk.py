"""What adapters, commands, tools and the command line may ask of the gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from core.meters import Meters
from core.types import Attachment, Body, Delivery, Entry, Inbound, Target

if TYPE_CHECKING:
    from core.agent import JournalEvent, Outcome


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


class Alarm(msgspec.Struct, frozen=True):
    """What the owner should look at: how often, and the last reason."""

    name: str
    count: int
    last: str
    at: float


class Health(msgspec.Struct, frozen=True):
    version: str
    store: str
    parts: tuple[PartHealth, ...]
    running: int
    queued: int
    deliveries: dict[str, int]
    alarms: tuple[Alarm, ...]


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

    async def conversations(self, adapter: str, chat: str, limit: int, before: int) -> list[ConversationLine]:
        """The newest first; an empty adapter or chat means all, a `before` of 0 the first page."""
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
        """Admits `adapter:sender`, effective at once; false when they were admitted before."""
        ...

    async def reachable(self, adapter: str, account: str) -> None:
        """The platform can be reached again: what waits for it is tried now."""
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
        """Keeps a note for whoever sent the current session's message; false when it is known already.

        Raises Unkeepable for one that is empty or too long.
        """
        ...

    async def recall(self, words: str, limit: int) -> list[Remembered]:
        """That person's notes, the newest first: those with any of the words, or all for no words."""
        ...

    @property
    def meters(self) -> Meters: ...

    async def health(self) -> Health: ...

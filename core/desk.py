"""What adapters, commands, tools and the command line may ask of the gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Protocol

import msgspec

from core.types import Body, Delivery, Target

if TYPE_CHECKING:
    from core.agent import JournalEvent


class Numbered(msgspec.Struct, frozen=True):
    """One entry of a run's journal."""

    seq: int
    event: JournalEvent
    at: float


class PartHealth(msgspec.Struct, frozen=True):
    """How one supervised part fares: starting, up, degraded, misconfigured or stopped."""

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

    async def owe(self, target: Target, body: Body, cause: str) -> str:
        """Durably owes a body to a target and names the delivery; refuses what could never arrive."""
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

    async def health(self) -> Health: ...

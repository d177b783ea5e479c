"""What the paper platform tells one account: events in order, again until each is confirmed."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress

from tests.simulators.paper.faults import Faults
from tests.simulators.paper.wire import Event

# By lot an event is overtaken only by one that comes within this time, else it goes alone.
OVERTAKING_SECONDS = 0.05
# Told and not yet confirmed; a backlog comes in portions, as on any platform.
WINDOW = 100


class Feed:
    """At least once: what is not confirmed comes again with the next attachment."""

    def __init__(self, faults: Faults) -> None:
        self.events: list[Event] = []
        self.confirmed: dict[str, float] = {}
        self.duplicates = 0
        self.reordered = 0
        self._faults = faults
        self._by_id: dict[str, Event] = {}
        self._queue: deque[Event] = deque()
        self._told: set[str] = set()
        self._grown = asyncio.Event()

    @property
    def unconfirmed(self) -> list[Event]:
        return [event for event in self.events if event.id not in self.confirmed]

    def put(self, event: Event) -> None:
        self.events.append(event)
        self._by_id[event.id] = event
        self.again(event)

    def again(self, event: Event) -> None:
        self._queue.append(event)
        self._grown.set()

    def confirm(self, id: str, at: float) -> Event | None:
        """The event, when it is confirmed for the first time."""
        if id in self.confirmed or id not in self._by_id:
            return None
        self.confirmed[id] = at
        self._told.discard(id)
        self._grown.set()
        return self._by_id[id]

    def rewind(self) -> None:
        """Begins anew for a new attachment; what was to be told twice still is."""
        extra = [event for event in self._queue if event.id in self.confirmed]
        self._queue = deque([*self.unconfirmed, *extra])
        self._told.clear()

    async def take(self) -> tuple[Event, ...]:
        """What goes over the wire next, in that order."""
        while len(self._queue) < max(self.reordered, 1) or len(self._told) >= WINDOW:
            await self._growth()
        events = await self._draw()
        self._told.update(event.id for event in events if event.id not in self.confirmed)
        return events

    async def _draw(self) -> tuple[Event, ...]:
        if self.reordered:
            batch = tuple(self._queue.popleft() for _ in range(self.reordered))
            self.reordered = 0
            return batch[::-1]
        event = self._queue.popleft()
        if self.duplicates:
            self.duplicates -= 1
            return event, event
        if self._faults.befalls("duplicate", event.chat):
            return event, event
        if self._faults.befalls("reorder", event.chat):
            with suppress(TimeoutError):
                async with asyncio.timeout(OVERTAKING_SECONDS):
                    while not self._queue:
                        await self._growth()
                return self._queue.popleft(), event
        return (event,)

    async def _growth(self) -> None:
        self._grown.clear()
        await self._grown.wait()

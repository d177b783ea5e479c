"""How far each channel has been taken in, and in which places Discord does not tell of we were spoken to."""

from __future__ import annotations

import asyncio
import logging
from typing import NoReturn

import msgspec

from tidings.adapters.discord.directory import Place
from tidings.core.adapter import Host
from tidings.core.errors import Unstored

log = logging.getLogger(__name__)

# What is not for us moves the cursors so often.
NOTED_EVERY_SECONDS = 5.0
# The latest private channels and threads, which are looked at after a silence: Discord does not tell of them.
KEPT = 500


class Cursors:
    """How far each channel has been taken in; what is not for us moves them in memory, and on paper now and then."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.memory: dict[str, int] = {}
        self._unwritten: dict[str, int] = {}
        # The newest message of all, wherever it was said.
        self.seen = 0
        self._seen_written = 0

    async def load(self) -> None:
        self.seen = self._seen_written = int(await self._host.notebook.read("seen") or 0)

    def see(self, id: int) -> None:
        self.seen = max(self.seen, id)

    async def of(self, channel: str) -> int | None:
        if channel not in self.memory:
            stored = await self._host.notebook.read(f"cursor/{channel}")
            if stored is None:
                return None
            self.memory.setdefault(channel, int(stored))
        return self.memory[channel]

    def move(self, channel: str, id: int) -> None:
        if id > self.memory.get(channel, 0):
            self.memory[channel] = self._unwritten[channel] = id

    def moved(self, channel: str, id: int) -> None:
        """Notes a cursor that was stored together with a message."""
        self.memory[channel] = max(id, self.memory.get(channel, 0))
        if self._unwritten.get(channel, 0) <= id:
            self._unwritten.pop(channel, None)

    async def write(self, channel: str, id: int) -> None:
        await self._host.notebook.write(f"cursor/{channel}", str(id))
        self.moved(channel, id)

    def forget(self, channel: str) -> None:
        """Nothing will be said there any more."""
        self.memory.pop(channel, None)
        self._unwritten.pop(channel, None)

    async def keep_noting(self) -> NoReturn:
        while True:
            await self._host.clock.sleep(NOTED_EVERY_SECONDS)
            try:
                await self._note()
            except Unstored as error:
                log.debug("the cursors are not written yet: %s", error)

    async def _note(self) -> None:
        seen = self.seen
        for channel, id in list(self._unwritten.items()):
            await self.write(channel, id)
        # Last, for a channel without a cursor counts as new from here on.
        if seen > self._seen_written:
            await self._host.notebook.write("seen", str(seen))
            self._seen_written = seen


class Kept:
    """Private channels and threads in which we were spoken to: Discord does not tell of them again."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._places: dict[str, Place] = {}
        # Many channels keep at once, and each writes down the whole list.
        self._turn = asyncio.Lock()

    async def load(self) -> None:
        stored = await self._host.notebook.read("places")
        found = msgspec.json.decode(stored, type=list[Place]) if stored else []
        self._places = {place.channel: place for place in found}

    def all(self) -> list[Place]:
        """The latest first."""
        return list(reversed(self._places.values()))

    async def keep(self, place: Place) -> None:
        async with self._turn:
            kept = {id: each for id, each in self._places.items() if id != place.channel}
            kept = dict(list(kept.items())[-KEPT + 1 :]) | {place.channel: place}
            if self._places.get(place.channel) != place:
                await self._host.notebook.write("places", msgspec.json.encode(list(kept.values())).decode())
            self._places = kept

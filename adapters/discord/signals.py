"""Shows people that we type, have seen their message, are done or have failed; best effort, all of it."""

from __future__ import annotations

import asyncio
import logging
from urllib.parse import quote

from adapters.discord.client import NO_ACCESS, NO_PERMISSION, Client, Refused
from core.clock import Clock
from core.errors import SendError
from core.types import Signal

log = logging.getLogger(__name__)

# A signal that comes late is worse than none.
SIGNAL_SECONDS = 3.0
# Discord takes four reactions a second in a channel, and taking one back counts too.
REACTION_PAUSE = 0.3
REACTIONS = {Signal.SEEN: "👀", Signal.DONE: "✅", Signal.FAILED: "❌"}


class Signals:
    def __init__(self, client: Client, clock: Clock, account: str) -> None:
        self._client = client
        self._clock = clock
        self._account = account
        # A channel that has turned one down is not asked again: each no counts against us.
        self._refused: set[tuple[str, str]] = set()
        self._asides: set[asyncio.Task[None]] = set()

    async def type(self, channel: str) -> None:
        await self._call("POST", channel, "typing")

    async def react(self, channel: str, message: str, signal: Signal) -> None:
        """The last one takes the place of the first."""
        await self._call("PUT", channel, _reaction(message, signal))
        if signal is not Signal.SEEN:
            task = asyncio.create_task(self._take_back(channel, message))
            self._asides.add(task)
            task.add_done_callback(self._asides.discard)

    async def close(self) -> None:
        for task in self._asides:
            task.cancel()
        await asyncio.gather(*self._asides, return_exceptions=True)

    async def _take_back(self, channel: str, message: str) -> None:
        """A moment later, for nobody waits for it."""
        await self._clock.sleep(REACTION_PAUSE)
        try:
            await self._call("DELETE", channel, _reaction(message, Signal.SEEN))
        except SendError as error:
            log.debug("a reaction stays: %s", error)

    async def _call(self, method: str, channel: str, what: str) -> None:
        if (channel, method) in self._refused:
            return
        budget = f"{self._account}/{channel}/signal"
        try:
            await self._client.call(method, f"/channels/{channel}/{what}", seconds=SIGNAL_SECONDS, budget=budget)
        except Refused as error:
            if error.code in (NO_ACCESS, NO_PERMISSION):
                self._refused.add((channel, method))
            raise


def _reaction(message: str, signal: Signal) -> str:
    return f"messages/{message}/reactions/{quote(REACTIONS[signal])}/@me"

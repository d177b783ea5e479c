"""Shows people that we type, have seen their message, are done or have failed; best effort, all of it."""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from typing import Any
from urllib.parse import quote

from tidings.adapters.discord.client import NO_ACCESS, NO_PERMISSION, Client, Refused
from tidings.core.background import Background
from tidings.core.clock import Clock
from tidings.core.errors import RateLimited, SendError
from tidings.core.types import Signal

log = logging.getLogger(__name__)

# A signal that comes late is worse than none.
SIGNAL_SECONDS = 3.0
# Discord takes four reactions a second in a channel; removing one counts, too.
REACTION_PAUSE = 0.3
# A reaction is removed even if that comes late: else it would stay for good.
TAKEN_BACK_SECONDS = 60.0
REACTIONS = {Signal.SEEN: "👀", Signal.DONE: "✅", Signal.FAILED: "❌"}


class Signals:
    def __init__(self, client: Client, clock: Clock, account: str) -> None:
        self._client = client
        self._clock = clock
        self._account = account
        # A channel that has turned one down is not asked again: each no counts against us.
        self._refused: set[tuple[str, str]] = set()
        self._later_calls = Background(log, "a reaction failed")
        # When each channel takes its next reaction.
        self._next: dict[str, float] = {}

    async def type(self, channel: str) -> None:
        await self._call("POST", channel, "typing")

    async def react(self, channel: str, message: str, signal: Signal) -> None:
        """Replaces the first reaction by the last; if the channel takes none now, it follows in the background."""
        if (channel, "PUT") in self._refused or (wait := self._take_turn(channel, SIGNAL_SECONDS)) is None:
            return
        put = self._call("PUT", channel, _reaction(message, signal))
        if wait:
            self._follow(wait, put)
        else:
            await put
        if signal is not Signal.SEEN and (wait := self._take_turn(channel, TAKEN_BACK_SECONDS)) is not None:
            self._follow(wait, self._call("DELETE", channel, _reaction(message, Signal.SEEN)))

    async def close(self) -> None:
        await self._later_calls.close()

    def _take_turn(self, channel: str, longest: float) -> float | None:
        """Spaces out adding and removing reactions in a channel: seconds to wait, None if that is too long."""
        now = self._clock.now()
        turn = max(self._next.get(channel, now), now)
        if turn - now > longest:
            return None
        self._next = {each: at for each, at in self._next.items() if at > now} | {channel: turn + REACTION_PAUSE}
        return turn - now

    def _follow(self, seconds: float, call: Coroutine[Any, Any, None]) -> None:
        task = self._later_calls.begin(self._later(seconds, call))
        # A task that is cancelled before it begins would never await the call.
        task.add_done_callback(lambda _: call.close())

    async def _later(self, seconds: float, call: Coroutine[Any, Any, None]) -> None:
        await self._clock.sleep(seconds)
        try:
            await call
        except SendError as error:
            log.debug("a reaction was lost: %s", error)

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
        except RateLimited as error:
            self._next[channel] = self._clock.now() + (error.retry_after or REACTION_PAUSE)
            raise


def _reaction(message: str, signal: Signal) -> str:
    return f"messages/{message}/reactions/{quote(REACTIONS[signal])}/@me"

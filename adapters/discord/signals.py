"""Shows people that we type, and how their message stands: seen, waiting, at work, done or failed; all best effort."""

from __future__ import annotations

import asyncio
import logging
from urllib.parse import quote

from tidings.adapters.discord.client import NO_ACCESS, NO_PERMISSION, Client, Refused
from tidings.adapters.shared.standing import PASSING, Standing
from tidings.core.background import Background
from tidings.core.clock import Clock
from tidings.core.errors import RateLimited, SendError
from tidings.core.types import Signal

log = logging.getLogger(__name__)

# A passing signal that comes late is worse than none.
SIGNAL_SECONDS = 3.0
# Discord takes four reactions a second in a channel; removing one counts, too.
REACTION_PAUSE = 0.3
# The last reaction comes even if it comes late: else the one before it would stay for good.
LATE_SECONDS = 60.0
# What a limit costs a reaction in the background: so many further tries.
TRIES = 3
REACTIONS = {
    Signal.SEEN: "👀",
    Signal.WAITING: "⏳",
    Signal.WORKING: "✍️",
    Signal.DONE: "✅",
    Signal.FAILED: "❌",
}


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
        self._standing = Standing()
        # The calls under way in the background, by message: the next ones wait for them.
        self._under_way: dict[str, asyncio.Task[None]] = {}

    async def type(self, channel: str) -> None:
        await self._call("POST", channel, "typing")

    async def react(self, channel: str, message: str, signal: Signal) -> None:
        """Takes our earlier reaction away, then shows this one; if the channel takes none now, in the background."""
        calls = self._calls(channel, message, signal)
        turn = self._take_turns(channel, len(calls), SIGNAL_SECONDS if signal in PASSING else LATE_SECONDS)
        if turn is None:
            return
        if len(calls) == 1 and turn <= self._clock.now() and message not in self._under_way:
            await self._change(channel, message, *calls[0])
            return
        before = self._under_way.get(message)
        task = self._under_way[message] = self._later_calls.begin(self._follow(channel, message, calls, turn, before))
        task.add_done_callback(lambda _: self._followed(message, task))

    async def close(self) -> None:
        await self._later_calls.close()

    def _calls(self, channel: str, message: str, signal: Signal) -> list[tuple[str, Signal]]:
        refused = (channel, "PUT") in self._refused
        if refused and message not in self._standing:
            # Nothing of ours can stand there, unless we were allowed to react before.
            return []
        calls = [("DELETE", other) for other in self._standing.others(message, signal)]
        return calls if refused or signal is Signal.NONE else [*calls, ("PUT", signal)]

    def _take_turns(self, channel: str, count: int, longest: float) -> float | None:
        """Spaces out adding and removing reactions in a channel: when the first may go, None if that is too late."""
        now = self._clock.now()
        turn = max(self._next.get(channel, now), now)
        if not count or turn - now > longest:
            return None
        later = turn + count * REACTION_PAUSE
        self._next = {each: at for each, at in self._next.items() if at > now} | {channel: later}
        return turn

    async def _follow(
        self,
        channel: str,
        message: str,
        calls: list[tuple[str, Signal]],
        turn: float,
        before: asyncio.Task[None] | None,
    ) -> None:
        if before is not None:
            await asyncio.wait({before})
        for number, (method, signal) in enumerate(calls):
            await self._clock.sleep(max(turn + number * REACTION_PAUSE - self._clock.now(), 0.0))
            for _ in range(TRIES):
                try:
                    await self._change(channel, message, method, signal)
                except RateLimited:
                    await self._clock.sleep(max(self._next[channel] - self._clock.now(), REACTION_PAUSE))
                    continue
                except SendError as error:
                    log.debug("a reaction was lost: %s", error)
                break

    def _followed(self, message: str, task: asyncio.Task[None]) -> None:
        if self._under_way.get(message) is task:
            del self._under_way[message]

    async def _change(self, channel: str, message: str, method: str, signal: Signal) -> None:
        if method == "PUT":
            self._standing.add(message, signal)
        try:
            await self._call(method, channel, _reaction(message, signal))
        except Refused:
            self._standing.remove(message, signal)
            raise
        if method == "DELETE":
            self._standing.remove(message, signal)

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

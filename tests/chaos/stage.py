"""What makes a gateway's k-th commit the same in every run: a clock that is told the time, and one thing at a time."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

from tidings.core.clock import Clock

# Far ahead of steady time, so that nobody can take one for the other.
WALL_AHEAD = 1_750_000_000.0
# So many turns of the loop in which nobody had anything to do.
CALM_TURNS = 2


class OwnedTimer:
    def __init__(self, at: float, callback: Callable[[], None]) -> None:
        self.at = at
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class OwnedClock(Clock):
    """Stands still until the driver names a later time, and then fires one timer for each word of the driver's."""

    def __init__(self, now: float) -> None:
        self._now = now
        self._timers: list[tuple[float, int, OwnedTimer]] = []
        self.confirmed = True
        self._order = itertools.count()

    def now(self) -> float:
        return self._now

    def wall(self) -> float:
        return self._now + WALL_AHEAD

    def call_later(self, seconds: float, callback: Callable[[], None]) -> OwnedTimer:
        timer = OwnedTimer(self._now + max(seconds, 0.0), callback)
        heapq.heappush(self._timers, (timer.at, next(self._order), timer))
        return timer

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.Event()
        timer = self.call_later(seconds, woken.set)
        try:
            await woken.wait()
        finally:
            timer.cancel()

    def next(self) -> float | None:
        """When the next timer is due; it may be due already."""
        while self._timers and self._timers[0][2].cancelled:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def move(self, now: float) -> None:
        self._now = max(self._now, now)

    def tick(self) -> None:
        """Fires the first timer that is due, no more: what it sets off comes to rest before the next."""
        due = self.next()
        if due is not None and due <= self._now:
            heapq.heappop(self._timers)[2].callback()


class _Turn(NamedTuple):
    came: asyncio.Future[None]
    over: asyncio.Future[None]


class Stage:
    """One thing at a time.

    What the store has done is told only when no callback is ready, oldest first; a call to a platform begins
    only when the store has nothing to do either; the driver is answered when no call is left. So neither
    threads nor sockets decide about the order of commits, and what the platforms have seen is the same at
    each of them.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        # Units of work that are with the store's thread.
        self._units = 0
        self._results: deque[Callable[[], None]] = deque()
        self._calls: deque[_Turn] = deque()
        self._calling: asyncio.Future[None] | None = None
        self._rests: deque[asyncio.Future[None]] = deque()
        self._news = asyncio.Event()

    def unit_began(self) -> None:
        self._units += 1

    def unit_ended(self, tell: Callable[[], None]) -> None:
        self._units -= 1
        self._results.append(tell)
        self._news.set()

    @asynccontextmanager
    async def call(self) -> AsyncIterator[None]:
        """Around one call to a platform."""
        turn = _Turn(self._loop.create_future(), self._loop.create_future())
        self._calls.append(turn)
        self._news.set()
        try:
            await turn.came
            yield
        finally:
            turn.came.cancel()
            turn.over.set_result(None)
            self._news.set()

    async def rest(self) -> None:
        """Returns when nothing can happen any more before the clock or a platform moves."""
        rested: asyncio.Future[None] = self._loop.create_future()
        self._rests.append(rested)
        self._news.set()
        await rested

    async def conduct(self) -> None:
        while True:
            await self._calm()
            if self._results:
                self._results.popleft()()
            elif self._units or (self._calling and not self._calling.done()):
                await self._hear()
            elif self._calls:
                self._begin(self._calls.popleft())
            elif self._rests:
                self._rests.popleft().set_result(None)
            else:
                await self._hear()

    def _begin(self, turn: _Turn) -> None:
        # Whoever wanted to call may have been cancelled meanwhile.
        if not turn.came.done():
            turn.came.set_result(None)
            self._calling = turn.over

    async def _hear(self) -> None:
        self._news.clear()
        await self._news.wait()

    async def _calm(self) -> None:
        calm = 0
        while calm < CALM_TURNS:
            await asyncio.sleep(0)
            # The loop has no public word for it. Only the conductor asks, and it is not in there while it runs.
            calm = 0 if self._loop._ready else calm + 1  # type: ignore[attr-defined]

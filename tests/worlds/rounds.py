"""What happens between two rounds of the loop, and how often a turnstile is entered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType

from tidings.bots.assistant.turnstile import Turnstile


class Rounds:
    """`steps` says by how much `count` grew in each round; any other callback of the loop has its turn as often."""

    def __init__(self, count: Callable[[], int]) -> None:
        self._count = count
        self._before = count()
        self._handle: asyncio.Handle | None = None
        self.steps: list[int] = []

    def __enter__(self) -> Rounds:
        self._handle = asyncio.get_running_loop().call_soon(self._look)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._handle is not None
        self._handle.cancel()

    def _look(self) -> None:
        now = self._count()
        self.steps.append(now - self._before)
        self._before = now
        self._handle = asyncio.get_running_loop().call_soon(self._look)


class Counting(Turnstile):
    entered = 0

    async def enter(self) -> None:
        self.entered += 1
        await super().enter()

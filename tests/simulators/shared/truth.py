"""The ground truth of a simulator: what really happened, kept where the gateway cannot reach it."""

from __future__ import annotations

import asyncio
from typing import Any, Generic, TypeVar

from msgspec.structs import replace

from tidings.core.clock import Clock
from tidings.core.types import Value


class Effect(Value, frozen=True, kw_only=True):
    """One change of the platform; `order` counts all effects."""

    order: int
    at: float
    act: str
    account: str
    message: str = ""
    text: str = ""


class Call(Value, frozen=True, kw_only=True):
    """One call as it arrived; the verdict is empty while the call is open.

    A verdict is "ok", the code of a refusal, "lost before" and "lost after" the effect when the caller
    never heard, "gone" when the caller left first, or "ok, told 500" when the caller was told something false.
    """

    order: int
    # By the wall clock and by the steady one.
    at: float
    now: float = 0.0
    method: str
    account: str
    verdict: str = ""


class News:
    """Wakes every test that waits for the simulator, and keeps the simulator's own faults."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        # Faults of the simulator itself; the end of the simulator raises the first.
        self.mishaps: list[BaseException] = []
        self._changed = asyncio.Event()
        self._waiting = 0

    async def change(self) -> None:
        """Returns after the next change."""
        self._waiting += 1
        try:
            await self._changed.wait()
        finally:
            self._waiting -= 1

    def wake(self) -> None:
        # A simulator may change thousands of times a second while no test waits.
        if self._waiting:
            self._changed.set()
            self._changed = asyncio.Event()


E = TypeVar("E", bound=Effect)
C = TypeVar("C", bound=Call)
M = TypeVar("M")


class Truth(News, Generic[E, C, M]):
    """Effects and calls are append-only; a platform keeps its present state beside them.

    A platform names the classes of its effects and calls.
    """

    effect: type[E]
    call: type[C]

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.effects: list[E] = []
        self.calls: list[C] = []

    def log(self, act: str, account: str, **fields: Any) -> int:
        """Appends an effect and returns its order."""
        order = len(self.effects) + 1
        self.effects.append(self.effect(order=order, at=self.clock.wall(), act=act, account=account, **fields))
        self.wake()
        return order

    def arrived(self, method: str, account: str, **fields: Any) -> C:
        call = self.call(
            order=len(self.calls),
            at=self.clock.wall(),
            now=self.clock.now(),
            method=method,
            account=account,
            **fields,
        )
        self.calls.append(call)
        self.wake()
        return call

    def decided(self, call: C, verdict: str, **fields: Any) -> None:
        self.calls[call.order] = replace(call, verdict=verdict, **fields)
        self.wake()

    def sent(self) -> tuple[M, ...]:
        """What the bots under test wrote and nobody removed, oldest first."""
        raise NotImplementedError

    def is_open(self, call: C) -> bool:
        return not self.calls[call.order].verdict

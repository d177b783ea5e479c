"""A simulated server on a loopback socket, and a simulated platform: a server with effects, calls and messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

from tests.simulators.shared.truth import Call, Effect, News, Truth
from tidings.core.clock import Clock, SystemClock


class Socket(Protocol):
    """Where a server listens."""

    port: int

    @property
    def connections(self) -> int: ...
    async def open(self) -> None: ...
    async def shut(self) -> None: ...
    async def close(self) -> None: ...
    def cut(self) -> None: ...


class SimulatedServer:
    """`async with` opens the server on `address`; a client may be another process and may die at any moment."""

    truth: News
    _switchboard: Socket

    def __init__(self, clock: Clock | None) -> None:
        self.clock: Clock = SystemClock() if clock is None else clock

    async def __aenter__(self) -> Self:
        await self._switchboard.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._switchboard.close()
        if self.truth.mishaps and error is None:
            raise self.truth.mishaps[0]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._switchboard.port}"

    @property
    def connections(self) -> int:
        """Open connections, and those of dead clients that were not read to their end yet."""
        return self._switchboard.connections

    def cut(self) -> None:
        """Resets every connection; new ones are welcome."""
        self._switchboard.cut()

    async def outage(self, on: bool) -> None:
        """Refuses connections, cuts open ones and calls nobody, until called with false."""
        await (self._switchboard.shut() if on else self._switchboard.open())

    async def until(
        self,
        holds: Callable[[Self], object],
        timeout: float = 30.0,  # noqa: ASYNC109
    ) -> None:
        """Waits for the server to come to a state; looks again after each effect, call, event and connection."""
        try:
            async with asyncio.timeout(timeout):
                while not holds(self):
                    await self.truth.change()
        except TimeoutError:
            raise TimeoutError(f"not so after {timeout:g} s: {', '.join(self._story())}") from None

    def _story(self) -> Iterable[str]:
        """What a test that waited in vain is told."""
        raise NotImplementedError


class Message(Protocol):
    @property
    def text(self) -> str: ...


E = TypeVar("E", bound=Effect)
C = TypeVar("C", bound=Call)
M = TypeVar("M", bound=Message)


class SimulatedPlatform(SimulatedServer, Generic[E, C, M]):
    """A chat platform: what happened there, which calls came in, and which messages the bots under test have there."""

    truth: Truth[E, C, M]

    @property
    def effects(self) -> tuple[E, ...]:
        return tuple(self.truth.effects)

    def calls(self, method: str | None = None) -> tuple[C, ...]:
        return tuple(call for call in self.truth.calls if method in (None, call.method))

    @property
    def sent(self) -> tuple[M, ...]:
        """Every message of the bots under test that was not removed, as it stands now, in order of posting."""
        return self.truth.sent()

    @property
    def posts(self) -> list[str]:
        return [self._text(message) for message in self.truth.sent()]

    def limit_rates(self, on: bool = True) -> None:
        """Puts the rate limits that are known of the platform on, or lifts all limits."""
        raise NotImplementedError

    def _text(self, message: M) -> str:
        """What a person reads of a message."""
        return message.text

    def _story(self) -> Iterable[str]:
        calls = [(call.method, call.verdict or "open") for call in self.truth.calls[-10:]]
        yield f"posts {self.posts[-10:]}"
        yield f"last calls {calls}"
        yield f"mishaps {self.truth.mishaps}"

"""A platform's stand in the chaos run: the real adapter in the gateway's process, and the platform's truth here.

The run compares all platforms in the words of the paper platform, so each stand tells its truth in those words. What
a stand says of messages and calls is the simulator's own record: nothing of the product is asked.
"""

from __future__ import annotations

import asyncio
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

from tests.chaos.steps import Platform
from tests.simulators.paper.simulator import Call, Effect, Message, Odds
from tests.simulators.shared import truth
from tidings.core.adapter import Adapter, Host
from tidings.core.types import Part, Receipt

# For which part a call is made, and what that part answers. No platform asks for this or minds it.
_dye: ContextVar[str] = ContextVar("dye", default="")


class Dye(NamedTuple):
    """The part that a call was made for, and the message that the part answers; empty where the call has no dye."""

    key: str
    answered: str

    @classmethod
    def read(cls, text: object) -> Dye:
        key, _, answered = str(text or "").partition(" ")
        return cls(key, answered)


def dyed(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call, with the dye of the part that is being sent."""
    return {**arguments, "dye": _dye.get()} if _dye.get() else arguments


class Dyed:
    """Beside an adapter's class: only the platform's truth can tell from the dye which part a message belongs to."""

    async def send(self, part: Part) -> Receipt:
        dye = _dye.set(f"{part.key} {self._answered(part)}")
        try:
            receipt: Receipt = await super().send(part)  # type: ignore[misc]
            return receipt
        finally:
            _dye.reset(dye)

    def _answered(self, part: Part) -> str:
        """The message that a part answers, by the gateway's name for it."""
        return part.target.reply_to


class Server(Protocol):
    """What a stand needs of a simulator."""

    @property
    def address(self) -> str: ...
    @property
    def connections(self) -> int: ...
    def schedule(self, seed: int, probabilities: Odds) -> None: ...
    def heal(self) -> None: ...
    async def outage(self, on: bool) -> None: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


S = TypeVar("S", bound=Server)


class Ground(ABC, Generic[S]):
    """A simulator with the verbs of `PaperServer` that the run uses."""

    def __init__(self, server: S) -> None:
        self._server = server
        self.schedule, self.heal, self.outage = server.schedule, server.heal, server.outage

    async def __aenter__(self) -> Self:
        await self._server.__aenter__()
        await self._furnish()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._server.__aexit__(kind, error, trace)

    @property
    def address(self) -> str:
        return self._server.address

    def attached(self, account: str) -> bool:
        return self._server.connections > 0

    async def until(self, holds: Callable[[Self], object], timeout: float) -> None:  # noqa: ASYNC109
        # A simulator does not tell of the end of a connection on which nothing happens.
        async with asyncio.timeout(timeout):
            while not holds(self):  # noqa: ASYNC110
                await asyncio.sleep(0.005)

    @abstractmethod
    async def _furnish(self) -> None:
        """Makes the people and places of the run."""

    @abstractmethod
    def says(self, text: str, *, key: str, chat: str, thread: str, account: str) -> str:
        """Returns the gateway's name for the message; in a group the bot only hears what is addressed to it."""

    @property
    @abstractmethod
    def confirmed(self) -> list[str]: ...
    @property
    @abstractmethod
    def unconfirmed(self) -> list[str]: ...
    @property
    @abstractmethod
    def effects(self) -> tuple[Effect, ...]: ...
    @property
    @abstractmethod
    def sent(self) -> tuple[Message, ...]: ...
    @abstractmethod
    def calls(self) -> tuple[Call, ...]: ...


@dataclass(frozen=True, slots=True)
class Stand(ABC):
    """One platform of the run: the simulator on this side of the wire, the adapter in the gateway's process."""

    platform: Platform
    odds: Odds

    @property
    @abstractmethod
    def people(self) -> tuple[str, ...]:
        """The ids of the people who may speak."""

    @property
    @abstractmethod
    def places(self) -> tuple[tuple[str, str], ...]:
        """Chats and threads in which people speak."""

    @abstractmethod
    def serve(self) -> Any:
        """A `PaperServer` or a `Ground`, which is opened by `async with`."""

    @abstractmethod
    def build(self, account: str, address: str, host: Host) -> Adapter: ...


def keep_locks_in(host: Host) -> None:
    """The lock of a token lies beside the home, and goes with it."""
    tempfile.tempdir = str(host.attachments.parents[2])


C = TypeVar("C", bound=truth.Call)


def posted(posts: Iterable[tuple[truth.Effect, str]], calls: Iterable[tuple[C, str]]) -> Iterator[tuple[str, C]]:
    """The call that posted each message: the last one to its place, since a call has its effect as soon as it arrives.

    Effects and calls come with their places, oldest first.
    """
    waiting = list(calls)
    latest: dict[str, C] = {}
    arrived = 0
    for post, place in posts:
        while arrived < len(waiting) and waiting[arrived][0].at <= post.at:
            latest[waiting[arrived][1]] = waiting[arrived][0]
            arrived += 1
        yield post.message, latest[place]

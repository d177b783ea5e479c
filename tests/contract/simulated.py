"""What the harnesses of simulated platforms share: the contract's troubles as levers, and what people see."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from tests.contract.adapters import PATIENCE_SECONDS, PAUSE_SECONDS, Seen, Trouble
from tests.simulators.shared.server import SimulatedPlatform
from tidings.core.adapter import Adapter
from tidings.core.types import Capabilities, Target

S = TypeVar("S", bound=SimulatedPlatform[Any, Any, Any])


class SimulatedHarness(ABC, Generic[S]):
    """A harness names `here`, `elsewhere` and `thread`, and all that its adapter needs, before it calls `__init__`."""

    here: Target
    elsewhere: Target
    thread: Target
    limit: int
    exempt: Mapping[str, str] = {}

    def __init__(self, server: S) -> None:
        self._server: Any = server
        # The good token.
        self._token: str = self._server.token
        self._said: list[str] = []
        self.made: list[Adapter] = []
        self.adapter: Adapter = self._new()

    @abstractmethod
    def _build(self) -> Adapter: ...

    @abstractmethod
    def _refuse(self, on: bool) -> None:
        """Turns the bot away from `here` for good, or lets it in again."""

    @abstractmethod
    def _revoke(self, on: bool) -> None:
        """Makes the token worthless, or good again."""

    def _move(self) -> None:
        """The chat `here` becomes the chat `elsewhere`."""
        raise NotImplementedError

    def _shown(self, place: Target) -> Sequence[Any]:
        """The bot's messages there, by the simulator's own record."""
        messages: Sequence[Any] = self._server.visible(place.chat, place.thread)
        return messages

    def _seen(self, message: Any) -> Seen:
        files = tuple((file.name, file.data) for file in message.files)
        return Seen(message.id, message.text, files, tuple(button.id for button in message.choices))

    def _chat(self, place: Target) -> str:
        """Where the simulator counts the signs of typing."""
        return place.chat

    def _new(self) -> Adapter:
        adapter = self._build()
        self.made.append(adapter)
        return adapter

    @property
    def can(self) -> Capabilities:
        return self.adapter.can(self.here)

    @property
    def confirmed(self) -> list[str]:
        """Without what the platform itself had to say."""
        return [name for name in self._server.confirmed if name in self._said]

    def visible(self, at: Target | None = None) -> list[Seen]:
        places = [at] if at else [self.here, self.thread, self.elsewhere]
        return [self._seen(message) for place in places for message in self._shown(place)]

    @property
    def typings(self) -> int:
        return len(self._server.typing_times(self._chat(self.here)))

    @property
    def reactions(self) -> list[str]:
        shown = self._server.reactions.values()
        return [each for names in shown for each in ([names] if isinstance(names, str) else names)]

    async def tells_again(self, name: str) -> None:
        self._server.redeliver(name)

    async def trouble(self, trouble: Trouble) -> None:
        match trouble:
            case Trouble.RATE_LIMITED:
                self._server.fail_next(429, retry_after=int(PAUSE_SECONDS))
            case Trouble.REFUSED:
                self._refuse(True)
            case Trouble.MISCONFIGURED:
                self._revoke(True)
            case Trouble.MOVED:
                self._move()
            case Trouble.UNREACHABLE:
                await self._server.outage(True)
            case Trouble.LOST_BEFORE:
                self._server.drop_next(after_effect=False)
            case Trouble.LOST_AFTER:
                self._server.drop_next(after_effect=True)

    async def heal(self) -> None:
        self._server.heal()
        self._refuse(False)
        self._revoke(False)
        await self._server.outage(False)

    async def erase(self, message: str) -> None:
        self._server.erase(message)

    async def reborn(self) -> Adapter:
        return self._new()

    async def until(self, holds: Callable[[], object]) -> None:
        await self._server.until(lambda _: holds(), timeout=PATIENCE_SECONDS)

    async def close(self) -> None:
        for adapter in self.made:
            await adapter.close()

"""A gateway on one real platform in a box: a home, the real adapter on a simulated platform, and scripted agents.

Every world of a platform is made of this one; its own module says which simulator, account and adapter there are.

PlatformWorld(home, agent, ...)  settings={...} changes the section of every account; accounts={"other": {...}} adds
                          accounts; server={...} goes to the simulator; a simulator that is given is shared with
                          another world, and outlives both; platforms={"paper": Kind(...)} puts paper platforms beside
                          it; built_with={"limits": ...} goes to each adapter's constructor; access=, allow=,
                          limits=, kinds=, commands= and all else as a World has them;
                          clock=OwnedClock() for time that the test owns, else time is real
world.platform            the simulator, which outlives the gateway
await world.start()       also again in the same home, with whatever was changed in `world.account_settings` ...
await world.listener()    the part that listens to the platform, as `tidings status` shows it
world.note(name)          a line of the adapter's notebook
world.listeners           the adapter of each account
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from tests.simulators.paper.simulator import Kind
from tests.simulators.shared.server import SimulatedPlatform
from tests.worlds.world import Counted, World
from tidings.core.adapter import Adapter, Host, Platform
from tidings.core.agent import Agent
from tidings.core.desk.health import Health, PartHealth

S = TypeVar("S", bound=SimulatedPlatform[Any, Any, Any])


class PlatformWorld(World, Generic[S]):
    # The adapter's name.
    name: str
    simulator: type[S]
    # Calls that the platform leaves open by design.
    lasting_calls: tuple[str, ...] = ()

    def __init__(
        self,
        home: Path,
        agent: Agent | Mapping[str, Agent],
        *,
        shared: S | None,
        server: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        platforms: Mapping[str, Kind] | None = None,
        allow: Iterable[str] | None = None,
        built_with: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(home, agent, platforms=platforms or {}, allow=allow, **more)
        self._owns_platform = shared is None
        self._platform: S = shared or self.simulator(**{"clock": self.clock, **(server or {})})
        admitted = self._admitted()
        if allow is None:
            self.allow.append(f"{self.name}:{admitted}")
        self.account_settings: dict[str, Any] = dict(settings or {})
        self.accounts: dict[str, dict[str, Any]] = {"main": {}}
        self.listeners: dict[str, Counted] = {}
        self._built_with = dict(built_with or {})

    @property
    def platform(self) -> S:
        return self._platform

    @abstractmethod
    def _admitted(self) -> str:
        """Meets the person who is admitted unless the test says otherwise, and returns their id."""

    @abstractmethod
    def _build(self, account: str, host: Host) -> Adapter:
        """The adapter of an account, with `Counted` beside its class."""

    @abstractmethod
    async def _attach_account(self, account: str) -> None:
        """Returns when the account listens."""

    async def __aenter__(self) -> Self:
        if self._owns_platform:
            await self._servers.enter_async_context(self._platform)
        return await super().__aenter__()

    def _platforms(self) -> list[Platform]:
        return [*super()._platforms(), *(Platform(self.name, name, self._building(name)) for name in self.accounts)]

    def _building(self, account: str) -> Callable[[Host], Adapter]:
        def build(host: Host) -> Adapter:
            adapter = self._build(account, host)
            assert isinstance(adapter, Counted), f"an owned clock cannot wait for a {type(adapter).__name__}"
            self.listeners[account] = adapter
            return adapter

        return build

    async def _attach(self) -> None:
        await super()._attach()
        for name in self.accounts:
            await self._attach_account(name)

    def _marks(self) -> list[int]:
        truth = self._platform.truth
        return [*super()._marks(), len(truth.effects), len(truth.calls)]

    def _moving(self) -> bool:
        calls = self._platform.calls()
        held = sum(not call.verdict and call.method not in self.lasting_calls for call in calls)
        opened = sum(adapter.open_calls for adapter in self.listeners.values())
        return super()._moving() or opened > held

    async def health(self) -> Health:
        return await self.gateway.desk.health()

    async def listener(self, account: str = "main") -> PartHealth:
        parts = (await self.health()).parts
        return next(part for part in parts if part.name == f"{self.name}@{account}")

    def note(self, name: str, account: str = "main") -> str | None:
        sql = "SELECT value FROM notebook WHERE adapter = ? AND account = ? AND name = ?"
        found = self.rows(sql, self.name, account, name)
        return found[0]["value"] if found else None

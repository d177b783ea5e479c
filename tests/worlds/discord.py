"""A gateway on Discord in a box: a home, the real adapter on a simulated Discord, and scripted agents.

    async with DiscordWorld(tmp_path, Scripted("hello")) as world:
        world.ada.says(world.ada.private(), "hi")
        await world.discord.until(lambda discord: discord.posts == ["hello"])

DiscordWorld(home, agent, ...)  agent is one Agent or {name: Agent}; settings={"threads": True} changes [discord];
                          accounts={"other": {"threads": True}} adds bots; server={"intents": ()} changes the platform;
                          discord= shares a server with another world; platforms=, allow=, limits=, kinds=, commands=
                          as a World has them; clock=OwnedClock() for time that the test owns, else time is real
world.discord             the platform, which outlives the gateway
world.ada                 the person who is admitted; `world.room` is a channel in which the bot `main` is
world.gateway             the running gateway, which is also the desk
await world.until(holds)  waits for anything, moving an owned clock
await world.start()       also again in the same home, with whatever was changed in `world.discord_settings` ...
await world.crash()       as kill -9 leaves it; `end`, `stop`, `restart`, `rows`, `run` and all else as a World has it
await world.listener()    the part that listens to Discord, as `tidings status` shows it
world.note(name)          a line of the adapter's notebook
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import SecretStr

from tests.simulators.discord.interactions import ANSWER_SECONDS
from tests.simulators.discord.simulator import DiscordServer
from tests.simulators.paper.simulator import Kind
from tests.worlds.fakes import FakeClock, FakeLocal, FakeServer, calm
from tests.worlds.world import LOOP_TURNS, REST_SECONDS, STORE_ROUNDS, World, _count_changes
from tidings.adapters.discord.adapter import DiscordAdapter
from tidings.adapters.discord.settings import DiscordAccount
from tidings.core.adapter import Host, Platform
from tidings.core.agent import Agent
from tidings.core.desk.health import PartHealth
from tidings.core.gateway.gateway import Gateway
from tidings.core.settings import Access, Core, Limits
from tidings.core.types import Part, Receipt, Signal, Target, View

T = TypeVar("T")


class Counted(DiscordAdapter):
    """The adapter itself, with a count of its open calls, so that an owned clock waits for them."""

    open_calls = 0

    async def send(self, part: Part) -> Receipt:
        return await self._counted(super().send(part))

    async def show(self, view: View, text: str) -> View:
        return await self._counted(super().show(view, text))

    async def signal(self, target: Target, signal: Signal) -> None:
        await self._counted(super().signal(target, signal))

    async def _counted(self, call: Awaitable[T]) -> T:
        self.open_calls += 1
        try:
            return await call
        finally:
            self.open_calls -= 1


class DiscordWorld(World):
    def __init__(
        self,
        home: Path,
        agent: Agent | Mapping[str, Agent],
        *,
        settings: Mapping[str, Any] | None = None,
        accounts: Mapping[str, Mapping[str, Any]] | None = None,
        server: Mapping[str, Any] | None = None,
        discord: DiscordServer | None = None,
        platforms: Mapping[str, Kind] | None = None,
        allow: Iterable[str] | None = None,
        access: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(home, agent, platforms=platforms or {}, allow=allow or (), **more)
        # A server that is given is shared with others, and outlives this world.
        self._owns_discord = discord is None
        self.discord = discord or DiscordServer(**{"clock": self.clock, **(server or {})})
        self.ada = self.discord.person("ada")
        self.room = self.discord.channel("room") if not self.discord.places.guilds else self._first_room()
        if allow is None:
            self.allow = [*(f"{name}:7" for name in self.papers), f"discord:{self.ada.id}"]
        self.access = dict(access or {})
        self.discord_settings: dict[str, Any] = dict(settings or {})
        self.accounts: dict[str, dict[str, Any]] = {"main": {}}
        for name, each in (accounts or {}).items():
            if name not in self.discord.places.bots:
                self.discord.add_bot(name, f"token.of.{name}", name)
                guild = self.discord.places.guilds[self.room.guild]
                self.discord.invite(guild, account=name)
            self.accounts[name] = dict(each)
        self.listeners: dict[str, Counted] = {}

    def _first_room(self) -> Any:
        return next(each for each in self.discord.places.channels.values() if each.guild and not each.is_thread)

    async def __aenter__(self) -> Self:
        if self._owns_discord:
            await self._servers.enter_async_context(self.discord)
        return await super().__aenter__()

    def account(self, name: str = "main") -> DiscordAccount:
        return DiscordAccount(
            **{
                "token": SecretStr(self.discord.places.bot(name).token),
                "api_url": self.discord.api_url,
                "gateway_url": self.discord.gateway_url,
                **self.discord_settings,
                **self.accounts[name],
            }
        )

    async def start(self, *, attached: bool = True) -> None:
        """Returns when every account listens, unless the test says that none will."""
        access = Access(**{"allow": tuple(self.allow), **self.access})
        present = [name for name in self.papers if name not in self.absent]
        platforms = [Platform(name, "main", self._builder(name)) for name in present]
        platforms += [Platform("discord", name, self._building(name)) for name in self.accounts]
        gateway = Gateway(
            self.home,
            Core(access=access, limits=Limits(**self.limits), rules=self.rules),
            platforms,
            self.agents,
            next(iter(self.agents)),
            FakeLocal(),
            FakeServer(),
            self.kinds,
            self.commands,
            clock=self.clock,
            grouped=self._grouped,
        )
        await gateway.__aenter__()
        self._gateway = gateway
        for name in present if attached else ():
            await self.papers[name].until(lambda paper: paper.attached())
        for name in self.accounts if attached else ():
            await self.until(lambda name=name: self.discord.attached(name))  # type: ignore[misc]

    async def until(self, holds: Callable[[], object], *, limit: float = 3600.0, real_limit: float = 30.0) -> None:
        if not isinstance(self.clock, FakeClock):
            await self.discord.until(lambda _: holds(), real_limit)
            return
        try:
            await self.clock.advance_until(holds, limit=limit, real_limit=real_limit)
        except TimeoutError:
            calls = [(call.method, call.verdict or "open") for call in self.discord.calls()[-10:]]
            owed = [tuple(row) for row in self.rows("SELECT kind, state, reason FROM deliveries ORDER BY seq")]
            posts = self.discord.posts[-10:]
            raise TimeoutError(f"not so: posts {posts}, last calls {calls}, owed {owed[-10:]}") from None

    async def rest(self) -> None:
        """Returns when nothing goes on by itself: only time, the test or a gate can bring the next event."""
        deadline = time.monotonic() + REST_SECONDS
        before: list[int] = []
        while time.monotonic() < deadline:
            marks = [len(self.discord.truth.effects), len(self.discord.truth.calls)]
            for _ in range(STORE_ROUNDS):
                if self._gateway is not None:
                    marks.append(await self._gateway._store.read(_count_changes))
                await calm(LOOP_TURNS)
            if marks == before and not self._moving():
                return
            before = marks

    def _moving(self) -> bool:
        """A call that the platform has taken and not decided is held there by the test."""
        held = sum(not call.verdict for call in self.discord.calls())
        if sum(adapter.open_calls for adapter in self.listeners.values()) > held:
            return True
        if self._is_unheard():
            return True
        return any(not link.frames.empty() and not link.is_dead for link in self.discord.gateway.links)

    def _is_unheard(self) -> bool:
        """A command on its way has three seconds, which must not pass while only the sockets are slow."""
        heard = {call.path.split("/")[2] for call in self.discord.calls("callback")}
        return any(
            asked.told and asked.id not in heard and self.discord.clock_now() - asked.now < ANSWER_SECONDS
            for asked in self.discord.truth.interactions.values()
        )

    async def listener(self, account: str = "main") -> PartHealth:
        parts = (await self.gateway.health()).parts
        return next(part for part in parts if part.name == f"discord@{account}")

    def note(self, name: str, account: str = "main") -> str | None:
        sql = "SELECT value FROM notebook WHERE adapter = 'discord' AND account = ? AND name = ?"
        found = self.rows(sql, account, name)
        return found[0]["value"] if found else None

    @property
    def posts(self) -> list[str]:
        return self.discord.posts

    def _building(self, name: str) -> Callable[[Host], Counted]:
        def build(host: Host) -> Counted:
            adapter = self.listeners[name] = Counted(name, self.account(name), host)
            return adapter

        return build

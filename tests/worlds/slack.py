"""A gateway on Slack in a box: a home, the real adapter on a simulated Slack, and scripted agents.

    async with SlackWorld(tmp_path, Scripted("hello")) as world:
        world.ada.says(world.ada.direct, "hi")
        await world.until(lambda: world.posts == ["hello"])

SlackWorld(home, agent, ...)  agent is one Agent or {name: Agent}; settings={"channels": "all"} changes [slack];
                          mode="http" hears by signed requests instead of sockets; accounts={"other": {}} adds
                          workspaces, of the same app unless own_apps=True; server={"ack_seconds": 1.0} changes the
                          platform; slack= shares a server with another world; platforms=, allow=, limits=, kinds=,
                          commands= as a World has them; clock=OwnedClock() for time that the test owns, else it is real
world.slack               the platform, which outlives the gateway
world.ada                 the person who is admitted; `world.room` is a channel in which the app is
world.url                 where the HTTP listener is; `world.path(account)` is where its events go
world.gateway             the running gateway, which is also the desk
await world.until(holds)  waits for anything, moving an owned clock
await world.start()       also again in the same home, with whatever was changed in `world.slack_settings` ...
await world.crash()       as kill -9 leaves it; `end`, `stop`, `restart`, `rows`, `run` and all else as a World has it
await world.listener()    the part that listens to Slack, as `tidings status` shows it
world.note(name)          a line of the adapter's notebook
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from pydantic import SecretStr

from tests.simulators.paper.simulator import Kind
from tests.simulators.slack.simulator import SlackServer, Workspace
from tests.worlds.fakes import FakeClock, FakeLocal, calm
from tests.worlds.world import LOOP_TURNS, REST_SECONDS, STORE_ROUNDS, World, _count_changes
from tidings.adapters.shared.http_server import HttpServer
from tidings.adapters.slack.adapter import SlackAdapter
from tidings.adapters.slack.settings import SlackAccount
from tidings.core.adapter import Host, Platform
from tidings.core.agent import Agent
from tidings.core.desk.health import PartHealth
from tidings.core.gateway.gateway import Gateway
from tidings.core.settings import Access, Core, Limits
from tidings.core.types import Part, Receipt, Signal, Target, View

T = TypeVar("T")


class Counted(SlackAdapter):
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


class SlackWorld(World):
    def __init__(
        self,
        home: Path,
        agent: Agent | Mapping[str, Agent],
        *,
        settings: Mapping[str, Any] | None = None,
        mode: Literal["socket", "http"] = "socket",
        accounts: Mapping[str, Mapping[str, Any]] | None = None,
        own_apps: bool = False,
        server: Mapping[str, Any] | None = None,
        slack: SlackServer | None = None,
        platforms: Mapping[str, Kind] | None = None,
        allow: Iterable[str] | None = None,
        access: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(home, agent, platforms=platforms or {}, allow=allow or (), **more)
        # A server that is given is shared with others, and outlives this world.
        self._owns_slack = slack is None
        self.slack = slack or SlackServer(**{"clock": self.clock, **(server or {})})
        self.mode = mode
        self.ada = self.slack.person("ada")
        self.room = self.slack.channel("room")
        if allow is None:
            self.allow = [*(f"{name}:7" for name in self.papers), f"slack:{self.ada.id}"]
        self.access = dict(access or {})
        self.slack_settings: dict[str, Any] = dict(settings or {})
        self.accounts: dict[str, dict[str, Any]] = {"main": {}}
        for name, each in (accounts or {}).items():
            own = self.slack.add_app(name, f"xapp-1-{name}", f"secret of {name} 0123456789") if own_apps else None
            self.slack.workspace(name, app=own)
            self.accounts[name] = dict(each)
        self.listeners: dict[str, Counted] = {}
        self._around = AsyncExitStack()

    async def __aenter__(self) -> Self:
        if self._owns_slack:
            await self._servers.enter_async_context(self.slack)
        return await super().__aenter__()

    def workspace(self, name: str = "main") -> Workspace:
        return self.slack.workspace(name)

    def account(self, name: str = "main") -> SlackAccount:
        workspace = self.slack.workspace(name)
        app = workspace.app
        proof = (
            {"app_token": SecretStr(app.token)} if self.mode == "socket" else {"signing_secret": SecretStr(app.secret)}
        )
        return SlackAccount(
            **{
                "bot_token": SecretStr(workspace.token),
                "api_url": self.slack.api_url,
                **proof,
                **self.slack_settings,
                **self.accounts[name],
            }
        )

    @property
    def url(self) -> str:
        return self._server.address

    @staticmethod
    def path(account: str = "main") -> str:
        return "/slack/events" if account == "main" else f"/slack/events/{account}"

    async def start(self, *, attached: bool = True) -> None:
        """Returns when every account listens, unless the test says that none will."""
        self._server = HttpServer("127.0.0.1", 0, patience=0.0)
        await self._around.enter_async_context(self._server)
        access = Access(**{"allow": tuple(self.allow), **self.access})
        present = [name for name in self.papers if name not in self.absent]
        platforms = [Platform(name, "main", self._builder(name)) for name in present]
        platforms += [Platform("slack", name, self._building(name)) for name in self.accounts]
        gateway = Gateway(
            self.home,
            Core(access=access, limits=Limits(**self.limits), rules=self.rules),
            platforms,
            self.agents,
            next(iter(self.agents)),
            FakeLocal(),
            self._server,
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
            await self._attach(name)

    async def _attach(self, name: str) -> None:
        """An app has one URL for all its workspaces; what it had in another life is nobody's now."""
        app = self.slack.workspace(name).app
        if self.mode == "socket":
            await self.until(lambda: len(self.slack.sockets.of(app)) >= self._accounts_of(app))
            return
        async with asyncio.timeout(10):
            while True:
                try:
                    await self.slack.send_events_to(f"{self.url}{self.path(name)}", app=app)
                    return
                except (LookupError, ValueError):
                    # Not open yet.
                    await asyncio.sleep(0.005)

    def _accounts_of(self, app: object) -> int:
        return sum(self.slack.workspace(name).app is app for name in self.accounts)

    async def end(self) -> None:
        await super().end()
        await self._around.aclose()

    async def until(self, holds: Callable[[], object], *, limit: float = 3600.0, real_limit: float = 30.0) -> None:
        if not isinstance(self.clock, FakeClock):
            await self.slack.until(lambda _: holds(), real_limit)
            return
        try:
            await self.clock.advance_until(holds, limit=limit, real_limit=real_limit)
        except TimeoutError:
            calls = [(call.method, call.verdict or "open") for call in self.slack.calls()[-10:]]
            owed = [tuple(row) for row in self.rows("SELECT kind, state, reason FROM deliveries ORDER BY seq")]
            posts = self.slack.posts[-10:]
            raise TimeoutError(f"not so: posts {posts}, last calls {calls}, owed {owed[-10:]}") from None

    async def rest(self) -> None:
        """Returns when nothing goes on by itself: only time, the test or a gate can bring the next event."""
        deadline = time.monotonic() + REST_SECONDS
        before: list[int] = []
        while time.monotonic() < deadline:
            marks = [len(self.slack.truth.effects), len(self.slack.truth.calls), len(self.slack.truth.deliveries)]
            for _ in range(STORE_ROUNDS):
                if self._gateway is not None:
                    marks.append(await self._gateway._store.read(_count_changes))
                await calm(LOOP_TURNS)
            if marks == before and not self._moving():
                return
            before = marks

    def _moving(self) -> bool:
        """A call that the platform has taken and not decided is held there by the test."""
        held = sum(not call.verdict for call in self.slack.calls())
        if sum(adapter.open_calls for adapter in self.listeners.values()) > held:
            return True
        return self._gateway is not None and any(not each.verdict for each in self.slack.deliveries()[-200:])

    async def listener(self, account: str = "main") -> PartHealth:
        parts = (await self.gateway.health()).parts
        return next(part for part in parts if part.name == f"slack@{account}")

    def note(self, name: str, account: str = "main") -> str | None:
        sql = "SELECT value FROM notebook WHERE adapter = 'slack' AND account = ? AND name = ?"
        found = self.rows(sql, account, name)
        return found[0]["value"] if found else None

    @property
    def posts(self) -> list[str]:
        return self.slack.posts

    def _building(self, name: str) -> Callable[[Host], Counted]:
        def build(host: Host) -> Counted:
            adapter = self.listeners[name] = Counted(name, self.account(name), host)
            return adapter

        return build

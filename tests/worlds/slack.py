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
world.gateway             the running gateway; world.gateway.desk is its desk
await world.until(holds)  waits for anything, moving an owned clock
await world.start()       also again in the same home, with whatever was changed in `world.account_settings` ...
await world.crash()       as kill -9 leaves it; `end`, `stop`, `restart`, `rows`, `run` and all else as a World has it
await world.listener()    the part that listens to Slack, as `tidings status` shows it
world.note(name)          a line of the adapter's notebook
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import SecretStr

from tests.simulators.slack.simulator import SlackServer, Workspace
from tests.worlds.platform import PlatformWorld
from tests.worlds.world import Counted
from tidings.adapters.shared.http_server import HttpServer
from tidings.adapters.slack.adapter import SlackAdapter
from tidings.adapters.slack.settings import SlackAccount
from tidings.core.adapter import Host
from tidings.core.agent import Agent


class CountedSlack(Counted, SlackAdapter):
    pass


class SlackWorld(PlatformWorld[SlackServer]):
    name = "slack"
    simulator = SlackServer

    def __init__(
        self,
        home: Path,
        agent: Agent | Mapping[str, Agent],
        *,
        mode: Literal["socket", "http"] = "socket",
        accounts: Mapping[str, Mapping[str, Any]] | None = None,
        own_apps: bool = False,
        slack: SlackServer | None = None,
        **more: Any,
    ) -> None:
        super().__init__(home, agent, shared=slack, **more)
        self.mode = mode
        self.room = self.slack.channel("room")
        for name, each in (accounts or {}).items():
            own = self.slack.add_app(name, f"xapp-1-{name}", f"secret of {name} 0123456789") if own_apps else None
            self.slack.workspace(name, app=own)
            self.accounts[name] = dict(each)

    @property
    def slack(self) -> SlackServer:
        return self.platform

    def _admitted(self) -> str:
        self.ada = self.slack.person("ada")
        return self.ada.id

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
                **self.account_settings,
                **self.accounts[name],
            }
        )

    @property
    def url(self) -> str:
        return self._listening.address

    @staticmethod
    def path(account: str = "main") -> str:
        return "/slack/events" if account == "main" else f"/slack/events/{account}"

    def _build(self, account: str, host: Host) -> CountedSlack:
        return CountedSlack(account, self.account(account), host, **self._built_with)

    async def _open_listeners(self) -> None:
        self._listening = HttpServer("127.0.0.1", 0, patience=0.0)
        self._http = await self._around.enter_async_context(self._listening)

    async def _attach_account(self, account: str) -> None:
        """An app has one URL for all its workspaces; a URL of an earlier gateway leads nowhere now."""
        app = self.slack.workspace(account).app
        if self.mode == "socket":
            await self.until(lambda: len(self.slack.sockets.of(app)) >= self._accounts_of(app))
            return
        async with asyncio.timeout(10):
            while True:
                try:
                    await self.slack.send_events_to(f"{self.url}{self.path(account)}", app=app)
                    return
                except (LookupError, ValueError):
                    # Not open yet.
                    await asyncio.sleep(0.005)

    def _accounts_of(self, app: object) -> int:
        return sum(self.slack.workspace(name).app is app for name in self.accounts)

    def _marks(self) -> list[int]:
        return [*super()._marks(), len(self.slack.truth.deliveries)]

    def _moving(self) -> bool:
        told = self._gateway is not None and any(not each.verdict for each in self.slack.deliveries()[-200:])
        return super()._moving() or told

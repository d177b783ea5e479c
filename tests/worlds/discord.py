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
world.gateway             the running gateway; world.gateway.desk is its desk
await world.until(holds)  waits for anything, moving an owned clock
await world.start()       also again in the same home, with whatever was changed in `world.account_settings` ...
await world.crash()       as kill -9 leaves it; `end`, `stop`, `restart`, `rows`, `run` and all else as a World has it
await world.listener()    the part that listens to Discord, as `tidings status` shows it
world.note(name)          a line of the adapter's notebook
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from tests.simulators.discord.interactions import ANSWER_SECONDS
from tests.simulators.discord.simulator import DiscordServer
from tests.worlds.platform import PlatformWorld
from tests.worlds.world import Counted
from tidings.adapters.discord.adapter import DiscordAdapter
from tidings.adapters.discord.settings import DiscordAccount
from tidings.core.adapter import Host
from tidings.core.agent import Agent


class CountedDiscord(Counted, DiscordAdapter):
    pass


class DiscordWorld(PlatformWorld[DiscordServer]):
    name = "discord"
    simulator = DiscordServer

    def __init__(
        self,
        home: Path,
        agent: Agent | Mapping[str, Agent],
        *,
        accounts: Mapping[str, Mapping[str, Any]] | None = None,
        discord: DiscordServer | None = None,
        **more: Any,
    ) -> None:
        super().__init__(home, agent, shared=discord, **more)
        self.room = self.discord.channel("room") if not self.discord.places.guilds else self._first_room()
        for name, each in (accounts or {}).items():
            if name not in self.discord.places.bots:
                self.discord.add_bot(name, f"token.of.{name}", name)
                guild = self.discord.places.guilds[self.room.guild]
                self.discord.invite(guild, account=name)
            self.accounts[name] = dict(each)

    @property
    def discord(self) -> DiscordServer:
        return self.platform

    def _admitted(self) -> str:
        self.ada = self.discord.person("ada")
        return self.ada.id

    def _first_room(self) -> Any:
        return next(each for each in self.discord.places.channels.values() if each.guild and not each.is_thread)

    def account(self, name: str = "main") -> DiscordAccount:
        return DiscordAccount(
            **{
                "token": SecretStr(self.discord.places.bot(name).token),
                "api_url": self.discord.api_url,
                "gateway_url": self.discord.gateway_url,
                **self.account_settings,
                **self.accounts[name],
            }
        )

    def _build(self, account: str, host: Host) -> CountedDiscord:
        return CountedDiscord(account, self.account(account), host, **self._built_with)

    async def _attach_account(self, account: str) -> None:
        await self.until(lambda: self.discord.attached(account))

    def _moving(self) -> bool:
        if super()._moving() or self._is_unheard():
            return True
        return any(not link.frames.empty() and not link.is_dead for link in self.discord.gateway.links)

    def _is_unheard(self) -> bool:
        """A command on its way has three seconds, which must not pass while only the sockets are slow."""
        heard = {call.path.split("/")[2] for call in self.discord.calls("callback")}
        return any(
            asked.told and asked.id not in heard and self.discord.clock_now() - asked.now < ANSWER_SECONDS
            for asked in self.discord.truth.interactions.values()
        )

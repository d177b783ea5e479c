"""The simulated Discord and the real library's client, joined."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp
import discord
import yarl
from discord.gateway import DiscordWebSocket
from discord.http import Route

from tests.simulators.discord.simulator import DiscordServer

PATIENCE_SECONDS = 10.0


def aim(server: DiscordServer) -> None:
    """Points the library there; it knows only one Discord in a process."""
    Route.BASE = server.api_url
    DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL(server.gateway_url)


def all_intents() -> discord.Intents:
    intents = discord.Intents.none()
    intents.guilds = intents.messages = intents.message_content = True
    intents.reactions = intents.typing = True
    return intents


class Listener(discord.Client):
    """Remembers what it is told, by the name of the event."""

    def __init__(self, *, intents: discord.Intents | None = None, **options: Any) -> None:
        # Nobody is waited for: the simulator tells of all guilds at once.
        options = {"guild_ready_timeout": 0.05, "chunk_guilds_at_startup": False, **options}
        super().__init__(intents=intents or all_intents(), **options)
        self.tree = discord.app_commands.CommandTree(self)
        self.heard: list[tuple[str, Any]] = []
        self._news = asyncio.Event()

    def dispatch(self, event: str, /, *args: Any, **kwargs: Any) -> None:
        super().dispatch(event, *args, **kwargs)
        if not event.startswith("socket"):
            self.heard.append((event, args[-1] if args else None))
            self._news.set()
            self._news = asyncio.Event()

    def all(self, event: str) -> list[Any]:
        return [about for name, about in self.heard if name == event]

    @property
    def texts(self) -> list[str]:
        """What others said, in the order in which it was told."""
        return [message.content for message in self.all("message") if message.author != self.user]

    async def until(self, holds: Callable[[], object]) -> None:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not holds():
                    await self._news.wait()
        except TimeoutError:
            raise TimeoutError(f"not so; heard {[name for name, _ in self.heard[-20:]]}") from None

    async def next(self, event: str, number: int = 1) -> Any:
        await self.until(lambda: len(self.all(event)) >= number)
        return self.all(event)[number - 1]


@asynccontextmanager
async def connected(server: DiscordServer, *, account: str = "main", **options: Any) -> AsyncIterator[Listener]:
    """A client that is ready."""
    aim(server)
    client = Listener(**options)
    await client.login(server.places.bot(account).token)
    task = asyncio.create_task(client.connect())
    try:
        ready = asyncio.create_task(client.next("ready"))
        await asyncio.wait({ready, task}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            ready.cancel()
            task.result()
        await ready
        yield client
    finally:
        await client.close()
        task.cancel()
        # Whoever is closed while it connects again dies of its own confusion.
        with suppress(asyncio.CancelledError, AttributeError, discord.DiscordException, aiohttp.ClientError):
            await task


@asynccontextmanager
async def platform(**options: Any) -> AsyncIterator[tuple[DiscordServer, Listener]]:
    """With one guild and the channel `general` in it."""
    async with DiscordServer(**options) as server:
        server.channel("general")
        async with connected(server) as client:
            yield server, client

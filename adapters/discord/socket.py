"""Discord's gateway by discord.py: every event as it came, in order, and every end of the connection as a verdict."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
import zlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, NoReturn

import aiohttp
import discord
import msgspec
import yarl
from discord.gateway import DiscordWebSocket, KeepAliveHandler, ReconnectWebSocket
from discord.http import Route

from tidings.adapters.discord.settings import DiscordAccount
from tidings.adapters.shared.http_client import connector
from tidings.adapters.shared.proxy import way
from tidings.core.adapter import Host
from tidings.core.errors import Misconfigured, StandingBy, Unreachable

log = logging.getLogger(__name__)

# At its debug level the library writes down every event, with the tokens in it.
logging.getLogger("discord").setLevel(logging.WARNING)
# The bot enters no voice channel, so the library's warnings about voice are noise.
discord.VoiceClient.warn_nacl = discord.VoiceClient.warn_dave = False

LIMITED_SECONDS = 30.0
# A connection that ends sooner was hardly there; several such in a row are followed by pauses, not by a storm.
BRIEF_SECONDS = 5.0
# Discord takes a bot's token away after 1,000 sessions in a day, so we never begin more than these. After a burst, the
# next session waits for its turn.
IDENTIFIES_A_DAY = 800
IDENTIFIES_BURST = 100
IDENTIFY_SECONDS = 24 * 3600.0 / (IDENTIFIES_A_DAY - IDENTIFIES_BURST)
# A shorter wait is not worth a word; during a longer one the owner sees that the bot stands by.
SHORT_SECONDS = 5.0

INTENT = (
    "Discord does not let this bot read messages: switch on “Message Content Intent” in the developer portal under Bot,"
    " or set message_content = false"
)
TOKEN = "Discord does not accept the token; copy it anew from the developer portal under Bot"
# Codes with which the gateway says that coming back is useless.
VERDICTS = {
    4004: TOKEN,
    4010: "Discord says that this shard is invalid",
    4011: "This bot is in so many servers that Discord asks for several connections, which is not supported",
    4012: "Discord no longer speaks this version of its API; install a newer version",
    4013: "Discord does not know what this bot asks to be told; install a newer version",
    4014: INTENT,
}

Hear = Callable[[str, Any], None]


class Limits(NamedTuple):
    """How long the adapter waits for Discord, and how much it does at once."""

    # A connection on which nothing was heard for so long is dead.
    heartbeat_seconds: float = 60.0
    connect_seconds: float = 30.0
    # A longer silence is reported.
    troubled_seconds: float = 30.0
    # A server that does not answer a goodbye for so long is not waited for.
    close_seconds: float = 2.0
    # Pauses before the next connection. One breaks now and then; after the last pause listening ends.
    pauses: tuple[float, ...] = (0.0, 0.5, 1.0, 2.0, 4.0)
    # Discord asks for a pause of random length before a new session replaces an invalid one.
    invalid_seconds: tuple[float, float] = (1.0, 5.0)
    # Sessions that may be begun without a pause.
    sessions_at_once: int = IDENTIFIES_BURST
    # Events in memory; beyond it we stop reading, and Discord keeps the rest for us.
    events_waiting: int = 2000


USUAL = Limits()


class Allowance(msgspec.Struct, frozen=True):
    """How many sessions we may begin, and when that was so by the steady clock."""

    left: float
    at: float

    def at_time(self, now: float, most: int = IDENTIFIES_BURST) -> Allowance:
        earned = max(now - self.at, 0.0) / IDENTIFY_SECONDS
        return Allowance(min(self.left + earned, float(most)), now)


class Gateway(NamedTuple):
    """`hear` is given each event and must not fail; `room` returns when there is room for the next."""

    settings: DiscordAccount
    host: Host
    hear: Hear
    room: Callable[[], Awaitable[None]]
    limits: Limits = USUAL

    async def run(self) -> NoReturn:
        """One client's life. Raises Misconfigured, StandingBy when too many sessions were begun, or Unreachable."""
        with _pointed_at(self.settings.api_url, self.settings.gateway_url):
            client = _Client(self)
            try:
                await client.start(self.settings.secret)
            except (StandingBy, Misconfigured, Unreachable):
                raise
            except discord.LoginFailure as error:
                raise Misconfigured(TOKEN) from error
            except discord.ConnectionClosed as error:
                if error.code in VERDICTS:
                    raise Misconfigured(VERDICTS[error.code]) from error
                raise Unreachable(f"Discord has closed the connection (code {error.code})") from error
            except (
                discord.DiscordException,
                aiohttp.ClientError,
                OSError,
                # What the library does not expect of a frame.
                *(ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError, zlib.error),
            ) as error:
                raise Unreachable(f"the connection to Discord failed: {_words(error)}") from error
            finally:
                await _end(client, self.limits.close_seconds)
        raise Unreachable("the connection to Discord has ended")


class _Parsers(dict[str, Callable[[Any], None]]):
    """The library's own would die of an unexpected shape, and take the connection with it."""

    def __init__(self, hear: Hear) -> None:
        super().__init__()
        self._hear = hear

    def __missing__(self, event: str) -> Callable[[Any], None]:
        return partial(self._hear, event)


class _Client(discord.Client):
    def __init__(self, gateway: Gateway) -> None:
        settings, limits = gateway.settings, gateway.limits
        super().__init__(
            intents=_intents(settings),
            max_messages=None,
            member_cache_flags=discord.MemberCacheFlags.none(),
            chunk_guilds_at_startup=False,
            heartbeat_timeout=limits.heartbeat_seconds,
            max_ratelimit_timeout=LIMITED_SECONDS,
            proxy=way(settings.proxy, settings.api_url).by,
            connector=connector(settings.api_url, connections=0),
        )
        self._host = gateway.host
        self._limits = limits
        self._room = gateway.room
        self._failures = 0
        # When the last connection that heard something was lost.
        self._lost = 0.0
        self._hear = gateway.hear
        self._connection.parsers = _Parsers(self._note)

    def dispatch(self, event: str, /, *args: Any, **kwargs: Any) -> None:
        """The library's own events have no listeners."""

    def _note(self, event: str, data: Any) -> None:
        self._failures = 0
        self._hear(event, data)

    async def login(self, token: str) -> None:
        """The library would wait five minutes for an answer that never comes."""
        async with asyncio.timeout(self._limits.connect_seconds):
            await super().login(token)

    async def before_identify_hook(self, shard_id: int | None, *, initial: bool = False) -> None:
        """Counted before it is said, so that no crash can keep it from being counted."""
        allowance = await self._allowance()
        spent = Allowance(allowance.left - 1, allowance.at)
        await self._host.notebook.write("identifies", msgspec.json.encode(spent).decode())

    async def _allowance(self) -> Allowance:
        now = self._host.clock.now()
        stored = await self._host.notebook.read("identifies")
        most = self._limits.sessions_at_once
        return msgspec.json.decode(stored, type=Allowance).at_time(now, most) if stored else Allowance(float(most), now)

    async def _may_identify(self) -> None:
        missing = (1 - (await self._allowance()).left) * IDENTIFY_SECONDS
        if missing > SHORT_SECONDS:
            raise StandingBy(
                "this bot was connected anew so often that Discord would take its token away; I wait for a while",
                min(missing, IDENTIFY_SECONDS),
            )
        if missing > 0:
            await self._host.clock.sleep(missing)

    async def connect(self, *, reconnect: bool = True) -> None:
        """Replaces the library's own: resumes after a reset too, waits for room, and soon reports a lost connection.

        The library's waits up to a quarter of an hour without a word, and dies of a gateway that was never there.
        """
        known: dict[str, Any] = {}
        brief, pauses = 0, self._limits.pauses
        while True:
            begun = self._host.clock.now()
            try:
                await self._attend(known)
            except ReconnectWebSocket as error:
                trouble: Exception = error
                if error.resume:
                    known = self._known()
                else:
                    known = {}
                    await self._host.clock.sleep(random.uniform(*self._limits.invalid_seconds))
            except discord.ConnectionClosed as error:
                if error.code in VERDICTS:
                    raise
                trouble, known = error, self._known()
            except (OSError, aiohttp.ClientError, TimeoutError) as error:
                trouble, known = error, self._known()
            now = self._host.clock.now()
            self._lost = self._lost if self._failures else now
            if now - self._lost >= self._limits.troubled_seconds:
                self._host.reports.troubled(
                    f"nothing was heard of Discord for {now - self._lost:.0f} s ({_words(trouble)})"
                )
            self._failures += 1
            if self._failures > len(pauses):
                raise Unreachable(f"the gateway of Discord cannot be reached: {_words(trouble)}") from trouble
            brief = brief + 1 if self._host.clock.now() - begun < BRIEF_SECONDS else 1
            await self._host.clock.sleep(pauses[min(max(self._failures, brief), len(pauses)) - 1])

    async def _attend(self, known: dict[str, Any]) -> NoReturn:
        if not known:
            await self._may_identify()
        async with asyncio.timeout(self._limits.connect_seconds):
            self.ws = await DiscordWebSocket.from_client(self, initial=not known, **known)
        while True:
            await self.ws.poll_event()
            await self._room()
            await self._check_beat()

    async def _check_beat(self) -> None:
        """Leaves a gateway that sends events and answers no heartbeat: to the library, any event is a sign of life."""
        beat = self.ws._keep_alive
        if (
            beat is None
            or time.perf_counter() - beat._last_ack <= (beat.interval or 0.0) + self._limits.heartbeat_seconds
        ):
            return
        await self.ws.close(4000)
        raise ReconnectWebSocket(None)

    def _known(self) -> dict[str, Any]:
        """The arguments that resume the session; empty before the first one."""
        # The library says so while there was no connection yet.
        socket: DiscordWebSocket | None = self.ws
        if socket is None or socket.session_id is None:
            return {}
        return {
            "sequence": socket.sequence,
            "session": socket.session_id,
            "gateway": socket.gateway,
            "resume": True,
        }


async def _end(client: discord.Client, seconds: float) -> None:
    """Nothing that goes wrong here may take the place of why it ends."""
    try:
        async with asyncio.timeout(seconds):
            await client.close()
    except (aiohttp.ClientError, OSError, AttributeError, RuntimeError) as error:
        log.debug("the connection to Discord did not end well: %r", error)
        await client.http.close()
    finally:
        _stop_heartbeats(client)


def _stop_heartbeats(client: discord.Client) -> None:
    """The library forgets the thread of a connection that never became ready; it would outlive the client."""
    for thread in threading.enumerate():
        if isinstance(thread, KeepAliveHandler) and thread.ws._connection is client._connection:
            thread.stop()


# The library knows one Discord in a process: its address, and how many of us are there.
_in_use: dict[tuple[str, str], int] = {}


@contextmanager
def _pointed_at(api_url: str, gateway_url: str) -> Iterator[None]:
    address = (api_url.rstrip("/"), gateway_url)
    if any(other != address for other in _in_use):
        raise Misconfigured(
            "two accounts have different addresses of Discord; api_url and gateway_url must be the same"
        )
    Route.BASE, DiscordWebSocket.DEFAULT_GATEWAY = address[0], yarl.URL(gateway_url)
    _in_use[address] = _in_use.get(address, 0) + 1
    try:
        yield
    finally:
        _in_use[address] -= 1
        if not _in_use[address]:
            del _in_use[address]


def _intents(settings: DiscordAccount) -> discord.Intents:
    intents = discord.Intents.none()
    intents.guilds = intents.guild_messages = intents.dm_messages = True
    intents.message_content = settings.message_content
    return intents


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__

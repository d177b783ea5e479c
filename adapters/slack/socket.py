"""Socket Mode: the next socket opens before the old one goes, and the old one first answers its envelopes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, NamedTuple, NoReturn

import aiohttp
from slack_bolt.adapter.socket_mode.async_internals import send_async_response
from slack_bolt.response import BoltResponse
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest

from tidings.adapters.shared.proxy import way
from tidings.adapters.slack.bolt import SILENT_LOGGER
from tidings.adapters.slack.client import Client
from tidings.core.background import Background
from tidings.core.clock import Clock
from tidings.core.errors import Doubtful, Misconfigured, RateLimited, Unreachable
from tidings.core.failpoints import fail_here

log = logging.getLogger(__name__)


class Limits(NamedTuple):
    """How long the adapter waits for Slack, and how much it keeps in memory."""

    # A socket that is open and deaf is noticed after one and a half of these.
    ping_seconds: float = 3.0
    # The calls that come before a socket: who the bot is, and where the socket is to be opened.
    call_seconds: float = 20.0
    open_seconds: float = 10.0
    # An old socket stays so long for the envelopes that came by it and are not answered yet.
    drain_seconds: float = 5.0
    close_seconds: float = 0.5
    # Pauses before the next attempt to open a socket; after the last one listening ends.
    pauses: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0)
    # The pause where Slack limits new sockets and names no time.
    limited_seconds: float = 30.0
    # A longer time without a socket that hears is reported.
    troubled_seconds: float = 30.0
    # Slack waits three seconds for the answer to a command.
    answer_seconds: float = 2.5
    # Events that wait to be stored; beyond it none is acknowledged, and Slack keeps the rest for us.
    events_waiting: int = 2000


USUAL = Limits()

# Given an envelope: what to answer. Only the status 200 acknowledges the envelope.
Answer = Callable[[SocketModeRequest], Awaitable[BoltResponse]]


class Link(SocketModeClient):
    """One connection by slack_sdk's client. A Link says when its connection is over, and never opens another one."""

    def __init__(self, app_token: str, answer: Answer, proxy: str = "", limits: Limits = USUAL) -> None:
        super().__init__(app_token, logger=SILENT_LOGGER, ping_interval=limits.ping_seconds)
        self._limits = limits
        self.greeted = asyncio.Event()
        self.over = asyncio.Event()
        self._answer = answer
        self._way = proxy
        self._unanswered = 0
        self._answered = asyncio.Event()
        self.message_listeners.append(self._greet)
        self.socket_mode_request_listeners.append(self._hear)
        self.on_error_listeners.append(self._end)
        self.on_close_listeners.append(self._end)

    async def open(self, url: str) -> None:
        """Raises Unreachable."""
        try:
            async with asyncio.timeout(self._limits.open_seconds):
                self.current_session = await self.aiohttp_client_session.ws_connect(
                    url, autoping=False, heartbeat=self.ping_interval, proxy=way(self._way, url).by
                )
                self.current_session_monitor = asyncio.ensure_future(self.monitor_current_session())
                self.message_receiver = asyncio.ensure_future(self.receive_messages())
                await self._first_of(self.greeted, self.over)
        except (aiohttp.ClientError, OSError) as error:
            # A timeout is an OSError, too.
            raise Unreachable(f"Slack's socket cannot be opened: {type(error).__name__}") from error
        if not self.greeted.is_set():
            raise Unreachable("Slack sent our socket away")

    async def connect_to_new_endpoint(self, force: bool = False) -> None:
        """The library calls this when Slack tells us to go, and when the connection is dead."""
        self.over.set()

    @property
    def hears(self) -> bool:
        """Whether events still come by this socket; a socket that Slack wants replaced hears until it is closed."""
        return not self.stale and self.current_session is not None and not self.current_session.closed

    async def drained(self) -> None:
        """Returns when every envelope of this socket has been answered."""
        while self._unanswered:
            self._answered.clear()
            await self._answered.wait()

    async def close(self) -> None:
        self.closed = True
        tasks = [task for task in (self.message_processor, self.current_session_monitor, self.message_receiver) if task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.current_session is not None:
            # A dead connection does not answer the goodbye.
            closing = asyncio.ensure_future(self.current_session.close())
            await asyncio.wait({closing}, timeout=self._limits.close_seconds)
            closing.cancel()
        await self.aiohttp_client_session.close()

    async def _greet(self, _: Any, message: dict[str, Any], raw: str | None = None) -> None:
        if message.get("type") == "hello":
            self.greeted.set()

    async def _hear(self, _: Any, request: SocketModeRequest) -> None:
        self._unanswered += 1
        try:
            response = await self._answer(request)
            if response.status == HTTPStatus.OK:
                fail_here("in.pre_ack")
                await send_async_response(self, request, response, 0.0)
                fail_here("in.post_ack")
        except (ConnectionError, aiohttp.ClientError) as error:
            log.debug("an envelope could not be acknowledged, so it comes again: %s", error)
        finally:
            self._unanswered -= 1
            self._answered.set()

    async def _end(self, _: Any) -> None:
        self.over.set()

    @staticmethod
    async def _first_of(*events: asyncio.Event) -> None:
        waits = [asyncio.ensure_future(event.wait()) for event in events]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()


class Sockets:
    def __init__(
        self,
        client: Client,
        app_token: str,
        clock: Clock,
        answer: Answer,
        troubled: Callable[[str], None],
        limits: Limits = USUAL,
    ) -> None:
        """`troubled` is told when no socket hears for a while."""
        self._limits = limits
        self._client = client
        self._app_token = app_token
        self._clock = clock
        self._answer = answer
        self._troubled = troubled
        self._links: set[Link] = set()
        self._background = Background(log, "a socket could not be closed")

    async def run(self, opened: Callable[[], object]) -> NoReturn:
        """Calls `opened` with each new socket. Raises Unreachable or Misconfigured when there can be none."""
        try:
            current = await self._open(None)
            while True:
                opened()
                await current.over.wait()
                # The old socket hears until the new one does.
                old, current = current, await self._open(current)
                self._background.begin(self._drain(old))
        finally:
            await self._background.close()
            await asyncio.gather(*(link.close() for link in self._links), return_exceptions=True)

    async def _open(self, old: Link | None) -> Link:
        failures, began = 0, self._clock.now()

        def note(error: Exception) -> None:
            if self._clock.now() - began >= self._limits.troubled_seconds and (old is None or not old.hears):
                self._troubled(f"no socket to Slack can be opened: {error}")

        while True:
            try:
                return await self._open_once()
            except RateLimited as error:
                log.info("Slack lets us open a socket only later: %s", error)
                note(error)
                await self._clock.sleep(error.retry_after or self._limits.limited_seconds)
                note(error)
            except (Unreachable, Doubtful) as error:
                note(error)
                if failures == len(self._limits.pauses):
                    raise Unreachable(str(error)) from error
                log.debug("no socket yet: %s", error)
                await self._clock.sleep(self._limits.pauses[failures])
                failures += 1

    async def _open_once(self) -> Link:
        try:
            seconds = self._limits.call_seconds
            opened = await self._client.call("apps.connections.open", token=self._app_token, seconds=seconds)
            url = str(opened["url"])
        except Misconfigured as error:
            raise Misconfigured(f"events cannot be heard with app_token: {error}") from error
        link = Link(self._app_token, self._answer, self._client.proxy, self._limits)
        self._links.add(link)
        try:
            await link.open(url)
        except BaseException:
            await self._close(link)
            raise
        return link

    async def _drain(self, link: Link) -> None:
        try:
            async with asyncio.timeout(self._limits.drain_seconds):
                await link.drained()
        except TimeoutError:
            log.debug("an old socket is closed before all its envelopes were answered")
        await self._close(link)

    async def _close(self, link: Link) -> None:
        await link.close()
        self._links.discard(link)

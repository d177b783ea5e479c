"""Slack's Socket Mode: up to ten sockets for an app, each event on one of them, and the ways in which they end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from aiohttp import WSMsgType, web

from tests.simulators.shared.wire import reset
from tests.simulators.slack.places import App
from tests.simulators.slack.truth import Truth
from tidings.core.clock import Clock

MOST_SOCKETS = 10
PING_SECONDS = 10.0
HOST = "applink-simulated-0001"


class Socket:
    """One connection. A deaf one stays open and swallows whatever either side says."""

    def __init__(
        self, number: int, app: App, ws: web.WebSocketResponse, transport: asyncio.BaseTransport | None
    ) -> None:
        self.number = number
        self.app = app
        self.is_deaf = False
        # Told to go; its answers still count.
        self.is_draining = False
        # What came from the other side.
        self.pings = 0
        self.pongs = 0
        self._ws = ws
        self._transport = transport
        self._outbox: asyncio.Queue[dict[str, Any] | bytes | None] = asyncio.Queue()

    def send(self, message: dict[str, Any]) -> None:
        self._outbox.put_nowait(message)

    def ping(self) -> None:
        self._outbox.put_nowait(f"Ping from {HOST}".encode())

    def disconnect(self, reason: str) -> None:
        self.is_draining = True
        self.send({"type": "disconnect", "reason": reason, "debug_info": {"host": HOST}})

    def close(self) -> None:
        """With a goodbye, after what was still to be said."""
        self._outbox.put_nowait(None)

    def abort(self) -> None:
        reset(self._transport)

    async def write(self) -> None:
        while (message := await self._outbox.get()) is not None:
            if self.is_deaf:
                continue
            if isinstance(message, bytes):
                await self._ws.ping(message)
            else:
                await self._ws.send_str(json.dumps(message, ensure_ascii=False))
        await self._ws.close()

    async def read(self, heard: Callable[[str], None], wake: Callable[[], None]) -> None:
        async for message in self._ws:
            if self.is_deaf:
                await asyncio.Event().wait()
            match message.type:
                case WSMsgType.PING:
                    self.pings += 1
                    await self._ws.pong(message.data)
                case WSMsgType.PONG:
                    self.pongs += 1
                case WSMsgType.TEXT:
                    heard(message.data)
                case _:
                    continue
            wake()


class Sockets:
    def __init__(self, truth: Truth, clock: Clock, ping_seconds: float | None) -> None:
        self._truth = truth
        self._clock = clock
        self._ping_seconds = ping_seconds
        self._tickets: dict[str, App] = {}
        self._issued = 0
        self._turn = 0
        self._numbers = 0
        self.open: list[Socket] = []
        # The numbers of those that are no more.
        self.ended: list[int] = []
        self.on_answer: Callable[[Socket, str, dict[str, Any]], None] = lambda socket, envelope, answer: None
        self.on_gone: Callable[[Socket], None] = lambda socket: None

    def issue(self, app: App) -> str:
        """A ticket for one connection."""
        self._issued += 1
        ticket = f"ticket-{self._issued:06d}"
        self._tickets[ticket] = app
        return ticket

    def of(self, app: App) -> list[Socket]:
        return [socket for socket in self.open if socket.app is app]

    def pick(self, app: App) -> Socket | None:
        """In turn; one that was told to go only when there is no other."""
        sockets = self.of(app)
        sockets = [socket for socket in sockets if not socket.is_draining] or sockets
        if not sockets:
            return None
        self._turn += 1
        return sockets[self._turn % len(sockets)]

    async def serve(self, request: web.Request) -> web.StreamResponse:
        app = self._tickets.pop(request.query.get("ticket", ""), None)
        if app is None:
            return web.Response(status=404, text="invalid_ticket")
        ws = web.WebSocketResponse(autoping=False, autoclose=False)
        await ws.prepare(request)
        self._numbers += 1
        socket = Socket(self._numbers, app, ws, request.transport)
        writing = asyncio.create_task(socket.write())
        if len(self.of(app)) >= MOST_SOCKETS:
            socket.disconnect("too_many_websockets")
            socket.close()
            await writing
            return ws
        self.open.append(socket)
        socket.send(
            {
                "type": "hello",
                "num_connections": len(self.of(app)),
                "debug_info": {"host": HOST, "build_number": 1, "approximate_connection_time": 18060},
                "connection_info": {"app_id": app.id},
            }
        )
        pinging = asyncio.create_task(self._ping(socket))
        self._truth.wake()
        reading = asyncio.create_task(socket.read(lambda text: self._heard(socket, text), self._truth.wake))
        try:
            await asyncio.wait({reading, writing}, return_when=asyncio.FIRST_COMPLETED)
            if socket.is_deaf:
                # Not even a goodbye is answered; it ends with the connection, by cancellation.
                await asyncio.Event().wait()
            if reading.done() and reading.exception() is None:
                await ws.close()
        finally:
            self.open.remove(socket)
            self.ended.append(socket.number)
            tasks = (reading, writing, pinging)
            for task in tasks:
                task.cancel()
            for failure in await asyncio.gather(*tasks, return_exceptions=True):
                self._mind(failure)
            self.on_gone(socket)
            self._truth.wake()
        return ws

    def _mind(self, failure: object) -> None:
        # A connection that ends in the middle of a word is nobody's fault.
        if isinstance(failure, Exception) and not isinstance(failure, ConnectionError):
            self._truth.mishaps.append(failure)

    def _heard(self, socket: Socket, text: str) -> None:
        answer = json.loads(text)
        payload = answer.get("payload")
        self.on_answer(socket, str(answer.get("envelope_id", "")), payload if isinstance(payload, dict) else {})

    async def _ping(self, socket: Socket) -> None:
        while self._ping_seconds is not None:
            await self._clock.sleep(self._ping_seconds)
            socket.ping()

"""The connections of the HTTP server: how many there may be, how slow each may be, and how they end.

Only `server.py` imports this, when it first opens: aiohttp takes a third of a second to load.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, cast

from aiohttp import web
from aiohttp.http import HttpProcessingError
from aiohttp.http_exceptions import LineTooLong

from tidings.adapters.shared.http_request import BANNER, HEADER_BYTES, UNKNOWN_SECONDS, Request, error_body
from tidings.adapters.shared.http_server import Limits

log = logging.getLogger(__name__)

LINE_BYTES = 8190
HEADERS = 128
# What is kept of a body before its handler asks for it; beyond twice that, the client has to wait.
UNREAD_BYTES = 64 * 1024
# Who is refused may still be sending. Without a moment of discarding, the reset would overtake the answer.
LINGER_SECONDS = 1.0
# Who takes an answer more slowly than this is cut off.
ANSWER_BYTES_PER_SECOND = 1024
# Connections above the limit that wait for their 503; more are dropped without a word.
SURPLUS = 64
ACCEPT_TURNS = 5
CANCEL_SECONDS = 1.0
CLOSE_SECONDS = 0.1
# Connections of one address that have shown neither a key nor a signature.
UNKNOWN_PER_ADDRESS = 64

OVERLONG = "the headers are too long"
NOT_HTTP = "this is not a request that can be understood"
FAULT = "something went wrong here; the log of the gateway says what"


class Connection(web.RequestHandler):
    """aiohttp's side of one connection, with the limits that it does not have."""

    __slots__ = (
        "_cancels",
        "_handler",
        "_header_bytes",
        "_header_timer",
        "_headers_since",
        "_is_last",
        "_line",
        "_listener",
        "_reader_timer",
        "address",
        "began",
        "is_known",
        "limits",
    )

    def __init__(self, listener: Listener, limits: Limits, **options: Any) -> None:
        super().__init__(listener, **options)
        self.limits = limits
        self._listener = listener
        self._line: asyncio.Transport | None = None
        self._handler: asyncio.Task[Any] | None = None
        self._cancels = False
        self._is_last = False
        self.address = ""
        self.began = self._loop.time()
        self.is_known = False
        # Set while part of a request's headers is awaited. One timer serves many requests: it looks when it fires.
        self._headers_since: float | None = None
        self._header_bytes = 0
        self._header_timer: asyncio.TimerHandle | None = None
        self._reader_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        line = cast(asyncio.Transport, transport)
        self.address = str((line.get_extra_info("peername") or ("",))[0])
        if not self._listener.take(self, line):
            return
        self._line = line
        # Every byte that the client does not take is noticed, also one that was left at the close.
        line.set_write_buffer_limits(high=0)
        self._headers_since = self._loop.time()
        self._header_timer = self._loop.call_later(self.limits.header_seconds, self._look_at_headers)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        for timer in (self._header_timer, self._reader_timer):
            if timer is not None:
                timer.cancel()
        self._line = None
        if self._handler is None:
            self._listener.held.pop(self, None)
        elif self._cancels:
            self._handler.cancel()

    def data_received(self, data: bytes) -> None:
        # There is a waiter only while aiohttp waits for the headers of a request, and it is done when they are whole.
        waiter = self._waiter
        super().data_received(data)
        if waiter is None or waiter.done():
            self._headers_since = None
            self._header_bytes = 0
            return
        if self._headers_since is None:
            self._headers_since = self._loop.time()
            if self._header_timer is None:
                self._header_timer = self._loop.call_later(self.limits.header_seconds, self._look_at_headers)
        self._header_bytes += len(data)
        if self._header_bytes > HEADER_BYTES + LINE_BYTES:
            self._end(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, OVERLONG)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._reader_timer is not None:
            self._reader_timer.cancel()

    def begin(self, *, cancel_when_gone: bool) -> None:
        self._handler = task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._cancels = cancel_when_gone
        self._listener.running.add(task)
        task.add_done_callback(self._ended)

    def vouch(self) -> None:
        self.is_known = True
        self._keepalive_timeout = self.limits.idle_seconds

    def abandon_when_gone(self) -> None:
        self._cancels = True

    def evict(self) -> None:
        """Closes it at once to make room; without a key or signature, its handler has not done anything yet."""
        self._cancels = True
        self.abort()

    def finish(self) -> None:
        """The request that is being handled is the last one; if there is none, this is the end."""
        self._is_last = True
        # Not before: from `close` on, aiohttp drops the rest of a body that the handler may be waiting for.
        if self._handler is not None:
            return
        if self._waiter is not None:
            self.force_close()
        else:
            self.close()

    def abort(self) -> None:
        if self._line is not None:
            self._line.abort()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """aiohttp's own seam: whatever a handler raises ends here, and so does what is no HTTP.

        aiohttp would tell the client and the log what the client had sent.
        """
        asked = cast(Request, request)
        if isinstance(exc, HttpProcessingError | web.RequestPayloadError):
            log.debug("a client sent what is no request")
            status, message = (431, OVERLONG) if isinstance(exc, LineTooLong) else (400, NOT_HTTP)
            return asked.refuse(status, message, "invalid_request_error")
        if isinstance(exc, ConnectionError) and (self._line is None or self._line.is_closing()):
            # The client has gone.
            raise exc
        # A TimeoutError is announced without the error itself.
        fault = exc or sys.exc_info()[1]
        log.error("the handler of %s %s failed", request.method, asked.path_of_route, exc_info=fault)
        return asked.refuse(500, FAULT, "server_error")

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._listener.running.discard(task)
        if self._handler is task:
            self._handler = None
            if self._line is None:
                self._listener.held.pop(self, None)
            elif self._is_last:
                self.finish()

    def _look_at_headers(self) -> None:
        self._header_timer = None
        if self._headers_since is None:
            return
        left = self._headers_since + self.limits.header_seconds - self._loop.time()
        if left > 0:
            self._header_timer = self._loop.call_later(left, self._look_at_headers)
        elif self._header_bytes:
            self._end(HTTPStatus.REQUEST_TIMEOUT, "the headers did not come in time")
        else:
            # Nothing was asked, so nothing is answered.
            self.force_close()

    def _end(self, status: HTTPStatus, message: str) -> None:
        if self._line is not None:
            self._line.write(_raw(status, message, "invalid_request_error"))
        self.force_close()

    def _watch_reader(self) -> None:
        if self._line is not None:
            seconds, size = self.limits.answer_seconds, self._line.get_write_buffer_size()
            self._reader_timer = self._loop.call_later(seconds, self._look_at_reader, size)

    def _look_at_reader(self, before: int) -> None:
        if self._line is None:
            return
        taken = before - self._line.get_write_buffer_size()
        if taken < ANSWER_BYTES_PER_SECOND * self.limits.answer_seconds:
            self._line.abort()
        else:
            self._watch_reader()


class Surplus(asyncio.Protocol):
    """A connection above the limit: it is told so as soon as it asks for something, and closed."""

    def __init__(self, waiting: set[Surplus], line: asyncio.Transport) -> None:
        self._waiting = waiting
        self._line = line
        self._timer = asyncio.get_running_loop().call_later(LINGER_SECONDS, self._decline)
        waiting.add(self)

    def data_received(self, data: bytes) -> None:
        self._decline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        self._waiting.discard(self)

    def abort(self) -> None:
        self._line.abort()

    def _decline(self) -> None:
        if not self._line.is_closing():
            status = HTTPStatus.SERVICE_UNAVAILABLE
            self._line.write(_raw(status, "too many connections; come back soon", "server_error", "Retry-After: 1\r\n"))
            self._line.close()
        else:
            # It does not even take the 503.
            self._line.abort()


class Listener(web.Server):
    """Listens, and knows every connection until both sides have ended with it."""

    def __init__(self, answer: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], limits: Limits) -> None:
        super().__init__(answer, request_factory=self._request)
        self._limits = limits
        self._options: dict[str, Any] = {
            "loop": asyncio.get_running_loop(),
            "access_log": None,
            "keepalive_timeout": min(limits.idle_seconds, UNKNOWN_SECONDS),
            "lingering_time": LINGER_SECONDS,
            "max_line_size": LINE_BYTES,
            "max_field_size": LINE_BYTES,
            "max_headers": HEADERS,
            "read_bufsize": UNREAD_BYTES,
            "auto_decompress": False,
        }
        self._sockets: asyncio.Server | None = None
        self._is_closing = False
        self._surplus: set[Surplus] = set()
        # Oldest first.
        self.held: dict[Connection, None] = {}
        self.running: set[asyncio.Task[Any]] = set()

    def __call__(self) -> Connection:
        return Connection(self, self._limits, **self._options)

    async def open(self, host: str, port: int) -> None:
        """Raises OSError."""
        loop = asyncio.get_running_loop()
        # It is ours before it serves: a cancellation between the two must not lose it.
        self._sockets = await loop.create_server(
            self, host, port, backlog=self._limits.connections, start_serving=False
        )
        await self._sockets.start_serving()

    @property
    def address(self) -> str:
        assert self._sockets is not None
        host, port = self._sockets.sockets[0].getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def take(self, connection: Connection, line: asyncio.Transport) -> bool:
        """A connection counts until it is closed and its handler has ended, whichever is later.

        If there are too many, one that has shown no key or signature for a while is closed: the oldest of the same
        address, or the oldest of all if there is no room at all.
        """
        if not self._is_closing and self._has_room_for(connection):
            self.held[connection] = None
            return True
        if len(self._surplus) < SURPLUS and not self._is_closing:
            line.set_protocol(Surplus(self._surplus, line))
        else:
            line.set_protocol(asyncio.Protocol())
            line.abort()
        return False

    def _has_room_for(self, connection: Connection) -> bool:
        grown = connection.began - self._limits.young_seconds
        unknown = [each for each in self.held if not each.is_known]
        theirs = [each for each in unknown if each.address == connection.address]
        if len(theirs) >= UNKNOWN_PER_ADDRESS and theirs[0].began <= grown:
            self._evict(theirs[0])
        elif len(self.held) >= self._limits.connections:
            if not unknown or unknown[0].began > grown:
                return False
            self._evict(unknown[0])
        return True

    def _evict(self, connection: Connection) -> None:
        # It no longer counts, although closing it takes one more turn of the loop.
        del self.held[connection]
        connection.evict()

    async def close(self, patience: float) -> None:
        self._is_closing = True
        if self._sockets is not None:
            self._sockets.close()
        try:
            # What was only just accepted takes a few turns of the loop to be turned away, or to get its handler.
            await _turn()
            for connection in tuple(self.held):
                connection.finish()
            await self._handlers_end(patience)
            for task in self.running:
                task.cancel()
            await self._handlers_end(CANCEL_SECONDS)
            if self.running:
                log.error("%d HTTP handlers do not end although they were cancelled", len(self.running))
            await self.shutdown(CLOSE_SECONDS)
        finally:
            for task in self.running:
                task.cancel()
            for connection in self.held:
                connection.abort()
            for surplus in self._surplus:
                surplus.abort()
            await _turn()

    async def _handlers_end(self, patience: float) -> None:
        if self.running:
            await asyncio.wait(self.running, timeout=patience)

    def _request(
        self, message: Any, payload: Any, protocol: web.RequestHandler, writer: Any, task: asyncio.Task[None]
    ) -> Request:
        return Request(message, payload, protocol, writer, task, self._loop)


async def _turn() -> None:
    for _ in range(ACCEPT_TURNS):
        await asyncio.sleep(0)


def _raw(status: HTTPStatus, message: str, kind: str, headers: str = "") -> bytes:
    """A whole response, for who never became a request."""
    body = error_body(message, kind)
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nServer: {BANNER}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n{headers}\r\n"
    )
    return head.encode("ascii") + body

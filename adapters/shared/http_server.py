"""The one HTTP listener of the process: routes come and go while it runs.

A handler sees the headers before any of the body is read, so it can refuse a stranger for next to nothing;
`read_body` gives it the body within the route's limits.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, cast
from urllib.parse import unquote_to_bytes

from tidings.core.errors import Misconfigured, TidingsError, Unreachable

if TYPE_CHECKING:
    from aiohttp import web

    from tidings.adapters.shared.http_limits import Listener
    from tidings.adapters.shared.http_request import Request

log = logging.getLogger(__name__)

BODY_BYTES = 1024 * 1024

# A path without its names: none stands for any one segment.
Shape = tuple[str | None, ...]
Handler = Callable[["web.BaseRequest", Mapping[str, str]], Awaitable["web.StreamResponse"]]

_NAME = re.compile(r"\{(\w+)\}")
_NO_NAMES: Mapping[str, str] = MappingProxyType({})


class Limits(NamedTuple):
    """How many connections there may be, and how slow each may be."""

    connections: int = 512
    # A connection that is younger than this may still be about to show its key.
    young_seconds: float = 1.0
    header_seconds: float = 10.0
    body_seconds: float = 30.0
    idle_seconds: float = 75.0
    answer_seconds: float = 30.0


class HttpError(TidingsError):
    """The answer is this status with this sentence; a handler may raise it instead of returning a response."""

    def __init__(
        self,
        status: int,
        message: str,
        kind: str = "invalid_request_error",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.headers = headers


class Route(NamedTuple):
    path: str
    names: tuple[str, ...]
    handler: Handler
    body_bytes: int
    cancel_when_gone: bool


class Routes:
    """Which handler a request goes to: a segment that is written out wins over a name, from left to right."""

    def __init__(self) -> None:
        self._written_out: dict[tuple[str, str], Route] = {}
        self._shapes: dict[Shape, dict[str, Route]] = {}

    def add(self, method: str, route: Route) -> None:
        shape = _shape(route.path)
        if method in self._shapes.get(shape, {}):
            raise Misconfigured(
                f"two platforms want {method} {route.path} on the HTTP listener: give one of them another path"
            )
        self._shapes.setdefault(shape, {})[method] = route
        # All that is written out sorts first.
        self._shapes = dict(sorted(self._shapes.items(), key=lambda item: [segment is None for segment in item[0]]))
        if not route.names:
            self._written_out[method, route.path] = route

    def remove(self, method: str, route: Route) -> None:
        shape = _shape(route.path)
        del self._shapes[shape][method]
        if not self._shapes[shape]:
            del self._shapes[shape]
        self._written_out.pop((method, route.path), None)

    def find(self, method: str, raw_path: str) -> tuple[Route, Mapping[str, str]]:
        """Raises HttpError 404 or 405."""
        if (route := self._written_out.get((method, raw_path))) is not None:
            return route, _NO_NAMES
        allowed: set[str] = set()
        segments = _segments(raw_path)
        for shape, routes in self._shapes.items():
            if len(shape) != len(segments) or not _fits(shape, segments):
                continue
            if (route := routes.get(method)) is not None:
                values = (value for value, fixed in zip(segments, shape, strict=True) if fixed is None)
                return route, dict(zip(route.names, values, strict=True))
            allowed.update(routes)
        if allowed:
            allow = ", ".join(sorted(allowed))
            raise HttpError(405, "this address does not take this method", headers={"Allow": allow})
        raise HttpError(404, "there is nothing at this address")


class HttpServer:
    """Nothing listens before the first route is entered; leaving `async with` gives the port back.

    Routes end for new requests; a handler that runs outlives its route and ends with the server at the latest.
    """

    def __init__(self, host: str, port: int, *, limits: Limits | None = None, patience: float = 5.0) -> None:
        """`patience` is how many seconds handlers have to end when the server closes."""
        self._host = host
        self._port = port
        self._limits = limits or Limits()
        self._patience = patience
        self._routes = Routes()
        # What answers where no route does yet.
        self._meanwhile: dict[str, Route] = {}
        self._is_entered = False
        self._opening = asyncio.Lock()
        self._listener: Listener | None = None

    async def __aenter__(self) -> HttpServer:
        self._is_entered = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_entered = False
        # A listener that is just being opened is finished first, or its port would stay taken.
        async with self._opening:
            listener, self._listener = self._listener, None
        if listener is not None:
            await listener.close(self._patience)

    @property
    def address(self) -> str:
        if self._listener is None:
            raise LookupError("the HTTP listener is not open: no route was entered")
        return self._listener.address

    @contextlib.asynccontextmanager
    async def route(
        self,
        method: str,
        path: str,
        handler: Handler,
        *,
        body_bytes: int = BODY_BYTES,
        cancel_when_gone: bool = False,
    ) -> AsyncIterator[None]:
        """A segment `{name}` of the path takes any one segment and gives it, decoded, to the handler.

        A handler goes on when its client has gone, unless `cancel_when_gone`. Raises Misconfigured when the path
        is taken or the address cannot be listened on, and Unreachable while another program has the port.
        """
        route = Route(path, tuple(_NAME.findall(path)), handler, body_bytes, cancel_when_gone)
        self._routes.add(method, route)
        try:
            await self._open()
            yield
        finally:
            self._routes.remove(method, route)

    @contextlib.asynccontextmanager
    async def meanwhile(self, path: str, handler: Handler) -> AsyncIterator[None]:
        """Answers GET on this path as long as no route does. Raises nothing where listening fails: a route will."""
        self._meanwhile[path] = Route(path, (), handler, 0, cancel_when_gone=True)
        try:
            with contextlib.suppress(Misconfigured, Unreachable):
                await self._open()
            yield
        finally:
            del self._meanwhile[path]

    async def _open(self) -> None:
        from tidings.adapters.shared.http_limits import Listener

        async with self._opening:
            if not self._is_entered:
                raise LookupError("a route needs the `async with` of its server around it")
            if self._listener is not None:
                return
            listener = Listener(self._answer, self._limits)
            async with contextlib.AsyncExitStack() as if_it_fails:
                if_it_fails.push_async_callback(listener.close, patience=0)
                try:
                    await listener.open(self._host, self._port)
                except OSError as error:
                    raise _verdict(error, self._host, self._port) from error
                if_it_fails.pop_all()
            self._listener = listener
            log.info("the HTTP listener is at %s", listener.address)

    async def _answer(self, plain: web.BaseRequest) -> web.StreamResponse:
        request = cast("Request", plain)
        try:
            if request.has_overlong_headers:
                raise HttpError(431, "the headers are too long")
            route, names = self._find(request.method, request.rel_url.raw_path)
            request.admit(route.path, route.body_bytes, cancel_when_gone=route.cancel_when_gone)
            return await route.handler(request, names)
        except HttpError as error:
            return request.refuse(error.status, str(error), error.kind, error.headers)

    def _find(self, method: str, raw_path: str) -> tuple[Route, Mapping[str, str]]:
        try:
            return self._routes.find(method, raw_path)
        except HttpError:
            if method != "GET" or raw_path not in self._meanwhile:
                raise
            return self._meanwhile[raw_path], _NO_NAMES


async def read_body(request: web.BaseRequest, limit: int | None = None) -> bytes:
    """The whole body, once; the limit is the route's unless one is given.

    Raises HttpError, which a handler need not catch: 413, 415 for a body that is compressed, 408 for one that
    comes too slowly. Raises ConnectionError when the client goes away before the end.
    """
    admitted = cast("Request", request)
    most = admitted.body_bytes if limit is None else limit
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise HttpError(415, "a compressed body is not taken")
    if (request.content_length or 0) > most:
        raise _too_long(most)
    if request.headers.get("Expect", "").lower() == "100-continue" and request.version >= (1, 1):
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        # The answer itself has not begun.
        request.writer.output_size = 0
    body = bytearray()
    try:
        async with asyncio.timeout(admitted.body_seconds):
            while chunk := await request.content.readany():
                body += chunk
                if len(body) > most:
                    raise _too_long(most)
    except TimeoutError as error:
        raise HttpError(408, "the body did not come in time") from error
    return bytes(body)


def vouch(request: web.BaseRequest) -> None:
    """Call after checking a key or signature: the connection is then never closed to make room for others."""
    cast("Request", request).vouch()


def abandon_when_gone(request: web.BaseRequest) -> None:
    """From now on the running handler is cancelled when its client goes away."""
    cast("Request", request).abandon_when_gone()


def _too_long(limit: int) -> HttpError:
    return HttpError(413, f"the body is too long: {limit} bytes are taken at most")


def _shape(path: str) -> Shape:
    return tuple(None if _NAME.fullmatch(segment) else segment for segment in path.split("/"))


def _segments(raw_path: str) -> list[str]:
    """Decoded one by one: an encoded slash is part of its segment. What is no text fits nowhere."""
    segments = raw_path.split("/")
    if "%" not in raw_path and raw_path.isascii():
        return segments
    try:
        return [unquote_to_bytes(segment).decode() for segment in segments]
    except UnicodeError:
        return []


def _fits(shape: Shape, segments: list[str]) -> bool:
    for fixed, segment in zip(shape, segments, strict=True):
        # A name stands for something, never for nothing.
        if segment != fixed and (fixed is not None or not segment):
            return False
    return True


def _verdict(error: OSError, host: str, port: int) -> Misconfigured | Unreachable:
    """A busy port may be free in a moment; the owner has to correct anything else."""
    words = _explain(error, host, port)
    return Unreachable(words) if error.errno == errno.EADDRINUSE else Misconfigured(words)


def _explain(error: OSError, host: str, port: int) -> str:
    another_port = "set another `port` in [http] of the settings (or TIDINGS_HTTP__PORT)"
    another_host = "set `host` in [http] of the settings (or TIDINGS_HTTP__HOST)"
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is in use by another program: stop that one, or {another_port}"
    if error.errno == errno.EACCES:
        return f"the system does not let us listen on port {port}: {another_port}, above 1023"
    if isinstance(error, socket.gaierror) or error.errno in (errno.EADDRNOTAVAIL, None):
        return f"this machine has no address {host} to listen on: {another_host}, usually to 127.0.0.1"
    return f"cannot listen on {host} port {port} ({error.strerror}): {another_host}, or {another_port}"

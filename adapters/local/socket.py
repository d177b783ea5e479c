"""The one Unix socket in the home: how the command line and the console reach a running gateway.

JSON objects, one to a line. A connection's first object names its verb, and the verb's route has the
connection from then on. Only the owner of the home may connect.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from tidings.core.adapter import Line
from tidings.core.background import Background
from tidings.core.errors import Declined, NotRunning, TidingsError, Unrouted

log = logging.getLogger(__name__)

Handler = Callable[[Line], Awaitable[None]]

LINE_BYTES = 1024 * 1024
# The system's limit for the address of a Unix socket, without the closing zero.
ADDRESS_BYTES = 107
CLOSE_SECONDS = 1.0
ACCEPT_TURNS = 5


class SocketLine:
    """One side of a connection. Lines that are no JSON object are answered with an error and skipped."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._unread: dict[str, Any] | None = None

    async def read(self) -> dict[str, Any] | None:
        if self._unread is not None:
            message, self._unread = self._unread, None
            return message
        while True:
            try:
                line = await self._reader.readuntil(b"\n")
            except (asyncio.IncompleteReadError, ConnectionError):
                # Half a line is nothing: its writer has gone before the line was whole.
                return None
            except asyncio.LimitOverrunError as overrun:
                if not await self._skip_line(overrun.consumed):
                    return None
                await self._object(f"a line may have {LINE_BYTES} bytes; this one was longer")
                continue
            if not line.strip():
                continue
            try:
                return msgspec.json.decode(line, type=dict[str, Any])
            except (msgspec.MsgspecError, ValueError, RecursionError) as error:
                await self._object(f"not a JSON object: {error}")

    async def write(self, message: dict[str, Any]) -> None:
        data = msgspec.json.encode(message) + b"\n"
        if len(data) > LINE_BYTES:
            raise TidingsError(f"too long: {len(data)} bytes, at most {LINE_BYTES} fit; send it in pieces")
        self._writer.write(data)
        await self._writer.drain()

    def put_back(self, message: dict[str, Any]) -> None:
        self._unread = message

    async def close(self) -> None:
        self._writer.close()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._writer.wait_closed()
        except (TimeoutError, ConnectionError):
            # The other side does not read any more: what is left in the buffer has no reader.
            self._writer.transport.abort()

    async def _skip_line(self, consumed: int) -> bool:
        while True:
            await self._reader.readexactly(consumed)
            try:
                await self._reader.readuntil(b"\n")
            except asyncio.LimitOverrunError as overrun:
                consumed = overrun.consumed
            except (asyncio.IncompleteReadError, ConnectionError):
                return False
            else:
                return True

    async def _object(self, reason: str) -> None:
        # Who is gone needs no objection; the next read says so.
        with contextlib.suppress(ConnectionError):
            await self.write({"error": reason, "verdict": "malformed"})


class LocalServer:
    """Routes may come and go at any time. Connections outlive them: leaving `async with` ends the last."""

    def __init__(self) -> None:
        self._routes: dict[str, Handler] = {}
        self._connections = Background(log, "a local connection failed")

    async def __aenter__(self) -> LocalServer:
        return self

    async def __aexit__(self, *_: object) -> None:
        # A connection that was only just accepted takes a few turns of the loop to become ours to end.
        for _turn in range(ACCEPT_TURNS):
            await asyncio.sleep(0)
        await self._connections.close()

    @contextlib.contextmanager
    def route(self, verb: str, handler: Handler) -> Iterator[None]:
        if verb in self._routes:
            raise LookupError(f"the verb {verb} has a route already")
        self._routes[verb] = handler
        try:
            yield
        finally:
            del self._routes[verb]

    @contextlib.contextmanager
    def routes(self, handlers: Mapping[str, Handler]) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for verb, handler in handlers.items():
                stack.enter_context(self.route(verb, handler))
            yield

    @contextlib.asynccontextmanager
    async def serving(self, home: Path) -> AsyncIterator[None]:
        """Only for who holds the home's lock: a socket that lies there is taken for a dead one's."""
        listener = _bind(home)
        server = await asyncio.start_unix_server(self._connected, sock=listener, limit=LINE_BYTES)
        try:
            yield
        finally:
            server.close()
            _clear(home)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A task of our own: the one that asyncio would make cannot be cancelled without noise.
        self._connections.begin(self._attend(SocketLine(reader, writer)))

    async def _attend(self, line: SocketLine) -> None:
        try:
            await self._serve(line)
        except ConnectionError:
            log.debug("a local client has gone")
        finally:
            await line.close()

    async def _serve(self, line: SocketLine) -> None:
        first = await line.read()
        if first is None:
            return
        verb = first.get("verb")
        if not isinstance(verb, str) or verb not in self._routes:
            known = ", ".join(sorted(self._routes)) or "none"
            await line.write({"error": f"no such verb: {verb!r}; there are: {known}", "verdict": "unrouted"})
            return
        line.put_back(first)
        try:
            await self._routes[verb](line)
        except TidingsError as error:
            await line.write({"error": str(error), "verdict": type(error).__name__})


@contextlib.asynccontextmanager
async def connect(home: Path) -> AsyncIterator[SocketLine]:
    """Raises NotRunning when no gateway listens."""
    try:
        reader, writer = await asyncio.open_unix_connection(_address(home), limit=LINE_BYTES)
    except PermissionError as error:
        who = "ask as its owner: sudo -u OWNER tidings …"
        raise TidingsError(f"{home} belongs to another user; {who}") from error
    except OSError as error:
        raise NotRunning(f"no gateway runs in {home}; start one with: tidings run") from error
    line = SocketLine(reader, writer)
    try:
        yield line
    finally:
        await line.close()


async def call(home: Path, message: dict[str, Any]) -> dict[str, Any]:
    """One question, one answer. Raises NotRunning, or Declined with the gateway's own words."""
    async with connect(home) as line:
        try:
            await line.write(message)
            answer = await line.read()
        except ConnectionError:
            answer = None
    if answer is None:
        raise Declined("the gateway ended the connection without an answer; its log says why")
    return checked(answer)


def checked(answer: dict[str, Any]) -> dict[str, Any]:
    """Turns an answer that is an error into the error."""
    if "error" not in answer:
        return answer
    raise (Unrouted if answer.get("verdict") == "unrouted" else Declined)(str(answer["error"]))


def _bind(home: Path) -> socket.socket:
    _clear(home)
    path = home / "tidings.sock"
    if len(os.fsencode(path)) > ADDRESS_BYTES:
        path = Path(tempfile.mkdtemp(prefix="tidings-"), "tidings.sock")
        _pointer(home).write_text(str(path), encoding="utf-8", errors="surrogateescape")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # The socket is born closed to others: a chmod after bind would leave a gap.
    before = os.umask(0o177)
    try:
        listener.bind(os.fsencode(path))
    except OSError as error:
        listener.close()
        raise TidingsError(f"cannot listen on {path}: {error.strerror}") from error
    finally:
        os.umask(before)
    return listener


def _clear(home: Path) -> None:
    (home / "tidings.sock").unlink(missing_ok=True)
    pointer = _pointer(home)
    if pointer.exists():
        elsewhere = Path(_address(home))
        # Whatever the file says, nothing goes but a socket and the empty folder around it.
        with contextlib.suppress(OSError):
            if elsewhere.is_socket():
                elsewhere.unlink()
            elsewhere.parent.rmdir()
        pointer.unlink(missing_ok=True)


def _pointer(home: Path) -> Path:
    """Leads to the socket when the home's own path is too long for an address."""
    return home / "tidings.sock.path"


def _address(home: Path) -> str:
    pointer = _pointer(home)
    if pointer.exists():
        return pointer.read_text(encoding="utf-8", errors="surrogateescape")
    return str(home / "tidings.sock")

"""The way out for fenced commands: a proxy on a Unix socket that passes only what the owner's list names."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from yarl import URL

from tidings.bots.assistant.tools import guard
from tidings.bots.assistant.tools.tool import ToolError
from tidings.bots.assistant.tools.web import Fetcher
from tidings.core.settings import Terminal
from tidings.core.work.processes.sandbox import Outlet

log = logging.getLogger(__name__)

# Started by its path, in the sandbox of a command.
FORWARDER = Path(__file__).with_name("outlet_forwarder.py")
SOCKET = "outlet/proxy.sock"
HEAD_BYTES = 16_384
HEAD_SECONDS = 20.0
CONNECT_SECONDS = 20.0
# How long a server may still send after the command's side has ended: most often the command is gone.
LAST_SECONDS = 60.0
CHUNK_BYTES = 65_536
# Connections at once, of all commands together.
MOST = 64
# Headers that are between the command and us.
OURS = (b"connection", b"proxy-connection", b"proxy-authorization", b"keep-alive", b"upgrade")

Dial = Callable[[str, int], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]

Way = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Refused(Exception):
    def __init__(self, status: str, words: str) -> None:
        super().__init__(words)
        self.status = status


class ListedHosts:
    """Checks hosts by the list and by their addresses: those of a public host must all be public."""

    def __init__(self, settings: Terminal, fetcher: Fetcher | None = None) -> None:
        self._private = guard.allowed_hosts(settings.private_hosts, "[terminal] private_hosts")
        names = () if settings.network == "off" else settings.network
        self._public = guard.allowed_hosts(names, "[terminal] network")
        self._fetcher = fetcher or Fetcher(self._private)

    async def addresses(self, url: URL) -> tuple[str, ...]:
        """The addresses that may be dialled; raises Refused."""
        if not guard.is_allowed(url, self._public | self._private):
            raise Refused("403 Forbidden", f"{url.raw_host} is not in the list [terminal] network")
        try:
            return await self._fetcher.checked(url)
        except ToolError as error:
            raise Refused("403 Forbidden", str(error)) from error


class OutletServer:
    """Serves while it is entered."""

    def __init__(
        self,
        home: Path,
        settings: Terminal,
        hosts: ListedHosts | None = None,
        dial: Dial = asyncio.open_connection,
        last_seconds: float = LAST_SECONDS,
    ) -> None:
        self.outlet = Outlet(str(FORWARDER), home / SOCKET)
        self._hosts = hosts or ListedHosts(settings)
        self._dial = dial
        self._last_seconds = last_seconds
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> OutletServer:
        path = self.outlet.socket
        await asyncio.to_thread(_make_room, path)
        self._server = await asyncio.start_unix_server(self._accept, path, limit=HEAD_BYTES)
        # Who comes as far as the folder may connect: as root, a command's user is not ours.
        await asyncio.to_thread(path.chmod, 0o666)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            if len(self._open) > MOST:
                raise Refused("503 Service Unavailable", "too many connections at once")
            await self._serve(reader, writer)
        except Refused as refused:
            log.info("a command was refused the way out: %s", refused)
            words = f"Tidings: {str(refused).removesuffix('.')}.\n".encode()
            head = f"HTTP/1.1 {refused.status}\r\nContent-Type: text/plain\r\nContent-Length: {len(words)}\r\n"
            with suppress(ConnectionError):
                writer.write(f"{head}Connection: close\r\n\r\n".encode() + words)
                await writer.drain()
        except (OSError, EOFError, TimeoutError) as error:
            log.debug("a connection of a command broke off: %r", error)
        finally:
            self._open.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method, target, headers = await _head(reader)
        url = _address(method, target)
        there = await self._connect(url)
        try:
            if method == b"CONNECT":
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                there[1].write(_request(method, url, headers))
            await _relay((reader, there[1]), (there[0], writer), self._last_seconds)
        finally:
            there[1].close()

    async def _connect(self, url: URL) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        addresses = await self._hosts.addresses(url)
        assert url.port is not None
        for address in addresses:
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(CONNECT_SECONDS):
                    return await self._dial(address, url.port)
        raise Refused("502 Bad Gateway", f"{url.raw_host} cannot be reached")


def _make_room(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # The home is closed to others; a forwarder that has the folder open may enter it as the command's user.
    path.parent.chmod(0o711)
    path.unlink(missing_ok=True)


async def _head(reader: asyncio.StreamReader) -> tuple[bytes, bytes, list[bytes]]:
    try:
        async with asyncio.timeout(HEAD_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError as error:
        raise Refused("431 Request Header Fields Too Large", "the head of the request is too long") from error
    first, *headers = head[:-4].split(b"\r\n")
    words = first.split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
        raise Refused("400 Bad Request", "this is a proxy for HTTP only")
    return words[0], words[1], headers


def _address(method: bytes, target: bytes) -> URL:
    """The address that is wanted, parsed once: the host that is checked is the host that is dialled."""
    try:
        text = target.decode("ascii")
        # A scheme stands for the port that is usual for it.
        url = guard.parse(f"https://{text}" if method == b"CONNECT" else text)
    except (ToolError, UnicodeDecodeError) as error:
        raise Refused("400 Bad Request", str(error)) from error
    if method == b"CONNECT" and (url.raw_path != "/" or url.raw_query_string or "@" in text):
        raise Refused("400 Bad Request", "CONNECT names a host and a port")
    if method != b"CONNECT" and url.scheme != "http":
        raise Refused("400 Bad Request", "this is a proxy for HTTP only")
    return url


def _request(method: bytes, url: URL, headers: list[bytes]) -> bytes:
    """The request as its server expects it; each connection carries one, so that each is checked."""
    kept = [line for line in headers if line.partition(b":")[0].strip().lower() not in (*OURS, b"host")]
    first = b" ".join((method, url.raw_path_qs.encode(), b"HTTP/1.1"))
    authority = (url.authority if url.explicit_port else url.raw_host or "").encode()
    return b"\r\n".join([first, b"Host: " + authority, *kept, b"Connection: close", b"", b""])


async def _relay(asking: Way, answering: Way, last_seconds: float) -> None:
    """Carries bytes both ways; a server that keeps silent does not hold its place longer than the command."""
    async with asyncio.TaskGroup() as group:
        answers = group.create_task(_pump(*answering))
        await _pump(*asking)
        await asyncio.wait({answers}, timeout=last_seconds)
        answers.cancel()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
    with suppress(OSError):
        writer.write_eof()

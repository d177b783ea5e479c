"""Fetches pages of the public web for the model; every address is checked before it is dialled."""

from __future__ import annotations

import asyncio
import socket
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from http import HTTPStatus
from ipaddress import ip_address
from ssl import SSLContext
from typing import Annotated

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from tidings.bots.assistant.tools import guard, page
from tidings.bots.assistant.tools.tool import Arguments, Occasion, Result, Tool, ToolError, barred, decode, define
from tidings.core import context
from tidings.core.agent import Effect
from tidings.core.roles import Permission

REDIRECTS = 3
SECONDS = 20.0
# The limit also holds for compressed pages, after decompression.
BODY_BYTES = 10 * 1024 * 1024
# A page that expands more than this is a decompression bomb, unless it stays small.
RATIO = 100
RATIO_FLOOR_BYTES = 256 * 1024
# No honest page consists of so many compressed parts in a row.
COMPRESSED_PARTS = 100

MOVED = (301, 302, 303, 307, 308)
COMPRESSIONS = {"gzip": 31, "x-gzip": 31, "deflate": 15}
HEADERS = {
    "User-Agent": "tidings",
    "Accept": "text/html, text/markdown, text/plain, application/json, */*;q=0.5",
    # Encodings that are not requested need not be decoded.
    "Accept-Encoding": "gzip, deflate",
}

LookUp = Callable[[str, int], Awaitable[tuple[str, ...]]]


async def look_up(host: str, port: int) -> tuple[str, ...]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(address[0]) for *_, address in found))


def open_socket(info: aiohttp.AddrInfoType) -> socket.socket:
    family, kind, protocol, _, _ = info
    return socket.socket(family, kind, protocol)


class Pinned(AbstractResolver):
    """A resolver that returns the checked addresses without another lookup, which could give another answer."""

    def __init__(self, addresses: tuple[str, ...]) -> None:
        self._addresses = addresses

    async def resolve(self, host: str, port: int = 0, family: int = socket.AF_UNSPEC) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in self._addresses
        ]

    async def close(self) -> None:
        """The resolver holds nothing."""


@dataclass(frozen=True, slots=True)
class Fetcher:
    # In the form of `guard.allowed_hosts`.
    allowed: frozenset[str] = frozenset()
    # For everything together: lookup, every redirect, reading.
    seconds: float = SECONDS
    look_up: LookUp = look_up
    open_socket: aiohttp.SocketFactoryType = open_socket
    # The trusted certificates; None means the system's.
    ssl: SSLContext | None = None

    async def fetch(self, text: str) -> str:
        url = guard.parse(text)
        try:
            async with asyncio.timeout(self.seconds):
                return await self._follow(url)
        except TimeoutError as error:
            raise ToolError(f"{url.raw_host} did not answer in full within {self.seconds:g} seconds.") from error

    async def _follow(self, url: URL) -> str:
        for _ in range(1 + REDIRECTS):
            async with self._get(url) as response:
                location = response.headers.get("Location")
                if response.status not in MOVED or location is None:
                    return await _told(response, url)
            # A redirect's address is judged like one that the model wrote.
            url = guard.parse(location, url)
        raise ToolError(f"the page was moved more than {REDIRECTS} times; the last address was {url.raw_host}.")

    @asynccontextmanager
    async def _get(self, url: URL) -> AsyncIterator[aiohttp.ClientResponse]:
        addresses = await self.checked(url)
        connector = aiohttp.TCPConnector(
            resolver=Pinned(addresses),
            use_dns_cache=False,
            force_close=True,
            ssl=self.ssl or True,
            socket_factory=only(addresses, self.open_socket),
        )
        try:
            async with (
                aiohttp.ClientSession(
                    connector=connector,
                    cookie_jar=aiohttp.DummyCookieJar(),
                    timeout=aiohttp.ClientTimeout(total=None),
                    headers=HEADERS,
                    auto_decompress=False,
                    trust_env=False,
                ) as session,
                session.get(url, allow_redirects=False) as response,
            ):
                yield response
        except aiohttp.ClientSSLError as error:
            raise ToolError(
                f"no safe connection to {url.raw_host} can be made; its certificate may be wrong."
            ) from error
        except aiohttp.ClientConnectorError as error:
            raise ToolError(f"{url.raw_host} cannot be reached.") from error
        except (aiohttp.ClientError, ConnectionError) as error:
            raise ToolError(f"the answer of {url.raw_host} broke off, or is not proper HTTP.") from error

    async def checked(self, url: URL) -> tuple[str, ...]:
        """The addresses that may be dialled for a name; one private address makes all of them refused."""
        guard.judge(url, self.allowed)
        literal = guard.literal(url)
        if literal is not None:
            return (literal,)
        assert url.raw_host is not None
        assert url.port is not None
        try:
            addresses = await self.look_up(url.raw_host, url.port)
        except (socket.gaierror, UnicodeError) as error:
            raise ToolError(f"there is no host {url.raw_host}, or its name cannot be looked up now.") from error
        if not addresses:
            raise ToolError(f"{url.raw_host} has no address.")
        # The error does not reveal the address behind a private name.
        if not guard.is_allowed(url, self.allowed) and not all(map(guard.is_public, addresses)):
            raise ToolError(f"{url.raw_host} is not at a public address, so I may not fetch it.")
        return addresses


def only(addresses: tuple[str, ...], opened: aiohttp.SocketFactoryType) -> aiohttp.SocketFactoryType:
    """The last check before a connection: the client can dial no address but the checked ones."""
    checked = frozenset(map(ip_address, addresses))

    def open_checked(info: aiohttp.AddrInfoType) -> socket.socket:
        if ip_address(str(info[4][0])) not in checked:
            raise PermissionError(f"{info[4][0]} was not checked")
        return opened(info)

    return open_checked


async def _told(response: aiohttp.ClientResponse, url: URL) -> str:
    kind = response.content_type
    head = f"Status: {_status(response.status)}\nAddress: {url.with_fragment(None)}\nType: {kind}\n\n"
    if not page.is_readable(kind):
        size = response.content_length
        told = "its size is not told" if size is None else f"{size:,} bytes"
        return f"{head}[This is not text, so it was not read: {kind}, {told}.]"
    data = await _read(response)
    compression = response.headers.get("Content-Encoding", "").strip().lower()
    charset = response.charset

    def text() -> str:
        return page.readable(decompressed(data, compression), kind, charset, url)

    # Reading a big page takes a while.
    return head + (await asyncio.to_thread(text) or "[The page is empty.]")


def _status(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


async def _read(response: aiohttp.ClientResponse) -> bytes:
    if (response.content_length or 0) > BODY_BYTES:
        raise _too_large()
    data = bytearray()
    async for piece in response.content.iter_any():
        data += piece
        if len(data) > BODY_BYTES:
            raise _too_large()
    return bytes(data)


def decompressed(data: bytes, compression: str) -> bytes:
    if compression in ("", "identity") or not data:
        return data
    if compression not in COMPRESSIONS:
        raise ToolError("the page is compressed in a way that was not asked for, so it cannot be read.")
    # Some servers send deflate without its header.
    window = -15 if compression == "deflate" and data[0] & 0x0F != 8 else COMPRESSIONS[compression]
    out, rest = bytearray(), data
    for _ in range(COMPRESSED_PARTS):
        part = zlib.decompressobj(window)
        try:
            out += part.decompress(rest, BODY_BYTES + 1 - len(out))
        except zlib.error as error:
            raise ToolError("the page is compressed wrongly, so it cannot be read.") from error
        if len(out) > BODY_BYTES:
            raise _too_large()
        if len(out) > max(RATIO_FLOOR_BYTES, RATIO * len(data)):
            raise ToolError("the page is compressed far beyond what pages are, so it was not read.")
        if not part.eof:
            raise ToolError("the page breaks off in the middle of its compressed text.")
        rest = part.unused_data
        # Anything after the end is padding.
        if not rest.startswith(b"\x1f\x8b"):
            return bytes(out)
    raise ToolError("the page is compressed in too many parts, so it was not read.")


def _too_large() -> ToolError:
    return ToolError(f"the page is larger than {BODY_BYTES // 1024 // 1024} MiB, so it was not read.")


class FetchUrl(Arguments, frozen=True):
    url: Annotated[str, msgspec.Meta(description="The whole address, such as https://example.com/page.")]


def tool(fetcher: Fetcher) -> Tool:
    async def act(arguments: FetchUrl, occasion: Occasion) -> Result:
        # Hosts that are not public are only for people who may have the bot do more than talk.
        may_work = barred(context.current(), occasion.desk, Permission.WORK) is None
        return Result(await (fetcher if may_work else replace(fetcher, allowed=frozenset())).fetch(arguments.url))

    return define(
        "fetch_url",
        "Fetches a page from the public web and returns its text. It cannot log in, and runs no scripts.",
        FetchUrl,
        Effect.IDEMPOTENT,
        Permission.TALK,
        act,
        untrusted=True,
        source=_source,
    )


def _source(written: str) -> str:
    return f"the page {guard.parse(decode(written, FetchUrl).url).host or ''}"


def tools(allow_hosts: tuple[str, ...] = ()) -> tuple[Tool, ...]:
    """`allow_hosts` may be reached although they are private, at any port unless one is named."""
    return (tool(Fetcher(guard.allowed_hosts(allow_hosts))),)


TOOLS = tools()

"""Speaks HTTP to a platform: one certificate store, the proxy, and whether a byte had left when something broke."""

from __future__ import annotations

import json
import os
import re
import ssl
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from email.utils import parsedate_to_datetime
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import aiohttp
import certifi
import msgspec

from tidings.adapters.shared.proxy import way
from tidings.core.errors import Doubtful, Rejected, SendError, Unreachable

CONNECTIONS = 200
LARGEST_DOWNLOAD = 50 * 1024 * 1024
PIECE_BYTES = 64 * 1024
# An unknown error of a library may quote the whole file that it was about.
REASON_CHARACTERS = 300

_NUMBER = re.compile(r"\d+(\.\d+)?")
_HASHED = re.compile(r"[0-9a-f]{8}\.\d+")


class Timeouts(NamedTuple):
    """Seconds after which a call is given up."""

    connect: float = 10.0
    # A slow server may still take the message, so a call that is given up is in doubt.
    read: float = 20.0
    # The server answers an upload only when it has worked through the file.
    upload: float = 120.0


class Answer(NamedTuple):
    """An answer of the server. Without a status there was none, and `left` tells whether a byte may have left us."""

    status: int = 0
    payload: bytes = b""
    headers: Mapping[str, str] = MappingProxyType({})
    left: bool = True
    trouble: str = ""


CLOSED = Answer(left=False, trouble="closed")


class Phase:
    """Whether a byte of one request may have left us: the verdict depends on that, and not on an error's name."""

    __slots__ = ("has_left",)

    def __init__(self) -> None:
        self.has_left = False

    @staticmethod
    def begin() -> Phase:
        """Watches the request that the running task makes next."""
        phase = Phase()
        _phase.set(phase)
        return phase


# Some libraries have no place for a value that belongs to one call, so the task's context carries it.
_phase: ContextVar[Phase] = ContextVar("phase")


class HttpClient:
    """The connections of one account to `url`. A session is opened when it is first needed."""

    def __init__(
        self, url: str, proxy: str = "", *, timeouts: Timeouts | None = None, connections: int = CONNECTIONS
    ) -> None:
        self.timeouts = timeouts or Timeouts()
        self._url = url
        self._proxy = proxy
        self._connections = connections
        self._made: aiohttp.ClientSession | None = None
        self._ways: dict[tuple[str, str], str | None] = {}
        self.is_closed = False

    async def ask(
        self,
        method: str,
        url: str,
        *,
        data: Any = None,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str | int] | None = None,
        seconds: float | None = None,
        most: int = 0,
    ) -> Answer:
        """One request, never repeated; raises Rejected for an answer of more than `most` bytes."""
        if self.is_closed:
            return CLOSED
        phase = Phase.begin()
        read = self.timeouts.read if seconds is None else seconds
        try:
            call = self.session.request(
                method,
                url,
                data=data,
                params=params,
                headers=headers,
                timeout=aiohttp.ClientTimeout(connect=self.timeouts.connect, sock_read=read),
                # A redirected call would be made twice, and its token would follow to a foreign server.
                allow_redirects=False,
                proxy=self.way(url),
            )
            async with call as response:
                payload = await _read_within(response, most) if most else await response.read()
                return Answer(response.status, payload, response.headers)
        except (aiohttp.ClientError, OSError) as error:
            # Only the error's name: its words may hold the address, and the address may hold the token.
            return Answer(left=phase.has_left, trouble=type(error).__name__)

    @property
    def session(self) -> aiohttp.ClientSession:
        """The session for a library that makes its own requests; a closed client has none."""
        assert not self.is_closed
        if self._made is None:
            self._made = aiohttp.ClientSession(
                connector=connector(self._url, self._connections),
                cookie_jar=aiohttp.DummyCookieJar(),
                trace_configs=[_tracing()],
                timeout=aiohttp.ClientTimeout(connect=self.timeouts.connect, sock_read=self.timeouts.read),
            )
        return self._made

    def way(self, url: str) -> str | None:
        """The proxy for this address; None goes direct."""
        server = urlsplit(url)
        key = (server.scheme, server.netloc)
        if key not in self._ways:
            self._ways[key] = way(self._proxy, url).by
        return self._ways[key]

    def is_own(self, url: str, is_host: Callable[[str], object]) -> bool:
        """Is this an address of the platform itself? No other is ever asked, even if a message names it."""
        asked, base = urlsplit(url), urlsplit(self._url)
        if (asked.scheme, asked.netloc) == (base.scheme, base.netloc):
            return True
        return asked.scheme == "https" and bool(is_host(asked.netloc))

    async def close(self) -> None:
        # A late call would open a connection that is never closed.
        self.is_closed = True
        if self._made is not None:
            await self._made.close()
            self._made = None


@cache
def certificates() -> ssl.SSLContext:
    """The system's certificate store, or certifi's where the system has none; read once, since that takes a while."""
    paths = ssl.get_default_verify_paths()
    has_store = paths.cafile or (paths.capath and _holds_certificates(paths.capath))
    return ssl.create_default_context(cafile=None if has_store else certifi.where())


def _holds_certificates(folder: str) -> bool:
    """OpenSSL finds a certificate in a folder by its hash only; a system without certificates may have the folder."""
    try:
        return any(_HASHED.fullmatch(name) for name in os.listdir(folder))
    except PermissionError:
        # OpenSSL can open files in a folder that cannot be listed.
        return True


def connector(url: str, connections: int) -> aiohttp.TCPConnector:
    """Plain http, as on loopback, needs no certificates."""
    is_plain = urlsplit(url).scheme in ("http", "ws")
    return aiohttp.TCPConnector(limit=connections, keepalive_timeout=60.0, ssl=True if is_plain else certificates())


def silence(platform: str, answer: Answer, *, harmless: bool) -> SendError:
    """The verdict on a call without an answer."""
    if not answer.left:
        return Unreachable(f"{platform} cannot be reached ({answer.trouble})")
    return unheard(platform, answer.trouble, harmless=harmless)


def unheard(platform: str, trouble: str, *, harmless: bool) -> SendError:
    """The verdict on a call that was perhaps made; a harmless one can simply be made again."""
    if harmless:
        return Unreachable(f"no answer from {platform}: {trouble}")
    return Doubtful(f"no verdict from {platform}: {trouble}")


def in_between(platform: str, status: int) -> Unreachable:
    """The verdict on a page of a proxy or an edge server: the platform itself has not answered."""
    return Unreachable(f"something between us and {platform} answered {status}")


def retry_after(answer: Answer) -> float | None:
    """Seconds in the header Retry-After, if it holds any."""
    named = answer.headers.get("Retry-After", "")
    return float(named) if _NUMBER.fullmatch(named) else None


def decode(payload: bytes) -> Any:
    """Raises ValueError."""
    try:
        return msgspec.json.decode(payload)
    except msgspec.DecodeError:
        # msgspec refuses half of a surrogate pair, and one such text must not cost us all the others.
        return json.loads(payload)


def decode_object(payload: bytes) -> dict[str, Any] | None:
    """None for anything that is not a JSON object, such as a page of a proxy."""
    try:
        found = decode(payload)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def date_of(header: str) -> float | None:
    """Seconds since 1970 in a Date header, None without one: the platform's own time, since our clock may be wrong."""
    try:
        return parsedate_to_datetime(header).timestamp()
    except ValueError:
        return None


def _tracing() -> aiohttp.TraceConfig:
    async def leaves(session: aiohttp.ClientSession, context: Any, parameters: Any) -> None:
        _phase.get().has_left = True

    config = aiohttp.TraceConfig()
    # Called right before the first byte is written.
    config.on_request_headers_sent.append(leaves)
    return config


async def _read_within(response: aiohttp.ClientResponse, most: int) -> bytes:
    """Piece by piece, so that no server can fill our memory."""
    data = bytearray()
    async for piece in response.content.iter_chunked(PIECE_BYTES):
        data += piece
        if len(data) > most:
            raise Rejected(f"it has more than {most // 1024 // 1024} MB")
    return bytes(data)

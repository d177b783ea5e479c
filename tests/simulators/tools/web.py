"""A small web: names lead where a story says, and one real server on this machine stands for every address."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, NamedTuple, Self

from aiohttp import AddrInfoType, web

Page = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Asked(NamedTuple):
    host: str
    path: str
    headers: dict[str, str]


class Web:
    def __init__(self, names: dict[str, list[tuple[str, ...]]] | None = None) -> None:
        # For each name its answers one after the other; the last one stays.
        self.names = names or {}
        self.pages: dict[str, Page] = {}
        self.looked_up: list[str] = []
        self.dialled: list[tuple[str, int]] = []
        self.asked: list[Asked] = []
        self.port = 0

    async def __aenter__(self) -> Self:
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._answer)
        # A page that never ends is given up when the story is over.
        self._runner = web.AppRunner(application, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    def page(
        self, path: str, body: str | bytes = b"", kind: str = "text/plain", status: int = 200, **headers: str
    ) -> None:
        """Underscores in the names of `headers` are hyphens."""
        fields = {"Content-Type": kind, **{name.replace("_", "-"): value for name, value in headers.items()}}

        async def answer(request: web.Request) -> web.StreamResponse:
            return web.Response(status=status, body=body, headers=fields)

        self.pages[path] = answer

    def moved(self, path: str, location: str, status: int = 302) -> None:
        self.page(path, status=status, Location=location)

    async def look_up(self, host: str, port: int) -> tuple[str, ...]:
        self.looked_up.append(host)
        answers = self.names.get(host.removesuffix("."))
        if answers is None:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def open_socket(self, info: AddrInfoType) -> socket.socket:
        self.dialled.append((str(info[4][0]), int(info[4][1])))
        return _Diverted(self.port)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(Asked(request.headers["Host"], request.path_qs, dict(request.headers)))
        page = self.pages.get(request.path)
        return web.Response(status=404, text="There is no such page.") if page is None else await page(request)


class _Diverted(socket.socket):
    """Believes that it is connected where it was told to go."""

    __slots__ = ("_port",)

    def __init__(self, port: int) -> None:
        super().__init__(socket.AF_INET, socket.SOCK_STREAM)
        self._port = port

    def connect(self, address: Any) -> None:
        super().connect(("127.0.0.1", self._port))


async def name_in_hello(reader: asyncio.StreamReader) -> str | None:
    """The server name that a client says when it opens a secure connection."""
    said: list[str | None] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sni_callback = lambda _connection, name, _context: said.append(name)
    received = ssl.MemoryBIO()
    connection = context.wrap_bio(received, ssl.MemoryBIO(), server_side=True)
    while not said:
        received.write(await reader.read(4096))
        try:
            connection.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLError:
            # There is no certificate to go on with.
            break
    return said[0] if said else None

"""The tools of MCP servers: each server is connected when first needed, held by its own task, and never trusted."""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import json
import logging
import math
import os
import re
import shutil
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tidings.bots.assistant.settings import McpServer
from tidings.bots.assistant.tools.tool import Occasion, Result, Tool, ToolError
from tidings.core.agent import Effect
from tidings.core.clock import Clock, SystemClock
from tidings.core.redaction import one_line
from tidings.core.roles import Permission

if TYPE_CHECKING:
    import anyio
    from mcp import Client

log = logging.getLogger(__name__)

RETRY_SECONDS = 30.0
# Longer than the library takes to kill a server that does not listen.
CLOSE_SECONDS = 10.0
# After so many calls in a row without an answer, the server counts as stuck.
LATE_CALLS = 2
OUTPUT_CHARACTERS = 40_000
DESCRIPTION_CHARACTERS = 2_000
# A list of tools without an end is cut short.
PAGES, MOST_TOOLS = 20, 200
NAME_CHARACTERS = 64

_UNFIT = re.compile(r"[^A-Za-z0-9_-]")
_HASHED = re.compile(r"-[0-9a-f]{8}$")

# Becomes the command itself, with the named variables alone, and asks the kernel to end it when its parent ends:
# a killed gateway cannot do that any more.
_LAUNCHER = """
import os, sys
parent, names, *command = sys.argv[1:]
if sys.platform == "linux":
    import ctypes, signal
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != int(parent):
        sys.exit(1)
os.execvpe(command[0], command, {name: os.environ[name] for name in names.split(",")})
"""


class Patience(NamedTuple):
    """How long tool servers are waited for, in seconds."""

    # A turn waits so long for servers that are not connected yet.
    turn: float = 4.0
    # A connection may take so long; a command may have to download its program first.
    connection: float = 60.0


class McpServers:
    def __init__(
        self, servers: Mapping[str, McpServer], *, clock: Clock | None = None, patience: Patience | None = None
    ) -> None:
        self._clock = clock or SystemClock()
        patience = patience or Patience()
        self._servers = {name: _Server(name, settings, self._clock, patience) for name, settings in servers.items()}

    async def tools(self) -> Mapping[str, Sequence[Tool]]:
        """The tools by server; a server that is down has none, appears in `failures`, and is tried again later.

        The name of a tool contains its server's name and is valid for every model.
        """
        attempts = [attempt for server in self._servers.values() if (attempt := server.begin())]
        now = self._clock.now()
        patience = max((attempt.patient_until - now for attempt in attempts), default=0.0)
        if patience > 0:
            # A turn waits for a slow server only once; later turns go on without it.
            fresh = {attempt.opened for attempt in attempts if attempt.patient_until > now}
            await asyncio.wait(fresh, timeout=patience)
        return {name: server.tools for name, server in self._servers.items()}

    def allowed(self) -> Mapping[str, frozenset[str]]:
        """The names of the tools that may act without asking, by server."""
        return {
            name: frozenset(tool_name(name, tool) for tool in server.settings.allow)
            for name, server in self._servers.items()
        }

    def failures(self) -> dict[str, str]:
        return {name: server.failure for name, server in self._servers.items() if server.failure}

    async def close(self) -> None:
        await asyncio.gather(*(server.close() for server in self._servers.values()))


def tool_name(server: str, tool: str) -> str:
    """A name that is valid for every model; two tools never share one, whatever their servers call them."""
    name = f"{server}__{tool}"
    plain = (
        not _UNFIT.search(name)
        and len(name) <= NAME_CHARACTERS
        and "__" not in server
        and not server.endswith("_")
        and not tool.startswith("_")
        and not _HASHED.search(name)
    )
    if plain:
        return name
    digest = hashlib.sha256(f"{server}\0{tool}".encode(errors="surrogatepass")).hexdigest()[:8]
    return f"{_UNFIT.sub('_', name)[: NAME_CHARACTERS - 9]}-{digest}"


class _Server:
    """One configured server, across all connections to it."""

    def __init__(self, name: str, settings: McpServer, clock: Clock, patience: Patience) -> None:
        self.name = name
        self.settings = settings
        self.patience = patience
        self.failure = ""
        self.clock = clock
        self._attempt: _Connection | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._retry_at = -math.inf
        self._late = 0
        self._closed = False

    @property
    def tools(self) -> tuple[Tool, ...]:
        return self._attempt.tools if self._attempt is not None else ()

    def begin(self) -> _Connection | None:
        """The attempt that is under way, which may be a new one."""
        if self._attempt is None and not self._closed and self.clock.now() >= self._retry_at:
            self._attempt = attempt = _Connection(self)
            self._ending.add(attempt.task)
            attempt.task.add_done_callback(partial(self._ended, attempt))
        if self._attempt is None or self._attempt.opened.done():
            return None
        return self._attempt

    async def close(self) -> None:
        self._closed = True
        self._drop(self._attempt)
        if self._ending:
            _, left = await asyncio.wait(self._ending, timeout=CLOSE_SECONDS)
            if left:
                log.error("the tool server %s does not end", self.name)

    async def call(self, tool: str, written: str, occasion: Occasion) -> Result:
        from mcp import MCPError

        arguments = _arguments(written)
        connection = await self._connected()
        assert connection.client is not None, "an open connection has its client"
        seconds = self.settings.call_seconds
        try:
            async with asyncio.timeout(seconds):
                result = await connection.client.call_tool(tool, arguments)
        except TimeoutError:
            self._late += 1
            if self._late >= LATE_CALLS:
                self._drop(connection)
            raise ToolError(f"{tool} did not answer within {seconds:g} s; whether it took effect is unknown") from None
        except MCPError as error:
            raise self._refused(connection, tool, error) from error
        except (ValueError, RuntimeError) as error:
            # The server answered, but broke the protocol or its own schema.
            raise ToolError(f"{tool} gave an answer that cannot be read; whether it took effect is unknown") from error
        self._late = 0
        text = told(result)
        if result.is_error:
            raise ToolError(text or f"{tool} failed and does not say why")
        return Result(text or "(it returned nothing)")

    async def _connected(self) -> _Connection:
        if attempt := self.begin():
            await asyncio.wait({attempt.opened}, timeout=self.patience.turn)
        if self._attempt is None or self._attempt.client is None:
            why = self.failure or f"the tool server {self.name} is not ready yet"
            raise ToolError(f"{why}; nothing was done")
        return self._attempt

    def _refused(self, connection: _Connection, tool: str, error: Exception) -> ToolError:
        from mcp_types import CONNECTION_CLOSED, INVALID_PARAMS

        code = getattr(error, "code", None)
        # Over HTTP, a lost session or a dead server shows as many different codes, and reconnecting costs nothing.
        if code == CONNECTION_CLOSED or (self.settings.url and code != INVALID_PARAMS):
            self._drop(connection)
            unknown = "whether it took effect is unknown"
            return ToolError(f"the connection to the tool server {self.name} broke during {tool}; {unknown}")
        return ToolError(f"{tool} was refused by its server: {one_line(str(error))}")

    def _drop(self, connection: _Connection | None) -> None:
        """Drops the connection; the next call connects again."""
        if connection is None:
            return
        connection.leave()
        if self._attempt is connection:
            self._attempt = None
            self._late = 0

    def _ended(self, connection: _Connection, task: asyncio.Task[None]) -> None:
        """The seam where an error of the library or the server becomes a sentence."""
        self._ending.discard(task)
        error = None if task.cancelled() else task.exception()
        if connection.left:
            # Errors of a server that is being closed do not matter.
            if error is not None:
                log.info("the tool server %s ended badly: %s", self.name, _innermost(error))
        elif connection.opened.done():
            log.warning("the connection to the tool server %s broke: %s", self.name, _innermost(error))
        else:
            self._retry_at = self.clock.now() + RETRY_SECONDS
            self.failure = one_line(f"the tool server {self.name} cannot be reached: {connection.why(error)}")
            log.warning("%s", self.failure)
        if self._attempt is connection:
            self._attempt = None
        if not connection.opened.done():
            connection.opened.set_result(None)


class _Connection:
    """One connection, held by one task from start to end, because the library's scopes must end where they began."""

    def __init__(self, server: _Server) -> None:
        loop = asyncio.get_running_loop()
        self.server = server
        self.client: Client | None = None
        self.tools: tuple[Tool, ...] = ()
        # Done when the connection succeeded or failed.
        self.opened: asyncio.Future[None] = loop.create_future()
        self.patient_until = server.clock.now() + server.patience.turn
        self.left = False
        self._scope: anyio.CancelScope | None = None
        self._complaints = _Complaints(server.name)
        # The connection outlives the run that needs it first, so it must not inherit that run's session.
        self.task = loop.create_task(self._hold(), context=contextvars.Context())

    def leave(self) -> None:
        self.left = True
        # Cancelling the task itself would interrupt the library's clean-up and leave a process behind.
        if self._scope is not None:
            self._scope.cancel()

    def why(self, error: BaseException | None) -> str:
        reason = str(_innermost(error) or "it did not answer in time")
        return f"{reason} ({said})" if (said := self._complaints.last) else reason

    async def _hold(self) -> None:
        await asyncio.to_thread(_load)
        import anyio
        from mcp import Client

        settings = self.server.settings
        with anyio.CancelScope(deadline=anyio.current_time() + self.server.patience.connection) as self._scope:
            if self.left:
                return
            way = self._by_address() if settings.url else self._by_command()
            async with way as transport, Client(transport, cache=None) as client:
                self.tools = await self._listed(client)
                self._scope.deadline = math.inf
                self.client = client
                self.server.failure = ""
                self.opened.set_result(None)
                await anyio.sleep_forever()

    async def _listed(self, client: Client) -> tuple[Tool, ...]:
        tools: list[Tool] = []
        cursor: str | None = None
        for _ in range(PAGES):
            page = await client.list_tools(cursor=cursor)
            tools += [self._tool(each.name, each.description or "", each.input_schema) for each in page.tools]
            cursor = page.next_cursor
            if cursor is None or len(tools) >= MOST_TOOLS:
                break
        return tuple(tools[:MOST_TOOLS])

    def _tool(self, name: str, description: str, schema: Mapping[str, Any]) -> Tool:
        settings = self.server.settings
        # The server's own hints about its tools, such as read-only, are not trusted.
        effect = Effect.EFFECT
        if name in settings.pure:
            effect = Effect.PURE
        elif name in settings.idempotent:
            effect = Effect.IDEMPOTENT
        return Tool(
            name=tool_name(self.server.name, name),
            description=description[:DESCRIPTION_CHARACTERS],
            schema={**schema, "type": "object"},
            effect=effect,
            needs=Permission.TALK if effect is Effect.PURE else Permission.WORK,
            act=partial(self.server.call, name),
            untrusted=True,
            called=name,
        )

    @asynccontextmanager
    async def _by_address(self) -> AsyncIterator[AbstractAsyncContextManager[Any]]:
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        settings = self.server.settings
        headers = {name: value.get_secret_value() for name, value in settings.headers.items()}
        # What a call may take is bounded by the call itself.
        timeout = httpx2.Timeout(10.0, read=settings.call_seconds + self.server.patience.connection)
        async with httpx2.AsyncClient(headers=headers, timeout=timeout) as client:
            yield streamable_http_client(settings.url, http_client=client)

    @asynccontextmanager
    async def _by_command(self) -> AsyncIterator[AbstractAsyncContextManager[Any]]:
        from mcp import StdioServerParameters
        from mcp.client.stdio import stdio_client

        command, environment = self.server.settings.command, self._environment()
        if await asyncio.to_thread(shutil.which, command[0], path=environment["PATH"]) is None:
            raise FileNotFoundError(f"there is no command {command[0]}")
        launched = StdioServerParameters(
            command=sys.executable,
            args=["-I", "-S", "-c", _LAUNCHER, str(os.getpid()), ",".join(environment), *command],
            env=environment,
        )
        reading, writing = os.pipe()
        heard, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: self._complaints, os.fdopen(reading, "rb", 0)
        )
        try:
            with os.fdopen(writing, "w") as complaints:
                yield stdio_client(launched, complaints)
        finally:
            heard.close()

    def _environment(self) -> dict[str, str]:
        """The environment of a server, without the gateway's variables, because they hold its secrets."""
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": os.environ.get("HOME", os.sep),
            "LANG": os.environ.get("LANG", "C.UTF-8"),
            **{name: value.get_secret_value() for name, value in self.server.settings.env.items()},
        }


class _Complaints(asyncio.Protocol):
    """The standard error of a server; its last line often says why it did not start."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._tail = ""

    @property
    def last(self) -> str:
        lines = self._tail.strip().splitlines()
        return lines[-1] if lines else ""

    def data_received(self, data: bytes) -> None:
        text = data.decode(errors="replace")
        log.debug("the tool server %s says: %s", self._server, text.rstrip())
        self._tail = (self._tail + text)[-500:]


def told(result: Any) -> str:
    """The result of a tool as text for a model; content that is not text is only named."""
    pieces = [_piece(block) for block in result.content]
    if result.structured_content is not None and not any(block.type == "text" for block in result.content):
        pieces.append(json.dumps(result.structured_content, ensure_ascii=False))
    text = "\n".join(filter(None, pieces))
    if len(text) <= OUTPUT_CHARACTERS:
        return text
    return f"{text[:OUTPUT_CHARACTERS]}\n(cut here: {len(text) - OUTPUT_CHARACTERS} more characters)"


def _piece(block: Any) -> str:
    match block.type:
        case "text":
            return str(block.text)
        case "image" | "audio":
            # Four letters of base64 are three bytes.
            return f"({block.type}: {block.mime_type}, about {len(block.data) * 3 // 4} bytes, not shown)"
        case "resource_link":
            return f"(a link to {block.name}: {block.uri})"
        case "resource" if hasattr(block.resource, "text"):
            return f"({block.resource.uri}:)\n{block.resource.text}"
        case "resource":
            return f"(the resource {block.resource.uri}, not shown)"
        case _:
            return f"({block.type}, not shown)"


def _arguments(written: str) -> dict[str, Any]:
    try:
        arguments = json.loads(written or "{}")
    except ValueError as error:
        raise ToolError(f"the arguments are wrong: {error}") from error
    if not isinstance(arguments, dict):
        raise ToolError("the arguments are wrong: they must be an object")
    return arguments


def _innermost(error: BaseException | None) -> BaseException | None:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _load() -> None:
    """Imports the library, which takes seconds, so the caller runs this in a thread."""
    import mcp.client.stdio
    import mcp.client.streamable_http  # noqa: F401

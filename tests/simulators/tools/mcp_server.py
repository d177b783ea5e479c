"""A small MCP server in a process of its own, by stdio or streamable HTTP: what it was asked is in its log file.

python -m tests.simulators.tools.mcp_server --log FILE                 by stdin and stdout
python -m tests.simulators.tools.mcp_server --log FILE --port 0        by HTTP; prints its port as one line
... --deaf                                                       goes on when its input ends
... --hang                                                       never answers anything
... --die WORDS                                                  complains with these words, and ends
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import threading
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Image, MCPServer
from mcp_types import CallToolResult, TextContent, ToolAnnotations
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send


class Journal:
    def __init__(self, path: Path) -> None:
        self._path = path

    def note(self, **what: Any) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(what) + "\n")


def build(journal: Journal) -> MCPServer:
    server = MCPServer("simulated", log_level="ERROR")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True, idempotent_hint=True))
    def add(a: int, b: int) -> str:
        """Adds two numbers, and claims that it only looks."""
        journal.note(tool="add", a=a, b=b)
        return f"{a + b}"

    @server.tool(name="say.it/loud", structured_output=False)
    def say(words: str) -> str:
        return words.upper()

    @server.tool()
    def table() -> CallToolResult:
        return CallToolResult(content=[], structured_content={"rows": [1, 2]})

    @server.tool(structured_output=False)
    def picture() -> list[Any]:
        return ["a red dot:", Image(data=b"\x89PNG" + bytes(96), format="png")]

    @server.tool(structured_output=False)
    def flood(characters: int) -> str:
        return "x" * characters

    @server.tool()
    def fail() -> CallToolResult:
        return CallToolResult(content=[TextContent(type="text", text="the shop is closed")], is_error=True)

    @server.tool(structured_output=False)
    def environment() -> str:
        return json.dumps(dict(os.environ))

    @server.tool(structured_output=False)
    def process() -> str:
        return json.dumps({"pid": os.getpid(), "group": os.getpgrp(), "parent": os.getppid()})

    @server.tool()
    async def wait() -> str:
        journal.note(tool="wait")
        await asyncio.Event().wait()
        return "never"

    @server.tool()
    def die() -> str:
        journal.note(tool="die")
        os._exit(3)

    return server


class Headers:
    """Notes what each request brought along."""

    def __init__(self, app: ASGIApp, journal: Journal) -> None:
        self._app = app
        self._journal = journal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            self._journal.note(authorization=Request(scope).headers.get("authorization", ""))
        await self._app(scope, receive, send)


def serve_http(server: MCPServer, journal: Journal, port: int) -> None:
    import uvicorn

    listener = socket.create_server(("127.0.0.1", port))
    print(listener.getsockname()[1], flush=True)
    app = Headers(server.streamable_http_app(), journal)
    uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="on")).run(sockets=[listener])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--port", type=int)
    parser.add_argument("--deaf", action="store_true")
    options = parser.parse_args()
    journal = Journal(options.log)
    journal.note(pid=os.getpid())
    server = build(journal)
    if options.port is not None:
        serve_http(server, journal, options.port)
    else:
        server.run("stdio")
        if options.deaf:
            threading.Event().wait()


if __name__ == "__main__":
    main()

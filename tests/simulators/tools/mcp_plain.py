"""A plain MCP server by stdin and stdout, without a library: it starts at once, and speaks the protocol of 2025.

python -m tests.simulators.tools.mcp_plain --log FILE                  what it was asked is in its log file
... --deaf                                                       goes on when its input ends

For tests about the process of a server and about what befalls a call; `mcp_server` stands for real ones.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

VERSION = "2025-11-25"
METHOD_NOT_FOUND = -32601
NUMBERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}
NOTHING = {"type": "object", "properties": {}}


class Server:
    def __init__(self, log: str) -> None:
        self._log = log
        self.tools: dict[str, tuple[dict[str, Any], Callable[..., str | None]]] = {
            "add": (NUMBERS, self._add),
            "environment": (NOTHING, lambda: json.dumps(dict(os.environ))),
            "process": (
                NOTHING,
                lambda: json.dumps({"pid": os.getpid(), "group": os.getpgrp(), "parent": os.getppid()}),
            ),
            "wait": (NOTHING, self._wait),
            "die": (NOTHING, self._die),
            "say.it/loud": (NOTHING, lambda: "HELLO"),
        }
        self.note(pid=os.getpid())

    def note(self, **what: Any) -> None:
        with open(self._log, "a") as file:
            file.write(json.dumps(what) + "\n")

    def answer(self, method: str, asked: dict[str, Any]) -> dict[str, Any] | None:
        """What a request gets; None for one that is never answered."""
        match method:
            case "initialize":
                result: dict[str, Any] = {
                    "protocolVersion": VERSION,
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "plain", "version": "1"},
                }
            case "ping":
                result = {}
            case "tools/list":
                result = {"tools": [{"name": name, "inputSchema": schema} for name, (schema, _) in self.tools.items()]}
            case "tools/call":
                said = self.tools[asked["name"]][1](**asked.get("arguments") or {})
                if said is None:
                    return None
                result = {"content": [{"type": "text", "text": said}], "isError": False}
            case _:
                return {"error": {"code": METHOD_NOT_FOUND, "message": f"there is no {method}"}}
        return {"result": result}

    def _add(self, a: int, b: int) -> str:
        self.note(tool="add", a=a, b=b)
        return f"{a + b}"

    def _wait(self) -> None:
        self.note(tool="wait")

    def _die(self) -> str:
        self.note(tool="die")
        os._exit(3)


def main() -> None:
    arguments = sys.argv[1:]
    server = Server(arguments[arguments.index("--log") + 1])
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" not in asked or "method" not in asked:
            continue
        if (answer := server.answer(asked["method"], asked.get("params") or {})) is not None:
            print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)
    while "--deaf" in arguments:
        signal.pause()


if __name__ == "__main__":
    main()

"""Starter's server over a real socket: as strict as the platform, with its own record of what people see."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from typing import Any, NamedTuple

TEXT_CHARACTERS = 2000
CLOSING_SECONDS = 10.0


class Posted(NamedTuple):
    id: str
    chat: str
    text: str


class StarterServer:
    """`async with` is the server's life; `address` stays the same across an outage."""

    def __init__(self, token: str = "a token") -> None:
        self.token = token
        self.posted: list[Posted] = []
        self.confirmed: list[str] = []
        # The answer to the next call instead of its effect.
        self.refusal: dict[str, Any] | None = None
        # The next call is cut off: "before" its effect, or "after" it.
        self.cut = ""
        self._said: dict[str, dict[str, Any]] = {}
        self._keys: dict[str, Posted] = {}
        self._numbers = itertools.count(1)
        self._server: asyncio.Server | None = None
        self._port = 0
        self._wires: set[asyncio.StreamWriter] = set()
        self._listeners: set[asyncio.StreamWriter] = set()
        self._news = asyncio.Event()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    async def __aenter__(self) -> StarterServer:
        await self.up()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.down()

    async def up(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
            self._port = self._server.sockets[0].getsockname()[1]

    async def down(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._wires):
            writer.transport.abort()
        await self.until(lambda: not self._wires, CLOSING_SECONDS)

    def says(self, text: str, chat: str, person: str = "7") -> str:
        """A person says something; returns the id of the message."""
        id = f"in{next(self._numbers)}"
        self._said[id] = {"id": id, "chat": chat, "from": person, "text": text}
        self.announce(id)
        return id

    def announce(self, id: str) -> None:
        """Tells every listener of a message, whether or not it was told before."""
        for writer in self._listeners:
            self._write(writer, self._said[id])

    async def until(self, holds: Callable[[], object], seconds: float) -> None:
        async with asyncio.timeout(seconds):
            while not holds():
                await self._news.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._wires.add(writer)
        try:
            hello = json.loads(await reader.readline())
            if hello.get("token") != self.token:
                self._write(writer, {"error": "token"})
                return
            self._write(writer, {"ok": True})
            while line := await reader.readline():
                if not self._answer(json.loads(line), writer):
                    return
        except (ConnectionError, ValueError):
            return
        finally:
            self._listeners.discard(writer)
            self._wires.discard(writer)
            writer.close()
            self._tell()

    def _answer(self, message: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
        """Whether the connection goes on."""
        if "listen" in message:
            self._listeners.add(writer)
            for id, said in self._said.items():
                if id not in self.confirmed:
                    self._write(writer, said)
            return True
        if "confirm" in message:
            self.confirmed.append(message["confirm"])
            self._tell()
            return True
        cut, self.cut = self.cut, ""
        if cut == "before":
            return False
        answer = self._post(message)
        if cut == "after":
            return False
        self._write(writer, answer)
        return True

    def _post(self, message: dict[str, Any]) -> dict[str, Any]:
        text, chat, key = message["post"], message["chat"], message["key"]
        known = self._keys.get(key)
        if self.refusal is not None:
            answer, self.refusal = self.refusal, None
            return answer
        if known is not None:
            return {"id": known.id} if (known.chat, known.text) == (chat, text) else {"error": "key"}
        if not text.strip() or len(text) > TEXT_CHARACTERS:
            return {"error": "long" if text.strip() else "empty"}
        posted = Posted(f"out{next(self._numbers)}", chat, text)
        self._keys[key] = posted
        self.posted.append(posted)
        self._tell()
        return {"id": posted.id}

    def _write(self, writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
        writer.write(json.dumps(message).encode() + b"\n")

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

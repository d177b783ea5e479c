"""A client that writes bytes: what no honest library would send, from any address of this machine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

PATIENCE_SECONDS = 15.0


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The word for programs in an answer that is an error."""
        code: str = self.json["error"].get("code", "")
        return code


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def answer(self) -> Answer:
        async with asyncio.timeout(PATIENCE_SECONDS):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").splitlines()
            pairs = (line.split(":", 1) for line in head[1:] if line)
            headers = {name.lower(): value.strip() for name, value in pairs}
            length = int(headers.get("content-length", "0"))
            return Answer(int(head[0].split()[1]), headers, await self._reader.readexactly(length))

    async def first(self, size: int) -> bytes:
        """Something of a streamed answer; none when it has ended."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self._reader.read(size)


@asynccontextmanager
async def connected(url: str, source: str = "127.0.0.1") -> AsyncIterator[Client]:
    place = urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port, local_addr=(source, 0))
    try:
        yield Client(reader, writer)
    finally:
        writer.transport.abort()


async def ask(
    url: str,
    method: str,
    path: str,
    *headers: str,
    body: bytes = b"",
    host: str = "localhost",
    source: str = "127.0.0.1",
) -> Answer:
    async with connected(url, source) as client:
        client.send(request(method, path, *headers, body=body, host=host))
        return await client.answer()


def request(method: str, path: str, *headers: str, body: bytes = b"", host: str | None = "localhost") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", *([] if host is None else [f"Host: {host}"]), *headers]
    if body and not any(line.lower().startswith(("content-length", "transfer-encoding")) for line in headers):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def bearer(secret: str) -> str:
    return f"Authorization: Bearer {secret}"


JSON = "Content-Type: application/json"

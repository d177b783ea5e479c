"""Server-sent events: frames as bytes, and a response that carries them with signs of life in between."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
from aiohttp import web

# Proxies close what is silent for half a minute.
ALIVE_SECONDS = 15.0
ALIVE = b": keepalive\n\n"
DONE = b"data: [DONE]\n\n"
HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",
    "X-Content-Type-Options": "nosniff",
}


def frame(data: Any, *, event: str = "", id: str = "") -> bytes:
    """JSON has no line breaks of its own, so nothing in it can begin another frame."""
    head = (f"id: {id}\n" if id else "") + (f"event: {event}\n" if event else "")
    return head.encode() + b"data: " + msgspec.json.encode(data) + b"\n\n"


async def stream(
    request: web.BaseRequest,
    frames: AsyncIterator[bytes],
    headers: Mapping[str, str] | None = None,
) -> web.StreamResponse:
    """Sends frames as they come; a reader that takes nothing is cut off by the listener."""
    response = web.StreamResponse(headers={**HEADERS, **(headers or {})})
    await response.prepare(request)
    pulse = _Pulse(response)
    try:
        async for data in frames:
            await response.write(data)
            pulse.wrote()
    finally:
        pulse.stop()
    await response.write_eof()
    return response


class _Pulse:
    """A sign of life whenever nothing was sent for a while: a timer, since a task for each idle reader costs memory."""

    __slots__ = ("_last", "_loop", "_response", "_timer", "_writing")

    def __init__(self, response: web.StreamResponse) -> None:
        self._response = response
        self._loop = asyncio.get_running_loop()
        self._writing: asyncio.Task[None] | None = None
        self._last = self._loop.time()
        self._timer = self._loop.call_later(ALIVE_SECONDS, self._look)

    def wrote(self) -> None:
        self._last = self._loop.time()

    def stop(self) -> None:
        self._timer.cancel()
        if self._writing is not None:
            self._writing.cancel()

    def _look(self) -> None:
        idle = self._loop.time() - self._last
        if idle >= ALIVE_SECONDS:
            self._writing = self._loop.create_task(self._write())
            idle = 0.0
        self._timer = self._loop.call_later(ALIVE_SECONDS - idle, self._look)

    async def _write(self) -> None:
        # The handler itself notices a client that has gone.
        with contextlib.suppress(ConnectionError):
            await self._response.write(ALIVE)

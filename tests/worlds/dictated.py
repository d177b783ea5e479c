"""An agent that says what the test dictates, when the test dictates it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tidings.core.agent import Event, Finished, TextDelta, Turn


class Dictated:
    """Says what the test dictates, in whatever turn is live."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self._lines: asyncio.Queue[Event | BaseException] = asyncio.Queue()

    def say(self, *texts: str) -> None:
        for text in texts:
            self._lines.put_nowait(TextDelta(text))

    def do(self, *events: Event | BaseException) -> None:
        for event in events:
            self._lines.put_nowait(event)

    def end(self) -> None:
        self._lines.put_nowait(Finished())

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        self.turns.append(turn)
        lines = self._lines = asyncio.Queue()
        while True:
            line = await lines.get()
            if isinstance(line, BaseException):
                raise line
            yield line

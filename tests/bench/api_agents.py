"""Agents for measuring the API: one echoes, one takes two seconds, one says when it spoke, one never ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from tidings.core.agent import Event, Finished, TextDelta, Turn


class Measured:
    """Picks by the message's first word."""

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        text = turn.message.text
        match text.split()[:1]:
            case ["wait"]:
                await asyncio.sleep(2.0)
                yield TextDelta("done")
            case ["stamp"]:
                await asyncio.sleep(0.02)
                yield TextDelta(f"{time.monotonic():.6f} ")
                await asyncio.sleep(0.1)
                yield TextDelta("end")
            case ["stay"]:
                yield TextDelta("here")
                await asyncio.sleep(3600)
            case _:
                yield TextDelta(f"you said: {text}")
        yield Finished()

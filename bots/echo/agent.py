"""The echo agent: one delta and the end, for measuring and for trying a platform."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tidings.core.agent import Event, Finished, TextDelta, Turn


class EchoAgent:
    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        yield TextDelta(f"you said: {turn.message.text}")
        yield Finished()

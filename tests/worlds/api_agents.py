"""Agents for a gateway in a process of its own: named in its settings, and steered by files in its home."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

from tidings.core.agent import Effect, Event, Finished, TextDelta, ToolFinished, ToolStarted, Turn

GO = "go"


class Patient:
    """Says which attempt this is, begins to work, leaves a sign of that, and waits until it may go on.

    The tool has an effect where the message says so; then nobody may run it again.
    """

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        home, said = Path(os.environ["TIDINGS_HOME"]), turn.message.text
        yield TextDelta(f"Attempt {turn.attempt}. ")
        yield ToolStarted("one", "work", "{}", Effect.EFFECT if "effect" in said else Effect.PURE)
        (home / sign(said, turn.attempt)).touch()
        await appear(home / GO)
        yield ToolFinished("one", "done")
        yield TextDelta("Done.")
        yield Finished()


def sign(said: str, attempt: int) -> str:
    return f"began {said} {attempt}"


async def appear(*paths: Path) -> None:
    """A file is all that two processes and this test have in common."""
    for path in paths:
        while True:
            if path.exists():
                break
            await asyncio.sleep(0.01)

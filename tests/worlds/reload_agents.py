"""Agents that a test of reloading puts into the settings by name, and meets again here."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tests.worlds.world import Gate
from tidings.core.agent import Event, Finished, TextDelta, Turn

# By the text of the message at which an agent waits.
GATES: dict[str, Gate] = {}
# The agents that were closed, in order.
CLOSED: list[str] = []


class First:
    name = "first"

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        if turn.message.text in GATES:
            await GATES[turn.message.text].wait()
        yield TextDelta(f"{self.name}: {turn.message.text}")
        yield Finished()

    async def close(self) -> None:
        CLOSED.append(self.name)


class Second(First):
    name = "second"


class Unmakeable:
    def __init__(self) -> None:
        raise TypeError("no oven")


# A finished object, as hosted agents are: the same however often it is asked for.
ONLY = Second()

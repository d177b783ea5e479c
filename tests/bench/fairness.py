"""Measures how long newcomers wait beside a crowd: `python -m tests.bench.fairness` prints one JSON object.

Ten slots, runs of a fixed length. Beside each crowd stand the same newcomers with an empty queue.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

from msgspec.structs import replace

from tests.bench.platform import MemoryAdapter, message
from tests.worlds.fakes import FakeLocal, FakeServer
from tidings.core.agent import Event, Finished, TextDelta, Turn
from tidings.core.gateway.gateway import Gateway
from tidings.core.gateway.options import Team
from tidings.core.inbound.parties import Parties
from tidings.core.inbound.slots import Slot, Slots
from tidings.core.inbound.waiting_line import WaitingLine
from tidings.core.settings import Access, Core, Groups, Limits
from tidings.core.types import Audience, Inbound, Sender

SLOTS = 10
RUN_SECONDS = 0.5
CROWD = 1000
NEWCOMERS = 40
# Longer than a newcomer's run, and no multiple of it.
EVERY_SECONDS = 0.11
LINES = (1_000, 20_000)
PICKS = 1000

CROWDS = ("empty queue", "one person, many conversations", "one person, one conversation", "one chat", "slow bot")


class Timed:
    """Takes half a second, and notes when each newcomer's run begins."""

    def __init__(self) -> None:
        self.begun: dict[str, float] = {}

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        self.begun[turn.message.key] = time.perf_counter()
        await asyncio.sleep(RUN_SECONDS)
        yield TextDelta("done")
        yield Finished()


def crowd_of(kind: str) -> list[Inbound]:
    one, said = Sender(id="one"), [message(f"c{n}", f"c{n}", "hello") for n in range(CROWD)]
    match kind:
        case "one person, many conversations":
            return [replace(each, sender=one) for each in said]
        case "one person, one conversation":
            return [
                replace(each, sender=one, conversation=said[0].conversation, target=said[0].target) for each in said
            ]
        case "one chat":
            place = replace(said[0].target, audience=Audience.GROUP)
            return [
                _by(replace(each, conversation=said[0].conversation, target=place), f"m{each.key}") for each in said
            ]
        case "slow bot":
            return [replace(_by(each, f"m{each.key}"), bot="slow") for each in said]
    return []


def _by(said: Inbound, sender: str) -> Inbound:
    return replace(said, sender=Sender(id=sender))


async def waits(kind: str) -> dict[str, float]:
    """In milliseconds, from the message to the begin of its run."""
    adapter, agent = MemoryAdapter(), Timed()
    people = ("one", *(f"mc{n}" for n in range(CROWD)), *(f"new{n}" for n in range(NEWCOMERS)))
    settings = Core(
        access=Access(allow=tuple(f"memory:{each}" for each in people)),
        limits=Limits(runs=SLOTS, queued_per_conversation=2 * CROWD, drain_seconds=0),
        groups=Groups(memory="member"),
    )
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_FOLDER")) as home:
        team = Team({"quick": agent, "slow": agent}, "quick")
        async with Gateway(Path(home), settings, [adapter.platform()], team, FakeLocal(), FakeServer()):
            await adapter.listening.wait()
            await asyncio.gather(*map(adapter._receive, crowd_of(kind)))
            said: dict[str, float] = {}
            for number in range(NEWCOMERS):
                newcomer = _by(message(f"new{number}", f"new{number}", "hello"), f"new{number}")
                said[newcomer.key] = time.perf_counter()
                await adapter._receive(newcomer)
                await asyncio.sleep(EVERY_SECONDS)
            async with asyncio.timeout(120):
                while not said.keys() <= agent.begun.keys():  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
    waited = sorted((agent.begun[key] - at) * 1000 for key, at in said.items())
    return {
        "p50_ms": round(statistics.median(waited), 1),
        "p95_ms": round(waited[int(len(waited) * 0.95)], 1),
        "max_ms": round(waited[-1], 1),
    }


def line_of(count: int) -> dict[str, float]:
    """What a line of so many conversations costs: memory of each, and one pick with a run that ends before it."""
    slots = Slots(SLOTS, lambda: 2)
    gc.collect()
    tracemalloc.start()
    line = WaitingLine(slots)
    for number in range(count):
        # A third of them is one person in many chats, a third is one chat of many people.
        person, chat = (f"p{number}", "0")[number % 3 == 0], (f"c{number}", "0")[number % 3 == 1]
        line.add(f"conversation {number}", Parties(f"person {person}", f"chat {chat}", f"bot {number % 2}"))
    memory = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    running: list[Slot] = []
    taken: list[float] = []
    for _ in range(PICKS):
        began = time.perf_counter()
        if len(running) == SLOTS - 2:
            running.pop(0).give_back()
        found = line.pop()
        assert found is not None
        running.append(slots.take(found[1]))
        taken.append((time.perf_counter() - began) * 1e6)
    taken.sort()
    return {"kb_each": memory / count / 1000, "pick_us": taken[PICKS // 2], "pick_p99_us": taken[PICKS * 99 // 100]}


async def measure() -> dict[str, dict[str, float]]:
    figures = {kind: await waits(kind) for kind in CROWDS}
    return {**figures, **{f"line of {count}": line_of(count) for count in LINES}}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure())))

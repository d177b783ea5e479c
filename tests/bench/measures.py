"""What is measured, each in a process of its own: `python -m tests.bench.measures NAME` prints one JSON object."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from tests.bench import baseline
from tests.bench.platform import MemoryAdapter
from tests.worlds.fakes import FakeLocal, FakeServer
from tidings.bots.echo.agent import EchoAgent
from tidings.core.agent import Agent, Event, Finished, TextDelta, Turn
from tidings.core.gateway.gateway import Gateway
from tidings.core.gateway.options import Team
from tidings.core.settings import Core, Limits

CONVERSATIONS = 100
TURNS = 50
CROWD = 10_000

Figures = dict[str, float]


class WaitingAgent:
    """Takes two seconds, like a model does."""

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        await asyncio.sleep(2.0)
        yield TextDelta("done")
        yield Finished()


@asynccontextmanager
async def gateway(home: Path, agent: Agent, runs: int = 1000) -> AsyncIterator[MemoryAdapter]:
    adapter = MemoryAdapter()
    settings = Core(limits=Limits(burst_seconds=0, runs=runs, queued=4 * CROWD))
    async with Gateway(home, settings, [adapter.platform()], Team({"bot": agent}, "bot"), FakeLocal(), FakeServer()):
        await adapter.listening.wait()
        yield adapter


def _memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def _converse(ask: Callable[[int, int], Awaitable[None]]) -> Figures:
    async def one(chat: int) -> None:
        for number in range(TURNS):
            await ask(chat, number)

    began, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(one(chat) for chat in range(CONVERSATIONS)))
    turns = CONVERSATIONS * TURNS
    return {
        "cpu_ms_per_turn": (time.process_time() - cpu) / turns * 1000,
        "turns_per_second": turns / (time.perf_counter() - began),
    }


async def echo(home: Path) -> Figures:
    async with gateway(home, EchoAgent()) as adapter:
        return await _converse(lambda chat, n: adapter.ask(str(chat), f"{chat}.{n}", "hello there"))


async def bare(home: Path) -> Figures:
    writer = baseline.BareWriter(home / "bare.db")
    figures = await _converse(lambda chat, n: baseline.turn(writer, str(chat), n))
    await writer.close()
    return figures


async def crowd(home: Path) -> Figures:
    async with gateway(home, WaitingAgent(), runs=CROWD) as adapter:
        began = time.perf_counter()
        await asyncio.gather(*(adapter.ask(str(chat), str(chat), "hello") for chat in range(CROWD)))
        return {"seconds": time.perf_counter() - began, "rss_mb": _memory()}


async def bare_crowd(home: Path) -> Figures:
    writer = baseline.BareWriter(home / "bare.db")

    async def one(chat: int) -> None:
        await asyncio.sleep(2.0)
        await baseline.turn(writer, str(chat), 0)

    began = time.perf_counter()
    await asyncio.gather(*(one(chat) for chat in range(CROWD)))
    await writer.close()
    return {"seconds": time.perf_counter() - began, "rss_mb": _memory()}


async def idle_memory(home: Path) -> Figures:
    """RSS after ten thousand conversations have had their answer."""
    async with gateway(home, EchoAgent()) as adapter:
        for start in range(0, CROWD, 500):
            await asyncio.gather(*(adapter.ask(str(chat), str(chat), "hello") for chat in range(start, start + 500)))
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return {"rss_mb": pages * os.sysconf("SC_PAGE_SIZE") / 1e6}


async def restart(home: Path) -> Figures:
    """First send after a restart that finds ten thousand open rows."""
    adapter = MemoryAdapter()
    settings = Core(limits=Limits(burst_seconds=0, runs=1, queued=4 * CROWD, drain_seconds=0))
    async with Gateway(
        home, settings, [adapter.platform()], Team({"bot": WaitingAgent()}, "bot"), FakeLocal(), FakeServer()
    ):
        await adapter.listening.wait()
        await asyncio.gather(*(adapter.say(str(chat), str(chat), "hello") for chat in range(CROWD)))
    began = time.perf_counter()
    async with gateway(home, EchoAgent()) as again:
        await again.first_sent.wait()
        return {"seconds": time.perf_counter() - began, "open_rows": float(CROWD)}


MEASURES = {measure.__name__: measure for measure in (echo, bare, crowd, bare_crowd, idle_memory, restart)}


def main() -> None:
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_FOLDER")) as folder:
        print(json.dumps(asyncio.run(MEASURES[sys.argv[1]](Path(folder)))))


if __name__ == "__main__":
    main()

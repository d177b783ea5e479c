"""Measures what ten thousand open questions cost, beside a gateway without any: `python -m tests.bench.approvals`."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sqlite3
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

from msgspec.structs import replace

from tests.bench.platform import MemoryAdapter, message
from tests.worlds.fakes import FakeLocal, FakeServer
from tidings.core.agent import ApprovalAsked, Checkpoint, Event, Finished, TextDelta, Turn
from tidings.core.desk.approvals import Choice
from tidings.core.gateway.gateway import Gateway
from tidings.core.gateway.options import Team
from tidings.core.roles import OWNER, Role
from tidings.core.settings import Access, Approvals, Core, Limits
from tidings.core.store.sqlite import DATABASE
from tidings.core.types import Sender

QUESTIONS = 10_000
AT_ONCE = 500
ANSWERS = 50
SWEEPS = 5


class Asking:
    """Asks before it does anything, and remembers nothing."""

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        if not turn.verdicts:
            yield Checkpoint(b"asked")
            yield ApprovalAsked("call", "terminal", "rm build", "digest")
            return
        yield TextDelta("done" if turn.verdicts[0].granted else "not done")
        yield Finished()


async def measure(questions: int = QUESTIONS) -> dict[str, float]:
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_FOLDER")) as folder:
        none, many = Path(folder) / "none", Path(folder) / "many"
        agent = Asking()
        figures: dict[str, float] = {"questions": questions}
        async with _gateway(none, agent) as (gateway, adapter):
            figures |= {f"none_{name}": figure for name, figure in (await _ask(gateway, adapter, none, 1)).items()}
            figures["none_sweep_ms"] = await _sweeps(gateway)
        async with _gateway(many, agent) as (gateway, adapter):
            figures |= await _ask(gateway, adapter, many, questions)
        figures["none_start_s"] = await _start(none, agent)
        figures["start_s"] = await _start(many, agent)
        async with _gateway(many, agent) as (gateway, adapter):
            figures["sweep_ms"] = await _sweeps(gateway)
            figures |= await _remove(gateway, many)
            figures |= await _answer(gateway)
        return figures


@asynccontextmanager
async def _gateway(home: Path, agent: Asking) -> AsyncIterator[tuple[Gateway, MemoryAdapter]]:
    home.mkdir(exist_ok=True)
    adapter = MemoryAdapter()
    settings = Core(
        access=Access(owners=("memory:ada",)),
        approvals=Approvals(minutes=600, members_approve=True),
        limits=Limits(burst_seconds=0, runs=100, queued=4 * QUESTIONS, drain_seconds=0),
    )
    platforms, team = [adapter.platform()], Team({"bot": agent}, "bot")
    async with Gateway(home, settings, platforms, team, FakeLocal(), FakeServer()) as gateway:
        await adapter.listening.wait()
        yield gateway, adapter


async def _ask(gateway: Gateway, adapter: MemoryAdapter, home: Path, questions: int) -> dict[str, float]:
    """Every chat asks once; one of them is of a member who is removed later."""
    await gateway.desk.people.admit(OWNER, "memory:bob", Role.MEMBER)
    before = _memory()
    for start in range(0, questions, AT_ONCE):
        for chat in range(start, min(start + AT_ONCE, questions)):
            sender = Sender(id="bob" if chat == 0 else "ada")
            await adapter._receive(replace(message(str(chat), str(chat), "clean up"), sender=sender))
        await _until(lambda start=start: _open(home) >= min(start + AT_ONCE, questions))  # type: ignore[misc]
    await _until(lambda: _waiting(home) == 0)
    await asyncio.sleep(0.2)
    return {
        "kb_each": (_memory() - before) * 1000 / questions,
        "tasks": len(asyncio.all_tasks()),
        "timers": sum(not timer.cancelled() for timer in asyncio.get_running_loop()._scheduled),  # type: ignore[attr-defined]
    }


async def _start(home: Path, agent: Asking) -> float:
    taken = []
    for _ in range(3):
        began = time.perf_counter()
        async with _gateway(home, agent):
            taken.append(time.perf_counter() - began)
    return min(taken)


async def _sweeps(gateway: Gateway) -> float:
    """In milliseconds, one sweep of the approvals."""
    taken = []
    for _ in range(SWEEPS):
        began = time.perf_counter()
        await gateway._parts.approvals.sweep()
        taken.append((time.perf_counter() - began) * 1000)
    return statistics.median(taken)


async def _remove(gateway: Gateway, home: Path) -> dict[str, float]:
    """One person is removed while all the others wait: how long until that question is gone, and all stands still."""
    longest, is_over = 0.0, asyncio.Event()

    async def look_on() -> None:
        nonlocal longest
        while not is_over.is_set():
            began = time.perf_counter()
            await asyncio.sleep(0.001)
            longest = max(longest, time.perf_counter() - began - 0.001)

    looking = asyncio.create_task(look_on())
    before, began = _open(home), time.perf_counter()
    await gateway.desk.people.remove(OWNER, "memory:bob")
    await _until(lambda: _open(home) == before - 1)
    taken = time.perf_counter() - began
    await _until(lambda: "lapsed" not in gateway._parts.approvals._background)
    is_over.set()
    await looking
    return {"remove_s": taken, "remove_standstill_ms": longest * 1000}


async def _answer(gateway: Gateway) -> dict[str, float]:
    taken = []
    for question in (await gateway.desk.approvals.open(OWNER))[:ANSWERS]:
        began = time.perf_counter()
        await gateway.desk.approvals.answer(OWNER, question.id, Choice.DENY)
        taken.append((time.perf_counter() - began) * 1000)
    return {"answer_ms": statistics.median(taken), "answer_worst_ms": max(taken)}


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(300):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def _open(home: Path) -> int:
    return _count(home, "SELECT count(*) FROM approvals WHERE state = 'open'")


def _waiting(home: Path) -> int:
    return _count(home, "SELECT count(*) FROM deliveries WHERE state IN ('waiting', 'doubtful')")


def _count(home: Path, sql: str) -> int:
    with closing(sqlite3.connect(home / DATABASE)) as store:
        return int(store.execute(sql).fetchone()[0])


def _memory() -> float:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure())))

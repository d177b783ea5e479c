"""Plays many cases at once, each against gateways of its own: workers, their zygotes and their folders."""

from __future__ import annotations

import asyncio
import os
import select
import shutil
import socket
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from tests.chaos import checkers, driver, zygote
from tests.chaos.driver import Commit, Nursery, Played
from tests.chaos.scenario import SCENARIOS
from tidings.core.types import Value

# Memory is as durable as a disk for a process that is killed, and a good deal quicker.
MEMORY = Path("/dev/shm")
WORKERS = 2


class Ask(Value, frozen=True, kw_only=True):
    # As one writes it on the command line; empty for a run without a kill.
    at: str
    scenario: str = "ten"
    keep: bool = False
    # Also tells how often each failpoint was passed.
    labels: bool = False


class Result(Value, frozen=True, kw_only=True):
    at: str
    scenario: str
    violations: dict[str, list[str]]
    orphans: int
    marked: int
    # Of the first start.
    commits: tuple[Commit, ...]
    # What the second start committed before the clock went on, as it made good what a kill had left.
    recovery: tuple[Commit, ...]
    # Of the first start, where they were asked for.
    labels: dict[str, int]
    folder: str


class Worker:
    """A process that plays one case after another against children of its own zygote."""

    def __init__(self, folder: Path, siblings: Sequence[Worker]) -> None:
        self.line, theirs = socket.socketpair()
        self._results = self.line.makefile("rb")
        self._pid = os.fork()
        if self._pid == 0:
            try:
                # Held open here, a line would never end for the one at its other side.
                for each in (*siblings, self):
                    each._hang_up()
                children = zygote.start(theirs)
                asyncio.run(_work(theirs, children, folder))
                # It ends with the line to it, and nobody stays behind.
                children.close()
                os.wait()
                os._exit(0)
            finally:
                traceback.print_exc()
                os._exit(1)
        theirs.close()

    def ask(self, ask: Ask) -> None:
        self.line.sendall(msgspec.json.encode(ask) + b"\n")

    def result(self) -> Result:
        line = self._results.readline()
        if not line.endswith(b"\n"):
            raise RuntimeError("a worker of the sweep died; its last words stand above")
        return msgspec.json.decode(line, type=Result)

    def close(self) -> None:
        self._hang_up()
        os.waitpid(self._pid, 0)

    def _hang_up(self) -> None:
        self._results.close()
        self.line.close()


async def _work(line: socket.socket, children: socket.socket, folder: Path) -> None:
    reader, writer = await asyncio.open_unix_connection(sock=line)
    async with Nursery(children).open() as nursery:
        while asked := await reader.readline():
            result = await _play(msgspec.json.decode(asked, type=Ask), folder, nursery)
            writer.write(msgspec.json.encode(result) + b"\n")
            await writer.drain()


async def _play(ask: Ask, folder: Path, nursery: Nursery) -> Result:
    own = Path(tempfile.mkdtemp(prefix=f"{ask.at.replace(':', '')}-", dir=folder))
    scenario = SCENARIOS[ask.scenario]
    played = await driver.play(scenario, driver.parse(ask.at), own, nursery, labels=ask.labels)
    verdict = checkers.judge(played)
    if not ask.keep:
        shutil.rmtree(own)
    return Result(
        at=ask.at,
        scenario=ask.scenario,
        violations=verdict.violations,
        orphans=verdict.orphans,
        marked=verdict.marked,
        commits=played.commits[0],
        recovery=_recovery(played),
        labels=played.labels[0],
        folder=str(own) if ask.keep else "",
    )


def _recovery(played: Played) -> tuple[Commit, ...]:
    second = played.commits[1] if len(played.commits) > 1 else ()
    return tuple(commit for commit in second if commit.at == second[0].at)


class Crew:
    """Workers for as long as the `with` lasts, and a folder for their homes."""

    def __init__(self, count: int = WORKERS, *, keep: bool = False) -> None:
        self._count = count
        self._keep = keep

    def __enter__(self) -> Self:
        memory = MEMORY if os.access(MEMORY, os.W_OK) else None
        self._folder = Path(tempfile.mkdtemp(prefix="tidings-sweep-", dir=memory))
        self._workers: list[Worker] = []
        for _ in range(self._count):
            self._workers.append(Worker(self._folder, self._workers))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            worker.close()
        if not self._keep:
            shutil.rmtree(self._folder)

    def play(self, asks: Sequence[Ask]) -> Iterator[Result]:
        """In the order in which they end; whoever stops listening leaves no case half done."""
        waiting = list(reversed(asks))
        free, busy = list(self._workers), {}
        try:
            while waiting or busy:
                while waiting and free:
                    worker = free.pop()
                    worker.ask(waiting.pop())
                    busy[worker.line.fileno()] = worker
                for descriptor in select.select(list(busy), [], [])[0]:
                    worker = busy.pop(descriptor)
                    result = worker.result()
                    free.append(worker)
                    yield result
        finally:
            for worker in busy.values():
                worker.result()

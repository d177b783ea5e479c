"""Kills a gateway before and after every commit of a scenario, and says what became of each message.

    python -m tests.chaos.sweep                the whole sweep
    python -m tests.chaos.sweep --at pre:17    one case, with its folder kept
    python -m tests.chaos.sweep --runs 5       shows that the commits are the same in every run
"""

from __future__ import annotations

import argparse
import asyncio
import os
import select
import shutil
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from core.types import Value
from tests.chaos import checkers, driver, mutants, zygote
from tests.chaos.driver import Commit, Kill, Nursery, Played
from tests.chaos.scenario import TEN

# Memory is as durable as a disk for a process that is killed, and a good deal quicker.
MEMORY = Path("/dev/shm")
WORKERS = 2
_RESULT_BYTES = 8 * 2**20


class Ask(Value, frozen=True, kw_only=True):
    # As one writes it on the command line; empty for a run without a kill.
    at: str
    keep: bool = False


class Result(Value, frozen=True, kw_only=True):
    at: str
    violations: dict[str, list[str]]
    orphans: int
    marked: int
    # Of the first start; as text, so that runs can be compared.
    commits: tuple[tuple[str, ...], ...]
    seconds: float
    folder: str


class Worker:
    """A process that plays one case after another against children of its own zygote."""

    def __init__(self, folder: Path, siblings: Sequence[Worker]) -> None:
        self.line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                # Held open here, a line would never end for the one at its other side.
                for each in (*siblings, self):
                    each.line.close()
                line = zygote.start(theirs)
                asyncio.run(_work(theirs, line, folder))
            finally:
                sys.stderr.flush()
                os._exit(0)
        theirs.close()

    def ask(self, ask: Ask) -> None:
        self.line.send(msgspec.json.encode(ask))

    def result(self) -> Result:
        data = self.line.recv(_RESULT_BYTES)
        if not data:
            raise RuntimeError("a worker of the sweep died; its last words stand above")
        return msgspec.json.decode(data, type=Result)

    def close(self) -> None:
        self.line.close()
        os.waitpid(self.pid, 0)


async def _work(line: socket.socket, children: socket.socket, folder: Path) -> None:
    line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _RESULT_BYTES)
    line.setblocking(False)
    loop = asyncio.get_running_loop()
    async with Nursery(children).open() as nursery:
        while data := await loop.sock_recv(line, 65536):
            result = await _play(msgspec.json.decode(data, type=Ask), folder, nursery)
            await loop.sock_sendall(line, msgspec.json.encode(result))


async def _play(ask: Ask, folder: Path, nursery: Nursery) -> Result:
    began = time.monotonic()
    own = Path(tempfile.mkdtemp(prefix=f"{ask.at.replace(':', '')}-", dir=folder))
    played = await driver.play(TEN, driver.parse(ask.at), own, nursery)
    verdict = checkers.judge(played)
    if not ask.keep:
        shutil.rmtree(own)
    return Result(
        at=ask.at,
        violations=verdict.violations,
        orphans=verdict.orphans,
        marked=verdict.marked,
        commits=_first_start(played),
        seconds=time.monotonic() - began,
        folder=str(own) if ask.keep else "",
    )


def _first_start(played: Played) -> tuple[tuple[str, ...], ...]:
    return tuple((f"{commit.at:.6f}", *commit.statements) for commit in played.commits[0]) if played.commits else ()


class Crew:
    """Workers for as long as the `with` lasts, and a folder for their homes."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="tidings-sweep-", dir=MEMORY if MEMORY.is_dir() else None))
        self._workers: list[Worker] = []
        for _ in range(self._count):
            self._workers.append(Worker(self.folder, self._workers))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            worker.close()
        if not any(self.folder.iterdir()):
            self.folder.rmdir()

    def play(self, asks: Sequence[Ask]) -> Iterator[Result]:
        """In the order in which they end; whoever stops asking leaves no case half done."""
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


class Tally:
    def __init__(self) -> None:
        self.found: Counter[str] = Counter()
        self.cases = 0
        self.orphans = 0
        self.marked = 0
        self.slowest = 0.0

    def add(self, result: Result, commits: tuple[tuple[str, ...], ...], mutant: str) -> None:
        self.cases += 1
        self.orphans += result.orphans
        self.marked += result.marked
        self.slowest = max(self.slowest, result.seconds)
        violations = dict(result.violations)
        if strayed := _strays(result, commits):
            violations["harness"] = [*violations.get("harness", []), strayed]
        for name, told in violations.items():
            self.found[name] += len(told)
            for sentence in told:
                print(f"{result.at or 'clean'} {name}: {sentence} | {_replay(result.at, mutant)}", flush=True)
        if violations and (at := driver.parse(result.at)):
            print(f"    the commit: {_label(commits, at[0])}", flush=True)

    def line(self, commits: int, seconds: float) -> str:
        counts = " ".join(f"{name}={self.found[name]}" for name in (*checkers.CHECKERS, "harness"))
        return (
            f"sweep: commits={commits} cases={self.cases} {counts}"
            f" orphans={self.orphans} marked={self.marked} seconds={seconds:.1f}"
        )


def _replay(at: str, mutant: str) -> str:
    prefix = f"{mutants.VARIABLE}={mutant} " if mutant else ""
    return f"{prefix}python -m tests.chaos.sweep --at {at}" if at else f"{prefix}python -m tests.chaos.sweep --runs 1"


def _strays(result: Result, commits: tuple[tuple[str, ...], ...]) -> str:
    """The commits up to the kill must be those of the run that was counted; else a gap may hide anywhere."""
    for number, (here, there) in enumerate(zip(result.commits, commits, strict=False), start=1):
        if here != there:
            return f"commit {number} is not the one that was counted: {_short(here)} instead of {_short(there)}"
    kills = driver.parse(result.at)
    if not kills and len(result.commits) != len(commits):
        return f"{len(result.commits)} commits instead of {len(commits)}"
    if kills and kills[0].point in driver.SHORT and len(result.commits) != kills[0].hit:
        return f"it died at commit {len(result.commits)}"
    return ""


def _short(commit: tuple[str, ...]) -> str:
    return f"[{commit[0]} {Commit(float(commit[0]), list(commit[1:]))}]"


def _label(commits: tuple[tuple[str, ...], ...], kill: Kill) -> str:
    return _short(commits[kill.hit - 1]) if kill.point in driver.SHORT and kill.hit <= len(commits) else str(kill)


def sweep(arguments: argparse.Namespace) -> int:
    began = time.monotonic()
    mutant = os.environ.get(mutants.VARIABLE, "")
    tally = Tally()
    with Crew(arguments.workers) as crew:
        counted = next(crew.play([Ask(at="")]))
        commits = counted.commits
        tally.add(counted, commits, mutant)
        if arguments.at:
            asks = [Ask(at=at, keep=True) for at in arguments.at]
        elif arguments.runs:
            asks = [Ask(at="")] * arguments.runs
        else:
            asks = [Ask(at=f"{point}:{hit}") for hit in range(1, len(commits) + 1) for point in driver.SHORT]
        for number, result in enumerate(crew.play(asks), start=1):
            tally.add(result, commits, mutant)
            if result.folder:
                print(f"{result.at}: {_label(commits, driver.parse(result.at)[0])}; the folder is {result.folder}")
            if arguments.progress and sys.stderr.isatty():
                print(f"\r{number} of {len(asks)} cases, {tally.found.total()} violations ", end="", file=sys.stderr)
            elif arguments.progress and number % 50 == 0:
                print(f"{number} of {len(asks)} cases, {tally.found.total()} violations", file=sys.stderr, flush=True)
            if arguments.first and tally.found:
                break
    if arguments.commits:
        for number, commit in enumerate(commits, start=1):
            print(f"{number:4} {_short(commit)}")
    if arguments.progress and sys.stderr.isatty():
        print(file=sys.stderr)
    print(tally.line(len(commits), time.monotonic() - began))
    return 1 if tally.found else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.sweep", description=__doc__.split("\n")[0])
    parser.add_argument("--at", action="append", help="one case: pre:17, post:17 or LABEL:1; a comma adds a second kill")
    parser.add_argument("--runs", type=int, default=0, help="so many runs without a kill, compared commit by commit")
    parser.add_argument("--first", action="store_true", help="stop at the first violation")
    parser.add_argument("--commits", action="store_true", help="list the commits")
    parser.add_argument("--progress", action="store_true", help="say how far it is")
    parser.add_argument("--workers", type=int, default=WORKERS, help="cases at once")
    return sweep(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())

"""Kills a gateway while a thousand promises are open, and looks whether each is told in its thread, once.

`python -m tests.chaos.promises --promises 1000 --kills 100 --seed 1`, or `make promises`.

Telegram, Discord and Slack by their simulators, the console by its real socket and a client that drops what it has
already shown. A promise is a task of an agent's, work handed to another agent, or a process in the background; what
was promised is what the database says was promised, and what was told is what stands on the platforms.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, closing
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from tests.chaos import crowd
from tests.worlds.fakes import FakeServer
from tidings.adapters.console.adapter import ConsoleAdapter
from tidings.adapters.console.settings import ConsoleSettings
from tidings.adapters.local import socket
from tidings.core import failpoints
from tidings.core.adapter import Platform
from tidings.core.agent import Effect, Event, Finished, TextDelta, ToolFinished, ToolStarted, Turn
from tidings.core.desk.work import Goal, Launch, Manner
from tidings.core.errors import Declined, NotRunning
from tidings.core.gateway.gateway import Gateway
from tidings.core.gateway.options import Team
from tidings.core.outbound.outbox import MARK
from tidings.core.settings import Access, Core, Limits, Terminal, Work
from tidings.core.store.sqlite import DATABASE
from tidings.core.types import Value
from tidings.core.work.tasks.tasks import TaskKind

PLATFORMS = ("telegram", "discord", "slack")
CONSOLE = "console"
THREADS = tuple(f"thread{number}" for number in range(8))
WORDS = {"task": 5, "frail": 1, "delegate": 3, "process": 1}
# More than one promise in twenty is cut off before it is made.
SPARE = 1.08
MEMORY = Path("/dev/shm")
STUCK_SECONDS = 120.0
LABELS = (
    "store.pre_commit",
    "store.post_commit",
    "bg.promised",
    "bg.spawned",
    "bg.pre_notify",
    "tool.started",
    "run.post_terminal",
    "out.dispatching_committed",
    "out.effect",
    "out.pre_receipt",
    "boot.mid_recover",
)
OPEN = (
    "SELECT count(*) FROM (SELECT 1 FROM inbox WHERE state IN ('waiting', 'running') UNION ALL"
    " SELECT 1 FROM deliveries WHERE state NOT IN ('delivered', 'dead') UNION ALL"
    " SELECT 1 FROM tasks WHERE state IN ('waiting', 'running'))"
)


class Life(Value, frozen=True, kw_only=True):
    """What one process is told before it starts."""

    home: str
    failpoint: str
    adapters: tuple[tuple[str, str], ...]
    log: str


class Promising:
    """Promises what it is told to, and does the work that was handed on; a token names each promise."""

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        word, _, token = turn.message.text.partition(" ")
        if turn.message.errand is not None:
            await asyncio.sleep(0.3)
            yield TextDelta(report(token))
            yield Finished()
            return
        if word not in WORDS:
            yield TextDelta("Good day.")
            yield Finished()
            return
        effect = Effect.EFFECT if word in ("task", "frail") else Effect.IDEMPOTENT
        yield ToolStarted(token, "promise", word, effect)
        await self._promise(turn, word, token)
        yield ToolFinished(token, "promised")
        yield TextDelta(f"({token} is promised.)")
        yield Finished()

    async def _promise(self, turn: Turn, word: str, token: str) -> None:
        match word:
            case "delegate":
                await turn.desk.tasks.delegate(Goal(f"errand {token}", token, Manner.TELL, key=token))
            case "process":
                command = ("sh", "-c", f"sleep 0.3; echo '{report(token)}'")
                folder, environment = Path.cwd(), {"PATH": os.defpath}
                launch = Launch(command, token, folder, environment, Manner.TELL, key=token)
                await turn.desk.processes.launch(launch)
            case _:
                await turn.desk.begin(word, token, 0.2)


def report(token: str) -> str:
    return f"Here is what {token} was promised."


async def _report(token: str) -> str:
    return report(token)


async def _report_late(token: str) -> str:
    await asyncio.sleep(0.3)
    return report(token)


# The second is reported as lost after a crash, and has to be told all the same.
KINDS = (TaskKind("task", _report, resumable=True), TaskKind("frail", _report_late, resumable=False))


def live(life: Life, lifeline: Connection) -> None:
    """The gateway's process."""
    with open(life.log, "a") as log:
        os.dup2(log.fileno(), 2)
    os.chdir(Path(life.home).parent)
    logging.basicConfig(filename=life.log, level=logging.WARNING)
    asyncio.run(_live(life, lifeline))


async def _live(life: Life, lifeline: Connection) -> None:
    asyncio.get_running_loop().add_reader(lifeline.fileno(), os._exit, 3)
    failpoints.arm(life.failpoint)
    home = Path(life.home)
    platforms = [
        Platform(name, "main", lambda host, n=name, at=address: crowd.STANDS[n].build("main", at, host))  # type: ignore[misc]
        for name, address in life.adapters
    ]
    platforms.append(
        Platform(CONSOLE, "main", lambda host: ConsoleAdapter("main", ConsoleSettings(), host), nearby=True)
    )
    allowed = tuple(f"{name}:{person}" for name in PLATFORMS for person in crowd.STANDS[name].people)
    settings = Core(
        access=Access(allow=allowed),
        limits=Limits(burst_seconds=0),
        work=Work(delegates=1000, processes=1000),
        terminal=Terminal(backend="local"),
    )
    async with socket.LocalServer() as server:
        gateway = Gateway(home, settings, platforms, Team({"bot": Promising()}, "bot", KINDS), server, FakeServer())
        async with gateway, server.serving(home):
            await asyncio.Event().wait()


class Seat:
    """Somebody at the console in one thread, who comes back as often as it takes and shows nothing twice."""

    def __init__(self, home: Path, thread: str) -> None:
        self.thread = thread
        self.shown: dict[str, str] = {}
        self._home = home
        self._unstored: dict[str, str] = {}
        self._line: socket.SocketLine | None = None

    @property
    def is_heard(self) -> bool:
        return not self._unstored

    async def say(self, text: str) -> None:
        key = text.partition(" ")[2]
        self._unstored[key] = text
        if self._line is not None:
            try:
                await self._line.write({"say": text, "key": key})
            except ConnectionError:
                # It is said again by whoever comes back.
                return

    async def sit(self) -> None:
        while True:
            try:
                async with socket.connect(self._home) as line:
                    await line.write({"verb": "chat", "chat": "hall", "thread": self.thread})
                    if "attached" in (await line.read() or {}):
                        await self._listen(line)
            except (NotRunning, Declined, ConnectionError):
                self._line = None
            await asyncio.sleep(0.02)

    async def _listen(self, line: socket.SocketLine) -> None:
        self._line = line
        for key, text in list(self._unstored.items()):
            await line.write({"say": text, "key": key})
        while (message := await line.read()) is not None:
            if "stored" in message:
                self._unstored.pop(str(message["stored"]), None)
            elif "part" in message:
                if message["kind"] == "plain":
                    self.shown.setdefault(str(message["part"]), str(message["text"]))
                await line.write({"shown": message["part"]})


class Said(NamedTuple):
    token: str
    platform: str
    chat: str
    thread: str


class Figures(NamedTuple):
    promises: int
    kills: int
    told: int
    missing: list[str]
    misplaced: list[str]
    doubled: list[str]
    marked: int
    faults: list[str]

    @property
    def is_red(self) -> bool:
        return bool(self.missing or self.misplaced or self.doubled or self.faults)

    def __str__(self) -> str:
        wrong = f"missing={len(self.missing)} misplaced={len(self.misplaced)} doubled={len(self.doubled)}"
        return (
            f"promises: promised={self.promises} kills={self.kills} told={self.told} {wrong} marked={self.marked}"
            f" faults={len(self.faults)}"
        )


class Promises:
    def __init__(self, seed: int, promises: int, kills: int, folder: Path) -> None:
        self._lots = random.Random(f"{seed}/promises")
        self._count = round(promises * SPARE)
        self._kills = kills
        self._folder = folder
        self._home = folder / "home"
        self._papers: dict[str, crowd.Simulator] = {}
        self._seats = {thread: Seat(self._home, thread) for thread in THREADS}
        self._said: dict[str, Said] = {}
        self._faults: list[str] = []
        self._killed = 0
        self._processes = multiprocessing.get_context("forkserver")
        self._processes.set_forkserver_preload([crowd.__name__, Gateway.__module__])
        self._lifeline, self._theirs = self._processes.Pipe()

    async def run(self) -> Figures:
        async with AsyncExitStack() as stack:
            for name in PLATFORMS:
                self._papers[name] = await stack.enter_async_context(crowd.STANDS[name].serve())
            await self._introduce()
            seats = [asyncio.create_task(seat.sit()) for seat in self._seats.values()]
            saying = asyncio.create_task(self._say())
            try:
                await self._live(saying)
            finally:
                for task in (*seats, saying):
                    task.cancel()
                await asyncio.gather(*seats, saying, return_exceptions=True)
            return self._figures()

    async def _introduce(self) -> None:
        process = self._start("")
        async with asyncio.timeout(STUCK_SECONDS):
            while not (self._home / "tidings.sock").exists():  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        for paper in self._papers.values():
            await crowd.introduce(paper)
        await self._rest(process)
        await self._end(process)

    async def _say(self) -> None:
        pause = 1.3 * self._kills / self._count
        for number in range(self._count):
            (word,) = self._lots.choices(list(WORDS), list(WORDS.values()))
            platform = self._lots.choice((*PLATFORMS, CONSOLE))
            token = f"{platform[0]}{number}x{self._lots.randrange(10**6)}"
            if platform == CONSOLE:
                said = Said(token, platform, "hall", self._lots.choice(THREADS))
                await self._seats[said.thread].say(f"{word} {token}")
            else:
                chat, thread = self._lots.choice(crowd.STANDS[platform].places)
                said = Said(token, platform, chat, thread)
                text = f"{word} {token}"
                self._papers[platform].says(text, key=token, chat=chat, thread=thread, account="main")
            self._said[token] = said
            await asyncio.sleep(self._lots.uniform(0, 2 * pause))

    async def _live(self, saying: asyncio.Task[None]) -> None:
        for _ in range(self._kills):
            label = self._lots.choice(LABELS)
            hit = self._lots.randint(1, 80 if label.startswith("store.") else 8)
            process = self._start(f"{label}:{hit}:kill" if self._lots.random() < 0.5 else "")
            await asyncio.wait([process.ended], timeout=self._lots.uniform(0.3, 2.0))
            await self._end(process)
            self._killed += 1
        process = self._start("")
        await asyncio.wait([saying, process.ended], return_when=asyncio.FIRST_COMPLETED)
        await self._rest(process)
        await self._end(process)

    def _start(self, failpoint: str) -> Process:
        life = Life(
            home=str(self._home),
            failpoint=failpoint,
            adapters=tuple((name, paper.address) for name, paper in self._papers.items()),
            log=str(self._folder / "log"),
        )
        return Process(self._processes.Process(target=live, args=(life, self._theirs), daemon=True))

    async def _end(self, process: Process) -> None:
        status = await process.kill()
        if status != -signal.SIGKILL:
            self._faults.append(f"a gateway died with {status}")
        for paper in self._papers.values():
            await paper.until(lambda paper: not paper.attached("main"), 10.0)

    async def _rest(self, process: Process) -> None:
        """Until nothing waits any more."""
        changed, before = time.monotonic(), -1
        while time.monotonic() < changed + STUCK_SECONDS:
            if process.ended.done():
                self._faults.append("the last gateway died")
                return
            await asyncio.sleep(0.3)
            left = self._open()
            if left == 0:
                return
            if left != before:
                changed, before = time.monotonic(), left
        self._faults.append(f"not at rest: {before} are open")

    def _open(self) -> int:
        waiting = sum(len(paper.unconfirmed) for paper in self._papers.values())
        waiting += sum(not seat.is_heard for seat in self._seats.values())
        if waiting or not (self._home / DATABASE).exists():
            return waiting or 1
        with closing(sqlite3.connect(self._home / DATABASE)) as connection:
            try:
                return int(connection.execute(OPEN).fetchone()[0])
            except sqlite3.OperationalError:
                # It is being made.
                return 1

    def _figures(self) -> Figures:
        told = Counter[tuple[str, str, str, str]]()
        marked = Counter[str]()
        for where, chat, thread, text in self._shown():
            if token := next((token for token in self._said if _tells(text, token)), ""):
                told[token, where, chat, thread] += 1
                marked[token] += text.startswith(MARK)
        promised = self._promised()
        missing, misplaced, doubled = [], [], []
        for token in promised:
            said = self._said[token]
            places = [place for place in told if place[0] == token]
            right = told[token, said.platform, said.chat, said.thread]
            if not right:
                missing.append(f"{said} was never told ({places})")
            if any(place[1:] != (said.platform, said.chat, said.thread) for place in places):
                misplaced.append(f"{said} was told at {places}")
            if right - marked[token] > 1:
                doubled.append(f"{said} was told {right} times")
        total = sum(told.values())
        return Figures(len(promised), self._killed, total, missing, misplaced, doubled, marked.total(), self._faults)

    def _shown(self) -> Iterator[tuple[str, str, str, str]]:
        for name, paper in self._papers.items():
            for message in paper.sent:
                yield name, message.chat, message.thread, message.text
        for seat in self._seats.values():
            for text in seat.shown.values():
                yield CONSOLE, "hall", seat.thread, text

    def _promised(self) -> list[str]:
        with closing(sqlite3.connect(self._home / DATABASE)) as connection:
            rows = connection.execute("SELECT title, argument, kind FROM tasks WHERE manner = 'tell'").fetchall()
        return [str(title) for title, _, _ in rows]


def _tells(text: str, token: str) -> bool:
    """That something was lost or failed is told, too, by the name of the promise."""
    return f"{token} was promised." in text or (token in text and ("lost" in text or "failed" in text))


class Process:
    def __init__(self, process: Any) -> None:
        self._process = process
        self._process.start()
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[int] = self._loop.create_future()
        self._loop.add_reader(self._process.sentinel, self._bury)

    def _bury(self) -> None:
        self._loop.remove_reader(self._process.sentinel)
        self._process.join()
        self.ended.set_result(self._process.exitcode or 0)

    async def kill(self) -> int:
        if not self.ended.done():
            self._process.kill()
        async with asyncio.timeout(10):
            return await self.ended


def keep_promises(seed: int, promises: int, kills: int) -> Figures:
    memory = MEMORY if MEMORY.is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix=f"tidings-promises-{seed}-", dir=memory))
    figures = asyncio.run(Promises(seed, promises, kills, folder).run())
    if figures.is_red:
        print(f"look into {folder}: home/{DATABASE}, log", file=sys.stderr)
    else:
        shutil.rmtree(folder)
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.promises")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--promises", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=100)
    asked = parser.parse_args()
    figures = keep_promises(asked.seed, asked.promises, asked.kills)
    for line in (*figures.faults, *figures.missing, *figures.misplaced, *figures.doubled):
        print(line, file=sys.stderr)
    print(figures)
    return int(figures.is_red)


if __name__ == "__main__":
    sys.exit(main())

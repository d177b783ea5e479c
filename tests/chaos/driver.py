"""Plays a scenario against a real gateway that dies where it is told to, and starts it again until all is done."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from core.clock import Timer
from tests.chaos import zygote
from tests.chaos.child import Command, Rested, Spec
from tests.chaos.scenario import Ledger, Platform, Say, Scenario, Wait
from tests.chaos.stage import WALL_AHEAD
from tests.simulators.paper import Effect, Message, PaperServer
from tests.simulators.paper_client import PaperSettings

T = TypeVar("T")

START = 1_000_000.0
# Between a kill and the next start.
DOWN_SECONDS = 1.0
# Of real time; a gateway that needs so long for one word hangs.
PATIENCE_SECONDS = 30.0

SHORT = {"pre": "store.pre_commit", "post": "store.post_commit"}


class Kill(NamedTuple):
    """Written `pre:17` (before the 17th commit), `post:17`, or with any other label of a failpoint."""

    point: str
    hit: int

    def __str__(self) -> str:
        return f"{self.point}:{self.hit}"

    @property
    def failpoint(self) -> str:
        return f"{SHORT.get(self.point, self.point)}:{self.hit}:kill"


def parse(text: str) -> tuple[Kill, ...]:
    """One kill for each start, separated by commas; the last start has none."""
    found = (item.strip().rpartition(":") for item in text.split(",") if item.strip())
    return tuple(Kill(point, int(hit)) for point, _, hit in found)


class Flight(NamedTuple):
    """A part that was on its way when the process died: nobody can know whether it arrived."""

    delivery: str
    position: int
    kind: str


class Commit(NamedTuple):
    at: float
    statements: list[str]

    def __str__(self) -> str:
        named = (" ".join(statement.split()[:3]) for statement in self.statements)
        verbs = (words.removesuffix(" SET") for words in named)
        return "; ".join(dict.fromkeys(verbs))


class Seen(NamedTuple):
    """What one platform knows."""

    platform: Platform
    effects: tuple[Effect, ...]
    # What the bot wrote, as it stands in the end.
    messages: tuple[Message, ...]
    confirmed: tuple[str, ...]
    unconfirmed: tuple[str, ...]


class Played(NamedTuple):
    """All that checkers may look at: what the platforms know, the database file, the tools' own log."""

    scenario: Scenario
    kills: tuple[Kill, ...]
    seen: dict[str, Seen]
    database: Path
    ledger: tuple[str, ...]
    # For each kill.
    flights: tuple[tuple[Flight, ...], ...]
    # For each start.
    commits: tuple[tuple[Commit, ...], ...]
    # What went wrong with playing itself: a hang, a wrong death, a kill that never came.
    faults: tuple[str, ...]


class Died(Exception):
    pass


class DriverClock:
    """The platforms' clock: it shows what the gateway was told."""

    def __init__(self) -> None:
        self.time = START

    def now(self) -> float:
        return self.time

    def wall(self) -> float:
        return self.time + WALL_AHEAD

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        raise NotImplementedError("a paper platform never waits")

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError("a paper platform never waits")


class Nursery:
    """The driver's side of a zygote."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._line.setblocking(False)
        self._born: asyncio.Queue[int] = asyncio.Queue()
        self._ended: dict[int, asyncio.Future[int]] = {}

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Nursery]:
        loop = asyncio.get_running_loop()
        loop.add_reader(self._line, self._read)
        try:
            yield self
        finally:
            loop.remove_reader(self._line)

    async def start(self, spec: Spec) -> Process:
        control = zygote.ask(self._line, spec)
        reader, writer = await asyncio.open_unix_connection(sock=control)
        pid = await self._born.get()
        return Process(pid, reader, writer, self._ended[pid])

    def _read(self) -> None:
        told = msgspec.json.decode(self._line.recv(4096), type=zygote.Born | zygote.Ended)
        if isinstance(told, zygote.Born):
            self._ended[told.pid] = asyncio.get_running_loop().create_future()
            self._born.put_nowait(told.pid)
        else:
            self._ended.pop(told.pid).set_result(told.status)


class Process:
    """One gateway, from its start to its death."""

    def __init__(
        self,
        pid: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        ended: asyncio.Future[int],
    ) -> None:
        self.ended = ended
        self._pid = pid
        self._reader = reader
        self._writer = writer

    async def rested(self) -> float | None:
        """When its next timer is due; raises Died."""
        line = await self.alive(self._reader.readline())
        if not line.endswith(b"\n"):
            raise Died
        return msgspec.json.decode(line, type=Rested).next

    async def obey(self, command: Command) -> float | None:
        self._writer.write(msgspec.json.encode(command) + b"\n")
        return await self.rested()

    async def alive(self, waiting: Awaitable[T]) -> T:
        """Waits no longer than the process lives."""
        task = asyncio.ensure_future(waiting)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await asyncio.wait({task, self.ended}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise Died
            return task.result()
        except ConnectionError as error:
            raise Died from error
        finally:
            task.cancel()

    async def kill(self) -> None:
        if not self.ended.done():
            os.kill(self._pid, signal.SIGKILL)
        await self.ended
        self._writer.close()


async def play(scenario: Scenario, kills: tuple[Kill, ...], folder: Path, nursery: Nursery) -> Played:
    async with AsyncExitStack() as stack:
        clock = DriverClock()
        papers: dict[str, PaperServer] = {}
        for platform in scenario.platforms:
            server = PaperServer(platform.kind, limit=platform.limit, clock=clock)
            papers[platform.name] = await stack.enter_async_context(server)
        playing = Play(scenario, kills, folder, nursery, papers, clock)
        await playing.run()
        return playing.told()


class Play:
    def __init__(
        self,
        scenario: Scenario,
        kills: tuple[Kill, ...],
        folder: Path,
        nursery: Nursery,
        papers: dict[str, PaperServer],
        clock: DriverClock,
    ) -> None:
        self._scenario = scenario
        self._kills = kills
        self._folder = folder
        self._nursery = nursery
        self._papers = papers
        self._clock = clock
        self._steps = list(scenario.steps)
        # When the step that is being waited for ends.
        self._until = START
        self._next: float | None = None
        self._flights: list[tuple[Flight, ...]] = []
        self._faults: list[str] = []
        self._boots = 0

    async def run(self) -> None:
        for kill in (*self._kills, None):
            self._boots += 1
            process = await self._nursery.start(self._spec(kill))
            try:
                await self._live(process)
                if kill is not None:
                    self._faults.append(f"{kill} never came")
                    return
            except Died:
                status = await process.ended
                if kill is None or status != -signal.SIGKILL:
                    self._faults.append(f"start {self._boots} died with status {status}: {self._last_words()}")
                    return
                self._flights.append(self._in_flight())
                self._clock.time += DOWN_SECONDS
            except TimeoutError:
                self._faults.append(f"start {self._boots} hangs: {self._last_words()}")
                return
            finally:
                await process.kill()

    async def _live(self, process: Process) -> None:
        self._next = await process.rested()
        for platform in self._scenario.platforms:
            for account in platform.accounts:
                self._next = await process.obey(Command(attach=f"{platform.name}@{account}"))
            await self._confirmed(process, platform.name)
        while True:
            await self._pass_time(process)
            if not self._steps:
                return
            match self._steps.pop(0):
                case Wait(seconds=seconds):
                    self._until = self._clock.time + seconds
                case Say() as say:
                    self._papers[say.platform].says(
                        say.text, key=say.key, chat=say.chat, thread=say.thread, account=say.account
                    )
                    await self._confirmed(process, say.platform)

    async def _confirmed(self, process: Process, platform: str) -> None:
        paper = self._papers[platform]
        if paper.unconfirmed:
            await process.alive(paper.until(lambda paper: not paper.unconfirmed, PATIENCE_SECONDS))
        self._next = await process.obey(Command())

    async def _pass_time(self, process: Process) -> None:
        """From timer to timer, each with all that follows from it."""
        while self._next is not None and self._next <= max(self._until, self._clock.time):
            self._clock.time = max(self._clock.time, self._next)
            self._next = await process.obey(Command(tick=self._clock.time))
        self._clock.time = max(self._clock.time, self._until)

    def _spec(self, kill: Kill | None) -> Spec:
        adapters = [
            (
                account,
                PaperSettings(
                    address=self._papers[platform.name].address,
                    name=platform.name,
                    kind=platform.kind,
                    limit=platform.limit,
                    call_seconds=PATIENCE_SECONDS,
                ),
            )
            for platform in self._scenario.platforms
            for account in platform.accounts
        ]
        return Spec(
            home=str(self._folder / "home"),
            boot=self._boots,
            now=self._clock.time,
            failpoint=kill.failpoint if kill else "",
            adapters=tuple(adapters),
            trace=str(self._trace(self._boots)),
            ledger=str(self._folder / "ledger"),
            log=str(self._folder / "log"),
        )

    def _trace(self, boot: int) -> Path:
        return self._folder / f"commits.{boot}"

    def _in_flight(self) -> tuple[Flight, ...]:
        """Read from a copy: whoever opens the database itself would mend what the next start must mend."""
        copy = self._folder / f"killed.{self._boots}"
        copy.mkdir()
        for name in ("tidings.db", "tidings.db-wal"):
            if (self._folder / "home" / name).exists():
                shutil.copy(self._folder / "home" / name, copy / name)
        rows = rows_of(copy / "tidings.db", "SELECT delivery, position, kind FROM parts WHERE state = 'sending'")
        shutil.rmtree(copy)
        return tuple(Flight(*row) for row in rows)

    def _last_words(self) -> str:
        log = self._folder / "log"
        lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
        return " | ".join(lines[-3:])

    def told(self) -> Played:
        return Played(
            scenario=self._scenario,
            kills=self._kills,
            seen={name: self._seen(name, paper) for name, paper in self._papers.items()},
            database=self._folder / "home" / "tidings.db",
            ledger=tuple(Ledger(self._folder / "ledger").read()),
            flights=tuple(self._flights),
            commits=tuple(self._commits(boot) for boot in range(1, self._boots + 1)),
            faults=tuple(self._faults),
        )

    def _seen(self, name: str, paper: PaperServer) -> Seen:
        confirmed, unconfirmed = tuple(paper.confirmed), tuple(paper.unconfirmed)
        return Seen(self._scenario.platform(name), paper.effects, paper.sent, confirmed, unconfirmed)

    def _commits(self, boot: int) -> tuple[Commit, ...]:
        path = self._trace(boot)
        lines = path.read_bytes().splitlines() if path.exists() else []
        return tuple(Commit(*msgspec.json.decode(line, type=tuple[float, list[str]])) for line in lines)


def rows_of(database: Path, sql: str) -> list[tuple[Any, ...]]:
    """Plain SQL on the file; nothing where there is no table yet."""
    connection = sqlite3.connect(database)
    try:
        return connection.execute(sql).fetchall()
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):
            return []
        raise
    finally:
        connection.close()

"""Kills a gateway at seeded moments while platforms fail it and a crowd writes, and says what became of each message.

`python -m tests.chaos.chaos --seed 1 --messages 2000 --kills 100`, or `make chaos SEED=1 MESSAGES=2000 KILLS=100`.

Exact for a seed: who says what, where and in which order; who visits, and what becomes of them; which fault befalls the
n-th call of each method in each chat; between which messages a kill falls, and at which label or after how long. Not
exact, since time is real: what the gateway has come to at that moment, and so how many calls there are. A red seed is
red again when the fault is not one of microseconds; the home, the log and the ledger of the run that was red are kept.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
import zlib
from collections import defaultdict
from collections.abc import Coroutine
from contextlib import AsyncExitStack, closing
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

from tests.chaos import api_clients, chaos_checkers, chaos_child, crowd
from tests.chaos.chaos_checkers import Crowd, Night, Verdict
from tests.chaos.discord_stand import ANSWER_SECONDS
from tests.chaos.plans import Plan, plan
from tests.chaos.played import Crash, Flight, Seen, rows_of
from tests.chaos.scripted import Ledger
from tests.chaos.steps import Say
from tests.chaos.visitors import Visitors
from tests.worlds.api import KEY

# Memory is as durable as a disk for a process that is killed, and a good deal quicker.
MEMORY = Path("/dev/shm")
# Liveness asks for an outcome within 60 s and an attempt within 15 s, so if nothing happens for so long nothing will.
STUCK_SECONDS = 75.0
# Also what only goes round in circles must end.
DRAIN_SECONDS = 600.0
# A process that could not be ended by then is a fault of this harness.
DEATH_SECONDS = 10.0
# Nothing may follow when everything has come to rest.
CALM_SECONDS = 1.0

OPEN = (
    "SELECT 'message ' || key || ' is ' || state FROM inbox WHERE state IN ('waiting', 'running') UNION ALL"
    " SELECT d.kind || ' ' || d.id || ' is ' || d.state || ' with ' || count(p.position) || ' parts left'"
    " FROM deliveries d LEFT JOIN parts p ON p.delivery = d.id AND p.state <> 'delivered'"
    " WHERE d.state NOT IN ('delivered', 'dead') GROUP BY d.seq UNION ALL"
    " SELECT 'task ' || id || ' is ' || state FROM tasks WHERE state IN ('waiting', 'running')"
)
# What is asked for above. A database is there before its tables are.
TABLES = {"inbox", "deliveries", "parts", "tasks"}


class Process:
    """One gateway, from its start to its death."""

    def __init__(self, processes: ForkServerContext, life: chaos_child.Life, lifeline: Connection) -> None:
        self._process = processes.Process(target=chaos_child.main, args=(life, lifeline), daemon=True)
        self._process.start()
        self._loop = asyncio.get_running_loop()
        # With its status, negative for a signal.
        self.ended: asyncio.Future[int] = self._loop.create_future()
        self._loop.add_reader(self._process.sentinel, self._bury)

    def _bury(self) -> None:
        self._loop.remove_reader(self._process.sentinel)
        self._process.join()
        self.ended.set_result(self._process.exitcode or 0)

    async def outlive(self, waiting: Coroutine[Any, Any, Any]) -> None:
        """Waits, but no longer than it lives."""
        task = asyncio.create_task(waiting)
        await asyncio.wait({task, self.ended}, return_when=asyncio.FIRST_COMPLETED)
        task.cancel()

    async def kill(self) -> int:
        if not self.ended.done():
            self._process.kill()
        async with asyncio.timeout(DEATH_SECONDS):
            return await self.ended


class Chaos:
    """One run. The platforms live here, the gateway in a process that is killed."""

    def __init__(self, plan: Plan, folder: Path, processes: ForkServerContext) -> None:
        self._plan = plan
        self._folder = folder
        self._processes = processes
        self._papers: dict[str, crowd.Simulator] = {}
        # Under the keys that the platforms gave them.
        self._said: list[Say] = []
        # By the number of messages that were said.
        self._reached: dict[int, asyncio.Event] = defaultdict(asyncio.Event)
        self._reached[0].set()
        self._port = api_clients.free_port()
        self._clients = api_clients.Clients(plan.asks, self._port, self._reached.__getitem__)
        self._visitors = Visitors(plan.visits, self._reached.__getitem__)
        self._boots = 0
        self._killed = 0
        # By the wall clock.
        self._deaths: list[float] = []
        self._crashes: list[Crash] = []
        self._cuts: dict[str, list[float]] = defaultdict(list)
        self._faults: list[str] = []
        # The gateway ends with this.
        self._lifeline, self._theirs = processes.Pipe()

    async def run(self) -> Night:
        async with AsyncExitStack() as stack:
            for name, stand in crowd.STANDS.items():
                self._papers[name] = await stack.enter_async_context(stand.serve())
            await self._introduce()
            for name, stand in crowd.STANDS.items():
                self._papers[name].schedule(zlib.crc32(f"{self._plan.seed}/{name}".encode()), stand.odds)
            await stack.enter_async_context(self._clients)
            async with asyncio.TaskGroup() as group:
                asking = group.create_task(self._clients.run())
                group.create_task(self._say())
                group.create_task(self._visitors.run())
                group.create_task(self._break())
                # Nobody is left to answer when that is over.
                group.create_task(self._live()).add_done_callback(lambda _: asking.cancel())
            return self._night()

    async def _introduce(self) -> None:
        """A first life in which nothing goes wrong, where a platform needs one."""
        process = self._start("")
        for paper in self._papers.values():
            self._said += await crowd.introduce(paper)
        self._visitors.settle_in(self._papers)
        async with asyncio.timeout(STUCK_SECONDS):
            while self._owing():  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        await self._end(process)

    async def _say(self) -> None:
        for number, (say, pause) in enumerate(zip(self._plan.said, self._plan.pauses, strict=True), start=1):
            key = self._papers[say.platform].says(
                say.text, key=say.key, chat=say.chat, thread=say.thread, account=say.account
            )
            self._said.append(say._replace(key=key))
            self._reached[number].set()
            await asyncio.sleep(pause)

    async def _break(self) -> None:
        """Takes platforms away for a while, one after the other."""
        for outage in self._plan.outages:
            await self._reached[outage.after].wait()
            self._cuts[outage.platform].append(time.time())
            await self._papers[outage.platform].outage(True)
            await asyncio.sleep(outage.seconds)
            await self._papers[outage.platform].outage(False)

    async def _live(self) -> None:
        for kill in self._plan.kills:
            process = self._start(kill.failpoint)
            await process.outlive(self._reached[kill.after].wait())
            await process.outlive(asyncio.sleep(kill.seconds))
            status = await self._end(process)
            if status != -signal.SIGKILL:
                self._faults.append(f"start {self._boots} died with status {status}: {self._last_words()}")
                return
            self._killed += 1
        process = self._start("")
        await process.outlive(self._reached[len(self._plan.said)].wait())
        # The last outage may have to end yet; from here on everybody is well.
        for paper in self._papers.values():
            paper.heal()
        await process.outlive(self._visitors.leave(self._open))
        await self._drain(process)
        await process.outlive(self._clients.look_back())
        if not self._clients.has_looked_back:
            self._faults.append("the API could not be asked about everything in the end")
        await self._end(process)

    def _start(self, failpoint: str) -> Process:
        self._boots += 1
        life = chaos_child.Life(
            home=str(self._folder / "home"),
            boot=self._boots,
            failpoint=failpoint,
            adapters=tuple(
                (name, account, self._papers[name].address)
                for name, stand in crowd.STANDS.items()
                for account in stand.platform.accounts
            ),
            port=self._port,
            key=KEY,
            ledger=str(self._folder / "ledger"),
            log=str(self._folder / "log"),
        )
        return Process(self._processes, life, self._theirs)

    async def _end(self, process: Process) -> int:
        """Kills, and looks at what the dead process left before the next one mends it."""
        status = await process.kill()
        self._deaths.append(time.time())
        for name, stand in crowd.STANDS.items():
            # When the connection has ended, everything that was said over it has been heard.
            paper, accounts = self._papers[name], stand.platform.accounts
            await paper.until(lambda paper, accounts=accounts: not any(map(paper.attached, accounts)), DEATH_SECONDS)
        self._crashes.append(self._look())
        return status

    def _look(self) -> Crash:
        """Looks at a copy: whoever opens the database itself would mend what the next start must mend."""
        home, copy = self._folder / "home", self._folder / "killed"
        copy.mkdir()
        for name in ("tidings.db", "tidings.db-wal"):
            if (home / name).exists():
                shutil.copy(home / name, copy / name)
        flights = rows_of(copy / "tidings.db", "SELECT delivery, position, kind FROM parts WHERE state = 'sending'")
        stored = set(rows_of(copy / "tidings.db", "SELECT adapter, key FROM inbox"))
        shutil.rmtree(copy)
        later = {(say.platform, say.key) for say in self._visitors.said if not say.is_stored_at_once}
        confirmed = {(name, key) for name, paper in self._papers.items() for key in paper.confirmed} - later
        return Crash(
            flights=tuple(Flight(*row) for row in flights),
            unstored=tuple(f"{key} on {name}" for name, key in confirmed if (name, key) not in stored),
        )

    async def _drain(self, process: Process) -> None:
        """Returns when nothing is owed, waits or runs any more; what never does is left for the checkers."""
        began = changed = time.monotonic()
        left = self._open()
        while time.monotonic() < min(changed + (STUCK_SECONDS if left else CALM_SECONDS), began + DRAIN_SECONDS):
            if process.ended.done():
                self._faults.append(f"the last start died with {process.ended.result()}: {self._last_words()}")
                return
            await asyncio.sleep(0.2)
            before, left = left, self._open()
            if left != before:
                changed = time.monotonic()
        if left:
            self._faults.append(f"not at rest after {time.monotonic() - began:.0f} s: {left[:10]}")

    def _open(self) -> list[str]:
        found = [f"{key} is unconfirmed" for paper in self._papers.values() for key in paper.unconfirmed]
        found += self._clients.open()
        return found or self._owing()

    def _owing(self) -> list[str]:
        database = self._folder / "home" / "tidings.db"
        if not database.exists():
            return ["no database yet"]
        # A reader that cannot write disturbs nobody.
        with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
            known = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
            if not known >= TABLES:
                return ["no tables yet"]
            stored = set(connection.execute("SELECT adapter, key FROM inbox"))
            heard = [say for say in self._heard(stored) if say.is_stored_at_once]
            waiting = [say for say in heard if (say.platform, say.key) not in stored]
            return [f"{say.key} is not stored" for say in waiting] + [row[0] for row in connection.execute(OPEN)]

    def _heard(self, stored: set[tuple[Any, ...]]) -> list[Say]:
        """What was said, without what was told only once, to a process that died of it."""
        once = {key: told for paper in self._papers.values() for key, told in crowd.told_once(paper).items()}
        return [
            say
            for say in (*self._said, *self._visitors.said)
            if say.key not in once
            or (say.platform, say.key) in stored
            or not self._has_died(say.platform, once[say.key].at)
        ]

    def _has_died(self, platform: str, at: float) -> bool:
        """The gateway, or its way to the platform, while somebody waited for a first word."""
        return any(at <= end <= at + ANSWER_SECONDS for end in (*self._deaths, *self._cuts[platform]))

    def _unheard(self) -> frozenset[str]:
        """Stored, and nobody could be told that it was: the platform has said that nobody answers."""
        return frozenset(
            key
            for name, paper in self._papers.items()
            for key, told in crowd.told_once(paper).items()
            if not told.is_heard and self._has_died(name, told.at)
        )

    def _last_words(self) -> str:
        log = self._folder / "log"
        lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
        return " | ".join(lines[-3:])

    def _night(self) -> Night:
        platforms = tuple(stand.platform for stand in crowd.STANDS.values())
        database = self._folder / "home" / "tidings.db"
        stored = set(rows_of(database, "SELECT adapter, key FROM inbox"))
        visits = self._visitors.seen()
        return Night(
            scenario=Crowd(
                platforms,
                tuple(self._heard(stored)),
                told=visits.told,
                decisions=visits.decisions,
                roles=visits.roles,
                linked=visits.linked,
                asked=visits.asked,
            ),
            messages=len(self._plan.said),
            unheard=self._unheard(),
            kills=self._killed,
            seen={name: self._seen(name, paper) for name, paper in self._papers.items()},
            database=database,
            ledger=tuple(Ledger(self._folder / "ledger").read()),
            # The last one came when all was done, and counts as no kill.
            crashes=tuple(self._crashes),
            cuts={name: tuple(self._cuts[name]) for name in self._papers},
            faults=(*self._faults, *self._visitors.faults),
            presses=visits.presses,
            api=self._clients.told,
            troubles=self._clients.troubles,
        )

    def _seen(self, name: str, paper: crowd.Simulator) -> Seen:
        return Seen(
            platform=crowd.STANDS[name].platform,
            effects=paper.effects,
            messages=paper.sent,
            confirmed=tuple(paper.confirmed),
            unconfirmed=tuple(paper.unconfirmed),
            calls=paper.calls(),
        )


def chaos(seed: int, messages: int, kills: int, *, keep: bool = False) -> int:
    began = time.monotonic()
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload([chaos_child.__name__])
    memory = MEMORY if MEMORY.is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix=f"tidings-chaos-{seed}-", dir=memory))
    night = asyncio.run(Chaos(plan(seed, messages, kills), folder, processes).run())
    verdict = chaos_checkers.judge(night)
    red = _tell(night, verdict, time.monotonic() - began)
    if red or keep:
        print(f"look into {folder}: home/tidings.db, log, ledger", file=sys.stderr)
        print(f"again: make chaos SEED={seed} MESSAGES={messages} KILLS={kills}", file=sys.stderr)
    else:
        forget(folder)
    figures = " ".join(f"{name}={len(found)}" for name, found in verdict.violations.items())
    orphans = verdict.orphans.total()
    print(f"chaos: seed={seed} messages={night.messages} kills={night.kills} {figures} orphans={orphans}")
    return int(red)


def forget(folder: Path) -> None:
    shutil.rmtree(folder)


def _tell(night: Night, verdict: Verdict, seconds: float) -> bool:
    """Says on stderr what there is to say; true when something is wrong."""
    for fault in night.faults:
        print(f"the run itself: {fault}", file=sys.stderr)
    for name, found in verdict.violations.items():
        for told in found:
            print(f"{name}: {told}", file=sys.stderr)
    for name, seen in night.seen.items():
        failed = sum(call.verdict != "ok" for call in seen.calls)
        print(
            f"{name}: {len(seen.calls)} calls, {failed} of them refused or lost;"
            f" {verdict.marked[name]} marked copies, {verdict.flagged[name]} not shown and said so,"
            f" {verdict.orphans[name]} orphans",
            file=sys.stderr,
        )
    troubles = ", ".join(f"{times} times {what}" for what, times in sorted(night.troubles.items()))
    print(f"api: {len(night.api)} runs; their clients were {troubles}", file=sys.stderr)
    print(f"people: {len(night.scenario.decisions)} decisions about visitors", file=sys.stderr)
    flights = sum(len(crash.flights) for crash in night.crashes)
    print(
        f"{seconds:.0f} s; {flights} parts were in flight at a kill; {verdict.given_up} runs were given up after three",
        file=sys.stderr,
    )
    return bool(night.faults) or any(verdict.violations.values())


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos.chaos", description="Kills a gateway while everything else goes wrong too."
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--messages", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--keep", action="store_true", help="leave the folder, whatever was found")
    arguments = parser.parse_args()
    return chaos(arguments.seed, arguments.messages, arguments.kills, keep=arguments.keep)


if __name__ == "__main__":
    sys.exit(main())

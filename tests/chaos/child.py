"""The gateway as a process of its own, whose clock and kill belong to the driver; everything else is real."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import random
import re
import socket
import sqlite3
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from tests.chaos import mutants, scenario, scripted
from tests.chaos.stage import OwnedClock, Stage
from tests.simulators.paper.adapter import PaperAdapter
from tests.simulators.paper.client import PaperSettings
from tests.worlds.fakes import FakeLocal, FakeServer
from tidings.core import failpoints, ids
from tidings.core.adapter import Host, Platform, Receive, Reports, Taken
from tidings.core.gateway.gateway import Gateway
from tidings.core.gateway.options import Options, Team
from tidings.core.people import codes
from tidings.core.settings import Access, Approvals, Core, Limits
from tidings.core.store import sqlite
from tidings.core.store.store import Unit
from tidings.core.store.wakeups import Wakeups
from tidings.core.types import Absent, Part, Receipt, Signal, Target, Unreadable, Value, View
from tidings.core.work.schedules import schedules

# Long enough for any answer of a scenario, and short enough to wait for.
ASKED_MINUTES = 3

_WRITES = re.compile(r"\s*(INSERT INTO|UPDATE|DELETE FROM)\s+(\w+)", re.IGNORECASE)


class Spec(Value, frozen=True, kw_only=True):
    """What one process is told before it starts."""

    home: str
    # Which start on this home it is, from 1.
    boot: int
    now: float
    # As in TIDINGS_FAILPOINT.
    failpoint: str
    # (account, settings) of each adapter.
    adapters: tuple[tuple[str, PaperSettings], ...]
    # Where the process writes a line for each commit, just before it.
    trace: str
    # What effectful tools really did.
    ledger: str
    log: str
    # Where each failpoint that is passed is written down, if anywhere.
    labels: str = ""
    burst_seconds: float = 0.0


class Command(Value, frozen=True, kw_only=True):
    """The driver's word: what time it is, and then to attach an adapter, fire the next timer, end, or only to rest."""

    now: float
    attach: str = ""
    tick: bool = False
    # As SIGTERM does; the clock is still the driver's to move.
    stop: bool = False


class Rested(Value, frozen=True, kw_only=True):
    """Said after each command, once nothing can happen any more by itself."""

    # When the next timer is due, if one is set.
    next: float | None
    # The gateway was asked to stop and has.
    ended: bool = False


class Doorbell:
    """An adapter's reports; it tells when the adapter has reached its platform."""

    def __init__(self, reports: Reports, rung: asyncio.Event) -> None:
        self._reports = reports
        self._rung = rung

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reports, name)

    async def reachable(self) -> None:
        await self._reports.reachable()
        self._rung.set()


class StagedAdapter(PaperAdapter):
    """Listens when the driver says so, and calls when nothing else happens."""

    def __init__(self, account: str, settings: PaperSettings, host: Host, stage: Stage) -> None:
        self.may_listen = asyncio.Event()
        self.listens = asyncio.Event()
        super().__init__(account, settings, replace(host, reports=Doorbell(host.reports, self.listens)))
        self._stage = stage

    async def listen(self, receive: Receive) -> None:
        await self.may_listen.wait()
        await super().listen(receive)

    async def send(self, part: Part) -> Receipt:
        async with self._stage.call():
            return await super().send(part)

    async def show(self, view: View, text: str) -> View:
        async with self._stage.call():
            return await super().show(view, text)

    async def find(self, part: Part, is_taken: Taken) -> Receipt | Absent | Unreadable:
        async with self._stage.call():
            return await super().find(part, is_taken)

    async def signal(self, target: Target, signal: Signal) -> None:
        async with self._stage.call():
            await super().signal(target, signal)


class Child:
    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._clock = OwnedClock(spec.now)
        self._stage = Stage()
        self._adapters: dict[str, StagedAdapter] = {}
        self._gateway = self._build()
        self._leaving: asyncio.Task[None] | None = None

    async def run(self, control: socket.socket) -> None:
        _number_ids(self._spec.boot)
        _draw_lots(self._spec.boot)
        _watch_units(self._stage)
        _trace_commits(Path(self._spec.trace), self._clock)
        mutants.become(os.environ.get(mutants.VARIABLE, ""))
        failpoints.arm(self._spec.failpoint)
        if self._spec.labels:
            _count_labels(Path(self._spec.labels))
        reader, writer = await asyncio.open_unix_connection(sock=control)
        conducting = asyncio.create_task(self._stage.conduct())
        await self._gateway.__aenter__()
        while True:
            await self._stage.rest()
            ended = self._leaving is not None and self._leaving.done()
            writer.write(msgspec.json.encode(Rested(next=self._clock.next(), ended=ended)) + b"\n")
            if ended:
                conducting.cancel()
                await writer.drain()
                return
            line = await reader.readline()
            if not line:
                # The driver has gone; whoever is left over must not stay.
                os._exit(3)
            await self._obey(msgspec.json.decode(line, type=Command))

    async def _obey(self, command: Command) -> None:
        self._clock.move(command.now)
        if command.stop:
            self._leaving = asyncio.create_task(self._gateway.__aexit__(None, None, None))
        elif command.attach:
            adapter = self._adapters[command.attach]
            adapter.may_listen.set()
            await adapter.listens.wait()
        elif command.tick:
            self._clock.tick()

    def _build(self) -> Gateway:
        platforms = dict.fromkeys(settings.name for _, settings in self._spec.adapters)
        access = Access(
            allow=tuple(f"{name}:{scenario.PERSON}" for name in platforms),
            owners=tuple(f"{name}:{scenario.OWNER}" for name in platforms),
        )
        agent = scripted.ScriptedAgent(self._clock, scripted.Ledger(Path(self._spec.ledger)))
        return Gateway(
            Path(self._spec.home),
            Core(
                access=access,
                approvals=Approvals(minutes=ASKED_MINUTES),
                limits=Limits(burst_seconds=self._spec.burst_seconds),
            ),
            [
                Platform(settings.name, account, lambda host, a=account, s=settings: self._adapter(a, s, host))  # type: ignore[misc]
                for account, settings in self._spec.adapters
            ],
            Team({"scripted": agent}, "scripted", scripted.kinds(self._clock)),
            FakeLocal(),
            FakeServer(),
            Options(clock=self._clock, grouped=False),
        )

    def _adapter(self, account: str, settings: PaperSettings, host: Host) -> StagedAdapter:
        adapter = self._adapters[f"{settings.name}@{account}"] = StagedAdapter(account, settings, host, self._stage)
        return adapter


def _number_ids(boot: int) -> None:
    """Counted instead of random, so that one run's commits can be compared with another's."""
    counts: dict[str, Iterator[int]] = defaultdict(lambda: itertools.count(1))

    def new(prefix: str) -> str:
        # Each thread counts for itself: the two do not wait for each other.
        name = f"{prefix}_b{boot}{threading.current_thread().name[0].lower()}"
        return f"{name}{next(counts[name])}"

    ids.new = new


class Lots(random.Random):
    """Stands for `secrets` where a person reads what was drawn."""

    def token_hex(self, count: int) -> str:
        return self.randbytes(count).hex()


def _draw_lots(boot: int) -> None:
    """Codes and the ids of schedules, which are the same in every run too."""
    lots = Lots(f"start {boot}")
    codes.secrets = schedules.secrets = lots  # type: ignore[assignment]


def _watch_units(stage: Stage) -> None:
    write, resolve = sqlite.SqliteStore.write, sqlite._resolve

    def watched(self: sqlite.SqliteStore, unit: Unit[Any]) -> asyncio.Future[Any]:
        stage.unit_began()
        return write(self, unit)

    def resolved(done: list[sqlite._Done], wakeups: Wakeups) -> None:
        stage.unit_ended(lambda: resolve(done, wakeups))

    # Whoever insists waits by the machine's own clock, which nobody here may do.
    sqlite.RETRY_SECONDS = 0.0
    sqlite.SqliteStore.write = watched  # type: ignore[method-assign]
    sqlite.SqliteStore.read = watched  # type: ignore[method-assign]
    sqlite._resolve = resolved


def _trace_commits(path: Path, clock: OwnedClock) -> None:
    """One line for each commit that writes: its statements with their values, in the order of execution."""
    connect, fail_here = sqlite.connect, sqlite.fail_here
    written: list[str] = []
    trace = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def saw(statement: str) -> None:
        if statement.startswith("BEGIN"):
            written.clear()
        elif match := _WRITES.match(statement):
            # The epoch holds the machine's own time, which is another in every run.
            written.append("UPDATE epoch" if match[2] == "epoch" else statement)

    def traced(path: Path, **options: Any) -> sqlite3.Connection:
        connection = connect(path, **options)
        connection.set_trace_callback(saw)
        return connection

    def hit(name: str) -> None:
        if name == "store.pre_commit":
            os.write(trace, msgspec.json.encode((clock.now(), written)) + b"\n")
        fail_here(name)

    sqlite.connect = traced
    sqlite.fail_here = hit


def _count_labels(path: Path) -> None:
    act = failpoints._hit
    passed = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def hit(name: str) -> None:
        os.write(passed, f"{name}\n".encode())
        act(name)

    failpoints._hit = hit
    # Without something armed nobody is asked.
    failpoints._armed.setdefault("nowhere", [])


def main(spec: Spec, control: socket.socket) -> None:
    logging.basicConfig(filename=spec.log, level=logging.INFO, format=f"{spec.boot} %(levelname)s %(name)s %(message)s")
    os.chdir(Path(spec.home).parent)
    asyncio.run(_live(spec, control))


async def _live(spec: Spec, control: socket.socket) -> None:
    await Child(spec).run(control)

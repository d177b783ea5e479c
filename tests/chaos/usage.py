"""Kills a gateway again and again while its bot asks a provider, and compares its usage with the provider's own count.

`python -m tests.chaos.usage --kills 500 --seed 1`.

The provider keeps a ledger of every call with an id. The bot keeps the ids of its calls in its checkpoint, together
with what they used. After each kill, what is stored must agree with itself and with the ledger: every call in a
committed checkpoint counts exactly once, none counts twice, and the rest of the provider's sum are the calls that a
kill cut off before their checkpoint.
"""

from __future__ import annotations

import argparse
import asyncio
import json
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
from collections.abc import AsyncIterator
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from tests.chaos.promises import MEMORY, STUCK_SECONDS, Process
from tests.simulators.paper.adapter import PaperAdapter
from tests.simulators.paper.client import PaperSettings
from tests.simulators.paper.simulator import Kind, PaperServer
from tests.worlds.fakes import FakeLocal, FakeServer
from tidings.core import failpoints
from tidings.core.adapter import Platform
from tidings.core.agent import Checkpoint, Event, Finished, TextDelta, Turn, Usage
from tidings.core.gateway.gateway import Gateway
from tidings.core.gateway.options import Options, Team
from tidings.core.settings import Access, Allowance, Allowances, Core, Limits
from tidings.core.store.sqlite import DATABASE
from tidings.core.types import Value

LABELS = (
    "store.pre_commit",
    "store.post_commit",
    "run.claimed",
    "run.pre_model",
    "run.post_model",
    "run.pre_terminal",
    "run.post_terminal",
    "boot.mid_recover",
)
# Messages that come during each life of the gateway.
MESSAGES = 3
OPEN = "SELECT count(*) FROM inbox WHERE state IN ('waiting', 'running')"
TOKENS = "SELECT coalesce(sum(input_tokens + output_tokens), 0) FROM spending WHERE scope = ? AND span <> ''"


class Life(Value, frozen=True, kw_only=True):
    """What one life of the gateway is started with."""

    home: str
    failpoint: str
    platform: str
    provider: str
    log: str


class Ledger:
    """The provider: answers each call with what it used, and writes every call down before it answers."""

    def __init__(self, seed: int) -> None:
        self._lots = random.Random(f"{seed}/ledger")
        self.calls: dict[str, int] = {}

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readline():
                id, tokens = f"call{len(self.calls)}", self._lots.randint(10, 900)
                self.calls[id] = tokens
                await asyncio.sleep(self._lots.uniform(0, 0.12))
                writer.write(json.dumps({"id": id, "tokens": tokens}).encode() + b"\n")
                await writer.drain()
        except ConnectionError:
            # The gateway was killed in the middle of the call; the call stands in the ledger all the same.
            return
        finally:
            writer.close()


class Asking:
    """Asks the provider as often as the message says; its checkpoint holds the calls, and goes on with them."""

    def __init__(self, provider: str) -> None:
        self._provider = provider

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        calls: list[dict[str, Any]] = json.loads(turn.checkpoint) if turn.checkpoint else []
        wanted = int(turn.message.text.split()[-1])
        host, _, port = self._provider.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            while len(calls) < wanted:
                writer.write(b"ask\n")
                await writer.drain()
                calls.append(json.loads(await reader.readline()))
                yield Checkpoint(json.dumps(calls).encode(), _used(calls))
        finally:
            writer.close()
        yield TextDelta(f"{len(calls)} calls")
        yield Finished(usage=_used(calls))


def _used(calls: list[dict[str, Any]]) -> Usage:
    tokens = sum(call["tokens"] for call in calls)
    return Usage(input_tokens=tokens - tokens // 4, output_tokens=tokens // 4, requests=len(calls))


def live(life: Life, lifeline: Connection) -> None:
    """The gateway's process."""
    with open(life.log, "a") as log:
        os.dup2(log.fileno(), 2)
    logging.basicConfig(filename=life.log, level=logging.WARNING)
    asyncio.run(_live(life, lifeline))


async def _live(life: Life, lifeline: Connection) -> None:
    asyncio.get_running_loop().add_reader(lifeline.fileno(), os._exit, 3)
    failpoints.arm(life.failpoint)
    settings = Core(
        access=Access(allow=("paper:7",)),
        limits=Limits(runs=20),
        # Never reached: what is reserved and given back is what matters.
        allowances=Allowances(gateway=Allowance(tokens=10**12, runs=10**9)),
    )
    paper = PaperSettings(address=life.platform, kind=Kind(keyed_for=3600.0))
    platform = Platform("paper", "main", lambda host: PaperAdapter("main", paper, host))
    team = Team({"bot": Asking(life.provider)}, "bot")
    gateway = Gateway(Path(life.home), settings, [platform], team, FakeLocal(), FakeServer(), Options(governed=False))
    async with gateway:
        await asyncio.Event().wait()


class Figures(NamedTuple):
    kills: int
    runs: int
    # Tokens by the provider's ledger, those in checkpoints, and those that the gateway has charged.
    ledger: int
    kept: int
    charged: int
    # Calls that a kill cut off before their checkpoint.
    lost_calls: int
    lost_tokens: int
    faults: list[str]

    @property
    def is_red(self) -> bool:
        return bool(self.faults)

    def __str__(self) -> str:
        return (
            f"usage: kills={self.kills} runs={self.runs} ledger={self.ledger} kept={self.kept} charged={self.charged}"
            f" lost_calls={self.lost_calls} lost_tokens={self.lost_tokens} faults={len(self.faults)}"
        )


class Counting:
    def __init__(self, seed: int, kills: int, folder: Path) -> None:
        self._lots = random.Random(f"{seed}/usage")
        self._kills = kills
        self._folder = folder
        self._ledger = Ledger(seed)
        self._faults: list[str] = []
        self._said = 0
        self._processes = multiprocessing.get_context("forkserver")
        self._processes.set_forkserver_preload([__name__, Gateway.__module__])
        self._lifeline, self._theirs = self._processes.Pipe()

    async def run(self) -> Figures:
        server = await asyncio.start_server(self._ledger.answer, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()[:2]
        async with PaperServer(Kind(keyed_for=3600.0)) as paper, server:
            self._paper, self._provider = paper, f"{host}:{port}"
            await self._introduce()
            for _ in range(self._kills):
                await self._live_once()
            process = self._start("")
            await self._rest(process)
            await self._end(process)
        return self._figures()

    async def _introduce(self) -> None:
        """Lets one run end, so that its size is known and later ones run side by side."""
        process = self._start("")
        self._say()
        await self._rest(process)
        await self._end(process)

    def _say(self) -> None:
        self._said += 1
        self._paper.says(f"ask {self._lots.randint(1, 4)}", chat=f"c{self._said}", sender="7")

    async def _live_once(self) -> None:
        label = self._lots.choice(LABELS)
        hit = self._lots.randint(1, 30 if label.startswith("store.") else 4)
        process = self._start(f"{label}:{hit}:kill" if self._lots.random() < 0.6 else "")
        for _ in range(MESSAGES):
            self._say()
        while not self._paper.attached("main") and not process.ended.done():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        await asyncio.wait([process.ended], timeout=self._lots.uniform(0.05, 0.4))
        await self._end(process)
        self._check()

    def _start(self, failpoint: str) -> Process:
        life = Life(
            home=str(self._folder / "home"),
            failpoint=failpoint,
            platform=self._paper.address,
            provider=self._provider,
            log=str(self._folder / "log"),
        )
        return Process(self._processes.Process(target=live, args=(life, self._theirs), daemon=True))

    async def _end(self, process: Process) -> None:
        status = await process.kill()
        if status != -signal.SIGKILL:
            self._faults.append(f"a gateway died with {status}")
        await self._paper.until(lambda paper: not paper.attached("main"), 10.0)

    async def _rest(self, process: Process) -> None:
        """Until every message has its outcome."""
        deadline = time.monotonic() + STUCK_SECONDS
        while time.monotonic() < deadline and not process.ended.done():
            await asyncio.sleep(0.2)
            if not self._paper.unconfirmed and self._rows(OPEN)[0][0] == 0:
                return
        self._faults.append("not at rest")

    def _rows(self, sql: str, *values: object) -> list[Any]:
        with closing(sqlite3.connect(self._folder / "home" / DATABASE)) as connection:
            return connection.execute(sql, values).fetchall()

    def _check(self) -> None:
        """After a kill: what is stored agrees with itself, and every kept call with the ledger."""
        if not (self._folder / "home" / DATABASE).exists():
            return
        try:
            runs = self._rows("SELECT run, state, checkpoint, usage, reservation, attempt FROM inbox")
        except sqlite3.OperationalError:
            # The first life was killed before it had made its tables.
            return
        kept: Counter[str] = Counter()
        charged = open_reserved = 0
        for run, state, checkpoint, usage, reservation, _ in runs:
            calls = json.loads(checkpoint) if checkpoint else []
            kept.update(call["id"] for call in calls)
            stored = json.loads(usage) if usage else {}
            used = stored.get("input_tokens", 0) + stored.get("output_tokens", 0)
            if used != sum(self._ledger.calls[call["id"]] for call in calls):
                self._faults.append(f"{run} has used {used} by its row, and something else by its checkpoint")
            charged += used if state == "done" else 0
            if reservation and state != "done":
                open_reserved += sum(each.get("tokens", 0) for each in json.loads(reservation)["rows"])
        self._faults += [f"{call} was counted {times} times" for call, times in kept.items() if times > 1]
        for scope in ("gateway", "person", "bot", "chat", "conversation"):
            if (told := self._rows(TOKENS, scope)[0][0]) != charged:
                self._faults.append(f"{scope}: {told} tokens are charged, and runs that ended have used {charged}")
        reserved = self._rows("SELECT coalesce(sum(reserved_tokens), 0) FROM spending")[0][0]
        if reserved != open_reserved:
            self._faults.append(f"{reserved} tokens are reserved, and open runs hold {open_reserved}")

    def _figures(self) -> Figures:
        self._check()
        rows = self._rows("SELECT checkpoint FROM inbox WHERE checkpoint IS NOT NULL")
        kept = {call["id"] for (checkpoint,) in rows for call in json.loads(checkpoint)}
        lost = self._ledger.calls.keys() - kept
        counted = self._rows("SELECT coalesce(sum(runs), 0) FROM spending WHERE scope = 'gateway'")[0][0]
        ended = self._rows("SELECT count(*) FROM inbox WHERE state = 'done' AND attempt > 0")[0][0]
        if counted != ended:
            self._faults.append(f"{counted} runs are counted, and {ended} have ended")
        ledger, charged = sum(self._ledger.calls.values()), self._rows(TOKENS, "gateway")[0][0]
        lost_tokens = sum(self._ledger.calls[call] for call in lost)
        if charged + lost_tokens != ledger:
            self._faults.append("what is charged and what kills cut off is not what the provider counts")
        held = sum(self._ledger.calls[call] for call in kept)
        return Figures(self._kills, ended, ledger, held, charged, len(lost), lost_tokens, self._faults)


def count_usage(seed: int, kills: int) -> Figures:
    folder = Path(tempfile.mkdtemp(prefix=f"tidings-usage-{seed}-", dir=MEMORY if MEMORY.is_dir() else None))
    figures = asyncio.run(Counting(seed, kills, folder).run())
    if figures.is_red:
        print(f"look into {folder}: home/{DATABASE}, log", file=sys.stderr)
    else:
        shutil.rmtree(folder)
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.usage")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=500)
    asked = parser.parse_args()
    figures = count_usage(asked.seed, asked.kills)
    for line in figures.faults[:20]:
        print(line, file=sys.stderr)
    print(figures)
    return int(figures.is_red)


if __name__ == "__main__":
    sys.exit(main())

"""Kills a gateway while a board full of unruly workers is worked off, and looks whether every card has ended.

`python -m tests.chaos.board --cards 500 --kills 20 --seed 1`, or `make board`.

Of ten workers one exits 0 without a word, one hangs, one is killed, one runs out of budget, and one does something
that must not be done twice; half of those that can are runs of a bot, the others processes of their own. What became
of a card is what the database says, and what was told of it is what stands in the chat.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import multiprocessing
import os
import random
import re
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path

from tests.simulators.paper.adapter import PaperAdapter, PaperSettings
from tests.simulators.paper.simulator import Kind, PaperServer
from tests.worlds.fakes import FakeLocal, FakeServer
from tidings.core import failpoints
from tidings.core.adapter import Platform
from tidings.core.agent import Event, Finished, OutcomeKind, TextDelta, Turn
from tidings.core.desk.board import Hand, NewCard, Order
from tidings.core.gateway.gateway import Gateway
from tidings.core.gateway.options import Team
from tidings.core.settings import Access, Board, Core, Limits
from tidings.core.store.sqlite import DATABASE
from tidings.core.types import Target, Value

KINDS = ("silent", "hang", "killed", "budget", "effect", "good", "good", "good", "good", "good")
# What a run of a bot can do as well as a process.
BY_BOT = ("silent", "budget", "good")
KIND = Kind(keyed_for=3600.0)
LEASE_SECONDS = 1.5
STUCK_SECONDS = 120.0
MEMORY = Path("/dev/shm")
LABELS = ("store.pre_commit", "store.post_commit", "out.effect", "run.pre_terminal", "boot.mid_recover")
HAND = Hand("chaos", Target(adapter="paper", chat="1"))
# The last word of the title says how it behaves.
WORKER = r"""
read -r card
case "$card" in
*'"title":"'*' silent"'*) echo "I have nothing to say"; exit 0 ;;
*'"title":"'*' hang"'*) sleep 600 ;;
*'"title":"'*' killed"'*) kill -9 $$ ;;
*'"title":"'*' budget"'*) echo '{"do":"block","kind":"budget","reason":"out of tokens","notes":"half is done"}' ;;
*'"title":"'*' effect"'*)
    echo '{"do":"effect","what":"a line in the ledger"}'
    read -r answer
    case "$answer" in *true*) echo "$TIDINGS_CARD" >>"$LEDGER" ;; *) exit 1 ;; esac
    echo '{"do":"complete","summary":"written"}' ;;
*) echo '{"do":"complete","summary":"done"}' ;;
esac
read -r answer
"""


class Life(Value, frozen=True, kw_only=True):
    """What one process is told before it starts."""

    home: str
    address: str
    cards: int
    failpoint: str


class Figures(Value, frozen=True, kw_only=True):
    cards: int
    kills: int
    attempts: int
    ended: dict[str, int]
    seconds: float
    faults: tuple[str, ...]


class Worker:
    """Does by its card's title what a worker of that kind does."""

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        title = re.findall(r"^# (.+)$", turn.message.text, re.MULTILINE)[0]
        yield TextDelta("I have begun.")
        if title.endswith("budget"):
            yield Finished(OutcomeKind.HALTED, "my limit of 3 requests is used up")
            return
        if title.endswith("good"):
            await turn.desk.board.complete("done", ())
        yield Finished()


def live(life: Life, lifeline: Connection) -> None:
    logging.disable(logging.CRITICAL)
    # What a killed process leaves unsaid is of no interest to whoever reads the figures.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    asyncio.run(_live(life, lifeline))


async def _live(life: Life, lifeline: Connection) -> None:
    asyncio.get_running_loop().add_reader(lifeline.fileno(), os._exit, 3)
    failpoints.arm(life.failpoint)
    settings = PaperSettings(address=life.address, token="token", kind=KIND, limit=2000)
    ledger = Path(life.home).parent / "ledger"
    board = Board(
        parallel=12,
        lease_seconds=LEASE_SECONDS,
        heartbeat_seconds=0.3,
        retry_seconds=0.05,
        workers={"process": ("/bin/sh", "-c", f"LEDGER={ledger}\n{WORKER}")},
    )
    gateway = Gateway(
        Path(life.home),
        Core(access=Access(allow=("paper:7",)), board=board, limits=Limits(burst_seconds=0)),
        [Platform("paper", "main", lambda host: PaperAdapter("main", settings, host))],
        Team({"bot": Worker()}, "bot"),
        FakeLocal(),
        FakeServer(),
    )
    async with gateway:
        for number in range(life.cards):
            kind = KINDS[number % len(KINDS)]
            assignee = "bot" if kind in BY_BOT and number // len(KINDS) % 2 else "process"
            # One of ten waits for a good one, and one for one that runs out of budget.
            parents = {9: (str(number),), 5: (str(number - 1),)}.get(number % 10, ())
            new = NewCard(f"{number} {kind}", assignee=assignee, parents=parents, key=f"chaos/{number}")
            await gateway.desk.board.obey(Order("add", new=new), HAND)
        await asyncio.Event().wait()


def work_off(seed: int, cards: int, kills: int) -> Figures:
    folder = Path(tempfile.mkdtemp(prefix="board-", dir=MEMORY if MEMORY.is_dir() else None))
    try:
        return asyncio.run(_work_off(folder, random.Random(seed), cards, kills))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _work_off(folder: Path, dice: random.Random, cards: int, kills: int) -> Figures:
    home, began = folder / "home", time.monotonic()
    home.mkdir()
    async with PaperServer(KIND) as paper:
        for _ in range(kills):
            point = f"{dice.choice(LABELS)}:{dice.randint(1, 40)}:kill" if dice.random() < 0.5 else ""
            with _Process(Life(home=str(home), address=paper.address, cards=cards, failpoint=point)) as process:
                await process.ended_within(dice.uniform(0.7, 3.0))
        with _Process(Life(home=str(home), address=paper.address, cards=cards, failpoint="")) as process:
            deadline = time.monotonic() + STUCK_SECONDS + cards / 4
            while (left := _open(home, cards)) and process.lives:
                await asyncio.sleep(0.2)
                if time.monotonic() > deadline:
                    break
            # Nothing is running without a lease, also when some time has passed.
            await asyncio.sleep(LEASE_SECONDS)
        await asyncio.sleep(0.5)
        posts = [message.text for message in paper.sent]
    faults = [f"{left} cards or notices are still open"] if left else []
    faults += _faults(home, cards, posts, folder)
    with closing(_opened(home)) as store:
        states = Counter(f"{state} {block}".strip() for state, block in store.execute("SELECT state, block FROM cards"))
        attempts = store.execute("SELECT count(*) FROM card_attempts").fetchone()[0]
    return Figures(
        cards=cards,
        kills=kills,
        attempts=attempts,
        ended=dict(sorted(states.items())),
        seconds=time.monotonic() - began,
        faults=tuple(faults),
    )


class _Process:
    """A gateway that is killed when it is left."""

    def __init__(self, life: Life) -> None:
        context = multiprocessing.get_context("fork")
        theirs, self._lifeline = context.Pipe()
        self._process = context.Process(target=live, args=(life, theirs), daemon=True)

    def __enter__(self) -> _Process:
        self._process.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.pid is not None and self._process.is_alive():
            os.kill(self._process.pid, signal.SIGKILL)
        self._process.join()
        self._lifeline.close()

    @property
    def lives(self) -> bool:
        return self._process.is_alive()

    async def ended_within(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self.lives:
            await asyncio.sleep(0.05)
            if time.monotonic() > deadline:
                break


def _opened(home: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{home / DATABASE}?mode=ro", uri=True)


def _open(home: Path, cards: int) -> int:
    with closing(_opened(home)) as store:
        made = store.execute("SELECT count(*) FROM cards").fetchone()[0]
        found = store.execute(
            "SELECT (SELECT count(*) FROM cards WHERE state IN ('todo', 'ready', 'running'))"
            " + (SELECT count(*) FROM deliveries WHERE state NOT IN ('delivered', 'dead'))"
        ).fetchone()[0]
    return int(found + cards - made)


def _faults(home: Path, cards: int, posts: list[str], folder: Path) -> Iterator[str]:
    with closing(_opened(home)) as store:
        store.row_factory = sqlite3.Row
        rows = store.execute("SELECT * FROM cards").fetchall()
        if len(rows) != cards:
            yield f"{len(rows)} cards instead of {cards}"
        for row in rows:
            kind = row["title"].split()[-1]
            if row["state"] not in ("done", "blocked") or (row["state"] == "blocked" and not row["reason"]):
                yield f"#{row['id']} ({kind}) is {row['state']}: {row['reason']!r}"
            if row["state"] == "done" and kind not in ("good", "effect"):
                yield f"#{row['id']} ({kind}) is done, and nobody did it"
            told = sum(f"#{row['id']} “" in post.split("\n")[0] for post in posts)
            # Whoever hears of the cause needs no word on what waits for it.
            expected = (0, 1) if row["block"] == "dependency" else (1,)
            if told not in expected:
                yield f"#{row['id']} ({kind}) is {row['state']}, and that was told {told} times"
        for row in store.execute("SELECT card, number FROM card_attempts WHERE ended IS NULL"):
            yield f"attempt {row['number']} of #{row['card']} has no end"
    ledger = folder / "ledger"
    written = Counter(ledger.read_text().split()) if ledger.exists() else Counter[str]()
    yield from (f"#{card} was done {times} times" for card, times in written.items() if times > 1)
    yield from (f"process {pid} is left over" for pid in _left_over(home))


def _left_over(home: Path) -> Iterator[str]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                folder = os.readlink(entry / "cwd")
            except OSError:
                # It is gone, or somebody else's.
                continue
            if folder.startswith(str(home / "workspaces")):
                yield entry.name


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cards", type=int, default=500)
    parser.add_argument("--kills", type=int, default=20)
    asked = parser.parse_args()
    figures = work_off(asked.seed, asked.cards, asked.kills)
    ended = ", ".join(f"{count} {state}" for state, count in figures.ended.items())
    print(f"board: seed={asked.seed} cards={figures.cards} kills={figures.kills} attempts={figures.attempts}", end=" ")
    print(f"seconds={figures.seconds:.0f} faults={len(figures.faults)} ended: {ended}")
    for fault in figures.faults[:20]:
        print(f"  {fault}")
    return 1 if figures.faults else 0


if __name__ == "__main__":
    sys.exit(main())

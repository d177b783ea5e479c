"""A year of use in one store, written straight into it: every list stays quick. `python -m tests.bench.year`.

It counts what an owner, a client or a message waits for: nine of ten tries must stay under 100 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sqlite3
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tests.worlds import builders
from tests.worlds.fakes import FakeLocal, FakeServer
from tests.worlds.world import Echo
from tidings.core.agent import Outcome, OutcomeKind, TextDelta
from tidings.core.clock import SystemClock
from tidings.core.desk.deliveries import Pruned
from tidings.core.gateway.gateway import Gateway
from tidings.core.gateway.options import Team
from tidings.core.inbound import inbox, undo
from tidings.core.operations import retention
from tidings.core.outbound import outbox
from tidings.core.settings import Core
from tidings.core.store.connection import connect
from tidings.core.store.sqlite import DATABASE
from tidings.core.store.store import Transaction
from tidings.core.types import Body, Inbound, Receipt, Target, encode

LIMIT_MS = 100.0
YEAR_SECONDS = 365 * 86_400.0
# One group in which somebody always speaks, and a platform on which nobody has for long.
BUSY, QUIET = "busy", "quiet"
BUSY_SHARE = 0.04
QUIET_ROWS = 50
TRIES = 20
# So many slices of pruning are tried of each kind.
SLICES = 150
# Only while it is written; a gateway has SQLite's default.
FILLING_KILOBYTES = 500_000
PAGE = 50


class Size(NamedTuple):
    conversations: int
    rows: int


class Measure(NamedTuple):
    name: str
    median: float
    # What one in ten takes longer than: on a machine that does other things too, the longest says little.
    usual: float
    longest: float


def fill(path: Path, size: Size, seed: int) -> None:
    """Each row is a message that was answered long ago; a checkpoint is there where a gateway would have kept it."""
    with closing(connect(path)) as store:
        store.execute("PRAGMA synchronous = OFF")
        store.execute(f"PRAGMA cache_size = {-FILLING_KILOBYTES}")
        store.execute("BEGIN")
        rows = list(_said(size, seed))
        _put_conversations(store, {conversation: number for number, _, conversation, _ in rows})
        _put_runs(store, rows)
        _put_deliveries(store, rows)
        store.execute("COMMIT")
        store.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _said(size: Size, seed: int) -> Iterator[tuple[int, float, str, Inbound]]:
    """Number, time, conversation and message, in order of time; everybody speaks at least once."""
    dice, now = random.Random(seed), SystemClock().now()
    for number in range(1, size.rows + 1):
        at = now - YEAR_SECONDS + YEAR_SECONDS * number / (size.rows + 1)
        if number <= QUIET_ROWS:
            adapter, chat = QUIET, "1"
        elif number <= size.conversations:
            adapter, chat = "paper", str(number)
        else:
            is_busy = dice.random() < BUSY_SHARE
            adapter, chat = "paper", BUSY if is_busy else str(dice.randint(QUIET_ROWS + 1, size.conversations))
        text = f"message {number} " + "lorem ipsum dolor sit amet " * 4
        message = builders.inbound(text, chat=chat, adapter=adapter, key=f"m{number:07}")
        yield number, at, message.conversation.id, message


def _put_conversations(store: sqlite3.Connection, newest: dict[str, int]) -> None:
    known = sorted(newest.items())
    store.executemany(
        "INSERT INTO conversations (id, checkpoint) VALUES (?, zeroblob(2000))", ((id,) for id, _ in known)
    )
    store.executemany("INSERT INTO listing (conversation, newest) VALUES (?, ?)", known)


def _put_runs(store: sqlite3.Connection, rows: list[tuple[int, float, str, Inbound]]) -> None:
    store.executemany(
        "INSERT INTO inbox (seq, run, adapter, account, key, kind, conversation, state, message, accepted, ready,"
        " attempt, fence, outcome, ended) VALUES (?, ?, ?, 'main', ?, 'message', ?, 'done', ?, ?, ?, 1, 1,"
        " 'completed', ?)",
        (
            (number, f"run_{number:07}", said.target.adapter, said.key, conversation, encode(said), at, at, at + 5)
            for number, at, conversation, said in rows
        ),
    )
    store.executemany(
        "INSERT INTO history (conversation, generation, author, text, run, at) VALUES (?, 1, ?, ?, ?, ?)",
        (
            (conversation, author, said.text, f"run_{number:07}", at)
            for number, at, conversation, said in rows
            for author in ("person", "bot")
        ),
    )
    answer = "you said: lorem ipsum dolor sit amet " * 5
    events = [
        ("event", msgspec.json.encode(TextDelta(answer))),
        ("ended", msgspec.json.encode(Outcome(OutcomeKind.COMPLETED, "", answer))),
    ]
    store.executemany(
        "INSERT INTO journal (run, seq, kind, event, at) VALUES (?, ?, ?, ?, ?)",
        (
            (f"run_{number:07}", seq, kind, event, at)
            for number, at, _, _ in rows
            for seq, (kind, event) in enumerate(events, start=1)
        ),
    )


def _put_deliveries(store: sqlite3.Connection, rows: list[tuple[int, float, str, Inbound]]) -> None:
    """Each with an opening that the final has overtaken; one in a hundred was given up, and not told of."""
    body, receipt = encode(Body(text="you said: lorem ipsum " * 8)), encode(Receipt(ids=("1",)))

    def deliveries() -> Iterator[tuple[Any, ...]]:
        for number, at, _, said in rows:
            where = (said.target.lane, f"run_{number:07}", encode(said.target), body)
            yield (f"opn_{number:07}", "opening", *where, "dead", "superseded", at, at, 0)
            dead = number % 100 == 0
            state, reason = ("dead", "the bot was blocked") if dead else ("delivered", "")
            yield (f"dlv_{number:07}", "final", *where, state, reason, at, at + 5, int(dead))

    store.executemany(
        "INSERT INTO deliveries (id, kind, lane, run, target, body, state, reason, created, closed, untold)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        deliveries(),
    )
    store.executemany(
        "INSERT INTO parts (delivery, position, kind, key, body, state, attempts, tried, since, receipt)"
        " VALUES (?, 1, 'plain', ?, ?, 'delivered', 1, ?, ?, ?)",
        ((f"dlv_{number:07}", f"dlv_{number:07}.1", body, at, at, receipt) for number, at, _, _ in rows),
    )


async def measure(home: Path, size: Size, seed: int) -> list[Measure]:
    began = time.perf_counter()
    gateway = Gateway(home, Core(), [], Team({"bot": Echo()}, "bot"), FakeLocal(), FakeServer())
    async with gateway:
        found = [_told("(start, once)", [1000 * (time.perf_counter() - began)])]
        for name, ask in _questions(gateway, size, random.Random(seed + 1)):
            found.append(await _measured(name, ask))
        found.append(await _slices(gateway))
    return found


async def _measured(name: str, ask: Callable[[], Awaitable[object]]) -> Measure:
    times = []
    for _ in range(TRIES):
        began = time.perf_counter()
        await ask()
        times.append(1000 * (time.perf_counter() - began))
    return _told(name, times)


def _told(name: str, times: list[float]) -> Measure:
    times = sorted(times)
    return Measure(name, times[len(times) // 2], times[len(times) * 9 // 10], times[-1])


def _questions(
    gateway: Gateway, size: Size, dice: random.Random
) -> Iterator[tuple[str, Callable[[], Awaitable[object]]]]:
    def somebody() -> str:
        return builders.conversation(str(dice.randint(QUIET_ROWS + 1, size.conversations))).id

    busy = builders.conversation(BUSY).id
    store, upkeep = gateway._store, gateway.desk.upkeep
    yield "conversations, the newest", lambda: gateway.desk.conversations("", "", PAGE, 0)
    yield "conversations, a page far down", lambda: gateway.desk.conversations("", "", PAGE, dice.randint(1, size.rows))
    yield "conversations of a quiet platform", lambda: gateway.desk.conversations(QUIET, "", PAGE, 0)
    yield "conversations of one chat", lambda: gateway.desk.conversations("paper", str(dice.randint(100, 999)), PAGE, 0)
    yield "conversations of the busy chat", lambda: gateway.desk.conversations("paper", BUSY, PAGE, 0)
    yield "history, a page", lambda: gateway.desk.history(somebody(), PAGE, 0)
    yield "history of the busy chat, a page", lambda: gateway.desk.history(busy, PAGE, dice.randint(0, 2 * size.rows))
    yield "memory before a run of the busy chat", lambda: gateway.desk.memory(busy, _run_of(gateway, busy), PAGE)
    yield "a run", lambda: gateway.desk.run(f"run_{dice.randint(size.rows * 95 // 100, size.rows):07}")
    yield "status", gateway.desk.health
    yield "deliveries in trouble", lambda: upkeep.deliveries(waiting=True, limit=200)
    yield "is a target known", lambda: gateway.desk.permitted(Target(adapter="paper", chat=str(dice.randint(1, 999))))
    yield "a message is stored and claimed", lambda: store.write(lambda tx: _claim(tx, somebody()))
    yield "in the busy chat", lambda: store.write(lambda tx: _claim(tx, busy))
    yield "the last exchange is taken back", lambda: store.write(lambda tx: undo.take_back(tx, somebody(), "x"))
    yield "what a sweep looks for", lambda: store.read(_sweep)


_runs: dict[str, str] = {}


def _run_of(gateway: Gateway, conversation: str) -> str:
    if conversation not in _runs:
        with closing(sqlite3.connect(gateway._home / DATABASE)) as store:
            sql = "SELECT run FROM inbox WHERE conversation = ? ORDER BY seq DESC LIMIT 1 OFFSET 100"
            (_runs[conversation],) = store.execute(sql, (conversation,)).fetchone()
    return _runs[conversation]


def _claim(tx: Transaction, conversation: str) -> None:
    """And it ends at once, so that the next one finds the conversation free."""
    now = SystemClock().now()
    chat = conversation.split(":")[2]
    said = builders.inbound("hi", chat=chat, key=os.urandom(8).hex())
    inbox.put(tx, said, said.key, now)
    claimed = inbox.claim(tx, conversation, now, lambda first, other: False)
    assert claimed is not None
    outcome = Outcome(OutcomeKind.COMPLETED, "", "ok")
    inbox.finish(tx, claimed, outcome, now)
    inbox.keep_memory(tx, claimed, outcome, now)


def _sweep(tx: Transaction) -> None:
    now = SystemClock().now()
    inbox.busy_conversations(tx)
    inbox.open_runs(tx)
    outbox.expired(tx, now)
    outbox.open_lanes(tx)


async def _slices(gateway: Gateway) -> Measure:
    """Some of each kind; a gateway takes its time for the rest."""
    terms = retention.terms(Core().retention, SystemClock())
    place: retention.Place | None = retention.Place()
    times, pruned = [], Pruned()
    while place is not None:
        if len(times) % SLICES == SLICES - 1:
            place = retention.Place(place.walk + 1)
            if place.walk >= len(retention.WALKS):
                break
        began = time.perf_counter()
        place, some = await gateway._store.write(lambda tx, place=place: retention.step(tx, place, terms))  # type: ignore[misc]
        times.append(1000 * (time.perf_counter() - began))
        pruned += some
    print(f"pruned in {len(times)} slices and {sum(times) / 1000:.1f} s: {retention.describe(pruned)}")
    return _told("a slice of pruning", times)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--conversations", type=int, default=50_000)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--home", type=Path, help="keep it here, and take what is here already")
    asked = parser.parse_args()
    size = Size(asked.conversations, asked.rows)
    with tempfile.TemporaryDirectory(prefix="tidings-year-") as folder:
        home = asked.home or Path(folder)
        began = time.perf_counter()
        if not (home / DATABASE).exists():
            fill(home / DATABASE, size, asked.seed)
        megabytes = (home / DATABASE).stat().st_size / 1e6
        print(f"{size.conversations} conversations, {size.rows} messages: {megabytes:.0f} MB,", end=" ")
        print(f"written in {time.perf_counter() - began:.0f} s", flush=True)
        found = asyncio.run(measure(home, size, asked.seed))
    for each in found:
        print(f"{each.name:<38} median {each.median:7.1f} ms  usual {each.usual:7.1f}  longest {each.longest:7.1f}")
    slow = [each.name for each in found[1:] if each.usual > LIMIT_MS]
    print(f"over {LIMIT_MS:g} ms: {', '.join(slow)}" if slow else f"all under {LIMIT_MS:g} ms")
    return int(bool(slow))


if __name__ == "__main__":
    sys.exit(main())

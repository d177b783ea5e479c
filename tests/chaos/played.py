"""What one play leaves behind: the kills that were asked for, and everything a checker may look at."""

from __future__ import annotations

import hashlib
import sqlite3
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tests.chaos.steps import Platform, Scenario
from tests.simulators.paper.simulator import Call, Effect, Message

START = 1_000_000.0

SHORT = {"pre": "store.pre_commit", "post": "store.post_commit"}


class Kill(NamedTuple):
    """Written `pre:17` (before the 17th commit), `post:17`, or with any other label; another action may follow."""

    point: str
    hit: int
    action: str = "kill"

    def __str__(self) -> str:
        return f"{self.point}:{self.hit}" + (f":{self.action}" if self.action != "kill" else "")

    @property
    def label(self) -> str:
        return SHORT.get(self.point, self.point)

    @property
    def failpoint(self) -> str:
        return f"{self.label}:{self.hit}:{self.action}"


def parse(text: str) -> tuple[Kill, ...]:
    """One for each start, separated by commas; the last start has none."""
    found = (item.strip().split(":") for item in text.split(",") if item.strip())
    return tuple(Kill(point, int(hit), *action) for point, hit, *action in found)


class Flight(NamedTuple):
    """A part that was on its way when the process died: nobody can know whether it arrived."""

    delivery: str
    position: int
    kind: str


class Crash(NamedTuple):
    """What stood in the database when a process had died."""

    flights: tuple[Flight, ...]
    # Confirmed to a platform by then, and not stored.
    unstored: tuple[str, ...]


class Commit(NamedTuple):
    """One commit that wrote: when, what it touched, and a digest of its statements with all their values."""

    at: float
    touched: str
    digest: str

    def __str__(self) -> str:
        return f"[{self.at - START:.1f} s: {self.touched}]"


def commit_of(line: bytes) -> Commit:
    at, statements = msgspec.json.decode(line, type=tuple[float, list[str]])
    touched = (" ".join(statement.split()[:3]).removesuffix(" SET") for statement in statements)
    digest = hashlib.sha256("\n".join(statements).encode()).hexdigest()
    return Commit(at, "; ".join(dict.fromkeys(touched)), digest)


class Seen(NamedTuple):
    """What one platform knows."""

    platform: Platform
    effects: tuple[Effect, ...]
    # What the bot wrote, as it stands in the end.
    messages: tuple[Message, ...]
    confirmed: tuple[str, ...]
    unconfirmed: tuple[str, ...]
    # Every call with what became of it.
    calls: tuple[Call, ...] = ()


class Played(NamedTuple):
    """All that checkers may look at: what the platforms know, the database file, the tools' own log."""

    scenario: Scenario
    kills: tuple[Kill, ...]
    seen: dict[str, Seen]
    database: Path
    ledger: tuple[str, ...]
    # For each kill.
    crashes: tuple[Crash, ...]
    # For each start.
    commits: tuple[tuple[Commit, ...], ...]
    # What went wrong with playing itself: a hang, a wrong death, a kill that never came.
    faults: tuple[str, ...]
    # For each start: how often it passed each failpoint, where that was asked for.
    labels: tuple[dict[str, int], ...] = ()
    # Keys of presses that were refused, and so need not be stored.
    refused: frozenset[str] = frozenset()
    # What a person looked for on a platform and did not find, in words.
    missed: tuple[str, ...] = ()


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

"""What may go after a while, and goes in small slices: journals, old runs, what was delivered, ended cards, files."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tidings.core.clock import Clock
from tidings.core.desk.deliveries import Pruned
from tidings.core.errors import Conflict
from tidings.core.operations import old_files
from tidings.core.settings import Retention as Periods
from tidings.core.store.store import Row, Store, Transaction
from tidings.core.types import is_passing

log = logging.getLogger(__name__)

DAY_SECONDS = 86_400.0
# A platform may tell us the same thing again for so long, and what was owed may take as long to arrive.
SHORTEST_SECONDS = 72 * 3600.0
# Of every conversation so many messages stay however old they are: they can be taken back, and it stays listed.
KEPT_MESSAGES = 10
# So many rows are looked at in one slice, and so many of them go: nobody waits long behind it.
LOOKED_AT = 250
REMOVED = 20
EVENTS = 100
# So many slices of the daily walk are made in one sweep.
SLICES = 40
EVERY_SECONDS = DAY_SECONDS


class Terms(NamedTuple):
    """Whatever ended before these moments may go; minus infinity keeps it for ever.

    `said`, `fired`, `attachments` and `records`, which workers of cards leave behind, are by the wall clock.
    """

    journals: float
    runs: float
    deliveries: float
    attachments: float
    history: float
    said: float
    fired: float
    cards: float
    records: float
    # Only counts.
    rehearsal: bool = False


class Place(NamedTuple):
    """Where a walk goes on."""

    stage: int = 0
    after: int | str = 0


class Step(NamedTuple):
    place: Place | None
    pruned: Pruned


def terms(periods: Periods, clock: Clock, *, older_than: float | None = None, rehearsal: bool = False) -> Terms:
    """`older_than` takes the place of every period but those of the history and of cards."""

    def since(now: float, days: float) -> float:
        return now - max(days * DAY_SECONDS, SHORTEST_SECONDS) if days else float("-inf")

    now, wall = clock.now(), clock.wall()
    days = None if older_than is None else older_than / DAY_SECONDS
    return Terms(
        journals=since(now, periods.journals_days if days is None else days),
        runs=since(now, periods.runs_days if days is None else days),
        deliveries=since(now, periods.deliveries_days if days is None else days),
        attachments=since(wall, periods.attachments_days if days is None else days),
        history=since(now, periods.history_days),
        said=since(wall, periods.history_days),
        fired=since(wall, periods.runs_days if days is None else days),
        cards=since(now, periods.cards_days),
        records=since(wall, periods.runs_days if days is None else days),
        rehearsal=rehearsal,
    )


def step(tx: Transaction, place: Place, terms: Terms) -> Step:
    """One slice of the walk; no place means that it has come to its end."""
    after, pruned = _STAGES[place.stage](tx, place.after, terms)
    if after is not None:
        return Step(Place(place.stage, after), pruned)
    following = place.stage + 1
    return Step(Place(following) if following < STAGES else None, pruned)


class Retention:
    """Walks over the store once a day, a few slices in each sweep, and at once when asked."""

    def __init__(self, store: Store, clock: Clock, periods: Periods, home: Path) -> None:
        self._store = store
        self._clock = clock
        self._periods = periods
        self._home = home
        self._place: Place | None = None
        self._next = clock.now()
        self._so_far = Pruned()
        self._terms: Terms

    async def sweep(self) -> None:
        if self._place is None:
            if self._clock.now() < self._next or not self._clock.confirmed:
                return
            self._place, self._so_far, self._terms = Place(), Pruned(), terms(self._periods, self._clock)
        for _ in range(SLICES):
            self._place = await self._step(self._place, self._terms)
            if self._place is None:
                self._so_far += await self._remove_files(self._terms)
                self._next = self._clock.now() + EVERY_SECONDS
                if self._so_far:
                    log.info("pruned what is old: %s", describe(self._so_far))
                return

    async def prune(self, older_than: float | None, *, rehearsal: bool) -> Pruned:
        """Prunes slice by slice, so that other writers wait for one slice at most. Raises Conflict."""
        check(self._clock)
        wanted = terms(self._periods, self._clock, older_than=older_than, rehearsal=rehearsal)
        walk = Retention(self._store, self._clock, self._periods, self._home)
        place: Place | None = Place()
        while place is not None:
            place = await walk._step(place, wanted)
        pruned = walk._so_far + await self._remove_files(wanted)
        if pruned and not rehearsal:
            log.info("pruned by hand: %s", describe(pruned))
        return pruned

    async def _step(self, place: Place, terms: Terms) -> Place | None:
        done = await self._store.insist(lambda tx: step(tx, place, terms))
        self._so_far += done.pruned
        return done.place

    async def _remove_files(self, terms: Terms) -> Pruned:
        if not any((self._home / name).is_dir() for name in (old_files.ATTACHMENTS, old_files.BOARD)):
            return Pruned()
        kept = await self._store.insist(old_files.kept)
        return await asyncio.to_thread(remove_files, self._home, kept, terms)


def check(clock: Clock) -> None:
    """Raises Conflict while the clock may be wrong: pruning by a wrong date cannot be undone."""
    if not clock.confirmed:
        raise Conflict(
            "nothing can be pruned yet: the machine has rebooted, and its clock is more than a day off from the last"
            " use; check the date, and try again when a time server has set it or the machine has run for an hour"
        )


def describe(pruned: Pruned) -> str:
    """In words, without what is nothing."""
    words = {
        "runs": "old messages",
        "events": "journal entries",
        "deliveries": "deliveries",
        "tasks": "ended tasks and firings",
        "history": "lines of history",
        "cards": "lines of ended cards",
    }
    told = [f"{count} {noun}" for name, noun in words.items() if (count := getattr(pruned, name))]
    if pruned.files:
        told.append(f"{pruned.files} files of {pruned.bytes / 1e6:.1f} MB")
    return ", ".join(told) or "nothing"


def remove_files(home: Path, kept: old_files.Kept, terms: Terms) -> Pruned:
    return old_files.remove(home, kept, terms.attachments, terms.records, rehearsal=terms.rehearsal)


def spare_bytes(tx: Transaction) -> int:
    pages, size = tx.one("PRAGMA freelist_count"), tx.one("PRAGMA page_size")
    return int(pages["freelist_count"]) * int(size["page_size"]) if pages and size else 0


def _old_runs(tx: Transaction, after: int | str, terms: Terms) -> tuple[int | None, Pruned]:
    """Rows in the order in which they came: of those that stay for their conversation, the journal goes."""
    page = tx.all(
        "SELECT seq, run, kind, state, conversation, accepted, ended, joined FROM inbox"
        " WHERE seq > ? ORDER BY seq LIMIT ?",
        after,
        LOOKED_AT,
    )
    wanted = _wanted_runs(tx)
    pruned, handled = Pruned(), 0
    for row in page:
        if pruned.runs >= REMOVED or pruned.events >= EVENTS:
            return row["seq"] - 1, pruned
        handled += row["accepted"] < max(terms.runs, terms.journals)
        if row["run"] in wanted or row["joined"] in wanted:
            continue
        if _may_go(tx, row, terms):
            pruned += _remove_run(tx, row, terms)
        elif row["state"] == "done" and row["ended"] < terms.journals:
            pruned += _trim_journal(tx, row["run"], terms)
    # Rows come in order of time: a page without an old one is the last.
    return (page[-1]["seq"] if len(page) == LOOKED_AT and handled else None), pruned


def _wanted_runs(tx: Transaction) -> set[str]:
    """Whose work is not done yet."""
    rows = tx.all(
        "SELECT run FROM tasks WHERE state IN ('waiting', 'running')"
        " UNION SELECT work FROM tasks WHERE state IN ('waiting', 'running')"
        " UNION SELECT run FROM firings WHERE state IN ('waiting', 'running')"
    )
    return {row["run"] for row in rows if row["run"]}


def _may_go(tx: Transaction, row: Row, terms: Terms) -> bool:
    if row["state"] not in ("done", "closed") or (row["ended"] or row["accepted"]) >= terms.runs:
        # An album's later rows go with the first.
        return False
    if row["kind"] == "message" and row["state"] == "done" and _is_remembered(tx, row, terms):
        return False
    return not tx.one(
        "SELECT 1 FROM deliveries WHERE run = ? AND kind = 'final' AND state IN ('waiting', 'held', 'doubtful')"
        " UNION ALL SELECT 1 FROM deliveries WHERE run = ? AND kind = 'opening'"
        " AND state IN ('waiting', 'held', 'doubtful')",
        row["run"],
        row["run"],
    )


def _is_remembered(tx: Transaction, row: Row, terms: Terms) -> bool:
    """Is it among the last of its conversation, which somebody may still take back or look for?"""
    if is_passing(row["conversation"]):
        return False
    newest = tx.all(
        "SELECT seq, accepted FROM inbox WHERE conversation = ? AND kind = 'message' AND state <> 'joined'"
        " ORDER BY seq DESC LIMIT ?",
        row["conversation"],
        KEPT_MESSAGES,
    )
    return bool(newest) and row["seq"] >= newest[-1]["seq"] and newest[0]["accepted"] >= terms.history


def _remove_run(tx: Transaction, row: Row, terms: Terms) -> Pruned:
    later = tx.all("SELECT run FROM inbox WHERE joined = ?", row["run"]) if row["kind"] == "message" else []
    events = _count(tx, "SELECT count(*) AS n FROM journal WHERE run = ?", row["run"])
    passing = is_passing(row["conversation"])
    history = _count(tx, "SELECT count(*) AS n FROM history WHERE run = ?", row["run"]) if passing else 0
    if not terms.rehearsal:
        if passing:
            # Its conversation can no longer be named or continued.
            tx.execute("DELETE FROM history WHERE run = ?", row["run"])
        tx.execute("DELETE FROM journal WHERE run = ?", row["run"])
        tx.execute("DELETE FROM inbox WHERE run = ? OR joined = ?", row["run"], row["run"])
        if row["kind"] == "message":
            _count_out(tx, row["conversation"], 1 + len(later))
    return Pruned(runs=1 + len(later), events=events, history=history)


def _count_out(tx: Transaction, conversation: str, messages: int) -> None:
    """A conversation of which no message is left is no longer listed."""
    tx.execute("UPDATE listing SET pruned = pruned + ? WHERE conversation = ?", messages, conversation)
    if tx.one("SELECT 1 FROM inbox WHERE conversation = ? AND kind = 'message' LIMIT 1", conversation):
        return
    if is_passing(conversation):
        leave_nothing(tx, conversation)
    else:
        tx.execute("DELETE FROM listing WHERE conversation = ?", conversation)


def leave_nothing(tx: Transaction, conversation: str) -> None:
    """Removes what is stored about a conversation that has no messages left."""
    tx.execute("DELETE FROM history WHERE conversation = ?", conversation)
    tx.execute("DELETE FROM preferences WHERE conversation = ?", conversation)
    tx.execute("DELETE FROM listing WHERE conversation = ?", conversation)
    tx.execute("DELETE FROM conversations WHERE id = ?", conversation)


def _trim_journal(tx: Transaction, run: str, terms: Terms) -> Pruned:
    """How it ended stays as long as the run itself."""
    if terms.rehearsal:
        return Pruned(events=_count(tx, "SELECT count(*) AS n FROM journal WHERE run = ? AND kind <> 'ended'", run))
    return Pruned(events=tx.count("DELETE FROM journal WHERE run = ? AND kind <> 'ended'", run))


def _old_deliveries(tx: Transaction, after: int | str, terms: Terms) -> tuple[int | None, Pruned]:
    page = tx.all(
        "SELECT seq, id, lane, state, created, closed, untold FROM deliveries WHERE seq > ? ORDER BY seq LIMIT ?",
        after,
        LOOKED_AT,
    )
    gone = handled = 0
    for row in page:
        if gone >= REMOVED:
            return row["seq"] - 1, Pruned(deliveries=gone)
        handled += row["created"] < terms.deliveries
        if row["state"] not in ("delivered", "dead") or row["closed"] >= terms.deliveries:
            continue
        if row["untold"] and not _is_told_by_another(tx, row):
            continue
        gone += 1
        if not terms.rehearsal:
            tx.execute("DELETE FROM parts WHERE delivery = ?", row["id"])
            tx.execute("DELETE FROM deliveries WHERE id = ?", row["id"])
    return (page[-1]["seq"] if len(page) == LOOKED_AT and handled else None), Pruned(deliveries=gone)


def _is_told_by_another(tx: Transaction, row: Row) -> bool:
    """One loss that a chat will be told of stands for all before it."""
    later = "SELECT 1 FROM deliveries WHERE lane = ? AND untold = 1 AND seq > ?"
    return tx.one(later, row["lane"], row["seq"]) is not None


def _old_tasks(tx: Transaction, after: int | str, terms: Terms) -> tuple[str | None, Pruned]:
    """Commands whose output can still be read are left to whoever keeps that."""

    def is_old(row: Row) -> bool:
        # Open firings are never removed.
        return row["ended"] is not None and row["ended"] < terms.runs and not _has_output(tx, row["id"])

    page = tx.all("SELECT id, ended FROM tasks WHERE id > ? ORDER BY id LIMIT ?", str(after or ""), LOOKED_AT)
    going, following = _sifted(page, str(after or ""), is_old)
    for id in going if not terms.rehearsal else ():
        tx.execute("DELETE FROM tasks WHERE id = ?", id)
    return following, Pruned(tasks=len(going))


def _sifted(page: list[Row], after: str, is_old: Callable[[Row], bool]) -> tuple[list[str], str | None]:
    """Which rows of a page go, no more than may go at once; and where the walk goes on."""
    going: list[str] = []
    for row in page:
        if len(going) >= REMOVED:
            return going, after
        after = row["id"]
        if is_old(row):
            going.append(after)
    return going, after if len(page) == LOOKED_AT else None


def _has_output(tx: Transaction, task: str) -> bool:
    return tx.one("SELECT 1 FROM processes WHERE task = ?", task) is not None


def _old_firings(tx: Transaction, after: int | str, terms: Terms) -> tuple[str | None, Pruned]:
    """The last of each schedule stays: it says how that went."""

    def is_old(row: Row) -> bool:
        return row["state"] in ("done", "missed") and row["due"] < terms.fired and not _is_the_last(tx, row)

    page = tx.all(
        "SELECT id, schedule, state, due FROM firings WHERE id > ? ORDER BY id LIMIT ?", str(after or ""), LOOKED_AT
    )
    going, following = _sifted(page, str(after or ""), is_old)
    for id in going if not terms.rehearsal else ():
        tx.execute("DELETE FROM firings WHERE id = ?", id)
    return following, Pruned(tasks=len(going))


def _is_the_last(tx: Transaction, row: Row) -> bool:
    last = tx.one("SELECT max(due) AS due FROM firings WHERE schedule = ?", row["schedule"])
    return last is not None and row["due"] >= last["due"]


def _old_history(tx: Transaction, after: int | str, terms: Terms) -> tuple[int | None, Pruned]:
    if terms.said == float("-inf"):
        return None, Pruned()
    page = tx.all("SELECT seq, at, conversation FROM history WHERE seq > ? ORDER BY seq LIMIT ?", after, LOOKED_AT)
    old = [row for row in page if row["at"] < terms.said]
    newest = tx.one("SELECT max(seq) AS seq FROM history")
    for row in old if not terms.rehearsal else ():
        if newest and row["seq"] == newest["seq"]:
            # The newest row stays, emptied: else its number would be used again, and paging readers would miss rows.
            tx.execute("UPDATE history SET conversation = '', run = '', text = '' WHERE seq = ?", row["seq"])
        else:
            tx.execute("DELETE FROM history WHERE seq = ?", row["seq"])
    gone = sum(row["conversation"] != "" for row in old)
    return (page[-1]["seq"] if len(page) == LOOKED_AT and old else None), Pruned(history=gone)


def _old_memories(tx: Transaction, after: int | str, terms: Terms) -> tuple[str | None, Pruned]:
    """What a bot remembers of a conversation goes with the last of its history."""
    if terms.said == float("-inf") or terms.rehearsal:
        return None, Pruned()
    page = tx.all(
        "SELECT id, (SELECT max(seq) FROM inbox WHERE conversation = id AND kind = 'message') AS newest"
        " FROM conversations WHERE id > ? ORDER BY id LIMIT ?",
        str(after or ""),
        LOOKED_AT,
    )
    for row in page:
        said = tx.one("SELECT accepted, state FROM inbox WHERE seq = ?", row["newest"]) if row["newest"] else None
        if said is None or (said["state"] == "done" and said["accepted"] < terms.history):
            tx.execute("UPDATE conversations SET checkpoint = NULL WHERE id = ? AND checkpoint IS NOT NULL", row["id"])
    return (page[-1]["id"] if len(page) == LOOKED_AT else None), Pruned()


def _old_cards(tx: Transaction, after: int | str, terms: Terms) -> tuple[int | None, Pruned]:
    """Of what happened to a card that is over, the last event and the last attempt stay: they say how it ended."""
    if terms.cards == float("-inf"):
        return None, Pruned()
    page = tx.all(
        "SELECT id FROM cards WHERE id > ? AND state IN ('done', 'archived') AND changed < ? ORDER BY id LIMIT ?",
        after,
        terms.cards,
        LOOKED_AT,
    )
    gone = 0
    for row in page:
        for earlier in (
            "FROM card_events WHERE card = ? AND seq < (SELECT max(seq) FROM card_events WHERE card = ?)",
            "FROM card_attempts WHERE card = ? AND number < (SELECT max(number) FROM card_attempts WHERE card = ?)",
        ):
            gone += _count(tx, f"SELECT count(*) AS n {earlier}", row["id"], row["id"])
            if not terms.rehearsal:
                tx.execute(f"DELETE {earlier}", row["id"], row["id"])
        if gone >= EVENTS:
            return row["id"], Pruned(cards=gone)
    return (page[-1]["id"] if len(page) == LOOKED_AT else None), Pruned(cards=gone)


def _count(tx: Transaction, sql: str, *parameters: object) -> int:
    row = tx.one(sql, *parameters)
    return int(row["n"]) if row else 0


_Stage = Callable[[Transaction, int | str, Terms], tuple[int | str | None, Pruned]]
_STAGES: tuple[_Stage, ...] = (
    _old_runs,
    _old_deliveries,
    _old_tasks,
    _old_firings,
    _old_history,
    _old_memories,
    _old_cards,
)
STAGES = len(_STAGES)

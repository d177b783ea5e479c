"""Removes old data in small slices: journals, runs, deliveries, history, ended cards and files."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import NamedTuple

from tidings.core.allowances.rows import old_spending
from tidings.core.clock import Clock
from tidings.core.desk.deliveries import Pruned
from tidings.core.errors import Conflict
from tidings.core.inbound.pruning import old_runs
from tidings.core.memory.pruning import old_checkpoints, old_history
from tidings.core.operations import old_files
from tidings.core.outbound.pruning import old_deliveries
from tidings.core.people.audit import old_entries
from tidings.core.settings import Retention as Periods
from tidings.core.store.pruning import FOR_EVER, Terms, Walk
from tidings.core.store.store import Store, Transaction
from tidings.core.work.board.pruning import old_cards
from tidings.core.work.schedules.pruning import old_firings
from tidings.core.work.tasks.pruning import old_tasks

log = logging.getLogger(__name__)

DAY_SECONDS = 86_400.0
# A platform may repeat an event for this long, and a delivery may take this long to arrive.
SHORTEST_SECONDS = 72 * 3600.0
# Slices of the daily walk in one sweep.
SLICES = 40
EVERY_SECONDS = DAY_SECONDS

# The walks of all rooms over their own rows, in this order.
WALKS: tuple[Walk, ...] = (
    old_runs,
    old_deliveries,
    old_tasks,
    old_firings,
    old_history,
    old_checkpoints,
    old_cards,
    old_entries,
    old_spending,
)


class Place(NamedTuple):
    """The position where a walk over the tables continues."""

    walk: int = 0
    after: int | str = 0


class Step(NamedTuple):
    place: Place | None
    pruned: Pruned


def terms(periods: Periods, clock: Clock, *, older_than: float | None = None, rehearsal: bool = False) -> Terms:
    """`older_than` replaces every period except those of the history, of cards, of the audit trail and of usage."""

    def since(now: float, days: float) -> float:
        return now - max(days * DAY_SECONDS, SHORTEST_SECONDS) if days else FOR_EVER

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
        audit=since(wall, periods.audit_days),
        usage=since(wall, periods.usage_days),
        rehearsal=rehearsal,
    )


def step(tx: Transaction, place: Place, terms: Terms) -> Step:
    """Does one slice of the walk; a place of None means that the walk is complete."""
    after, pruned = WALKS[place.walk](tx, place.after, terms)
    if after is not None:
        return Step(Place(place.walk, after), pruned)
    following = place.walk + 1
    return Step(Place(following) if following < len(WALKS) else None, pruned)


class Retention:
    """Prunes the store once a day, a few slices in each sweep, or at once on request."""

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
        """Prunes slice by slice, so that other writers wait for one slice at most; raises Conflict."""
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
    """Raises Conflict while the clock may be wrong, because pruning by a wrong date cannot be undone."""
    if not clock.confirmed:
        raise Conflict(
            "nothing can be pruned yet: the machine has rebooted, and its clock is more than a day off from the last"
            " use; check the date, and try again when a time server has set it or the machine has run for an hour"
        )


def describe(pruned: Pruned) -> str:
    """Describes in words what was pruned."""
    words = {
        "runs": "old messages",
        "events": "journal entries",
        "deliveries": "deliveries",
        "tasks": "ended tasks and firings",
        "history": "lines of history",
        "cards": "lines of ended cards",
        "audit": "audit entries",
        "usage": "days of usage",
    }
    told = [f"{count} {noun}" for name, noun in words.items() if (count := getattr(pruned, name))]
    if pruned.files:
        told.append(f"{pruned.files} files of {pruned.bytes / 1e6:.1f} MB")
    return ", ".join(told) or "nothing"


def remove_files(home: Path, kept: old_files.Kept, terms: Terms) -> Pruned:
    return old_files.remove(home, kept, terms.attachments, terms.records, rehearsal=terms.rehearsal)

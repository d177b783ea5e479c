"""Operations of the command line on the store while no gateway runs, under the home's lock."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from tidings.core.allowances.allowances import Allowances
from tidings.core.allowances.usage import UsageService
from tidings.core.desk.approvals import Question
from tidings.core.desk.deliveries import DeliveryLine, Pruned
from tidings.core.desk.health import Overview
from tidings.core.desk.usage import Report, Scope
from tidings.core.errors import TidingsError
from tidings.core.inbound import approval_rows
from tidings.core.inbound.pairing import Pairing
from tidings.core.inbound.people_service import PeopleService
from tidings.core.inbound.settlement import Settlement
from tidings.core.operations import backup, old_files, overview, retention
from tidings.core.outbound import repair
from tidings.core.people.people import People
from tidings.core.people.register import Register
from tidings.core.roles import OWNER
from tidings.core.settings import Access
from tidings.core.settings import Allowances as AllowanceSettings
from tidings.core.settings import Retention as Periods
from tidings.core.store import at_rest, steady_time
from tidings.core.store.at_rest import StoreAtRest, StoreFile
from tidings.core.store.checks import inspect
from tidings.core.store.lock import HomeLock, is_there
from tidings.core.store.sqlite import DATABASE

# Questions in one list, as many as a running gateway lists.
LISTED = 200


@contextmanager
def open_people(home: Path, settings: Access, *, only_reads: bool = False) -> Iterator[PeopleService]:
    """The service for people without a gateway, under the home's lock; what it changes is stored at once.

    If it only reads, a home without a store stays as it is.
    """
    with _nothing() if only_reads and not is_there(home, DATABASE) else _opened(home) as file:
        store, clock = StoreAtRest(file), steady_time.read(file.tx)
        people = People(store, settings)
        people.become(people.read(file.tx))
        register = Register(people)
        pairing = Pairing(store, people, register, clock, None, lambda name: False)
        allowances = Allowances(store, clock, AllowanceSettings(), people, lambda inbound: inbound.bot)
        settlement = Settlement(clock, lambda target: None, {}, allowances)
        yield PeopleService(store, clock, people, register, pairing, settlement)


def usage(home: Path, access: Access, zone: str, scope: Scope, since: str) -> Report:
    """Usage as a running gateway would tell it to the owner; nothing without a store."""
    with _opened(home) if is_there(home, DATABASE) else _nothing() as file:
        store, clock = StoreAtRest(file), steady_time.read(file.tx)
        people = People(store, access)
        people.become(people.read(file.tx))
        allowances = Allowances(store, clock, AllowanceSettings(zone=zone), people, lambda inbound: inbound.bot)
        return UsageService(store, clock, people, allowances).report_in(file.tx, OWNER, scope, since)


def questions(home: Path) -> list[Question]:
    """The open questions whether a tool may run; empty without a store. Raises StoreRefused."""
    if not is_there(home, DATABASE):
        return []
    with at_rest.looked_at(home / DATABASE) as found:
        if not found.is_current:
            return []
        ahead = steady_time.read(found.tx).ahead
        return [approval_rows.question_of(row, ahead) for row in approval_rows.open_page(found.tx, "", LISTED)]


def check_store(home: Path) -> list[str]:
    """Raises StoreRefused for a store that a gateway would refuse."""
    is_there(home)
    return inspect(home / DATABASE)


def look_over(home: Path) -> Overview | None:
    """Reads the overview from the store, even while a gateway uses it; None without a store. Raises StoreRefused."""
    path = home / DATABASE
    if not is_there(home, DATABASE):
        return None
    with at_rest.looked_at(path) as found:
        if not found.is_current:
            # The store has the tables of an older version until the next start upgrades it.
            return None
        return overview.overview(found.tx, steady_time.read(found.tx).ahead)


@contextmanager
def copied(home: Path) -> Iterator[Path]:
    """Makes a temporary copy of the store and keeps gateways from starting meanwhile; raises HomeInUse."""
    if not is_there(home):
        raise TidingsError(f"there is nothing to back up in {home}")
    lock = HomeLock(home)
    lock.take()
    try:
        with tempfile.TemporaryDirectory(prefix=".backup-", dir=home) as folder:
            path = Path(folder, DATABASE)
            backup.copy_at_rest(home / DATABASE, path)
            yield path
    finally:
        lock.release()


def prune(home: Path, periods: Periods, older_than: float | None, *, rehearsal: bool) -> Pruned:
    """Prunes as a running gateway would, and then returns the space to the disk."""
    _need_store(home)
    with _opened(home) as store:
        clock = steady_time.read(store.tx)
        retention.check(clock)
        terms = retention.terms(periods, clock, older_than=older_than, rehearsal=rehearsal)
        pruned = Pruned()
        place: retention.Place | None = retention.Place()
        while place is not None:
            with store.transaction() as tx:
                place, some = retention.step(tx, place, terms)
            pruned += some
        pruned += retention.remove_files(home, old_files.kept(store.tx), terms)
        if not rehearsal:
            store.shrink()
        return replace(pruned, spare_bytes=store.spare_bytes())


def _need_store(home: Path) -> None:
    """Raises an error instead of creating a store."""
    if not is_there(home, DATABASE):
        raise TidingsError(f"nothing is stored in {home} yet")


def deliveries(home: Path, *, waiting: bool, limit: int) -> list[DeliveryLine]:
    _need_store(home)
    with _opened(home) as store:
        clock = steady_time.read(store.tx)
        states = repair.OPEN if waiting else repair.IN_TROUBLE
        return repair.lines(store.tx, states, limit, 0, clock.ahead)


def retry(home: Path, id: str) -> str:
    """Makes a delivery due again; the next start sends it."""
    _need_store(home)
    with _opened(home) as store, store.transaction() as tx:
        return repair.retry(tx, id, steady_time.read(tx).now(), edits=False)


def drop(home: Path, id: str) -> None:
    _need_store(home)
    with _opened(home) as store, store.transaction() as tx:
        repair.drop(tx, id, steady_time.read(tx).now())


@contextmanager
def _nothing() -> Iterator[StoreFile]:
    """An empty store somewhere else, which is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="tidings-") as folder, at_rest.opened(Path(folder, DATABASE)) as store:
        yield store


@contextmanager
def _opened(home: Path) -> Iterator[StoreFile]:
    """Raises HomeInUse while a gateway runs."""
    lock = HomeLock(home)
    lock.take()
    # Only the owner may read a store that is created here.
    before = os.umask(0o077)
    try:
        with at_rest.opened(home / DATABASE) as store:
            yield store
    finally:
        os.umask(before)
        lock.release()

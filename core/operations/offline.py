"""What the command line may do with the store while no gateway runs, under the home's own lock."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from tidings.core.clock import SystemClock
from tidings.core.desk.deliveries import DeliveryLine, Pruned
from tidings.core.desk.health import Overview
from tidings.core.errors import StoreRefused, TidingsError
from tidings.core.inbound import access
from tidings.core.operations import backup, old_files, overview, retention
from tidings.core.outbound import repair
from tidings.core.settings import Retention as Periods
from tidings.core.store import adapter_state, migrate, steady_time
from tidings.core.store.checks import inspect
from tidings.core.store.lock import HomeLock, is_there
from tidings.core.store.sqlite import DATABASE, SqliteTransaction, connect
from tidings.core.types import Note


class OfflineNotebook:
    """An adapter's notebook; each line is written at once."""

    def __init__(self, tx: SqliteTransaction, adapter: str, account: str) -> None:
        self._tx = tx
        self._adapter = adapter
        self._account = account

    async def read(self, name: str) -> str | None:
        return adapter_state.read(self._tx, self._adapter, self._account, name)

    async def write(self, name: str, value: str) -> None:
        adapter_state.write(self._tx, self._adapter, self._account, Note(name=name, value=value))


def allow(home: Path, id: str) -> bool:
    with _opened(home) as tx:
        return access.admit(tx, id, SystemClock().now())


def withdraw(home: Path, id: str) -> None:
    """Raises Unknown for an id that `tidings allow` did not admit."""
    _need_store(home)
    with _opened(home) as tx:
        access.withdraw(tx, id)


def admitted(home: Path) -> frozenset[str]:
    """The ids admitted with `tidings allow`, without those of the settings."""
    if not (home / DATABASE).exists():
        return frozenset()
    with _opened(home) as tx:
        return access.admitted(tx)


@contextmanager
def open_notebook(home: Path, adapter: str, account: str) -> Iterator[OfflineNotebook]:
    with _opened(home) as tx:
        yield OfflineNotebook(tx, adapter, account)


def check_store(home: Path) -> list[str]:
    """Raises StoreRefused for a store that a gateway would refuse."""
    is_there(home)
    return inspect(home / DATABASE)


def look_over(home: Path) -> Overview | None:
    """What runs and waits by the store alone, whoever uses it now; None for none. Raises StoreRefused."""
    path = home / DATABASE
    if not is_there(home, DATABASE):
        return None
    try:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=5.0)
        connection.row_factory = sqlite3.Row
        try:
            tx = SqliteTransaction(connection)
            if connection.execute("PRAGMA user_version").fetchone()[0] < migrate.files()[-1][0]:
                # The next start brings it up to this version; until then its tables are others.
                return None
            clock = steady_time.read(tx)
            return overview.overview(tx, clock.ahead)
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise StoreRefused(f"{path} cannot be read: {error}") from error


@contextmanager
def copied(home: Path) -> Iterator[Path]:
    """A copy of the store; nobody starts there as long as it is needed. Raises HomeInUse."""
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
    """As a running gateway does it, and then gives the space back to the disk."""
    _need_store(home)
    with _opened(home) as tx:
        clock = steady_time.read(tx)
        retention.check(clock)
        terms = retention.terms(periods, clock, older_than=older_than, rehearsal=rehearsal)
        pruned = Pruned()
        place: retention.Place | None = retention.Place()
        while place is not None:
            tx.execute("BEGIN IMMEDIATE")
            place, some = retention.step(tx, place, terms)
            tx.execute("COMMIT")
            pruned += some
        pruned += retention.remove_files(home, old_files.kept(tx), terms)
        if not rehearsal:
            _give_back(tx, home)
        return replace(pruned, spare_bytes=retention.spare_bytes(tx))


def _give_back(tx: SqliteTransaction, home: Path) -> None:
    """Writes the store anew without what it does not use, where there is room for two of it."""
    if retention.spare_bytes(tx) and shutil.disk_usage(home).free > 2 * (home / DATABASE).stat().st_size:
        tx.execute("VACUUM")
        tx.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _need_store(home: Path) -> None:
    """Whoever only looks shall not make one."""
    if not is_there(home, DATABASE):
        raise TidingsError(f"nothing is stored in {home} yet")


def deliveries(home: Path, *, waiting: bool, limit: int) -> list[DeliveryLine]:
    _need_store(home)
    with _opened(home) as tx:
        clock = steady_time.read(tx)
        states = repair.OPEN if waiting else repair.IN_TROUBLE
        return repair.lines(tx, states, limit, 0, clock.ahead)


def retry(home: Path, id: str) -> str:
    """The next start sends it."""
    _need_store(home)
    with _one_transaction(home) as tx:
        return repair.retry(tx, id, steady_time.read(tx).now(), edits=False)


def drop(home: Path, id: str) -> None:
    _need_store(home)
    with _one_transaction(home) as tx:
        repair.drop(tx, id, steady_time.read(tx).now())


@contextmanager
def _one_transaction(home: Path) -> Iterator[SqliteTransaction]:
    """One transaction: closing the connection undoes what was not committed."""
    with _opened(home) as tx:
        tx.execute("BEGIN IMMEDIATE")
        yield tx
        tx.execute("COMMIT")


@contextmanager
def _opened(home: Path) -> Iterator[SqliteTransaction]:
    """Raises HomeInUse while a gateway runs."""
    lock = HomeLock(home)
    lock.take()
    # A store that is made here is the owner's alone, as one that a gateway makes.
    before = os.umask(0o077)
    try:
        connection = connect(home / DATABASE)
        try:
            yield SqliteTransaction(connection)
        finally:
            connection.close()
    finally:
        os.umask(before)
        lock.release()

"""Work on a SQLite store that no gateway has open: read, copy, change, shrink."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

from tidings.core.errors import StoreRefused, TidingsError, Unstored
from tidings.core.store import migrate
from tidings.core.store.connection import connect
from tidings.core.store.sqlite import SqliteTransaction, spare_bytes
from tidings.core.store.store import Unit
from tidings.core.store.wakeups import Wakeups

T = TypeVar("T")


class Found(NamedTuple):
    """A store opened for reading; a store with an older schema has other tables."""

    tx: SqliteTransaction
    schema: int

    @property
    def is_current(self) -> bool:
        return self.schema >= migrate.files()[-1][0]


class StoreFile:
    """A store file, built by `opened`; outside a transaction, each statement is committed at once."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self.tx = SqliteTransaction(connection)
        self._connection = connection
        self.path = path

    @contextmanager
    def transaction(self) -> Iterator[SqliteTransaction]:
        """Runs the block in one transaction; closing the file undoes what was not committed."""
        with _committed(self._connection) as tx:
            yield tx

    def spare_bytes(self) -> int:
        return spare_bytes(self.tx)

    def shrink(self) -> None:
        """Rewrites the store without unused space, if the disk has room for two copies."""
        if self.spare_bytes() and shutil.disk_usage(self.path.parent).free > 2 * self.path.stat().st_size:
            self._connection.execute("VACUUM")
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


class StoreAtRest:
    """A store file as a `Store`: each unit is committed before its future is returned, and nobody hears wake-ups."""

    fault = ""

    def __init__(self, file: StoreFile) -> None:
        self.wakeups = Wakeups()
        self._file = file

    def write(self, unit: Unit[T]) -> asyncio.Future[T]:
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        with self._file.transaction() as tx:
            done.set_result(unit(tx))
        return done

    def read(self, unit: Unit[T]) -> asyncio.Future[T]:
        return self.write(unit)

    async def insist(self, unit: Unit[T]) -> T:
        return await self.write(unit)

    async def copy(self, to: Path) -> None:
        raise Unstored("a store at rest is copied as a file")

    async def size(self) -> int:
        return self._file.path.stat().st_size

    async def spare(self) -> int:
        return self._file.spare_bytes()

    async def damage(self) -> str:
        return ""

    async def close(self) -> None:
        return


@contextmanager
def _committed(connection: sqlite3.Connection) -> Iterator[SqliteTransaction]:
    connection.execute("BEGIN IMMEDIATE")
    yield SqliteTransaction(connection)
    connection.execute("COMMIT")


@contextmanager
def opened(path: Path) -> Iterator[StoreFile]:
    """Opens and upgrades a store; the caller must hold the home's lock."""
    with closing(connect(path)) as connection:
        yield StoreFile(connection, path)


@contextmanager
def looked_at(path: Path, *, immutable: bool = False) -> Iterator[Found]:
    """Opens a store for reading, even while another process uses it, unless `immutable`; raises StoreRefused."""
    uri = f"{path.resolve().as_uri()}?mode=ro{'&immutable=1' if immutable else ''}"
    try:
        with closing(sqlite3.connect(uri, uri=True, timeout=5.0)) as connection:
            connection.row_factory = sqlite3.Row
            schema = connection.execute("PRAGMA user_version").fetchone()[0]
            yield Found(SqliteTransaction(connection), schema)
    except sqlite3.Error as error:
        raise StoreRefused(f"{path} cannot be read: {error}") from error


@contextmanager
def adopted(path: Path) -> Iterator[SqliteTransaction]:
    """Runs the block in one transaction on a store from elsewhere, after a full check and an upgrade.

    Raises StoreRefused. Afterwards the store is a single file.
    """
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.row_factory = sqlite3.Row
            migrate.check_owner(connection, path)
            verdict = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
            if verdict != "ok":
                raise StoreRefused(f"the store in the backup is damaged ({' '.join(verdict.split())})")
            migrate.upgrade(connection, path)
            with _committed(connection) as tx:
                yield tx
            connection.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.Error as error:
        raise StoreRefused(f"the store in the backup cannot be read: {error}") from error


def make_single(path: Path) -> None:
    """Makes the store a single file, without a WAL beside it."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")


def copy(path: Path, to: Path) -> None:
    """Copies a store without upgrading it."""
    try:
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(to)) as copied:
            source.backup(copied)
    except sqlite3.Error as error:
        raise TidingsError(f"{path} cannot be copied: {error}") from error

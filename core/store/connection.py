"""Opens a SQLite file: checks it, makes it durable and upgrades it, or refuses it with a reason."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from tidings.core.errors import StoreRefused
from tidings.core.store import migrate
from tidings.core.store.checks import CHECKED_BYTES

BUSY_SECONDS = 5.0


def connect(
    path: Path, *, checked_bytes: int = CHECKED_BYTES, factory: type[sqlite3.Connection] = sqlite3.Connection
) -> sqlite3.Connection:
    """Opens, checks and upgrades a database; raises StoreRefused for one that cannot be trusted.

    A large store is checked as a whole only later, by `checks.damage`.
    """
    existed = path.exists() and path.stat().st_size > 0
    try:
        connection = sqlite3.connect(
            path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, factory=factory
        )
        try:
            connection.row_factory = sqlite3.Row
            if existed:
                _check_intact(connection, path, checked_bytes)
            _make_durable(connection)
            # Erased data must not remain on unused pages.
            connection.execute("PRAGMA secure_delete = ON")
            migrate.upgrade(connection, path)
        except BaseException:
            # The file must not stay open, so that the owner can repair or replace it.
            connection.close()
            raise
    except sqlite3.Error as error:
        raise StoreRefused(_explain(path, error)) from error
    return connection


def _check_intact(connection: sqlite3.Connection, path: Path, checked_bytes: int) -> None:
    migrate.check_owner(connection, path)
    if path.stat().st_size > checked_bytes:
        return
    verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if verdict != "ok":
        verdict = " ".join(verdict.split())
        raise StoreRefused(f"{path} is damaged ({verdict}); put your newest backup in its place and start again")


def _make_durable(connection: sqlite3.Connection) -> None:
    """Sets the pragmas for durability and checks that they took effect."""
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    connection.execute("PRAGMA synchronous = FULL")
    synchronous = connection.execute("PRAGMA synchronous").fetchone()[0]
    if mode != "wal" or synchronous != 2:
        raise StoreRefused(
            f"the database is not durable here (journal_mode={mode}, synchronous={synchronous}); "
            "use a local disk for the home"
        )


def _explain(path: Path, error: sqlite3.Error) -> str:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return f"{path} is locked by another program; close it and start again"
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return f"{path} is damaged or not a database ({error}); put your newest backup in its place and start again"
    if code == sqlite3.SQLITE_FULL:
        return f"the disk of {path} is full; free some space and start again"
    return f"{path} cannot be opened: {error}; check the folder's owner and permissions"

"""Checks a database without changing it: what `doctor` says about the store."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import suppress
from pathlib import Path

from tidings.core.errors import StoreRefused
from tidings.core.store import migrate

# Older versions of SQLite can corrupt a WAL database when two connections write at once; we use only one.
WAL_BUG_FIXED = (3, 51, 3)
# A larger store is checked while the gateway already works, so that a start does not have to read all of it.
CHECKED_BYTES = 256 * 1024 * 1024


def inspect(path: Path) -> list[str]:
    """Describes the store in lines for people; raises StoreRefused for a store that the gateway would refuse."""
    if not path.exists():
        return [f"{path}: does not exist yet; the first start creates it"]
    try:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=5.0)
    except sqlite3.Error as error:
        raise StoreRefused(f"{path} cannot be read: {error}") from error
    try:
        migrate.check_owner(connection, path)
        verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if verdict != "ok":
            verdict = " ".join(verdict.split())
            raise StoreRefused(f"{path} is damaged ({verdict}); put your newest backup in its place")
        mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
        schema = connection.execute("PRAGMA user_version").fetchone()[0]
    except sqlite3.Error as error:
        raise StoreRefused(f"{path} cannot be read: {error}") from error
    finally:
        connection.close()
    size = path.stat().st_size / 1e6
    return [f"{path}: intact, schema {schema}, {mode}, {size:.1f} MB", _version_line()]


async def damage(path: Path) -> str:
    """Checks a store in use and returns what is wrong, or an empty text; cancelling ends the check at once."""
    connection = _read_only(path)
    try:
        return await asyncio.to_thread(_look, connection)
    except asyncio.CancelledError:
        with suppress(sqlite3.ProgrammingError):
            connection.interrupt()
        raise


def _read_only(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=5.0, check_same_thread=False)


def _look(connection: sqlite3.Connection) -> str:
    try:
        verdict = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.Error as error:
        verdict = str(error)
    finally:
        connection.close()
    return "" if verdict == "ok" else " ".join(verdict.split())


def _version_line() -> str:
    library = f"SQLite {sqlite3.sqlite_version}"
    if sqlite3.sqlite_version_info < WAL_BUG_FIXED:
        return f"{library}: has the WAL-reset bug, which one writing connection avoids; keep other programs away"
    return f"{library}: fine"

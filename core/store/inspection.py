"""Looks at a database without owning it: what `doctor` says about the store."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from core.errors import StoreRefused
from core.store import migrate

# Older versions can corrupt a WAL database when two connections write at once; we never do.
WAL_BUG_FIXED = (3, 51, 3)


def inspect(path: Path) -> list[str]:
    """Raises StoreRefused for what the gateway would refuse; changes nothing."""
    if not path.exists():
        return [f"{path}: not there yet; the first start makes it"]
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


def _version_line() -> str:
    library = f"SQLite {sqlite3.sqlite_version}"
    if sqlite3.sqlite_version_info < WAL_BUG_FIXED:
        return f"{library}: has the WAL-reset bug, which one writing connection avoids; keep other programs away"
    return f"{library}: fine"

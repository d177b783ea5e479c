"""Upgrades a database by numbered SQL files, and refuses one that is foreign or newer."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from tidings.core.errors import StoreRefused
from tidings.core.failpoints import fail_here

# "TIDG" in ASCII: a database with another mark belongs to another program.
APPLICATION_ID = 0x54494447
FOLDER = Path(__file__).parent / "migrations"


def files() -> list[tuple[int, Path]]:
    return sorted((int(path.name.split("_")[0]), path) for path in FOLDER.glob("[0-9]*.sql"))


def check_owner(connection: sqlite3.Connection, path: Path) -> None:
    mark = connection.execute("PRAGMA application_id").fetchone()[0]
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if mark != APPLICATION_ID and tables:
        raise StoreRefused(f"{path} belongs to another program; choose another home")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    newest = files()[-1][0]
    if version > newest:
        raise StoreRefused(
            f"{path} was written by a newer version (schema {version}, this one knows {newest}); upgrade first"
        )


def upgrade(connection: sqlite3.Connection, path: Path) -> None:
    """Runs each new file in one transaction; if the process dies, the next start repeats the unfinished file."""
    check_owner(connection, path)
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    for number, file in files():
        if number <= version:
            continue
        connection.execute("BEGIN IMMEDIATE")
        for statement in statements(file.read_text(encoding="utf-8")):
            connection.execute(statement)
            fail_here("migrate.mid")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {number}")
        connection.execute("COMMIT")


def statements(script: str) -> Iterator[str]:
    gathered = ""
    for line in script.splitlines(keepends=True):
        gathered += line
        if sqlite3.complete_statement(gathered):
            yield gathered
            gathered = ""

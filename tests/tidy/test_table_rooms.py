"""A table is written only in its own room; any room may read it."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.statements import Statement, statements
from tidings.core.store.connection import connect

pytestmark = pytest.mark.xdist_group("house")

ROOMS = {
    "core/store": {"epoch", "notebook"},
    "core/memory": {"conversations", "handovers", "history", "notes", "preferences", "talks"},
    "core/outbound": {"aliases", "deliveries", "homes", "parts", "pauses", "views"},
    "core/allowances": {"spending"},
    "core/runs": {"journal"},
    "core/people": {"audit", "code_guesses", "codes", "identities", "keys", "persons"},
    "core/inbound": {"approvals", "attention", "bot_exchanges", "inbox", "listing", "standing_approvals"},
    "core/work/tasks": {"tasks"},
    "core/work/processes": {"processes"},
    "core/work/schedules": {"firings", "schedules"},
    "core/work/board": {
        *("cards", "card_attempts", "card_events", "card_files", "card_links", "card_remarks", "card_watchers"),
    },
}
# They bring a store to this version before any room sees it.
MIGRATIONS = {"core/store/migrate.py"}
# The migrations keep count there.
SQLITE = {"sqlite_sequence"}
CHANGE = re.compile(r"(?:INSERT INTO|(?<!DO )UPDATE|DELETE FROM) (\w+)")


def strangers(found: list[Statement]) -> list[str]:
    """The statements that change a table of another room."""
    homes = {table: room for room, tables in ROOMS.items() for table in tables}
    return [
        f"{each.place} changes {table}, which belongs to {homes.get(table, 'no room')}"
        for each in found
        for table in CHANGE.findall(each.sql)
        if not each.module.startswith(f"{homes.get(table, '-')}/")
    ]


def test_a_table_is_written_only_in_its_own_room() -> None:
    found = [*statements(MIGRATIONS)]
    assert strangers(found) == []
    assert len({table for each in found for table in CHANGE.findall(each.sql)}) > 20, "the reader has gone blind"


def test_every_table_has_one_room(tmp_path: Path) -> None:
    with closing(connect(tmp_path / "tidings.db")) as connection:
        connection.row_factory = sqlite3.Row
        made = {row["name"] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    listed = [table for tables in ROOMS.values() for table in tables]
    assert sorted(listed) == sorted(made - SQLITE)


@pytest.mark.parametrize(
    ("module", "sql"),
    [
        pytest.param("core/operations/retention.py", "DELETE FROM journal WHERE run = ?", id="retention"),
        pytest.param("core/outbound/outbox.py", "UPDATE inbox SET view = ? WHERE run = ?", id="a room below"),
        pytest.param("core/work/processes/processes.py", "UPDATE tasks SET manner = ?", id="the room next door"),
        pytest.param("core/inbound/inbox.py", "INSERT INTO history (text) VALUES (?)", id="a room above"),
        pytest.param("core/inbound/inbox.py", "INSERT INTO letters (text) VALUES (?)", id="a table without a room"),
    ],
)
def test_a_change_from_another_room_is_found(module: str, sql: str) -> None:
    assert strangers([Statement(f"{module}:1", sql, module)])


def test_an_upsert_changes_only_the_table_that_it_names() -> None:
    upsert = "INSERT INTO pauses (budget) VALUES (?) ON CONFLICT (budget) DO UPDATE SET until = excluded.until"
    assert strangers([Statement("core/outbound/pace.py:1", upsert, "core/outbound/pace.py")]) == []

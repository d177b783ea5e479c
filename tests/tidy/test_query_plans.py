"""No statement of the product scans a table that grows: SQLite is asked for the plan of each."""

import ast
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.sources import PACKAGES, ROOT, modules, place, tree
from tests.statements import STATEMENT, Reader, Unreadable, statements
from tidings.core.store.connection import connect

pytestmark = pytest.mark.xdist_group("house")

# They work on a store before anything runs there or on a copy of it, and may take their time.
AT_REST = {
    *("core/store/migrate.py", "core/store/at_rest.py", "core/store/checks.py", "core/store/connection.py"),
    "core/outbound/files.py",
}

# Tables that may be read from end to end, and why they stay small.
SMALL = {
    "epoch": "one row",
    "persons": "people whom somebody admitted or blocked by hand",
    "identities": "a few for each person",
    "keys": "each is made by hand",
    "codes": "those of the last hour: three strangers for each account, and links of known people",
    "code_guesses": "those of the last hour, within a limit for each account",
    "standing_approvals": "each is given by a person's own answer, and expires",
    "attention": "each is given by a command, and expires within a day",
    "bot_exchanges": "one for each chat where another bot was answered, until a person writes there",
    "homes": "one for each account",
    "schedules": "each is made by hand, within a limit for each conversation",
    "processes": "commands that run or whose output can still be read, within a limit",
    "pauses": "one for each budget of a platform that asks us to wait; what is over is removed",
    "aliases": "one for each chat that has ever moved; read once, at the start",
    "handovers": "one for each chat that goes on with another conversation; read when people change and at each sweep",
    "card_files": "a few for each card that hands something over; read once a day",
}
# Indexes that may be read from end to end, and why that is quick however old the store is.
SHORT = {
    "inbox_running": "runs at work",
    "one_live_run_per_conversation": "runs at work",
    "inbox_at_work": "runs at work",
    "inbox_asking": "runs that wait for an answer",
    "inbox_asking_to_stop": "runs that are stopped right now",
    "approvals_open": "questions that wait for an answer",
    "approvals_open_of_person": "questions that wait for an answer",
    "inbox_waiting": "messages that wait",
    "inbox_to_forget": "what shall be forgotten and is not over yet",
    "conversations_to_forget": "what shall be forgotten and is not over yet",
    "deliveries_waiting": "what we owe",
    "openings_on_their_way": "what we owe",
    "deliveries_in_trouble": "what we owe, and losses that the owner has not dismissed",
    "parts_in_flight": "what is being sent",
    "tasks_open": "tasks at work",
    "firings_open": "jobs at work",
    "firings_owed": "jobs whose end is not delivered yet",
    "cards_leased": "cards at work",
    "one_open_attempt_per_card": "cards at work",
    "cards_by_state": "one narrow line for each card, for the counts of the board",
    "listing_by_newest": "one narrow line for each conversation, for a page of a quiet platform",
}


# Of these an index in order of time has a line for each row, and for no other.
ORDERED = {"NOT state IN ('waiting', 'running')"}

STEP = re.compile(r"(?P<how>SCAN|SEARCH) (?P<table>\w+)(?: USING (?:COVERING )?INDEX (?P<index>\w+))?")
# All rows above or below a value.
OPEN_END = re.compile(r"\(\w+[<>]\?\)$")


def scans(connection: sqlite3.Connection, sql: str) -> list[str]:
    """The steps of its plan that go through a growing table from end to end, or from some row to the end."""
    plan = connection.execute(f"EXPLAIN QUERY PLAN {sql}", ("x",) * _placeholders(sql)).fetchall()
    return [row["detail"] for row in plan if _is_long(row["detail"], sql, _tables(connection))]


def _placeholders(sql: str) -> int:
    return re.sub(r"'[^']*'", "", sql).count("?")


def _tables(connection: sqlite3.Connection) -> set[str]:
    return {row["name"] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def _is_long(step: str, sql: str, tables: set[str]) -> bool:
    match = STEP.match(step)
    if match is None or (match["how"] == "SEARCH" and not OPEN_END.search(step)):
        return False
    table = _table(match["table"], sql)
    return table in tables - set(SMALL) and match["index"] not in SHORT and not _is_a_page(table, sql)


def _table(name: str, sql: str) -> str:
    """What a short name stands for."""
    match = re.search(rf"\b(?:FROM|JOIN)\s+(\w+)\s+(?:AS\s+)?{name}\b", sql)
    return match[1] if match else name


def _is_a_page(table: str, sql: str) -> bool:
    """So many rows in order and no more, since nothing else chooses among them."""
    order = r"ORDER BY (?:\w+\.)?(\w+)(?: DESC)? LIMIT"
    backwards = rf"FROM {table} WHERE (\w+) < \? ORDER BY \1 DESC LIMIT"
    if re.search(backwards, sql):
        return True
    return re.search(rf"FROM {table} (?:WHERE (\w+) > \? )?{order}", sql) is not None or any(
        re.search(rf"FROM {table} WHERE {re.escape(chosen)} {order}", sql) for chosen in ORDERED
    )


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    with closing(connect(tmp_path_factory.mktemp("plans") / "tidings.db")) as connection:
        yield connection


def test_no_statement_scans_a_table_that_grows(connection: sqlite3.Connection) -> None:
    found = [f"{each.place} {step}: {each.sql}" for each in statements(AT_REST) for step in scans(connection, each.sql)]
    assert found == []


def test_every_text_that_looks_like_a_statement_has_been_looked_at() -> None:
    """Whichever way it reaches the store."""
    seen = "\n".join({each.sql for each in statements(AT_REST)})
    missed = [
        f"{place(path, node)} {node.value}"
        for path in modules(*PACKAGES)
        if str(path.relative_to(ROOT)) not in AT_REST
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and STATEMENT.match(node.value)
        if node.value not in seen
    ]
    assert missed == []


@pytest.mark.parametrize(
    "sql",
    [
        pytest.param("SELECT run FROM inbox WHERE accepted < ?", id="no index at all"),
        pytest.param("DELETE FROM journal WHERE at < ?", id="not by the key"),
        pytest.param("SELECT id FROM firings WHERE state = 'waiting'", id="a condition that the index does not know"),
        pytest.param("SELECT f.id FROM firings f WHERE f.due < ?", id="under another name"),
        pytest.param("SELECT id FROM deliveries WHERE created < ? ORDER BY seq LIMIT 1", id="until one is found"),
        pytest.param("SELECT id FROM firings WHERE id > ? AND due < ? ORDER BY id LIMIT ?", id="a page with a choice"),
        pytest.param("SELECT id FROM tasks WHERE kind = ? ORDER BY created DESC LIMIT ?", id="in order of time"),
        pytest.param("SELECT 1 FROM homes WHERE EXISTS (SELECT 1 FROM history WHERE text = ?)", id="inside another"),
    ],
)
def test_a_statement_that_scans_is_found(connection: sqlite3.Connection, sql: str) -> None:
    assert scans(connection, sql)


def test_a_statement_that_cannot_be_read_is_reported() -> None:
    path = ROOT / "core/operations/retention.py"
    for unclear in ("made_up(tx)", "nowhere", "words[0]"):
        node = ast.parse(unclear, mode="eval").body
        with pytest.raises(Unreadable, match=r"retention\.py:1 "):
            list(Reader(path, ()).texts(node))

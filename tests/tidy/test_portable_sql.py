"""Every statement keeps to what SQLite and PostgreSQL share; the statements are read from the source.

`make portable` asks a real PostgreSQL about the same statements.
"""

import ast
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.portability import RESERVED, refusals
from tests.sources import PACKAGES, ROOT, modules, tree
from tests.statements import Statement, statements
from tidings.core.store.connection import connect

pytestmark = pytest.mark.xdist_group("house")

OWN = re.compile(r"(PRAGMA|VACUUM|ATTACH|BEGIN IMMEDIATE|COMMIT$|.*\bsqlite_master\b)")
# SQLite's own files: they open, check and migrate it.
SQLITE = {"core/store/migrate.py", "core/store/at_rest.py", "core/store/checks.py", "core/store/connection.py"}


def races(found: list[Statement]) -> list[str]:
    """A function that asks for the greatest number after its insert may be told another writer's."""
    inserted = {
        (each.module, each.function, match[1]): each.line
        for each in found
        if (match := re.match(r"INSERT INTO (\w+)", each.sql))
    }
    return [
        f"{each.place} max({match[1]}) after an insert: write RETURNING"
        for each in found
        for match in re.finditer(r"max\((id|seq)\).*? FROM (\w+)", each.sql)
        if inserted.get((each.module, each.function, match[2]), each.line) < each.line
    ]


def own_words(source: ast.AST) -> set[str]:
    """The names and texts of a module by which it would speak to SQLite itself."""
    found = set()
    for node in ast.walk(source):
        match node:
            case ast.Import(names=names):
                found |= {each.name for each in names if each.name == "sqlite3"}
            case ast.ImportFrom(module=str(module)) if module == "sqlite3":
                found.add(module)
            case ast.Constant(value=str(text)) if OWN.match(text):
                found.add(text.split()[0])
            case _:
                continue
    return found


@pytest.fixture(scope="module")
def product() -> list[Statement]:
    return [*statements(SQLITE)]


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    with closing(connect(tmp_path_factory.mktemp("schema") / "tidings.db")) as connection:
        yield connection


def test_every_statement_is_one_that_postgresql_takes(product: list[Statement]) -> None:
    assert [f"{each.place} {why}: {each.sql}" for each in product for why in refusals(each.sql)] == []
    assert len(product) > 300, "the reader has gone blind"


def test_only_the_store_speaks_to_sqlite_itself() -> None:
    """Every other room asks the store for its size, its damage or a copy."""
    found = {
        str(path.relative_to(ROOT)): words
        for path in modules(*PACKAGES)
        if path.parent != ROOT / "core/store" and (words := own_words(tree(path)))
    }
    assert found == {}


@pytest.mark.parametrize(
    "source",
    [
        "import sqlite3",
        "from sqlite3 import connect",
        "tx.one('PRAGMA page_size')",
        "tx.execute('VACUUM')",
        "tx.execute('BEGIN IMMEDIATE')",
        "tx.one(f'SELECT 1 FROM sqlite_master WHERE name = {name!r}')",
    ],
)
def test_a_module_that_speaks_to_sqlite_itself_is_found(source: str) -> None:
    assert own_words(ast.parse(source))


def test_no_number_of_a_new_row_is_guessed(product: list[Statement]) -> None:
    assert races(product) == []


def test_no_table_and_no_column_has_a_reserved_name(schema: sqlite3.Connection) -> None:
    tables = [row["name"] for row in schema.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    columns = [row["name"] for table in tables for row in schema.execute(f"PRAGMA table_info({table})")]
    assert RESERVED & {*tables, *columns} == set()
    assert "only" in RESERVED


@pytest.mark.parametrize(
    "sql",
    [
        pytest.param("SELECT run FROM inbox WHERE instr(message, ?) > 0", id="a function that only SQLite has"),
        pytest.param("SELECT max(seq) FROM (SELECT seq FROM inbox)", id="a subquery without a name"),
        pytest.param("SELECT n FROM (SELECT 1 AS n) WHERE n > 0", id="a subquery without a name before a condition"),
        pytest.param("UPDATE parts SET attempts = max(attempts - 1, 0)", id="the greater of two values"),
        pytest.param("SELECT min(due, lease) FROM cards", id="the smaller of two columns"),
        pytest.param("UPDATE cards SET fence = fence + (state = 'running')", id="a boolean that is added"),
        pytest.param("SELECT id FROM cards WHERE (due < ?) + 1 = 2", id="a boolean that is counted"),
        pytest.param("UPDATE parts SET unsure = state = 'doubtful' WHERE delivery = ?", id="a boolean that is kept"),
        pytest.param("SELECT state = 'done' AS over FROM inbox", id="a boolean that is read as a number"),
        pytest.param("SELECT 1 AS only FROM epoch", id="a reserved word"),
        pytest.param("WITH RECURSIVE behind (id) AS (SELECT ? UNION SELECT 1) SELECT 1 FROM behind", id="a bare ?"),
        pytest.param("SELECT id FROM s WHERE next <= CASE steady WHEN 1 THEN ? ELSE ? END", id="a bare ? in CASE"),
        pytest.param("SELECT a.run FROM inbox i CROSS JOIN card_attempts a ON a.run = i.run", id="a planner's hint"),
        pytest.param("UPDATE parts SET tried = CASE WHEN ? THEN NULL ELSE tried END", id="a number in WHEN"),
        pytest.param("SELECT run FROM inbox WHERE state = ? AND ?", id="a number as a condition"),
        pytest.param("SELECT conversation, min(seq), ready FROM inbox GROUP BY conversation", id="not grouped"),
        pytest.param("SELECT run, max(seq) FROM inbox", id="neither grouped nor aggregated"),
        pytest.param("SELECT DISTINCT lane FROM deliveries ORDER BY seq", id="distinct in another order"),
        pytest.param(
            "INSERT INTO pauses (budget, until) VALUES (?, ?) ON CONFLICT (budget) DO UPDATE SET until = until + 1",
            id="a column of two rows",
        ),
        pytest.param("INSERT OR REPLACE INTO pauses (budget) VALUES (?)", id="SQLite's own upsert"),
        pytest.param("SELECT rowid FROM inbox", id="SQLite's own key"),
        pytest.param("SELECT name FROM sqlite_master", id="SQLite's own tables"),
        pytest.param("SELECT run FROM inbox WHERE joined IS ?", id="SQLite's own comparison"),
        pytest.param('SELECT run FROM inbox WHERE state = "done"', id="quotes that name a column"),
        pytest.param("SELECT run FROM inbox LIMIT 5, 10", id="a pair of limits"),
        pytest.param("SELECT 1 FROM a WHERE EXISTS (SELECT 1 FROM b WHERE max(x, 2) > 1)", id="inside another"),
    ],
)
def test_a_statement_that_postgresql_refuses_is_found(sql: str) -> None:
    assert refusals(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE parts SET since = CASE WHEN since = 0 THEN ? ELSE since END WHERE delivery = ? AND state = 'waiting'",
        "SELECT coalesce(max(seq), 0) AS last FROM journal WHERE run = ?",
        "SELECT state, sum(n) AS n FROM (SELECT state, count(*) AS n FROM a GROUP BY state) AS counted GROUP BY state",
        "INSERT INTO w (card, place) SELECT ?, place FROM w WHERE card = ? ON CONFLICT (card, place) DO NOTHING",
        "SELECT id FROM a WHERE at BETWEEN ? AND ? AND NOT (kind = 'x' OR EXISTS (SELECT 1 FROM b WHERE b.id = a.id))",
        "SELECT seq - (SELECT count(*) FROM b WHERE x = 1) AS n FROM a",
    ],
)
def test_a_statement_that_both_databases_take_is_left_alone(sql: str) -> None:
    assert refusals(sql) == []


def test_a_guessed_number_is_found() -> None:
    insert = Statement("board.py:1", "INSERT INTO cards (title) VALUES (?)", "board.py", "add", 1)
    guess = Statement("board.py:9", "SELECT max(id) AS id FROM cards", "board.py", "add", 9)
    assert races([insert, guess])
    assert races([guess._replace(line=0), insert]) == [], "the number of the last one before, to count on"
    assert races([insert, guess._replace(function="newest")]) == []

"""The store on bad days: it refuses what it cannot trust, confirms nothing it cannot keep, and recovers by itself."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.contract.stores import names, noting
from tests.worlds.builders import body, inbound, target
from tests.worlds.fakes import FakeLocal, FakeServer
from tests.worlds.world import Echo, Gate, World, armed
from tidings.core import failpoints
from tidings.core.clock import Hops, SystemClock, is_synchronised
from tidings.core.errors import ConfigError, HomeInUse, StoreRefused, TidingsError, Unstored
from tidings.core.gateway import gateway
from tidings.core.gateway.gateway import POSTPONED, Gateway
from tidings.core.gateway.options import Team
from tidings.core.inbound import inbox
from tidings.core.operations import offline
from tidings.core.outbound import outbox
from tidings.core.outbound.outbox import Class, Owed
from tidings.core.settings import Access, Core
from tidings.core.store import migrate, sqlite, steady_time
from tidings.core.store.lock import HomeLock
from tidings.core.store.sqlite import SqliteStore, open_store
from tidings.core.store.store import Transaction

ROOT = Path(__file__).resolve().parents[3]
DAY = 86_400.0
# Longer than any test lasts: the disk stays full until the test makes room.
ALWAYS_FULL = ",".join(f"store.pre_commit:{number}:enospc" for number in range(1, 5000))
NOBODY = 65534

LOCKING = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
for statement in sys.argv[2:]:
    connection.execute(statement).fetchall()
print("locked", flush=True)
sys.stdin.read()
"""
OPENING = """
import asyncio, sys
from pathlib import Path
from tidings.core.store.sqlite import open_store

async def main():
    store = await open_store(Path(sys.argv[1]))
    await store.close()

asyncio.run(main())
"""
HOLDING = """
import sys
from pathlib import Path
from tidings.core.store.lock import HomeLock

HomeLock(Path(sys.argv[1])).take()
print("held", flush=True)
sys.stdin.read()
"""
# Everything is imported before the rights are given away: nobody may not be able to read the program itself.
AS_NOBODY = """
import os, sys
from pathlib import Path
from tidings.core.errors import TidingsError
from tidings.core.store.lock import HomeLock
from tidings.core.store.connection import connect

if os.geteuid() == 0:
    os.seteuid(int(sys.argv[2]))
try:
    home = Path(sys.argv[1])
    HomeLock(home).take() if sys.argv[3] == "home" else connect(home / "tidings.db")
except TidingsError as error:
    print(f"{type(error).__name__}: {error}")
"""


def child(code: str, *arguments: object, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@contextmanager
def holding(code: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A process that has what it wants, and keeps it until it is ended."""
    with child(code, *arguments) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline(), "it could not get what it wants"
            yield process
        finally:
            process.kill()


@asynccontextmanager
async def opened(path: Path, *, grouped: bool = True) -> AsyncIterator[SqliteStore]:
    store = await open_store(path, grouped=grouped)
    try:
        yield store
    finally:
        await store.close()


def noted(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return [row[0] for row in connection.execute("SELECT name FROM notebook ORDER BY name")]


async def filled(path: Path) -> Path:
    """A database of ours with something in it, closed and whole in one file."""
    async with opened(path) as store:
        await asyncio.gather(*(store.write(noting(f"{number:03}", "x" * 500)) for number in range(100)))
    return path


async def is_refused(path: Path, *words: str) -> None:
    """Refused in one sentence, and not a byte of it is changed."""
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    with pytest.raises(StoreRefused) as refusal:
        await open_store(path)
    for word in (str(path), *words):
        assert word in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before


# What is opened must be durable, ours, not newer, and whole.


async def test_the_store_is_durable_by_its_own_word_and_by_its_file(tmp_path: Path) -> None:
    """I19."""
    async with opened(tmp_path / "tidings.db") as store:
        settings = await store.read(
            lambda tx: [tx.all(f"PRAGMA {name}")[0][0] for name in ("journal_mode", "synchronous")]  # type: ignore[index]
        )
        assert settings == ["wal", 2]
        await store.write(noting("a"))
        assert (tmp_path / "tidings.db-wal").stat().st_size > 0
    # The file's own mark: a version of 2 for writing and for reading means WAL.
    assert (tmp_path / "tidings.db").read_bytes()[18:20] == b"\x02\x02"


async def test_a_database_that_cannot_be_durable_is_refused() -> None:
    """I19; what lives in memory has no write-ahead log."""
    with pytest.raises(StoreRefused, match="not durable here.*journal_mode=memory.*use a local disk"):
        await open_store(Path(":memory:"))


async def test_the_database_of_another_program_is_refused_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "tidings.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    await is_refused(path, "belongs to another program")


async def test_a_database_with_another_programs_mark_is_refused(tmp_path: Path) -> None:
    path = await filled(tmp_path / "tidings.db")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA application_id = 7")
        connection.execute("PRAGMA journal_mode = DELETE")
    await is_refused(path, "belongs to another program")


async def test_the_database_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = await filled(tmp_path / "tidings.db")
    newest = migrate.files()[-1][0]
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {newest + 1}")
        connection.execute("PRAGMA journal_mode = DELETE")
    await is_refused(path, f"schema {newest + 1}", f"knows {newest}", "upgrade first")


async def test_what_is_no_database_is_refused_with_a_way_out(tmp_path: Path) -> None:
    path = tmp_path / "tidings.db"
    path.write_text("Dear diary, today I was overwritten by an editor.\n" * 100)
    await is_refused(path, "not a database", "newest backup")


@pytest.mark.parametrize("page", [1, 2, 5, 9])
async def test_a_flipped_byte_is_found_at_the_start(tmp_path: Path, page: int) -> None:
    path = await filled(tmp_path / "tidings.db")
    data = bytearray(path.read_bytes())
    # The first byte of a page says what kind it is; page 1 begins with the header of the file.
    place = (page - 1) * 4096 + (100 if page == 1 else 0)
    data[place] ^= 0xFF
    path.write_bytes(data)
    await is_refused(path, "damaged", "newest backup")


async def test_a_database_that_lost_its_end_is_refused(tmp_path: Path) -> None:
    path = await filled(tmp_path / "tidings.db")
    os.truncate(path, path.stat().st_size // 2)
    await is_refused(path, "damaged", "newest backup")


async def test_the_newest_backup_in_its_place_is_all_it_takes(tmp_path: Path) -> None:
    path = await filled(tmp_path / "tidings.db")
    backup = shutil.copy(path, tmp_path / "backup.db")
    path.write_bytes(b"garbage" * 1000)
    await is_refused(path, "newest backup")
    shutil.copy(backup, path)
    async with opened(path) as store:
        await store.write(noting("after"))
    assert len(noted(path)) == 101


async def test_a_start_that_fails_in_an_unknown_way_is_told_and_does_not_hang(tmp_path: Path) -> None:
    with armed("migrate.mid:1:raise"), pytest.raises(failpoints.FailpointHit):
        async with asyncio.timeout(10):
            await open_store(tmp_path / "tidings.db")


async def test_an_empty_file_is_a_first_start(tmp_path: Path) -> None:
    """The first start may have been killed before its first page was written."""
    (tmp_path / "tidings.db").touch()
    async with opened(tmp_path / "tidings.db") as store:
        assert await store.write(noting("a")) == "a"


# Somebody else holds the database.


async def test_a_lock_of_another_process_delays_everything_and_loses_nothing(tmp_path: Path) -> None:
    """One answer must be settled and one message stored meanwhile: the one insists, the other is not confirmed."""
    gate = Gate()
    async with World(tmp_path, Echo({"one": gate}), settings={"pause_seconds": 0.01}) as world:
        one = world.paper.says("one")
        await gate.reached()
        await world.paper.until(lambda paper: paper.confirmed == [one])
        with holding(LOCKING, tmp_path / gateway.DATABASE, "BEGIN EXCLUSIVE"):
            gate.open()
            two = world.paper.says("two", chat="2")
            await world.eventually(lambda: "locked" in world.gateway._store.fault)
            assert (world.paper.confirmed, world.paper.unconfirmed) == ([one], [two])
            assert world.posts == []
        await world.paper.until(lambda paper: sorted(paper.posts) == ["you said: one", "you said: two"])
        await world.settled()
        assert (await world.gateway.desk.health()).store == "ok"


async def test_whoever_asks_in_the_moment_in_which_the_store_fails_is_told_of_that(tmp_path: Path) -> None:
    async with World(tmp_path, Echo()) as world:
        await world.settled()
        with holding(LOCKING, tmp_path / gateway.DATABASE, "BEGIN EXCLUSIVE"):
            assert world.gateway._store.fault == "", "nobody has met the fault before"
            health = await world.gateway.desk.health()
        assert "locked" in health.store
        assert health.overview is None
        assert [part.name for part in health.parts] == ["sweeper", "paper@main"]


async def test_a_locked_database_is_refused_at_the_start_in_plain_words(tmp_path: Path) -> None:
    path = await filled(tmp_path / "tidings.db")
    complaint = "is locked by another program; close it and start again"
    with (
        holding(LOCKING, path, "PRAGMA locking_mode = EXCLUSIVE", "BEGIN EXCLUSIVE", "SELECT 1 FROM notebook"),
        pytest.raises(StoreRefused, match=complaint),
    ):
        await open_store(path)
    async with opened(path) as store:
        assert await store.write(noting("after")) == "after"


# The disk is full.


@asynccontextmanager
async def limited(path: Path) -> AsyncIterator[tuple[SqliteStore, Callable[[], Awaitable[object]]]]:
    """A database that may not grow, and a way to let it grow again: a full disk without any rights."""

    def limit(tx: Transaction, pages: int) -> int:
        row = tx.one(f"PRAGMA max_page_count = {pages}")
        assert row is not None
        return int(row["max_page_count"])

    # Ungrouped: a commit shared with a write that must fail would undo the unit that makes room.
    async with opened(path, grouped=False) as store:
        now = await store.write(lambda tx: limit(tx, 1))
        assert now > 1, "a limit below the present size is the present size"
        yield store, lambda: store.write(lambda tx: limit(tx, 2**30))


def on_a_small_disk(story: Callable[[Path], Awaitable[None]], place: Path) -> None:
    """Tells the story in a process that alone sees a file system of two megabytes; it goes when that process does."""
    mounting = 'mount -t tmpfs -o size=2m tmpfs "$1" || exit 77; exec "$2" -c "$3" "$1"'
    telling = f"""
import asyncio, sys
from pathlib import Path
from tests.scenario.operations import test_store_bad_days as days

asyncio.run(days.{story.__name__}(Path(sys.argv[1])))
"""
    unshare = shutil.which("unshare")
    if os.geteuid() != 0 or unshare is None:
        pytest.skip("only root may mount a small disk")
    command = [unshare, "--mount", "sh", "-c", mounting, "sh", str(place), sys.executable, telling]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if told.returncode == 77 or told.stderr.startswith("unshare:"):
        pytest.skip("this machine does not let us mount a small disk")
    assert told.returncode == 0, told.stderr


async def until_full(store: SqliteStore, size: int = 3000) -> list[str]:
    """Stores until it cannot; returns what it said it had stored."""
    stored: list[str] = []
    while not store.fault:
        with suppress(Unstored):
            stored.append(await store.write(noting(f"{len(stored):05}", "x" * size)))
    assert "full" in store.fault
    return stored


async def test_a_database_that_may_not_grow_loses_nothing_and_recovers(tmp_path: Path) -> None:
    path = tmp_path / "tidings.db"
    async with limited(path) as (store, make_room):
        stored = await until_full(store)
        must = asyncio.create_task(store.insist(noting("must", "x" * 100_000)))
        with pytest.raises(Unstored):
            await store.write(noting("lost, and its caller was told", "x" * 100_000))
        await make_room()
        assert await must == "must"
        assert store.fault == ""
    assert noted(path) == [*stored, "must"]


async def full_while_it_runs(disk: Path) -> None:
    path, ballast = disk / "tidings.db", disk / "ballast"
    ballast.write_bytes(b"x" * 300_000)
    async with opened(path) as store:
        stored = await until_full(store)
        must = asyncio.create_task(store.insist(noting("must", "x" * 3000)))
        with pytest.raises(Unstored):
            await store.write(noting("lost, and its caller was told", "x" * 3000))
        ballast.unlink()
        assert await must == "must"
        assert await store.write(noting("and on")) == "and on"
        assert store.fault == ""
    assert noted(path) == [*stored, "and on", "must"]


async def full_before_it_starts(disk: Path) -> None:
    with pytest.raises(OSError, match="No space left"):
        (disk / "ballast").write_bytes(b"x" * 3_000_000)
    with pytest.raises(StoreRefused, match="full; free some space and start again"):
        await open_store(disk / "tidings.db")
    (disk / "ballast").unlink()
    async with opened(disk / "tidings.db") as store:
        assert await store.write(noting("a")) == "a"


@pytest.mark.parametrize("story", [full_while_it_runs, full_before_it_starts])
def test_a_full_disk_loses_nothing_and_recovers(tmp_path: Path, story: Callable[[Path], Awaitable[None]]) -> None:
    on_a_small_disk(story, tmp_path)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the system does not tell what is open")
def test_a_refused_database_is_not_kept_open(tmp_path: Path) -> None:
    """Whoever puts a backup in its place must not find the damaged one still in use."""
    (tmp_path / "tidings.db").write_text("no database " * 1000)
    with pytest.raises(StoreRefused) as refusal:
        sqlite.connect(tmp_path / "tidings.db")
    held = [os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    assert [path for path in held if path.startswith(str(tmp_path))] == [], refusal.value


async def test_an_os_error_of_one_unit_is_told_to_its_caller_alone(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "tidings.db")

    def broken(tx: Transaction) -> None:
        raise FileNotFoundError("a template of its own")

    try:
        calls = [store.write(noting("a")), store.write(broken), store.write(noting("b"))]
        first, second, third = await asyncio.gather(*calls, return_exceptions=True)
        assert (first, third) == ("a", "b")
        assert isinstance(second, FileNotFoundError)
        assert store.fault == ""
    finally:
        await store.close()


class Stubborn(sqlite3.Connection):
    """Cannot undo, the first time it should."""

    refusals = 1

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        if sql == "ROLLBACK" and self.refusals:
            self.refusals -= 1
            raise sqlite3.OperationalError("disk I/O error")
        return super().execute(sql, *parameters)


async def test_a_store_that_cannot_undo_a_failed_commit_goes_on_without_it(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "tidings.db", factory=Stubborn)
    try:
        with armed("store.pre_commit:1:enospc"), pytest.raises(Unstored):
            await store.write(noting("lost"))
        async with asyncio.timeout(10):
            await store.write(noting("kept"))
            assert await store.read(names) == ["kept"]
        assert store.fault == ""
    finally:
        await store.close()


async def test_a_fault_is_logged_once_a_minute_not_for_each_message(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger=sqlite.__name__)
    async with opened(tmp_path / "tidings.db") as store:
        with armed(ALWAYS_FULL):
            for _ in range(20):
                with pytest.raises(Unstored):
                    await store.write(noting("a"))
        await store.write(noting("a"))
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]
    assert "nothing is confirmed" in caplog.records[0].getMessage()
    assert "writes again" in caplog.records[1].getMessage()


async def test_a_message_on_a_full_disk_is_not_confirmed_and_answered_when_there_is_room(tmp_path: Path) -> None:
    """I1: the platform keeps it as long as we cannot."""
    async with World(tmp_path, Echo(), settings={"pause_seconds": 0.01}) as world:
        with armed(ALWAYS_FULL):
            key = world.paper.says("hi")
            await world.eventually(lambda: world.gateway._store.fault)
            assert "No space left" in (await world.gateway.desk.health()).store
            assert (world.paper.confirmed, world.paper.unconfirmed) == ([], [key])
            assert world.rows("SELECT 1 FROM inbox") == []
        await world.paper.until(lambda paper: paper.posts == ["you said: hi"])
        await world.settled()
        assert world.paper.confirmed == [key]
        assert (await world.gateway.desk.health()).store == "ok"


async def test_an_answer_on_a_full_disk_arrives_once_when_there_is_room(tmp_path: Path) -> None:
    """I4: what was accepted before the disk filled up still ends in one visible outcome."""
    gate = Gate()
    async with World(tmp_path, Echo({"hi": gate})) as world:
        world.paper.says("hi")
        await gate.reached()
        with armed(ALWAYS_FULL):
            gate.open()
            await world.eventually(lambda: world.gateway._store.fault)
            assert world.posts == []
        await world.paper.until(lambda paper: paper.posts == ["you said: hi"])
        await world.settled()


# The home.


def as_nobody(home: Path, what: str) -> str:
    with child(AS_NOBODY, home, NOBODY, what) as process:
        said, _ = process.communicate()
        assert process.returncode == 0
        return said


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that everybody may enter and only its owner may write.

    Not in pytest's folder, which is its owner's and which another run may be using.
    """
    folder = Path(tempfile.mkdtemp(prefix="tidings-public-")).resolve()
    if not all(above.stat().st_mode & 0o001 for above in folder.parents):
        shutil.rmtree(folder)
        pytest.skip(f"nobody else can enter {folder.parent}")
    folder.chmod(0o555)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def test_a_home_that_cannot_be_written_is_one_clear_line(public: Path) -> None:
    for home in (public, public / "below"):
        said = as_nobody(home, "home")
        assert said.startswith(f"ConfigError: the home {home} cannot be written (Permission denied); fix its")
        assert said.count("\n") == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="its owner can enter it")
def test_a_home_below_a_folder_that_cannot_be_entered_is_one_clear_line(public: Path) -> None:
    sealed = public / "sealed"
    sealed.mkdir(mode=0o700)
    said = as_nobody(sealed / "home", "home")
    assert said.startswith(f"ConfigError: the home {sealed / 'home'} cannot be written (Permission denied); fix its")
    assert f"{sealed} belongs to root (uid 0)" in said
    assert said.count("\n") == 1


def test_who_only_looks_at_a_home_that_cannot_be_looked_at_is_told_so(tmp_path: Path) -> None:
    """The name is one that no file can have, so that it holds for root, too."""
    home = tmp_path / ("x" * 300)
    looks: tuple[Callable[[], object], ...] = (
        lambda: HomeLock(home).take(),
        lambda: offline.open_people(home, Access()).__enter__(),
        lambda: offline.open_people(home, Access(), only_reads=True).__enter__(),
        lambda: offline.deliveries(home, waiting=False, limit=1),
        lambda: offline.retry(home, "dlv_1"),
        lambda: offline.look_over(home),
        lambda: offline.check_store(home),
        lambda: offline.copied(home).__enter__(),
    )
    for look in looks:
        with pytest.raises(ConfigError, match=r"the home .* cannot be \w+ \(File name too long\)"):
            look()
    command = [sys.executable, "-m", "tidings.bots.main", "--home", str(home), "doctor"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert "Traceback" not in ran.stderr
    assert "cannot be read: File name too long" in ran.stdout


async def test_a_database_that_cannot_be_written_is_one_clear_line(public: Path) -> None:
    public.chmod(0o755)
    await filled(public / "tidings.db")
    (public / "tidings.db").chmod(0o444)
    public.chmod(0o555)
    said = as_nobody(public, "database")
    assert said.startswith(f"StoreRefused: {public / 'tidings.db'} cannot be opened")
    assert "permissions" in said
    assert said.count("\n") == 1


def test_a_home_that_is_a_file_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TidingsError, match=r"file/home cannot be written \(Not a directory\)"):
        HomeLock(tmp_path / "file" / "home").take()


def test_a_second_process_on_the_same_home_is_told_who_is_there(tmp_path: Path) -> None:
    with holding(HOLDING, tmp_path) as first, pytest.raises(HomeInUse) as refusal:
        HomeLock(tmp_path).take()
    assert f"in use by process {first.pid};" in str(refusal.value)
    # It was killed, and the system has released what it held.
    lock = HomeLock(tmp_path)
    lock.take()
    lock.release()


async def test_a_second_gateway_on_the_same_home_touches_nothing(tmp_path: Path) -> None:
    async with World(tmp_path, Echo()) as world:
        second = Gateway(tmp_path, Core(), (), Team({"bot": Echo()}, "bot"), FakeLocal(), FakeServer())
        with pytest.raises(HomeInUse, match=f"process {os.getpid()}"):
            await second.__aenter__()
        world.paper.says("hi")
        await world.paper.until(lambda paper: paper.posts == ["you said: hi"])
        await world.settled()


def test_only_its_owner_may_look_into_a_home(tmp_path: Path) -> None:
    lock = HomeLock(tmp_path / "deep" / "home")
    lock.take()
    assert (tmp_path / "deep" / "home").stat().st_mode & 0o077 == 0
    assert (tmp_path / "deep" / "home" / "lock").stat().st_mode & 0o077 == 0
    lock.release()


# Migration.


def statements() -> int:
    return sum(len([*migrate.statements(file.read_text())]) for _, file in migrate.files())


@pytest.mark.parametrize("statement", sorted({1, 3, statements() // 2, statements()}))
async def test_a_migration_that_was_killed_begins_again(tmp_path: Path, statement: int) -> None:
    path = tmp_path / "tidings.db"
    with child(OPENING, path, TIDINGS_FAILPOINT=f"migrate.mid:{statement}") as killed:
        assert killed.wait() == -9
    async with opened(path) as store:
        await store.write(noting("a"))
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (migrate.files()[-1][0],)
        assert connection.execute("PRAGMA application_id").fetchone() == (migrate.APPLICATION_ID,)
        tables = connection.execute("SELECT sql FROM sqlite_master ORDER BY name").fetchall()
    async with opened(tmp_path / "other.db"):
        pass
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
        assert connection.execute("SELECT sql FROM sqlite_master ORDER BY name").fetchall() == tables
    assert noted(path) == ["a"]


async def test_chats_that_moved_before_this_version_say_where_they_live_and_began(tmp_path: Path) -> None:
    path = tmp_path / "tidings.db"
    with closing(sqlite3.connect(path)) as connection:
        for _, file in filter(lambda each: each[0] < 9, migrate.files()):
            connection.executescript(file.read_text(encoding="utf-8"))
        connection.execute(f"PRAGMA application_id = {migrate.APPLICATION_ID}")
        connection.execute("PRAGMA user_version = 8")
        moves = [("b", "c"), ("a", "b"), ("x", "y"), ("loop", "loop")]
        connection.executemany("INSERT INTO aliases VALUES ('paper', 'main', ?, ?)", moves)
        connection.execute("INSERT INTO aliases VALUES ('other', 'main', 'c', 'd')")
        connection.commit()
    async with opened(path) as store:
        rows = await store.read(lambda tx: tx.all("SELECT chat, moved_to, origin FROM aliases ORDER BY chat"))
    assert [tuple(row[name] for name in ("chat", "moved_to", "origin")) for row in rows] == [
        ("a", "c", "a"),
        ("b", "c", "a"),
        ("c", "d", "c"),
        ("loop", "loop", "loop"),
        ("x", "y", "x"),
    ]


# The wall clock jumps. Steady time is what every stored duration is measured with.


async def steady(path: Path, *, right: bool = True) -> SystemClock:
    """`right`: a time server has set the clock."""
    async with opened(path) as store:
        return await store.write(lambda tx: steady_time.steady_clock(tx, lambda: right))


async def pretend(path: Path, sql: str, *values: object) -> None:
    async with opened(path) as store:
        assert await store.write(lambda tx: tx.count(sql, *values)) == 1


@pytest.mark.parametrize("jump", [DAY, -DAY, 3650 * DAY])
async def test_a_jump_of_the_wall_clock_neither_expires_nor_immortalises(tmp_path: Path, jump: float) -> None:
    """I21: since the last start within this boot somebody set the wall clock by a day."""
    path = tmp_path / "tidings.db"
    before = await steady(path)
    # As it would stand there if the clock had been wrong by the jump when it was stored.
    await pretend(path, "UPDATE epoch SET clock_offset = clock_offset - ?, latest = latest - ?", jump, jump)
    due = before.now() - jump + 60
    after = await steady(path)
    assert 0 < due - after.now() <= 60
    assert after.wall() - after.now() == pytest.approx(jump, abs=60)


async def test_within_one_boot_time_goes_on_over_any_number_of_starts(tmp_path: Path) -> None:
    clocks_seen = [await steady(tmp_path / "tidings.db") for _ in range(3)]
    assert len({clock.offset for clock in clocks_seen}) == 1


async def test_after_a_reboot_the_wall_clock_sets_the_time(tmp_path: Path) -> None:
    """The machine was off for a day, and what was due meanwhile is due."""
    path = tmp_path / "tidings.db"
    before = await steady(path)
    await pretend(path, "UPDATE epoch SET boot = 'another', clock_offset = 0, latest = ?", before.now() - DAY)
    due = before.now() - DAY + 60
    after = await steady(path)
    assert due < after.now()
    assert after.now() == pytest.approx(time.time(), abs=60)


async def test_after_a_reboot_with_a_clock_set_back_time_still_goes_on(tmp_path: Path) -> None:
    """A machine without a battery wakes up in the past; what was due in a minute is due in a minute."""
    path = tmp_path / "tidings.db"
    latest = (await steady(path)).now() + DAY
    await pretend(path, "UPDATE epoch SET boot = 'another', clock_offset = 0, latest = ?", latest)
    after = await steady(path)
    assert 0 < latest + 60 - after.now() <= 60
    again = await steady(path)
    assert again.offset == after.offset, "and from now on it is this boot's"


async def test_after_a_reboot_with_a_clock_set_back_time_goes_on_from_the_newest_row(tmp_path: Path) -> None:
    """The process had run for a day since the epoch was stored; its rows know how late it was."""
    path = tmp_path / "tidings.db"
    newest = (await steady(path)).now() + DAY
    async with opened(path) as store:
        await store.write(lambda tx: inbox.put(tx, inbound(), "run_1", newest - 1))
        await store.write(lambda tx: outbox.put(tx, Owed("dlv_1", Class.REPLY, target(), body()), newest))
    await pretend(path, "UPDATE epoch SET boot = 'another'")
    after = await steady(path)
    assert 0 < newest + 60 - after.now() <= 60


FAR = 40 * DAY


async def off_for(path: Path, seconds: float) -> float:
    """The machine was switched off so long ago, if its clock is right; returns how late it was then."""
    latest = (await steady(path)).now() - seconds
    await pretend(path, "UPDATE epoch SET boot = 'another', clock_offset = 0, latest = ?", latest)
    return latest


async def owe(path: Path, at: float) -> None:
    async with opened(path) as store:
        await store.write(lambda tx: outbox.put(tx, Owed("dlv_1", Class.REPLY, target(), body()), at))


async def expired(path: Path, clock: SystemClock) -> int:
    async with opened(path) as store:
        return len(await store.read(lambda tx: outbox.expired(tx, clock.now())))


@pytest.mark.parametrize("seconds", [FAR, -FAR])
async def test_after_a_reboot_with_a_clock_that_is_far_off_time_goes_on_from_where_it_was(
    tmp_path: Path, seconds: float
) -> None:
    """What is owed for an hour is not given up because the clock shows another month."""
    path = tmp_path / "tidings.db"
    latest = await off_for(path, seconds)
    await owe(path, latest - 3600)
    after = await steady(path, right=False)
    assert not after.confirmed
    assert 0 <= after.now() - latest < 60
    assert await expired(path, after) == 0
    again = await steady(path, right=False)
    assert (again.offset, again.confirmed) == (after.offset, False), "also after another start"


async def test_when_the_clock_is_confirmed_time_catches_up_and_what_was_due_is_due(tmp_path: Path) -> None:
    path = tmp_path / "tidings.db"
    latest = await off_for(path, FAR)
    await owe(path, latest - 3600)
    clock = await steady(path, right=False)
    async with opened(path) as store:
        assert not await store.write(lambda tx: steady_time.confirm(tx, clock, POSTPONED, lambda: False))
        assert not clock.confirmed
        assert await store.write(lambda tx: steady_time.confirm(tx, clock, POSTPONED, lambda: True))
    assert clock.confirmed
    assert clock.now() == pytest.approx(time.time(), abs=60)
    assert await expired(path, clock) == 1
    again = await steady(path, right=False)
    assert (again.offset, again.confirmed) == (clock.offset, True), "within this boot that is settled"


async def test_what_is_owed_since_the_boot_is_as_old_as_before_when_time_catches_up(tmp_path: Path) -> None:
    """An answer that waits for a minute is not given up because the machine was off for weeks before it."""
    path = tmp_path / "tidings.db"
    await off_for(path, FAR)
    clock = await steady(path, right=False)
    await owe(path, clock.now())
    async with opened(path) as store:
        assert await store.write(lambda tx: steady_time.confirm(tx, clock, POSTPONED, lambda: True))
    assert clock.now() == pytest.approx(time.time(), abs=60)
    assert await expired(path, clock) == 0


async def test_what_was_planned_since_the_boot_is_as_far_off_as_before_when_time_catches_up(tmp_path: Path) -> None:
    """“In twenty minutes” is neither missed nor early; what was planned before the machine was off is due."""
    path = tmp_path / "tidings.db"
    latest = await off_for(path, FAR)
    clock = await steady(path, right=False)
    insert = "INSERT INTO schedules (id, plan, next, steady, created) VALUES (?, '{}', ?, 1, ?)"
    await pretend(path, insert, "new", clock.now() + 1200, clock.wall() + 1)
    await pretend(path, insert, "old", latest + 1200, clock.wall() - FAR - 1)
    async with opened(path) as store:
        assert await store.write(lambda tx: steady_time.confirm(tx, clock, POSTPONED, lambda: True))
        rows = await store.read(lambda tx: tx.all("SELECT id, next FROM schedules"))
    left = {row["id"]: row["next"] - clock.now() for row in rows}
    assert left["new"] == pytest.approx(1200, abs=60)
    assert left["old"] < -DAY


async def test_no_wait_is_shorter_because_time_catches_up(tmp_path: Path) -> None:
    """A run that goes on after the boot has all the time that it may take."""
    path = tmp_path / "tidings.db"
    await off_for(path, FAR)
    clock = await steady(path, right=False)
    over: list[bool] = []
    timer = clock.call_later(1200, lambda: over.append(True))
    assert isinstance(timer, Hops)
    clock.confirm()
    timer.hop()
    timer.cancel()
    assert over == []


async def test_a_clock_that_is_set_back_to_the_right_time_has_ended_nothing(tmp_path: Path) -> None:
    """It was far ahead for a minute after the boot; the time server has put it right before anything was given up."""
    path = tmp_path / "tidings.db"
    real = (await steady(path)).now()
    # By the right clock an hour has passed since the last use, by the wrong one forty days and an hour.
    latest = real - 3600
    await pretend(path, "UPDATE epoch SET boot = 'another', clock_offset = 0, latest = ?", latest - FAR)
    await owe(path, latest - FAR - 3600)
    clock = await steady(path, right=False)
    # What the time server does to the wall clock is here done to the rows: both are FAR nearer to each other.
    clock.offset += FAR
    await pretend(path, "UPDATE epoch SET clock_offset = clock_offset + ?, latest = latest + ?", FAR, FAR)
    await pretend(path, "UPDATE deliveries SET created = created + ?", FAR)
    async with opened(path) as store:
        assert await store.write(lambda tx: steady_time.confirm(tx, clock, POSTPONED, lambda: True))
    assert clock.now() == pytest.approx(real, abs=60)
    assert await expired(path, clock) == 0


async def test_a_night_off_is_believed_whoever_keeps_the_clock(tmp_path: Path) -> None:
    path = tmp_path / "tidings.db"
    await off_for(path, 10 * 3600)
    after = await steady(path, right=False)
    assert after.confirmed
    assert after.now() == pytest.approx(time.time(), abs=60)


async def test_time_that_has_caught_up_does_not_go_back_although_that_was_not_stored(tmp_path: Path) -> None:
    path = tmp_path / "tidings.db"
    await off_for(path, FAR)
    clock = await steady(path, right=False)
    clock.confirm()
    reached = clock.now()
    await pretend(path, "UPDATE epoch SET latest = ?", reached)
    assert (await steady(path, right=False)).now() >= reached


def test_whether_a_time_server_has_set_the_clock_can_be_asked_on_every_system() -> None:
    assert isinstance(is_synchronised(), bool)
    assert isinstance(steady_time.is_right(), bool)


async def test_a_clock_that_nobody_tells_the_boot_of_never_goes_back(tmp_path: Path) -> None:
    path = tmp_path / "tidings.db"
    latest = (await steady(path)).now() + DAY
    await pretend(path, "UPDATE epoch SET boot = '', latest = ?", latest)
    assert (await steady(path)).now() >= latest

"""A home is backed up while it works, put into another place, and goes on there: nothing lost, nothing said twice."""

from __future__ import annotations

import asyncio
import errno
import gzip
import hashlib
import json
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from io import BytesIO
from pathlib import Path

import pytest

from tests.simulators.paper.simulator import Kind
from tests.simulators.telegram.simulator import TelegramServer
from tests.worlds.builders import body, target
from tests.worlds.telegram import process
from tests.worlds.world import PROOFS, Echo, Gate, OwnedClock, Scripted, World, armed
from tidings.adapters.local import socket
from tidings.adapters.local.socket import LocalServer
from tidings.adapters.local.verbs import routes_for
from tidings.core.agent import FileMade
from tidings.core.errors import Declined, HomeInUse, StoreRefused, TidingsError
from tidings.core.failpoints import FailpointHit
from tidings.core.operations import backup, offline
from tidings.core.operations import restore as restoring
from tidings.core.operations.restore import Restored, restore
from tidings.core.operations.upkeep import Upkeep
from tidings.core.outbound.outbox import MARK
from tidings.core.settings import Core
from tidings.core.store import checks, migrate
from tidings.core.store.connection import connect
from tidings.core.store.lock import HomeLock
from tidings.core.store.sqlite import DATABASE, open_store

ROOT = Path(__file__).resolve().parents[3]
# So many people speak while the store is copied, which has so many megabytes.
PEOPLE, MEGABYTES = 24, 40


def tidings(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TIDINGS_")}
    surroundings = {**kept, "TIDINGS_HOME": str(home), "TIDINGS_HTTP__PORT": "0"}
    command = [sys.executable, "-m", "tidings.bots.main", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=surroundings, timeout=60, check=False)


def packed(home: Path, snapshot: Path, file: Path, *, essential: bool = False) -> backup.Packed:
    """As `tidings backup` does it with a copy that it was given."""
    with backup.written(file, replace=False) as stream:
        return backup.pack(
            home,
            snapshot,
            home / "tidings.toml",
            stream,
            version="1",
            made=time.time(),
            running=True,
            essential=essential,
        )


def filled(home: Path) -> Path:
    """A home with everything in it that a home may have."""
    home.mkdir(mode=0o700)
    connect(home / DATABASE).close()
    for name, text in {
        "tidings.toml": "[limits]\nruns = 5\n",
        "api.key": "sk-secret",
        "rosa.md": "You are Rosa.",
        "tidings.log": "noise",
        "tidings.log.1": "noise",
        "old.tar": "another backup",
        "older.tar.gz": "another backup",
        "oldest.tgz": "another backup",
        "attachments/paper@main/one.pdf": "pdf",
        "workspaces/paper%3Amain%3A1/notes.txt": "notes",
        "workspaces/paper%3Amain%3A2/deep/down.txt": "down",
    }.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    (home / "workspaces" / "paper%3Amain%3A1" / "run.sh").write_text("true")
    (home / "workspaces" / "paper%3Amain%3A1" / "run.sh").chmod(0o755)
    (home / "workspaces" / "paper%3Amain%3A1" / "link").symlink_to("/etc/passwd")
    return home


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return filled(tmp_path / "home")


@pytest.fixture
def archive(home: Path, tmp_path: Path) -> Path:
    file = tmp_path / "backup.tar"
    shutil.copy(home / DATABASE, tmp_path / "snapshot.db")
    packed(home, tmp_path / "snapshot.db", file)
    return file


def names(file: Path) -> set[str]:
    with tarfile.open(file) as tar:
        return set(tar.getnames())


def tree(home: Path) -> dict[str, bytes]:
    files = (path for path in home.rglob("*") if path.is_file() and not path.is_symlink() and path.name != "lock")
    return {str(path.relative_to(home)): path.read_bytes() for path in files}


# The command line, where no gateway runs.


def test_one_file_holds_all_that_is_needed_and_neither_the_log_nor_other_backups(home: Path, tmp_path: Path) -> None:
    file, elsewhere = tmp_path / "backup.tar", tmp_path / "elsewhere"
    done = tidings(home, "backup", str(file))
    assert done.returncode == 0, done.stderr
    assert "keep it safe" in done.stderr
    assert "link: no plain file" in done.stderr, "what was left out is said"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup.tar", "home"], "nothing half is left behind"
    restored = tidings(elsewhere, "restore", str(file))
    assert restored.returncode == 0, restored.stderr
    assert "tidings run" in restored.stdout
    wanted = {name: data for name, data in tree(home).items() if "log" not in name and data != b"another backup"}
    found = tree(elsewhere)
    del wanted[DATABASE], found[DATABASE]
    assert found == wanted
    with closing(sqlite3.connect(elsewhere / DATABASE)) as store:
        assert store.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert os.access(elsewhere / "workspaces" / "paper%3Amain%3A1" / "run.sh", os.X_OK)
    assert {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in elsewhere.rglob("*")} == {0}, "the owner's alone"


def test_settings_that_lie_elsewhere_bring_their_secrets_along(home: Path, tmp_path: Path) -> None:
    settings, file = tmp_path / "etc" / "own.toml", tmp_path / "backup.tar"
    settings.parent.mkdir()
    settings.write_text("[limits]\nruns = 7\n")
    settings.with_name("secrets.toml").write_text('[telegram]\ntoken = "1:a"\n')
    settings.with_name("secrets.toml").chmod(0o600)
    (home / "secrets.toml").write_text("# of nobody any more\n")
    assert tidings(home, "--config", str(settings), "backup", str(file)).returncode == 0
    assert tidings(tmp_path / "elsewhere", "restore", str(file)).returncode == 0
    assert "runs = 7" in (tmp_path / "elsewhere" / "tidings.toml").read_text()
    assert "1:a" in (tmp_path / "elsewhere" / "secrets.toml").read_text()


def test_files_that_the_settings_name_go_along_and_of_others_it_is_said_which_they_are(
    home: Path, tmp_path: Path
) -> None:
    """Without them the restored home would not even start."""
    file, elsewhere, outside = tmp_path / "backup.tar", tmp_path / "elsewhere", tmp_path / "ann.md"
    keyed = 'model = "openai:gpt-5-mini"\napi_key = "file:keys/openai"\n'
    (home / "tidings.toml").write_text(
        f'[bots.rosa]\npersona = "who/rosa.md"\n{keyed}[bots.ann]\npersona = "{outside}"\n{keyed}'
    )
    for path, text in {home / "who" / "rosa.md": "I am Rosa.", home / "keys" / "openai": "k", outside: "Ann."}.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    # The name of a folder of ours may begin the name of a file.
    (home / "board.md").write_text("notes")
    done = tidings(home, "backup", str(file))
    assert f"warning: {outside} is not in it, and the settings name it: copy it yourself" in done.stderr
    restored = tidings(elsewhere, "restore", str(file))
    assert restored.returncode == 0, restored.stderr
    assert (elsewhere / "board.md").read_text() == "notes"
    checked = tidings(elsewhere, "config", "check")
    assert checked.returncode == 0, checked.stderr
    assert stat.S_IMODE((elsewhere / "keys" / "openai").stat().st_mode) == 0o600


def test_settings_that_are_broken_keep_nobody_from_a_backup(home: Path, tmp_path: Path) -> None:
    (home / "tidings.toml").write_text("[bot\n")
    done = tidings(home, "backup", str(tmp_path / "backup.tar"))
    assert done.returncode == 0, done.stderr
    assert "warning: what the settings name was not looked for" in done.stderr


def test_a_name_that_promises_less_room_is_kept_to(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "backup.tar.gz"
    assert tidings(home, "backup", str(file)).returncode == 0
    assert gzip.decompress(file.read_bytes())[257:262] == b"ustar"
    restored = tidings(tmp_path / "elsewhere", "restore", str(file))
    assert restored.returncode == 0, restored.stderr
    assert (tmp_path / "elsewhere" / "rosa.md").read_text() == "You are Rosa."


def test_a_file_that_is_there_is_overwritten_only_by_force(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "backup.tar"
    file.write_text("precious")
    refused = tidings(home, "backup", str(file))
    assert (refused.returncode, file.read_text()) == (1, "precious")
    assert "--force" in refused.stderr
    with backup.written(file, replace=True) as stream:
        stream.write(b"new")
    assert file.read_bytes() == b"new"


def test_what_fails_in_the_middle_leaves_what_was_there(tmp_path: Path) -> None:
    file = tmp_path / "backup.tar"
    file.write_text("precious")

    def fill_the_disk() -> None:
        with backup.written(file, replace=True) as stream:
            stream.write(b"half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(TidingsError, match="No space"):
        fill_the_disk()
    assert [path.name for path in tmp_path.iterdir()] == ["backup.tar"]
    assert file.read_text() == "precious"


def test_a_home_without_a_store_has_nothing_to_back_up(tmp_path: Path) -> None:
    for home in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(TidingsError, match="nothing to back up"), offline.copied(home):
            pytest.fail("it was copied")
    assert not (tmp_path / "nowhere").exists()


# What is refused, and leaves everything as it was.


def refusal(archive: Path, home: Path, *, move_aside: bool = False) -> str:
    before = tree(home) if home.exists() else {}
    with pytest.raises(TidingsError) as refused:
        restore(archive, home, move_aside=move_aside)
    assert tree(home) == before
    return str(refused.value)


def test_a_home_in_which_a_gateway_runs_is_not_restored(archive: Path, home: Path) -> None:
    lock = HomeLock(home)
    lock.take()
    with pytest.raises(HomeInUse):
        restore(archive, home, move_aside=True)
    lock.release()


def admitted(home: Path) -> list[tuple[str]]:
    with closing(sqlite3.connect(home / DATABASE)) as store:
        return store.execute("SELECT id FROM identities").fetchall()


def test_a_home_that_has_a_store_keeps_it_unless_it_is_moved_aside(archive: Path, home: Path) -> None:
    assert "--move-aside" in refusal(archive, home)
    (home / "tidings.toml").write_text("[limits]\nruns = 6\n")
    with closing(sqlite3.connect(home / DATABASE)) as store:
        store.execute("INSERT INTO identities VALUES ('paper:9', 'psn_1', 1, 0)")
        store.commit()
    restored = restore(archive, home, move_aside=True)
    assert restored.aside is not None
    assert admitted(restored.aside) == [("paper:9",)]
    assert admitted(home) == []
    assert (restored.aside / "workspaces" / "paper%3Amain%3A1" / "notes.txt").exists()
    assert (home / "tidings.toml").read_text() == "[limits]\nruns = 6\n", "settings that were there stay"
    assert restored.beside == (home / "tidings.toml.restored",)


def cut(file: Path) -> None:
    data = file.read_bytes()
    with tarfile.open(file) as tar:
        last = max(member.offset for member in tar)
    file.write_bytes(data[:last] + b"\0" * 10_240)


def shorten(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def flip(file: Path) -> None:
    with tarfile.open(file) as tar:
        offset = tar.getmember("api.key").offset_data
    data = bytearray(file.read_bytes())
    data[offset] ^= 1
    file.write_bytes(data)


def write_noise(file: Path) -> None:
    file.write_bytes(b"not a backup at all" * 1000)


def make_foreign(file: Path) -> None:
    with tarfile.open(file, "w") as tar:
        tar.add(__file__, "test.py")


def make_dangerous(file: Path) -> None:
    """As ours, with a file on top that would land outside the home."""
    with tarfile.open(file, "a") as tar:
        tar.add(__file__, "workspaces/../../outside.py")


def rewrite(file: Path, change: Callable[[tarfile.TarInfo, bytes], bytes]) -> None:
    """The same members, some of which say something else, under a seal that knows it."""
    with tarfile.open(file) as tar:
        members = [(member, (tar.extractfile(member) or BytesIO()).read()) for member in tar]
    digests: dict[str, str] = {}
    with tarfile.open(file, "w") as tar:
        for member, data in members:
            data = json.dumps(digests).encode() if member.name == "seal.json" else change(member, data)
            digests[member.name] = hashlib.sha256(data).hexdigest()
            member.size = len(data)
            tar.addfile(member, BytesIO(data))


def swell_manifest(file: Path) -> None:
    blanks = b" " * (restoring.INDEX_BYTES + 1)
    rewrite(file, lambda member, data: data + blanks if member.name == "manifest.json" else data)


def swell_header(file: Path) -> None:
    def swell(member: tarfile.TarInfo, data: bytes) -> bytes:
        member.pax_headers = {"comment": "x" * (restoring.HEADER_BYTES + 1)} if member.name == "api.key" else {}
        return data

    rewrite(file, swell)


def promise_too_much(file: Path) -> None:
    """As ours, with a file on top of which nobody has room for all that it says it has."""
    vast = tarfile.TarInfo("workspaces/vast")
    vast.size = 2**60
    data = file.read_bytes()
    with tarfile.open(file) as tar:
        last = max(member.offset for member in tar)
    file.write_bytes(data[:last] + vast.tobuf() + b"\0" * 10_240)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (swell_manifest, "manifest.json is too large"),
        (swell_header, "a name in this backup is too long"),
        (promise_too_much, "and there is room for"),
        (cut, "is incomplete"),
        (shorten, "damaged"),
        (flip, "damaged"),
        (write_noise, "not a backup of Tidings"),
        (make_foreign, "not a backup of Tidings"),
        (make_dangerous, "which no backup has"),
    ],
)
def test_what_is_no_whole_backup_is_refused(archive: Path, tmp_path: Path, spoil: object, words: str) -> None:
    assert callable(spoil)
    spoil(archive)
    assert words in refusal(archive, tmp_path / "elsewhere")
    assert not (tmp_path / "outside.py").exists()


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        (f"PRAGMA user_version = {migrate.files()[-1][0] + 1}", "newer version"),
        ("PRAGMA application_id = 7", "another program"),
    ],
)
def test_a_store_that_is_not_ours_or_newer_is_not_even_backed_up(home: Path, sql: str, words: str) -> None:
    with closing(sqlite3.connect(home / DATABASE)) as store:
        store.execute(sql)
    with pytest.raises(StoreRefused, match=words), offline.copied(home):
        pytest.fail("it was copied")


def test_a_newer_store_in_a_backup_is_refused(home: Path, tmp_path: Path) -> None:
    """Made by a version that comes after this one: its manifest is whole, its store is not for us."""
    shutil.copy(home / DATABASE, tmp_path / "snapshot.db")
    packed(home, tmp_path / "snapshot.db", tmp_path / "backup.tar")
    newest = migrate.files()[-1][0]
    reworked(tmp_path / "backup.tar", f"PRAGMA user_version = {newest + 1}")
    assert "newer version" in refusal(tmp_path / "backup.tar", tmp_path / "elsewhere")


def reworked(file: Path, sql: str) -> None:
    """The same backup with another store in it, sealed anew."""
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(file) as tar:
            tar.extractall(folder, filter="data")
            order = tar.getnames()
        with closing(sqlite3.connect(Path(folder, backup.STORE))) as store:
            store.execute(sql)
        seal = json.loads(Path(folder, backup.SEAL).read_bytes())
        seal[backup.STORE] = hashlib.sha256(Path(folder, backup.STORE).read_bytes()).hexdigest()
        Path(folder, backup.SEAL).write_text(json.dumps(seal))
        with tarfile.open(file, "w") as tar:
            for name in order:
                tar.add(Path(folder, name), name)


def test_a_restore_that_was_cut_off_has_left_no_store_and_can_be_made_again(archive: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    with armed("restore.pre_store:1:raise"), pytest.raises(FailpointHit):
        restore(archive, elsewhere, move_aside=False)
    assert not (elsewhere / DATABASE).exists()
    assert restore(archive, elsewhere, move_aside=True).files > 0
    assert (elsewhere / DATABASE).exists()


# While it works.


@pytest.fixture
async def world(tmp_path: Path, clock: OwnedClock) -> AsyncIterator[World]:
    async with World(tmp_path / "home", Echo(), clock=clock) as world:
        yield world


async def moved(world: World, to: Path) -> Restored:
    """The process dies when the copy is made; another one goes on from it in another place."""
    snapshot = await world.gateway.desk.upkeep.snapshot()
    await world.end()
    file = to.with_suffix(".tar")
    packed(world.home, snapshot, file)
    restored = restore(file, to, move_aside=False)
    shutil.rmtree(world.home)
    world.home = to
    await world.start()
    return restored


@pytest.mark.parametrize("kind", [pytest.param(kind, id=name) for name, kind in PROOFS.items()])
@pytest.mark.parametrize("arrived", [True, False], ids=["arrived", "not arrived"])
async def test_what_was_on_its_way_is_settled_by_the_platforms_own_proof(
    tmp_path: Path, clock: OwnedClock, kind: Kind, arrived: bool
) -> None:
    async with World(tmp_path / "home", Echo(), kind=kind, clock=clock) as world:
        held = world.paper.hold_next("post", after_effect=arrived)
        await world.gateway.desk.owe(target(), body("hello"), "test")
        await world.paper.until(lambda paper: paper.calls("post"))
        restored = await moved(world, tmp_path / "elsewhere")
        assert (restored.owed, restored.doubtful) == (1, 1)
        if arrived:
            held.set()
        await world.until(lambda: not world.rows("SELECT 1 FROM deliveries WHERE state <> 'delivered'"))
        first = ["hello"] if arrived else []
        proved = kind.keyed_for or kind.readback
        texts = [message.text for message in world.paper.visible()]
        assert texts == (["hello"] if proved else [*first, f"{MARK}hello"])


async def test_runs_that_were_open_go_on_and_what_waited_behind_them_follows(tmp_path: Path, clock: OwnedClock) -> None:
    gate = Gate()
    async with World(tmp_path / "home", Echo({"one": gate}), clock=clock) as world:
        for text in ("one", "two", "three"):
            world.paper.says(text)
        await gate.reached()
        await world.paper.until(lambda paper: not paper.unconfirmed)
        world.agents["bot"] = Echo()
        assert (await moved(world, tmp_path / "elsewhere")).runs == 3
        await world.until(lambda: len(world.posts) == 3)
        assert world.posts == ["you said: one", "you said: two", "you said: three"]


async def test_the_conversation_is_remembered_and_what_came_twice_is_known(world: World, tmp_path: Path) -> None:
    key = world.paper.says("my name is Ada")
    await world.until(lambda: world.posts)
    agent = Scripted("hello again")
    world.agents["bot"] = agent
    await moved(world, tmp_path / "elsewhere")
    world.paper.redeliver(key)
    world.paper.says("who am I?")
    await world.until(lambda: len(world.posts) == 2)
    assert world.posts == ["you said: my name is Ada", "hello again"]
    assert [entry.text for entry in agent.turns[0].history] == ["my name is Ada", "you said: my name is Ada"]


@pytest.mark.parametrize("essential", [False, True])
@pytest.mark.parametrize("where", ["home/workspaces/w", "outside"])
async def test_files_that_are_owed_go_along_and_are_found_in_the_new_place(
    tmp_path: Path, clock: OwnedClock, where: str, essential: bool
) -> None:
    report = tmp_path / where / "report.pdf"
    report.parent.mkdir(parents=True)
    report.write_bytes(b"%PDF")
    (tmp_path / "home" / "workspaces" / "unused").mkdir(parents=True)
    (tmp_path / "home" / "workspaces" / "unused" / "big.bin").write_bytes(b"0" * 1000)
    agent = Scripted("Here it is.", FileMade(path=str(report), name="report.pdf"))
    async with World(tmp_path / "home", agent, clock=clock) as world:
        await world.paper.outage(True)
        await world.end()
        await world.paper.outage(False)
        world.paper.says("the report, please")
        held = world.paper.hold_next("post")
        await world.start()
        await world.paper.until(lambda paper: paper.calls("post"))
        snapshot = await world.gateway.desk.upkeep.snapshot()
        await world.end()
        held.set()
        packed(world.home, snapshot, tmp_path / "backup.tar", essential=essential)
        assert ("workspaces/unused/big.bin" in names(tmp_path / "backup.tar")) is not essential
        report.unlink()
        restore(tmp_path / "backup.tar", tmp_path / "elsewhere", move_aside=False)
        world.home = tmp_path / "elsewhere"
        await world.start()
        await world.until(lambda: [message.files for message in world.paper.visible() if message.files])
        assert not world.rows("SELECT 1 FROM deliveries WHERE state = 'dead'")


async def test_time_goes_on_on_a_machine_whose_clock_is_behind(tmp_path: Path) -> None:
    """What is due in a minute is due in a minute, on any machine and whatever its clock shows."""
    async with World(tmp_path / "home", Echo()) as world:
        world.paper.says("hi")
        await world.paper.until(lambda paper: paper.posts)
        ahead = 3 * 86_400.0
        there = "UPDATE epoch SET boot = 'another machine', clock_offset = 0, latest = latest + ?"
        await world.gateway._store.write(lambda tx: tx.execute(there, ahead))
        latest = world.rows("SELECT latest FROM epoch")[0]["latest"]
        await moved(world, tmp_path / "elsewhere")
        assert 0 <= world.gateway._clock.now() - latest < 60
        world.paper.says("are you there?")
        await world.paper.until(lambda paper: len(paper.posts) == 2)


async def test_the_command_line_backs_up_a_gateway_that_runs(world: World, tmp_path: Path) -> None:
    world.paper.says("hi")
    await world.until(lambda: world.posts)
    file = tmp_path / "backup.tar"
    async with LocalServer() as server:
        with server.routes(routes_for(world.gateway.desk)):
            async with server.serving(world.home):
                done = await asyncio.to_thread(tidings, world.home, "backup", str(file))
    assert done.returncode == 0, done.stderr
    assert "while the gateway runs" in done.stderr
    assert [*(world.home / "snapshots").iterdir()] == []
    with closing(sqlite3.connect(_unpacked(file, tmp_path))) as store:
        assert store.execute("SELECT state FROM deliveries").fetchall() == [("delivered",)]


def _unpacked(file: Path, folder: Path) -> Path:
    with tarfile.open(file) as tar:
        (folder / "look").mkdir()
        tar.extract(backup.STORE, folder / "look")
    return folder / "look" / backup.STORE


async def test_a_store_that_is_too_large_to_be_read_at_the_start_is_looked_over_later(world: World) -> None:
    """A year of use must not make each start wait; what is damaged is told of all the same."""
    database = world.home / DATABASE
    desk, parts = world.gateway.desk, world.gateway._parts
    store, clock, alarms = parts.essentials.store, parts.essentials.clock, parts.essentials.alarms
    upkeep = Upkeep(store, clock, parts.courier, alarms, Core().retention, world.home, checked_bytes=0)
    await upkeep.sweep()
    assert upkeep._looking is not None
    await upkeep._looking
    assert (await desk.health()).alarms == ()
    await world.end()
    root = world.rows("SELECT rootpage FROM sqlite_master WHERE name = 'deliveries_by_key'")[0]["rootpage"]
    whole = database.read_bytes()
    spoilt = bytearray(whole)
    spoilt[(root - 1) * 4096] ^= 0xFF
    database.write_bytes(spoilt)
    with pytest.raises(StoreRefused, match="damaged"):
        connect(database)
    connect(database, checked_bytes=0).close()
    assert await checks.damage(database) != ""
    database.write_bytes(whole)
    await world.start()


async def test_writers_have_their_turn_while_a_copy_is_made_and_are_in_it(tmp_path: Path) -> None:
    store = await open_store(tmp_path / DATABASE)
    await store.write(lambda tx: [note(tx, f"a{number}", "x" * 1_000_000) for number in range(10)])
    turns: list[int] = []

    async def go_on() -> None:
        while not copying.done():
            turns.append(await store.write(lambda tx: note(tx, f"b{len(turns)}", "y" * 10_000)))

    copying = asyncio.create_task(store.copy(tmp_path / "copy.db"))
    await asyncio.gather(copying, go_on())
    with closing(sqlite3.connect(tmp_path / "copy.db")) as copy:
        assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        (inside,) = copy.execute("SELECT count(*) FROM notebook WHERE name LIKE 'b%'").fetchone()
    assert 3 < inside <= len(turns)
    await store.close()


def note(tx: object, name: str, value: str) -> None:
    tx.execute("INSERT INTO notebook VALUES ('a', 'b', ?, ?)", name, value)  # type: ignore[attr-defined]


def widen(home: Path) -> None:
    """A store that takes a while to copy."""
    with closing(connect(home / DATABASE)) as store:
        for number in range(MEGABYTES):
            store.execute("INSERT INTO notebook VALUES ('a', 'b', ?, ?)", (str(number), "x" * 1_000_000))


def speaking(telegram: TelegramServer, people: range) -> Iterator[list[str]]:
    """Each step is one more message, while so many of them are not answered that everybody is at work."""
    said: list[str] = []
    while True:
        if len(said) < len(telegram.posts) + PEOPLE:
            person = people[len(said) % PEOPLE]
            said.append(f"{person} says {len(said)}")
            telegram.says(said[-1], chat=person)
        yield said


async def test_a_gateway_that_dies_under_load_as_it_is_backed_up_is_gone_on_with_elsewhere(tmp_path: Path) -> None:
    """Real processes: the first is killed when its store has been copied, the second has only the backup."""
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    widen(old)
    people = range(101, 101 + PEOPLE)
    everybody = ",".join(f"telegram:{person}" for person in people)
    async with TelegramServer() as telegram:
        async with process(old, telegram, TIDINGS_ACCESS__ALLOW=everybody, TIDINGS_FAILPOINT="store.copied:1") as dying:
            said = speaking(telegram, people)
            await telegram.until(lambda telegram: next(said) and len(telegram.posts) > 2, 30)
            asking = asyncio.create_task(socket.call(old, {"verb": "snapshot"}))
            async with asyncio.timeout(30):
                while dying.poll() is None:
                    next(said)
                    await asyncio.sleep(0.002)
            assert dying.returncode == -9
            with pytest.raises(Declined):
                await asking
        wanted = {f"you said: {text}" for text in next(said)}
        (snapshot,) = (old / "snapshots").iterdir()
        packed(old, snapshot, tmp_path / "backup.tar")
        restored = restore(tmp_path / "backup.tar", new, move_aside=False)
        assert restored.runs + restored.owed + len(telegram.unconfirmed), "something was left to do"
        shutil.rmtree(old)

        def answered() -> set[str]:
            return {text.removeprefix(MARK) for text in telegram.posts}

        async with process(new, telegram, TIDINGS_ACCESS__ALLOW=everybody):
            await telegram.until(lambda _: answered() >= wanted, 60)
            telegram.says("and now?", chat=people[0])
            await telegram.until(lambda telegram: "you said: and now?" in telegram.posts, 30)
        assert answered() == {*wanted, "you said: and now?"}
        twice = [text for text, count in Counter(telegram.posts).items() if count > 1]
        assert twice == [], "said again without a word about it"

"""What an earlier version has stored is found by the statements of this one."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

from msgspec.structs import replace

from tests.worlds.builders import inbound, store_of_version, target
from tidings.core import clock
from tidings.core.agent import JournalEvent, Restarted, TextDelta
from tidings.core.inbound import inbox
from tidings.core.operations import old_files
from tidings.core.runs import journal
from tidings.core.store.sqlite import open_store
from tidings.core.store.store import Store
from tidings.core.types import Body, File, Inbound, encode
from tidings.core.work.processes import identity

# The last version that looked for facts inside JSON.
BEFORE_COLUMNS = 15


async def upgraded(path: Path) -> Store:
    return await open_store(path)


def waits(store: sqlite3.Connection, run: str, message: Inbound) -> None:
    store.execute(
        "INSERT INTO inbox (run, adapter, account, key, kind, conversation, state, message, accepted, ready)"
        " VALUES (?, 'paper', 'main', ?, 'message', ?, 'waiting', ?, 1, 1)",
        (run, run, f"paper:main:{run}", encode(message)),
    )


def owes(store: sqlite3.Connection, id: str, body: Body) -> None:
    store.execute(
        "INSERT INTO deliveries (id, lane, kind, target, body, state, created)"
        " VALUES (?, 'paper:main:1', 'reply', ?, ?, 'waiting', 1)",
        (id, encode(target()), encode(body)),
    )


def enters(store: sqlite3.Connection, seq: int, event: JournalEvent) -> None:
    store.execute(
        "INSERT INTO journal (run, seq, kind, event, at) VALUES ('run_1', ?, 'event', ?, 1)", (seq, encode(event))
    )


async def test_a_run_that_ends_with_its_connection_is_still_known_for_one(tmp_path: Path) -> None:
    quoting = '{"attended":true}'
    with store_of_version(tmp_path / "tidings.db", BEFORE_COLUMNS) as old:
        waits(old, "run_1", replace(inbound("hi"), attended=True))
        waits(old, "run_2", inbound(quoting))
    store = await upgraded(tmp_path / "tidings.db")
    assert await store.read(inbox.waiting_attended) == ["run_1"]
    await store.close()


async def test_files_that_an_open_delivery_needs_are_still_kept(tmp_path: Path) -> None:
    with store_of_version(tmp_path / "tidings.db", BEFORE_COLUMNS) as old:
        owes(old, "dlv_1", Body(text="see", files=(File(path="/tmp/report.pdf", name="report.pdf"),)))
        owes(old, "dlv_2", Body(text='"files":[{"path":"/tmp/other.pdf"}]'))
    store = await upgraded(tmp_path / "tidings.db")
    assert (await store.read(old_files.kept)).files == {"/tmp/report.pdf"}
    await store.close()


async def test_what_was_said_before_a_restart_still_counts_for_nothing(tmp_path: Path) -> None:
    with store_of_version(tmp_path / "tidings.db", BEFORE_COLUMNS) as old:
        enters(old, 1, TextDelta("once"))
        enters(old, 2, Restarted(2))
        enters(old, 3, TextDelta('{"type":"restarted"}'))
    store = await upgraded(tmp_path / "tidings.db")
    assert await store.read(lambda tx: journal.void(tx, "run_1")) == 2
    await store.close()


async def test_a_worker_that_an_earlier_version_left_running_is_still_recognised(tmp_path: Path) -> None:
    worker = await asyncio.create_subprocess_exec("sleep", "60")
    try:
        birth = identity.born(worker.pid)
        with store_of_version(tmp_path / "tidings.db", BEFORE_COLUMNS) as old:
            old.execute("INSERT INTO epoch (only, boot, clock_offset, latest) VALUES (1, ?, 0, 1)", (clock.boot_id(),))
            for card, ended, ending in ((1, None, None), (2, 2, "retry")):
                old.execute(
                    "INSERT INTO card_attempts (card, number, fence, pid, born, started, ended, ending)"
                    " VALUES (?, 1, 1, ?, ?, 1, ?, ?)",
                    (card, worker.pid, birth.rpartition("/")[2], ended, ending),
                )
        store = await upgraded(tmp_path / "tidings.db")
        rows = await store.read(lambda tx: tx.all("SELECT born FROM card_attempts WHERE ended IS NULL"))
        assert [row["born"] for row in rows] == [birth]
        await store.close()
    finally:
        worker.kill()
        await worker.wait()

"""What nobody wants kept is gone when it is over: words, events and files, whatever becomes of the process."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.worlds.api import ApiWorld
from tests.worlds.builders import body, conversation, store_of_version, target
from tests.worlds.world import Echo, Gate, OwnedClock, Scripted, World, handed
from tidings.core import context
from tidings.core.agent import Checkpoint, Effect, ToolFinished, ToolStarted, Turn
from tidings.core.memory import preferences
from tidings.core.operations import erasure
from tidings.core.roles import OWNER
from tidings.core.store.connection import connect
from tidings.core.store.sqlite import DATABASE
from tidings.core.types import Author, Conversation, Entry, Given, encode

WORD = "aubergine"
FORGETTING = "you said: " + WORD


def tables_with(world: World, word: str) -> list[str]:
    """Every column that holds the word."""
    tables = [row["name"] for row in world.rows("SELECT name FROM sqlite_master WHERE type = 'table'")]
    found = set()
    for table in tables:
        for row in world.rows(f"SELECT * FROM {table}"):
            found |= {f"{table}.{column}" for column in row.keys() if word in _text(row[column])}  # noqa: SIM118
    return sorted(found)


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def files_below(home: Path, word: str) -> list[Path]:
    return [path for path in home.rglob("*") if path.is_file() and path.suffix == ".txt" and word in path.read_text()]


def told(turn: Turn) -> str:
    """Says the word, uses it in a tool, writes it to a file, and remembers it."""
    folder = context.current().workspace
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "notes.txt").write_text(WORD)
    return f"I say {WORD}. "


LOUD = Scripted(
    told,
    ToolStarted("one", "look", WORD, Effect.PURE),
    ToolFinished("one", WORD),
    Checkpoint(WORD.encode()),
)


def dug(turn: Turn) -> str:
    """Leaves folders behind as a command can: one that is closed, and more inside each other than Python follows."""
    folder = context.current().workspace
    (folder / "closed").mkdir(parents=True)
    (folder / "closed" / "notes.txt").write_text(WORD)
    (folder / "closed").chmod(0)
    here = os.open(folder, os.O_RDONLY)
    for _ in range(1100):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    return "Done. "


async def test_folders_that_resist_are_removed_too(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Scripted(dug)) as api:
        try:
            answer = await api.http.post("/v1/responses", json={"input": WORD, "store": False})
            assert answer.status_code == 200
            await api.eventually(lambda: not tables_with(api, WORD))
            await api.eventually(lambda: not list((api.home / "workspaces").iterdir()))
        finally:
            # What cleans up after the tests would not get to their bottom either.
            await asyncio.to_thread(subprocess.run, ["rm", "-rf", str(api.home / "workspaces")], check=True)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_response_that_is_not_to_be_stored_leaves_nothing_behind(tmp_path: Path, stream: bool) -> None:
    async with ApiWorld(tmp_path, LOUD) as api:
        asked = {"input": [{"role": "user", "content": WORD}, {"role": "user", "content": "hi"}], "store": False}
        answer = await api.http.post("/v1/responses", json={**asked, "stream": stream})
        assert answer.status_code == 200
        assert f"I say {WORD}. " in answer.text
        await api.eventually(lambda: not tables_with(api, WORD))
        assert files_below(api.home, WORD) == []
        assert api.rows("SELECT * FROM listing") == [], "a talk without words is not listed"
        assert api.rows("SELECT * FROM notebook WHERE name LIKE 'forgotten/%'") == []


async def test_a_response_that_is_deleted_leaves_nothing_behind_and_the_talk_goes_on(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Echo()) as api:
        ids = []
        for words in ("first", WORD, "third"):
            asked = {"input": words, "conversation": "plans"}
            ids.append((await api.http.post("/v1/responses", json=asked)).json()["id"])
        deleted = await api.http.delete(f"/v1/responses/{ids[1]}")
        assert deleted.json() == {"id": ids[1], "object": "response", "deleted": True}
        assert tables_with(api, WORD) == []
        assert (await api.http.get(f"/v1/responses/{ids[1]}")).status_code == 404
        run = ids[1].replace("resp_", "run_")
        assert (await api.http.get(f"/v1/runs/{run}")).status_code == 404
        assert (await api.http.get(f"/v1/responses/{ids[2]}")).status_code == 200
        said = [row["text"] for row in api.rows("SELECT text FROM history ORDER BY seq")]
        assert said == ["first", "you said: first", "third", "you said: third"]


async def test_a_response_that_is_deleted_while_it_grows_is_hidden_at_once_and_goes_later(tmp_path: Path) -> None:
    gate = Gate()
    async with ApiWorld(tmp_path, Scripted(f"I say {WORD}. ", gate, "I end.")) as api:
        asking = asyncio.create_task(api.http.post("/v1/responses", json={"input": WORD}))
        await gate.reached()
        at = f"/v1/responses/resp_{api.runs()[0]['run'].removeprefix('run_')}"
        assert (await api.http.delete(at)).status_code == 200
        assert (await api.http.get(at)).status_code == 404
        gate.open()
        assert (await asking).json()["status"] == "completed", "whoever asked is still answered"
        assert [row["forget"] for row in api.rows("SELECT forget FROM inbox")] == [1]


async def test_a_request_that_comes_again_after_it_was_forgotten_runs_no_second_time(tmp_path: Path) -> None:
    agent = Echo()
    async with ApiWorld(tmp_path, agent) as api:
        asked: dict[str, Any] = {"json": {"input": "hi", "store": False}, "headers": {"Idempotency-Key": "k1"}}
        assert (await api.http.post("/v1/responses", **asked)).status_code == 200
        again = await api.http.post("/v1/responses", **asked)
        assert (again.status_code, again.json()["error"]["code"]) == (404, "response_not_found")
        assert "ask again with another Idempotency-Key" in again.json()["error"]["message"]
        assert agent.heard == ["hi"]


async def test_two_who_ask_for_the_same_unstored_response_are_both_answered(tmp_path: Path) -> None:
    gate = Gate()
    async with ApiWorld(tmp_path, Scripted("I begin. ", gate, "I end.")) as api:
        asked: dict[str, Any] = {"json": {"input": "hi", "store": False}, "headers": {"Idempotency-Key": "k1"}}
        first = asyncio.create_task(api.http.post("/v1/responses", **asked))
        await gate.reached()
        second = asyncio.create_task(api.http.post("/v1/responses", **asked))
        run = api.runs()[0]["run"]
        await api.eventually(lambda: len(api.gateway._parts.feed._readers.get(run, ())) == 2)
        gate.open()
        for answer in (await first, await second):
            assert (answer.status_code, answer.json()["status"]) == (200, "completed")


# The same at the store, by an owned clock.

LONG = 2 * erasure.PATIENCE_SECONDS


async def test_what_shall_be_forgotten_goes_although_the_process_was_killed(tmp_path: Path, clock: OwnedClock) -> None:
    gate = Gate()
    async with World(tmp_path, Echo({WORD: gate}), clock=clock) as world:
        brought = Given(history=(Entry(author=Author.PERSON, text=WORD),))
        await world.receive(handed(WORD, given=brought, forget=True))
        await gate.reached()
        await world.crash()
        assert "inbox.message" in tables_with(world, WORD)
        gate.open()
        await world.start()
        await world.until(lambda: world.posts == [FORGETTING])
        await clock.advance(LONG)
        assert tables_with(world, WORD) == []


async def test_what_shall_be_forgotten_stays_until_its_answer_has_arrived(tmp_path: Path, clock: OwnedClock) -> None:
    async with World(tmp_path, Echo(), clock=clock) as world:
        world.paper.fail_next(401, method="post")
        await world.receive(handed(WORD, forget=True))
        await world.until(lambda: bool(world.rows("SELECT 1 FROM deliveries WHERE state = 'held'")))
        await clock.advance(LONG)
        assert "deliveries.body" in tables_with(world, WORD)
        await world.gateway._reported.reachable("paper", "main")
        await world.gateway._parts.courier.try_again("paper", "main")
        await world.until(lambda: world.posts == [FORGETTING])
        await clock.advance(LONG)
        assert tables_with(world, WORD) == []


async def test_who_is_still_reading_reads_to_the_end(tmp_path: Path, clock: OwnedClock) -> None:
    agent = Scripted(*(f"{WORD} {number} " for number in range(5)))
    async with World(tmp_path, agent, clock=clock) as world:
        await world.receive(handed("hi"))
        await world.until(lambda: len(world.posts) == 1)
        run = world.runs()[0]["run"]
        reading = world.gateway.desk.follow(run)
        first = await anext(reading)
        await world.gateway.desk.forget(run)
        await clock.advance(LONG)
        rest = [entry async for entry in reading]
        assert [first.seq, *(entry.seq for entry in rest)] == list(range(1, 2 + len(rest)))
        await clock.advance(LONG)
        assert tables_with(world, WORD) == []


async def test_what_a_bot_remembers_of_it_goes_too_and_what_came_before_and_after_stays(
    tmp_path: Path, clock: OwnedClock
) -> None:
    def remember(turn: Turn) -> Checkpoint:
        return Checkpoint((turn.checkpoint or b"") + f"|{turn.message.text}".encode())

    async with World(tmp_path, Scripted("ok", remember), clock=clock) as world:
        for number, text in enumerate(("before", WORD, "after"), start=1):
            await world.receive(handed(text))
            await world.until(lambda wanted=number: len(world.posts) == wanted)  # type: ignore[misc]
        await world.settled()
        assert "conversations.checkpoint" in tables_with(world, WORD)
        await world.gateway.desk.forget(world.rows("SELECT run FROM inbox ORDER BY seq")[1]["run"])
        assert tables_with(world, WORD) == []
        (memory,) = world.rows("SELECT checkpoint FROM conversations WHERE id = ?", conversation().id)
        assert memory["checkpoint"] == b"|before"
        said = [row["text"] for row in world.rows("SELECT text FROM history WHERE author = 'person' ORDER BY seq")]
        assert said == ["before", "after"], "what came after it is told by the history"


async def test_what_it_has_handed_on_goes_with_it_and_it_waits_for_that_to_end(
    tmp_path: Path, clock: OwnedClock
) -> None:
    async with World(tmp_path, Echo(), clock=clock) as world:
        await world.receive(handed("hi"))
        await world.receive(handed(WORD, conversation=Conversation(adapter="task", account="main", chat="task_1")))
        await world.until(lambda: len(world.posts) == 2)
        run, work = (row["run"] for row in world.rows("SELECT run FROM inbox ORDER BY seq"))
        put = (
            "INSERT INTO tasks (id, kind, argument, state, run, work, owner, bot, conversation, sender, target, due,"
            " created) VALUES ('task_1', 'delegate', ?, 'running', ?, ?, ?, 'bot', '', '', '', 0, 0)"
        )
        store = world.gateway._store
        await store.write(lambda tx: tx.execute(put, WORD, run, work, conversation().id))
        await world.settled()
        await world.gateway.desk.forget(run)
        assert "tasks.argument" in tables_with(world, WORD)
        await store.write(lambda tx: tx.execute("UPDATE tasks SET state = 'succeeded', ended = 1"))
        await world.gateway.desk.forget(run)
        assert tables_with(world, WORD) == []


class Careless(sqlite3.Connection):
    """As SQLite is built in many places: what is deleted stays on its page until another needs the room."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.execute("PRAGMA secure_delete = OFF")


def test_what_is_deleted_is_overwritten_however_sqlite_was_built(tmp_path: Path) -> None:
    with closing(connect(tmp_path / DATABASE, factory=Careless)) as store:
        for text in (WORD, "kept"):
            store.execute("INSERT INTO notebook VALUES ('api', 'main', ?, ?)", (text, text * 3000))
        store.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        store.execute("DELETE FROM notebook WHERE name = ?", (WORD,))
        store.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        assert not [path for path in tmp_path.iterdir() if WORD.encode() in path.read_bytes()]


async def test_it_also_waits_for_what_its_delegate_has_begun_and_left_running(
    tmp_path: Path, clock: OwnedClock
) -> None:
    """Its row is all by which a process can be found and ended."""
    async with World(tmp_path, Echo(), clock=clock) as world:
        below = Conversation(adapter="task", account="main", chat="task_1")
        await world.receive(handed("hi"))
        await world.receive(handed(WORD, conversation=below))
        await world.until(lambda: len(world.posts) == 2)
        run, work = (row["run"] for row in world.rows("SELECT run FROM inbox ORDER BY seq"))
        put = (
            "INSERT INTO tasks (id, kind, argument, state, run, work, owner, ended, bot, conversation, sender, target,"
            " due, created) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'bot', '', '', '', 0, 0)"
        )
        delegate = ("task_1", "delegate", WORD, "succeeded", run, work, conversation().id, 1.0)
        process = ("task_2", "process", WORD, "running", work, "", below.id, None)
        store = world.gateway._store
        for row in (delegate, process):
            await store.write(lambda tx, row=row: tx.execute(put, *row))  # type: ignore[misc]
        await world.settled()
        await world.gateway.desk.forget(run)
        assert [row["id"] for row in world.rows("SELECT id FROM tasks ORDER BY id")] == ["task_1", "task_2"]
        await store.write(lambda tx: tx.execute("UPDATE tasks SET state = 'succeeded', ended = 1"))
        await world.gateway.desk.forget(run)
        assert tables_with(world, WORD) == []


async def test_what_an_earlier_version_only_hid_is_erased(tmp_path: Path, clock: OwnedClock) -> None:
    with store_of_version(tmp_path / DATABASE, 7) as store:
        for text in (WORD, "kept"):
            store.execute(
                "INSERT INTO inbox (run, adapter, account, key, kind, conversation, state, message, accepted, ready,"
                " outcome, ended) VALUES (?, 'paper', 'main', ?, 'message', ?, 'done', ?, 0, 0, 'completed', 0)",
                (f"run_{text}", text, conversation().id, encode(handed(text))),
            )
            store.execute(
                "INSERT INTO history (conversation, generation, author, text, run, at)"
                " VALUES (?, 1, 'person', ?, ?, 0)",
                (conversation().id, text, f"run_{text}"),
            )
        store.execute("INSERT INTO notebook VALUES ('api', 'main', 'forgotten/run_aubergine', 'yes')")
    async with World(tmp_path, Echo(), clock=clock) as world:
        # Those rows are only what this is about: no journal, no delivery.
        world.skip |= {"I3", "I4", "I10"}
        await clock.advance(LONG)
        assert [row["text"] for row in world.rows("SELECT text FROM history")] == ["kept"]
        assert WORD not in world.rows("SELECT message FROM inbox WHERE reason = 'forgotten'")[0]["message"].decode()
        assert world.rows("SELECT 1 FROM notebook WHERE name LIKE 'forgotten/%'") == []


# A whole person.


async def said(world: World, text: str, **where: Any) -> None:
    before = len(world.posts)
    world.paper.says(text, **where)
    await world.until(lambda: len(world.posts) > before)


async def noting(turn: Turn) -> str:
    """Notes what the person says, writes it to a file, and repeats it."""
    await turn.desk.remember(turn.message.text)
    folder = context.current().workspace
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "notes.txt").write_text(turn.message.text)
    return f"I heard {turn.message.text}"


def keeps(turn: Turn) -> Checkpoint:
    return Checkpoint(turn.message.text.encode())


async def test_a_forgotten_person_leaves_no_word_behind_and_everybody_else_keeps_theirs(
    tmp_path: Path, clock: OwnedClock
) -> None:
    gate = Gate()
    agent = Scripted(noting, keeps, lambda turn: gate if turn.message.text == "wait" else None)
    people = ["paper:7", "paper:8"]
    async with World(tmp_path, agent, allow=[], clock=clock) as world:
        # Their keys are confirmed, and their answers are forgotten.
        world.skip |= {"I1", "I3", "I4", "I10"}
        for identity in people:
            await world.admit(identity)
        await said(world, "kept", chat="8", sender="8")
        for text in (WORD, f"/sessions {WORD}", f"/every 1h {WORD}", "/new", f"more {WORD}", f"/continue {WORD} here"):
            await said(world, text)
        store = world.gateway._store
        await store.write(lambda tx: preferences.choose(tx, conversation().id, "persona", WORD))
        edited = world.paper.says("/help")
        await world.paper.until(lambda paper: edited in paper.confirmed)
        await world.settled()
        change = world.paper.edits(edited, WORD)
        await world.until(lambda: change in world.paper.confirmed)
        for text in ("wait", f"then {WORD}"):
            world.paper.says(text)
        await gate.reached()
        await world.until(lambda: world.rows("SELECT 1 FROM inbox WHERE state = 'waiting'"))
        found = tables_with(world, WORD)
        assert {"talks.title", "notes.text", "history.text", "preferences.value", "schedules.plan"} <= set(found), found
        assert await world.gateway.desk.people.forget(OWNER, "paper:7") == 4
        gate.open()
        await world.until(lambda: not world.runs() or all(row["state"] == "done" for row in world.runs()))
        for _ in range(4):
            await clock.advance(LONG)
        assert tables_with(world, WORD) == []
        assert [path.parent.name for path in files_below(world.home, "")] == ["paper%3Amain%3A8"]
        assert world.rows("SELECT 1 FROM conversations WHERE id = ?", conversation().id) == []
        assert [row["owner"] for row in world.rows("SELECT owner FROM talks")] == ["paper:8"]
        await world.end()
        with closing(sqlite3.connect(world.home / DATABASE, isolation_level=None)) as closed:
            closed.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        assert WORD.encode() not in (world.home / DATABASE).read_bytes()
        await world.start()


async def test_forgetting_goes_on_after_a_kill(tmp_path: Path, clock: OwnedClock) -> None:
    async with World(tmp_path, LOUD, allow=[], clock=clock) as world:
        world.skip |= {"I1", "I3", "I4", "I10"}
        await world.admit("paper:7")
        await said(world, WORD)
        await world.settled()
        assert await world.gateway.desk.people.forget(OWNER, "paper:7") == 1
        await world.crash()
        await world.start()
        for _ in range(3):
            await clock.advance(LONG)
        assert tables_with(world, WORD) == []
        assert files_below(world.home, WORD) == []


async def test_a_person_in_the_settings_who_is_forgotten_begins_anew(tmp_path: Path, clock: OwnedClock) -> None:
    gate = Gate()
    agent = Scripted(
        lambda turn: gate if turn.message.text == "wait" else None, lambda turn: f"you said: {turn.message.text}"
    )
    async with World(tmp_path, agent, clock=clock) as world:
        world.skip |= {"I1", "I3", "I4", "I10"}
        await said(world, WORD)
        for text in ("wait", f"then {WORD}"):
            world.paper.says(text)
        await gate.reached()
        await world.until(lambda: world.rows("SELECT 1 FROM inbox WHERE state = 'waiting'"))
        store = world.gateway._store
        await store.write(lambda tx: preferences.choose(tx, conversation().id, "persona", WORD))
        await world.gateway.desk.people.forget(OWNER, "paper:7")
        await said(world, "after")
        await world.settled()
        assert [turn.message.text for turn in agent.turns] == [WORD, "wait", "after"], "what waited is not answered"
        assert agent.turns[-1].history == (), "nothing of it is remembered, although it is not erased yet"
        for _ in range(3):
            await clock.advance(LONG)
        assert tables_with(world, WORD) == []
        assert [row["text"] for row in world.rows("SELECT text FROM history")] == ["after", "you said: after"]
        assert [row["title"] for row in world.rows("SELECT title FROM talks")] == ["after"]


async def test_commands_and_notices_are_forgotten_too_also_where_nothing_else_was_said(
    tmp_path: Path, clock: OwnedClock
) -> None:
    async with World(tmp_path, Echo(), allow=["paper:7", "paper:8"], clock=clock) as world:
        world.skip |= {"I1", "I3", "I4", "I10"}
        await said(world, f"/sessions {WORD}")
        await said(world, "/help", chat="8", sender="8")
        await world.gateway.desk.owe(target("1"), body(f"remember: {WORD}"), "test")
        await world.until(lambda: len(world.posts) == 3)
        await world.settled()
        await world.gateway.desk.people.forget(OWNER, "paper:7")
        for _ in range(3):
            await clock.advance(LONG)
        assert tables_with(world, WORD) == []
        assert [row["owner"] for row in world.rows("SELECT owner FROM talks")] == ["paper:8"]


async def test_what_a_person_commanded_in_a_chat_where_they_went_on_is_forgotten_too(
    tmp_path: Path, clock: OwnedClock
) -> None:
    async with World(tmp_path, Echo(), clock=clock) as world:
        world.skip |= {"I1", "I3", "I4", "I10"}
        await said(world, WORD)
        for text in (f"/continue {WORD}", f"/sessions {WORD}", "/continue back", "/help"):
            await said(world, text, chat="2")
        await world.settled()
        await world.gateway.desk.people.forget(OWNER, "paper:7")
        for _ in range(3):
            await clock.advance(LONG)
        assert tables_with(world, WORD) == []

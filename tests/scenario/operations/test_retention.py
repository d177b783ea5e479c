"""What is over goes after a while, by itself and when asked; what is open, owed or may be taken back stays."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace
from pydantic import ValidationError
from typer.testing import CliRunner

from tests.bench import year
from tests.worlds.board import NOBODY, Verdict, added
from tests.worlds.builders import body, target
from tests.worlds.fakes import FakeClock
from tests.worlds.world import Echo, Gate, OwnedClock, World, handed
from tidings.adapters.local.socket import LocalServer, call
from tidings.adapters.local.verbs import routes_for
from tidings.bots.cli.app import app
from tidings.bots.main import place
from tidings.core.desk.board import Block, CardState, NewCard
from tidings.core.desk.deliveries import Pruned
from tidings.core.errors import Conflict
from tidings.core.gateway.gateway import SWEEP_SECONDS
from tidings.core.inbound.door import MAY_BE_LOST
from tidings.core.operations import offline, retention
from tidings.core.operations.old_files import Kept
from tidings.core.outbound import outbox
from tidings.core.outbound.outbox import Class, Owed
from tidings.core.settings import Access, Core, Retention
from tidings.core.store.pruning import LOOKED_AT
from tidings.core.store.sqlite import DATABASE, open_store
from tidings.core.types import Author, Body, Conversation, Entry, File, Given

DAY = retention.DAY_SECONDS
MONTH = 31 * DAY
NOTHING = Pruned()


@pytest.fixture
async def world(tmp_path: Path, clock: OwnedClock) -> AsyncIterator[World]:
    async with World(tmp_path, Echo(), clock=clock) as world:
        # A journal that was cut short begins later.
        world.skip.add("I10")
        # Keys that are gone were confirmed once, and finals of old runs were delivered.
        world.skip |= {"I1", "I4"}
        yield world


async def talk(world: World, *texts: str, chat: str = "1") -> None:
    before = len(world.posts)
    for number, text in enumerate(texts, start=before + 1):
        world.paper.says(text, chat=chat)
        await world.until(lambda wanted=number: len(world.posts) == wanted)  # type: ignore[misc]


async def pass_by(world: World, clock: OwnedClock, seconds: float) -> None:
    """Time in which no gateway ran."""
    await world.settled()
    await world.end()
    await clock.advance(seconds)
    await world.start()


def count(world: World, table: str, where: str = "1") -> int:
    return int(world.rows(f"SELECT count(*) AS n FROM {table} WHERE {where}")[0]["n"])


async def prune(world: World, *, days: float | None = None, rehearsal: bool = False) -> Pruned:
    seconds = None if days is None else days * DAY
    return await world.gateway.desk.upkeep.prune(seconds, rehearsal=rehearsal)


async def test_old_runs_go_with_their_journals_and_deliveries_and_the_last_ten_of_a_conversation_stay(
    world: World, clock: OwnedClock
) -> None:
    await talk(world, *(f"{number}" for number in range(14)))
    await pass_by(world, clock, MONTH)
    await talk(world, "new")
    rehearsed = await prune(world, rehearsal=True)
    assert count(world, "inbox") == 15, "a rehearsal changes nothing"
    pruned = await prune(world)
    assert replace(pruned, spare_bytes=0) == rehearsed
    assert (pruned.runs, pruned.deliveries) == (5, 14)
    assert [row["key"] for row in world.rows("SELECT message ->> 'text' AS key FROM inbox ORDER BY seq")] == [
        *(f"{number}" for number in range(5, 14)),
        "new",
    ]
    assert count(world, "history", "author = 'person'") == 15, "what was said is kept for ever unless the owner says so"
    (line,) = await world.gateway.desk.conversations("", "", 10, 0)
    assert line.messages == 15, "what has gone is still counted"
    assert await prune(world) == Pruned(spare_bytes=pruned.spare_bytes)


async def test_how_an_old_run_ended_can_be_asked_as_long_as_the_run_is_there(world: World, clock: OwnedClock) -> None:
    await talk(world, "hi")
    run = world.runs()[0]["run"]
    await pass_by(world, clock, MONTH)
    assert (await prune(world)).events == 1
    entries = [entry async for entry in world.gateway.desk.follow(run)]
    assert len(entries) == 1
    outcome = (await world.gateway.desk.run(run)).outcome
    assert outcome is not None
    assert outcome.text == "you said: hi"


async def test_what_is_younger_than_the_settings_say_stays(world: World, clock: OwnedClock) -> None:
    await talk(world, *(f"{number}" for number in range(12)))
    await pass_by(world, clock, 29 * DAY)
    assert await prune(world) == NOTHING
    assert (await prune(world, days=20)).runs == 2


async def test_nothing_goes_that_a_platform_may_tell_again_however_little_is_asked_for(
    world: World, clock: OwnedClock
) -> None:
    await talk(world, *(f"{number}" for number in range(12)))
    await pass_by(world, clock, 2 * DAY)
    assert await prune(world, days=0.01) == NOTHING
    with pytest.raises(ValidationError, match="at least 3"):
        Retention(runs_days=1)


async def test_an_exchange_that_was_kept_can_still_be_taken_back(world: World, clock: OwnedClock) -> None:
    await talk(world, *(f"{number}" for number in range(12)))
    await pass_by(world, clock, MONTH)
    await prune(world)
    world.paper.commands("undo")
    await world.until(lambda: "Undone" in world.posts[-1])
    assert "“11”" in world.posts[-1]
    assert count(world, "history", "undone = 1") == 2


async def test_open_runs_and_what_we_owe_stay_however_old_they_are(tmp_path: Path, clock: OwnedClock) -> None:
    gate = Gate()
    async with World(tmp_path, Echo({"slow": gate}), clock=clock, limits={"run_seconds": 1e9}) as world:
        world.skip |= {"I1", "I4", "I10"}
        world.paper.open_chat("2")
        world.paper.says("slow")
        world.paper.says("behind it")
        await gate.reached()
        world.paper.fail_next(401, method="post")
        held = await world.gateway.desk.owe(target("2"), body("held"), "test")
        await world.until(lambda: world.rows("SELECT 1 FROM deliveries WHERE state = 'held'"))
        aged(world, 400 * DAY)
        # The page of a table that an upgrade has replaced is to spare in every new store.
        assert replace(await prune(world), spare_bytes=0) == NOTHING
        assert count(world, "inbox", "state IN ('waiting', 'running')") == 2
        await world.gateway.desk.upkeep.retry(held)
        gate.open()
        await world.until(lambda: len(world.posts) == 3)
        assert sorted(world.posts) == ["held", "you said: behind it", "you said: slow"]


def aged(world: World, seconds: float) -> None:
    """As if everything had been so long ago."""
    with closing(sqlite3.connect(world.home / DATABASE, isolation_level=None)) as store:
        store.execute("UPDATE inbox SET accepted = accepted - ?, ended = ended - ?", (seconds, seconds))
        store.execute("UPDATE deliveries SET created = created - ?, closed = closed - ?", (seconds, seconds))
        store.execute("UPDATE history SET at = at - ?", (seconds,))


async def test_a_loss_that_a_chat_has_not_been_told_of_is_told_of_later(world: World, clock: OwnedClock) -> None:
    world.paper.block("1")
    for _ in range(3):
        await world.gateway.desk.owe(target(), body("hello"), "test")
    await world.until(lambda: count(world, "deliveries", "state = 'dead'") == 3)
    world.paper.block("1", on=False)
    await pass_by(world, clock, MONTH)
    assert (await prune(world)).deliveries == 2, "one stands for all"
    world.paper.says("hi")
    await world.until(lambda: len(world.posts) == 2)
    assert world.posts[0] == MAY_BE_LOST
    await pass_by(world, clock, MONTH)
    assert (await prune(world)).deliveries == 3


async def test_files_that_people_sent_go_unless_somebody_waits_for_them(world: World, clock: OwnedClock) -> None:
    folder = world.home / "attachments" / "paper@main"
    folder.mkdir(parents=True)
    files = {name: folder / name for name in ("old.pdf", "owed.pdf", "new.pdf")}
    for name, path in files.items():
        path.write_bytes(b"12345")
        at = clock.wall() - (0 if name == "new.pdf" else MONTH)
        os.utime(path, (at, at))
    world.paper.fail_next(401, method="post")
    owed = Body(text="here", files=(File(path=str(files["owed.pdf"]), name="owed.pdf"),))
    await world.gateway.desk.owe(target(), owed, "test")
    await world.until(lambda: world.rows("SELECT 1 FROM deliveries WHERE state = 'held'"))
    pruned = await prune(world)
    assert (pruned.files, pruned.bytes) == (1, 5)
    assert sorted(path.name for path in folder.iterdir()) == ["new.pdf", "owed.pdf"]


def test_a_file_that_is_owed_stays_however_its_home_is_spelt(tmp_path: Path) -> None:
    (tmp_path / "home" / "attachments").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "home")
    for name in ("old.pdf", "owed.pdf"):
        (tmp_path / "home" / "attachments" / name).write_bytes(b"12345")
        os.utime(tmp_path / "home" / "attachments" / name, (0, 0))
    owed = Kept(frozenset({str(tmp_path / "link" / "attachments" / "owed.pdf")}), frozenset())
    month = retention.terms(Retention(), FakeClock())
    assert retention.remove_files(tmp_path / "home", owed, month).files == 1
    assert [path.name for path in (tmp_path / "home" / "attachments").iterdir()] == ["owed.pdf"]


async def test_the_folder_of_a_file_that_was_handed_over_goes_with_it(world: World, clock: OwnedClock) -> None:
    (world.home / "plan.txt").write_text("plan")
    old, new = [Path((await world.gateway.desk.adopt(str(world.home / "plan.txt"))).path) for _ in range(2)]
    at = clock.wall()
    os.utime(new, (at, at))
    os.utime(old, (at - MONTH, at - MONTH))
    assert (await prune(world, rehearsal=True)).files == 1
    assert old.exists()
    assert (await prune(world)).files == 1
    assert list((world.home / "attachments" / "outgoing").iterdir()) == [new.parent]


async def test_the_gateway_prunes_by_itself_once_a_day_in_small_slices(world: World, clock: OwnedClock) -> None:
    await talk(world, *(f"{number}" for number in range(12)))
    await pass_by(world, clock, MONTH)
    await clock.advance(SWEEP_SECONDS + 1)
    assert count(world, "inbox") == 10
    assert count(world, "deliveries") == 0


async def test_the_next_walk_begins_a_day_after_the_last_has_ended(tmp_path: Path) -> None:
    clock, store = FakeClock(), await open_store(tmp_path / DATABASE)
    walk = retention.Retention(store, clock, Retention(), tmp_path)

    async def left() -> int:
        await walk.sweep()
        return len(await store.read(lambda tx: tx.all("SELECT 1 FROM deliveries")))

    assert await left() == 0
    await store.write(lambda tx: outbox.put(tx, Owed("d", Class.REPLY, target(), body()), clock.now() - MONTH))
    await store.write(lambda tx: tx.execute("UPDATE deliveries SET state = 'delivered', closed = created"))
    await clock.advance(DAY - 1)
    assert await left() == 1
    await clock.advance(2)
    assert await left() == 0
    await store.close()


async def test_a_walk_goes_on_where_the_last_slice_ended(tmp_path: Path) -> None:
    """More rows than one slice looks at, of which every third must stay."""
    with closing(connected(tmp_path)) as store:
        store.execute("BEGIN")
        store.executemany(
            "INSERT INTO inbox (run, adapter, account, key, kind, conversation, state, message, accepted, ready)"
            " VALUES (?1, 'a', 'main', ?1, 'commanded', ?1, ?2, '{}', 0, 0)",
            [(f"{number}", "closed" if number % 3 else "waiting") for number in range(3 * LOOKED_AT)],
        )
        store.execute("COMMIT")
    pruned = offline.prune(tmp_path, Retention(), None, rehearsal=False)
    assert pruned.runs == 2 * LOOKED_AT
    with closing(connected(tmp_path)) as store:
        assert store.execute("SELECT DISTINCT state FROM inbox").fetchall() == [("waiting",)]


def test_a_command_whose_output_can_still_be_read_stays(tmp_path: Path) -> None:
    with closing(connected(tmp_path)) as store:
        store.executemany(
            "INSERT INTO tasks (id, kind, argument, state, run, bot, conversation, sender, target, due, created, ended)"
            " VALUES (?, 'process', '', 'succeeded', '', '', '{}', '{}', '{}', 0, 0, 0)",
            [("kept",), ("old",)],
        )
        store.execute("INSERT INTO processes (task, patterns) VALUES ('kept', '[]')")
        store.commit()
    assert offline.prune(tmp_path, Retention(), None, rehearsal=False).tasks == 1
    with closing(connected(tmp_path)) as store:
        assert store.execute("SELECT id FROM tasks").fetchall() == [("kept",)]
        assert store.execute("SELECT task FROM processes").fetchall() == [("kept",)]


def connected(home: Path) -> sqlite3.Connection:
    if not (home / DATABASE).exists():
        with offline.open_people(home, Access()):
            pass
    return sqlite3.connect(home / DATABASE, isolation_level=None)


async def test_without_a_gateway_the_space_is_given_back_to_the_disk(world: World, clock: OwnedClock) -> None:
    await talk(world, *(f"{number}" for number in range(12)))
    await world.end()
    with closing(connected(world.home)) as store:
        store.execute("UPDATE journal SET event = zeroblob(100000) WHERE kind <> 'ended'")
        store.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    aged(world, 400 * DAY)
    before = (world.home / DATABASE).stat().st_size
    # The clock of the test is far from that of the machine, by which an offline walk goes.
    pruned = offline.prune(world.home, Retention(), None, rehearsal=False)
    assert pruned.runs == 2
    assert pruned.spare_bytes == 0
    assert (world.home / DATABASE).stat().st_size < before - 1_000_000
    with closing(connected(world.home)) as store:
        assert store.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def test_history_goes_only_where_the_owner_says_so_and_what_bots_remember_with_it(
    world: World, clock: OwnedClock
) -> None:
    await talk(world, "old")
    await world.end()
    with closing(sqlite3.connect(world.home / DATABASE, isolation_level=None)) as store:
        store.execute("UPDATE conversations SET checkpoint = 'all that was said'")
    aged(world, MONTH)
    await world.start()
    periods = Core(retention=Retention(history_days=10)).retention
    walk = retention.Retention(world.gateway._store, clock, periods, world.home)
    pruned = await walk.prune(None, rehearsal=False)
    assert (pruned.history, pruned.runs) == (2, 1)
    assert world.rows("SELECT checkpoint FROM conversations")[0]["checkpoint"] is None
    assert count(world, "history", "text <> '' OR conversation <> ''") == 0
    assert await world.gateway.desk.conversations("", "", 10, 0) == []
    assert await walk.prune(None, rehearsal=False) == NOTHING, "what stays for its number alone is not told every day"


async def test_who_reads_on_in_a_history_misses_nothing_when_all_before_it_was_pruned(
    world: World, clock: OwnedClock
) -> None:
    await talk(world, "one", "two")
    (conversation,) = {row["conversation"] for row in world.runs()}
    last = (await world.gateway.desk.history(conversation, limit=100, after=0))[-1]
    await world.end()
    aged(world, MONTH)
    await world.start()
    periods = Core(retention=Retention(history_days=10)).retention
    walk = retention.Retention(world.gateway._store, clock, periods, world.home)
    assert (await walk.prune(None, rehearsal=False)).history == 4
    await talk(world, "three")
    read = await world.gateway.desk.history(conversation, limit=100, after=last.seq)
    assert [line.entry.text for line in read] == ["three", "you said: three"]
    assert (await walk.prune(None, rehearsal=False)).history == 0
    assert count(world, "history") == 2


async def test_what_happened_to_a_card_that_is_over_goes_only_where_the_owner_says_so(
    tmp_path: Path, clock: OwnedClock
) -> None:
    async with World(tmp_path, Verdict("painted", Block.NEEDS_INPUT), clock=clock) as world:
        world.skip |= {"I1", "I4", "I10"}
        over, waits = [await added(world.gateway.desk.board, NewCard(title), NOBODY) for title in ("paint", "choose")]
        for card, state in ((over, CardState.DONE), (waits, CardState.BLOCKED)):
            await world.until(lambda card=card, state=state: state_of(world, card.id) == state)  # type: ignore[misc]
        before = {each.id: count(world, "card_events", f"card = {each.id}") for each in (over, waits)}
        assert min(before.values()) > 1
        await pass_by(world, clock, MONTH)
        assert (await prune(world, days=5)).cards == 0, "cards are kept for ever"
        periods = Core(retention=Retention(cards_days=10)).retention
        walk = retention.Retention(world.gateway._store, clock, periods, world.home)
        assert (await walk.prune(None, rehearsal=True)).cards == before[over.id] - 1
        assert (await walk.prune(None, rehearsal=False)).cards == before[over.id] - 1
        assert count(world, "card_events", f"card = {waits.id}") == before[waits.id]
        told = await world.gateway.desk.board.get(over.id)
        assert [each.what for each in told.happenings] == ["completed"], "how it ended stays"
        assert len(told.attempts) == 1


async def test_the_logs_of_workers_go_with_old_runs_but_never_those_of_an_open_card(
    tmp_path: Path, clock: OwnedClock
) -> None:
    async with World(tmp_path, Verdict("painted", Block.NEEDS_INPUT), clock=clock) as world:
        over, waits = [await added(world.gateway.desk.board, NewCard(title), NOBODY) for title in ("paint", "choose")]
        await world.until(lambda: state_of(world, waits.id) == CardState.BLOCKED)
        at = clock.wall()
        for place, age in {f"{over.id}/attempt-1": MONTH, f"{waits.id}/attempt-1": MONTH, "77/attempt-2": 0}.items():
            log = world.home / "board" / f"{place}.log"
            log.parent.mkdir(parents=True)
            log.write_text("words")
            os.utime(log, (at - age, at - age))
        assert (await prune(world, rehearsal=True)).files == 1
        assert (await prune(world)).files == 1
        assert sorted(path.name for path in (world.home / "board").iterdir()) == sorted([waits.id, "77"])


def state_of(world: World, card: str) -> str:
    return str(world.rows("SELECT state FROM cards WHERE id = ?", card)[0]["state"])


async def test_the_command_line_asks_the_gateway_and_says_what_went(world: World, clock: OwnedClock) -> None:
    await talk(world, *(f"{number}" for number in range(12)))
    await pass_by(world, clock, 20 * DAY)
    async with LocalServer() as server:
        with server.routes(routes_for(world.gateway.desk)):
            async with server.serving(world.home):
                tried = await call(world.home, {"verb": "prune", "older_than": 4 * DAY, "dry_run": True})
                said = await tidings(world.home, "--older-than", "10d")
    assert tried["pruned"]["runs"] == 2
    assert said.startswith("gone: 2 old messages")


async def test_a_small_year_answers_every_question_that_the_large_one_is_measured_by(tmp_path: Path) -> None:
    size = year.Size(conversations=120, rows=3000)
    await asyncio.to_thread(year.fill, tmp_path / DATABASE, size, 1)
    found = await year.measure(tmp_path, size, 1)
    assert {each.name for each in found} >= {"conversations, the newest", "status", "a slice of pruning"}


async def tidings(home: Path, *words: str) -> str:
    shown = await asyncio.to_thread(CliRunner().invoke, app, ["--home", str(home), "prune", *words], obj=place)
    return shown.output


@pytest.mark.parametrize(("age", "words"), [("1d", "too short"), ("soon", "no age"), ("30", "no age")])
async def test_an_age_that_is_none_or_too_short_is_refused(tmp_path: Path, age: str, words: str) -> None:
    assert words in await tidings(tmp_path, "--older-than", age)
    assert list(tmp_path.iterdir()) == []


async def test_nothing_is_pruned_while_the_clock_may_be_wrong(world: World, clock: OwnedClock) -> None:
    await talk(world, *(f"{number}" for number in range(12)))
    clock.confirmed = False
    await pass_by(world, clock, MONTH)
    await clock.advance(4 * SWEEP_SECONDS)
    assert count(world, "inbox") == 12
    with pytest.raises(Conflict, match="nothing can be pruned yet"):
        await prune(world)
    clock.confirmed = True
    await clock.advance(4 * SWEEP_SECONDS)
    assert count(world, "inbox") == 10


# What nobody comes back to.


@pytest.mark.parametrize(
    "place",
    [
        Conversation(adapter="paper", account="main", chat="1", thread="once-1f0c"),
        Conversation(adapter="paper", account="main", chat="1", thread="once-1f0c", member="ada"),
        Conversation(adapter="task", account="main", chat="task_1"),
        Conversation(adapter="schedule", account="main", chat="sch_1"),
        Conversation(adapter="card", account="main", chat="7"),
    ],
    ids=lambda place: place.id,
)
async def test_a_conversation_that_nobody_comes_back_to_goes_with_all_that_was_said_there(
    world: World, clock: OwnedClock, place: Conversation
) -> None:
    brought = Given(history=(Entry(author=Author.PERSON, text="a long talk before"),))
    for number in range(3):
        await world.receive(handed(f"once {number}", conversation=place, given=brought))
        await world.until(lambda wanted=number + 1: len(world.posts) == wanted)  # type: ignore[misc]
    await talk(world, "somewhere else")
    await pass_by(world, clock, MONTH)
    assert (await prune(world)).runs == 3
    for table in ("inbox", "listing", "conversations", "history"):
        column = "id" if table == "conversations" else "conversation"
        assert count(world, table, f"{column} = '{place.id}'") == 0, table
        assert count(world, table) > 0, "what goes on stays"


async def test_of_a_job_that_goes_on_only_what_is_young_stays(world: World, clock: OwnedClock) -> None:
    place = Conversation(adapter="schedule", account="main", chat="sch_1")
    await world.receive(handed("last month", conversation=place))
    await world.until(lambda: len(world.posts) == 1)
    await pass_by(world, clock, MONTH)
    await world.receive(handed("today", conversation=place))
    await world.until(lambda: len(world.posts) == 2)
    assert (await prune(world)).runs == 1
    said = [row["text"] for row in world.rows("SELECT text FROM history WHERE conversation = ?", place.id)]
    assert said == ["today", "you said: today"]


async def test_a_name_that_only_looks_as_if_it_were_used_once_keeps_its_last_ten(
    world: World, clock: OwnedClock
) -> None:
    place = Conversation(adapter="paper", account="main", chat="once-1")
    await world.receive(handed("hi", conversation=place))
    await world.until(lambda: len(world.posts) == 1)
    await pass_by(world, clock, MONTH)
    assert (await prune(world)).runs == 0

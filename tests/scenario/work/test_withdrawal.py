"""Admission withdrawn: whoever is taken off both lists is not answered, and what they planned no longer begins."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from tests.scenario.spine.test_access import speak
from tests.scenario.work.test_schedule_commands import say
from tests.worlds.board import Verdict, obeyed, process, until
from tests.worlds.world import Echo, Gate, OwnedClock, Scripted, World
from tidings.core.agent import Turn
from tidings.core.desk.board import CardState, Hand, Order
from tidings.core.desk.work import Goal, Manner, Plan
from tidings.core.errors import Unkeepable, Unknown
from tidings.core.store import migrate
from tidings.core.types import Conversation, Inbound, Sender, Target, encode
from tidings.core.work.tasks.tasks import TaskKind

OWNER = Hand("the owner")
HOME = Target(adapter="paper", chat="home")
# The migration since which it is kept for whom work is done.
ASKERS = 13
GONE = "paper:7 may no longer talk to the bot"


async def with_home(world: World) -> None:
    world.paper.open_chat("home")
    await world.set_home(HOME)


def told(world: World) -> list[str]:
    return world.paper.posts_in("home")


async def restart_without(world: World, id: str) -> None:
    await world.stop()
    world.allow.remove(id)
    await world.start()


# At once.


async def test_whoever_is_removed_is_a_stranger_at_once_and_after_a_restart(tmp_path: Path) -> None:
    echo = Echo()
    async with World(tmp_path, echo, allow=["paper:8"]) as world:
        await world.admit("paper:7")
        world.paper.says("hi")
        await world.paper.until(lambda paper: paper.posts == ["you said: hi"])
        await world.remove("paper:7")
        await speak(world, "still there?")
        await world.restart()
        await speak(world, "and now?")
        await world.settled()
        assert echo.heard == ["hi"]
        assert "I don't know you yet" in world.posts[1]
        with pytest.raises(Unknown, match="nobody is known as paper:7"):
            await world.remove("paper:7")


async def test_the_two_lists_stay_apart(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), allow=["paper:8"]) as world:
        stored, named = await world.admit("paper:7"), await world.admit("paper:8")
        assert [row["id"] for row in world.rows("SELECT id FROM identities")] == ["paper:7"], "8 is in the settings"
        assert (stored.stored, stored.in_settings, stored.by) == ("member", (), "owner")
        assert (named.stored, named.in_settings, named.by) == ("", ("paper:8",), "")
        with pytest.raises(Unkeepable, match="paper:8 is named in the settings; remove it there"):
            await world.remove("paper:8")
        await restart_without(world, "paper:8")
        await speak(world, "hi", sender="8")
        await world.settled()
        assert "I don't know you yet" in world.posts[0]


async def test_what_a_removed_person_has_running_and_waiting_is_ended_and_they_are_told(tmp_path: Path) -> None:
    gate = Gate()
    async with World(tmp_path, Scripted(gate, "hello"), allow=[]) as world:
        await world.admit("paper:7")
        first, second = world.paper.says("one"), world.paper.says("two")
        await gate.reached()
        await world.eventually(lambda: len(world.runs()) == 2)
        await world.remove("paper:7")
        for key in (first, second):
            assert (await world.outcome(key)).kind == "cancelled"
        await world.paper.until(lambda paper: len(paper.posts) == 2)
        assert world.posts[1] == f"Cancelled: {GONE}."


async def test_nothing_is_sent_by_itself_to_who_was_removed(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), allow=["paper:5"]) as world:
        desk, alone, group = world.gateway.desk, Target(adapter="paper", chat="1"), Target(adapter="paper", chat="5")
        await world.admit("paper:7")
        world.paper.says("hi")
        world.paper.says("hi", chat="5", private=False)
        await world.paper.until(lambda paper: len(paper.posts) == 2)
        assert (await desk.permitted(alone), await desk.permitted(group)) == (True, True)
        await world.remove("paper:7")
        assert (await desk.permitted(alone), await desk.permitted(group)) == (False, True)


# What was planned.


async def test_what_a_removed_person_scheduled_no_longer_runs_and_the_owner_is_told_once(tmp_path: Path) -> None:
    clock, echo = OwnedClock(), Echo()
    async with World(tmp_path, echo, allow=["paper:7", "paper:8"], clock=clock) as world:
        await with_home(world)
        assert "Planned" in await say(world, "/every 30m look")
        world.paper.says("/every 30m stay", chat="2", sender="8")
        await world.until(lambda: len(world.paper.posts_in("2")) == 1)
        await restart_without(world, "paper:7")
        await clock.advance(4 * 1800)
        await world.until(lambda: len(told(world)) == 1)
        await world.until(lambda: echo.heard.count("stay") >= 3)
        assert set(echo.heard) == {"stay"}
        assert len(told(world)) == 1
        assert told(world)[0] == f"“look” (schedule) did not run and is paused, because {GONE}."
        [known] = [each for each in await world.gateway.desk.schedules.all() if each.plan.name == "look"]
        assert (known.plan.paused, known.plan.paused_reason) == (True, GONE)
        assert known.last is not None
        assert (known.last.state, known.last.reason) == ("missed", GONE)
        with pytest.raises(Exception, match=GONE):
            await world.gateway.desk.schedules.fire(known.id)


async def test_whoever_is_admitted_by_their_group_may_be_removed_with_it(tmp_path: Path) -> None:
    clock, echo = OwnedClock(), Echo()
    access = {"requires": {"work": "guest"}}
    async with World(tmp_path, echo, allow=["paper:5"], access=access, clock=clock) as world:
        await with_home(world)
        world.paper.says("/at in 20m call mum", chat="5", private=False)
        await world.until(lambda: len(world.posts) == 1)
        await restart_without(world, "paper:5")
        await clock.advance(1800)
        await world.until(lambda: len(told(world)) == 1)
        assert echo.heard == []


async def test_a_background_task_of_a_removed_person_does_not_begin_and_the_owner_is_told_once(tmp_path: Path) -> None:
    clock, worked = OwnedClock(), list[str]()

    async def work(argument: str) -> str:
        worked.append(argument)
        return "done"

    async def promise(turn: Turn) -> None:
        await turn.desk.begin("report", "the figures", 600.0)

    kinds = [TaskKind("report", work, True)]
    async with World(tmp_path, Scripted(promise, "later"), kinds=kinds, clock=clock) as world:
        await with_home(world)
        world.paper.says("report")
        await world.until(lambda: len(world.posts) == 1)
        await restart_without(world, "paper:7")
        await clock.advance(1200)
        await world.until(lambda: len(told(world)) == 1)
        assert worked == []
        assert told(world)[0] == f"“the figures” (task) did not run, because {GONE}."
        [task] = await world.gateway.desk.tasks.all("", 10)
        assert (task.state, task.reason) == ("cancelled", GONE)


@pytest.mark.parametrize("assignee", ["bot", "shell"])
async def test_a_card_of_a_removed_person_is_not_begun_and_the_owner_is_told_once(
    tmp_path: Path, assignee: str
) -> None:
    clock, bot = OwnedClock(), Verdict("done")
    board = {"workers": {"shell": process("say(do='complete', summary='done')")}, "assignees": ["shell"]}
    async with World(tmp_path, bot, clock=clock, board=board) as world:
        await with_home(world)
        await say(world, f"/board add dig to={assignee} triage=yes")
        await restart_without(world, "paper:7")
        await obeyed(world.gateway.desk.board, Order("unblock", id="1"), OWNER)
        found = await until(world, "1", CardState.BLOCKED)
        assert (found.attempts, found.reason) == ((), GONE)
        await world.until(lambda: len(told(world)) == 1)
        assert told(world)[0] == f"“dig” (card #1) did not run, because {GONE}."
        assert bot.turns == []


async def test_a_card_that_is_worked_on_for_a_removed_person_is_taken_back(tmp_path: Path) -> None:
    board = {"workers": {"shell": process("time.sleep(600)")}, "assignees": ["shell"]}
    async with World(tmp_path, Verdict("done"), allow=[], board=board) as world:
        await with_home(world)
        await world.admit("paper:7")
        await say(world, "/board add dig to=shell")
        await until(world, "1", CardState.RUNNING)
        await world.remove("paper:7")
        assert (await until(world, "1", CardState.BLOCKED)).reason == GONE
        await world.paper.until(lambda paper: len(paper.posts_in("home")) == 1)


async def test_work_in_the_background_of_a_removed_person_is_ended_and_wakes_nobody(tmp_path: Path) -> None:
    gate, heard = Gate(), list[str]()

    async def hand_on(turn: Turn) -> None:
        heard.append(turn.message.text)
        if turn.message.errand is None:
            await turn.desk.tasks.delegate(Goal("dig", "dig", Manner.WAKE))
        else:
            await gate.wait()

    async with World(tmp_path, Scripted(hand_on, "so be it"), allow=[]) as world:
        await world.admit("paper:7")
        world.paper.says("have it dug")
        await gate.reached()
        await world.paper.until(lambda paper: len(paper.posts) == 1)
        await world.remove("paper:7")
        await world.settled()
        [task] = await world.gateway.desk.tasks.all("", 10)
        assert task.state == "cancelled"
        assert heard == ["have it dug", "dig"]


async def test_whoever_is_admitted_again_goes_on(tmp_path: Path) -> None:
    clock, echo = OwnedClock(), Echo()
    async with World(tmp_path, echo, allow=[], clock=clock) as world:
        await world.admit("paper:7")
        await say(world, "/every 30m look")
        await world.remove("paper:7")
        await world.admit("paper:7")
        await clock.advance(1900)
        await world.until(lambda: echo.heard == ["look"])


def test_what_was_planned_before_askers_were_kept_is_for_whoever_planned_it(tmp_path: Path) -> None:
    target = Target(adapter="paper", chat="1")
    place = Conversation(adapter="paper", account="main", chat="1")
    plan = Plan(name="look", when="every 30m", target=target, prompt="look", conversation=place.id, sender="7")
    said = Inbound(key="k", conversation=place, target=target, sender=Sender(id="7", name="Ada", trusted=True))
    plans = {
        "a": (plan, place.id),
        "b": (replace(plan, sender="8"), place.id),
        "c": (replace(plan, sender=""), ""),
        "d": (replace(plan, target=Target(adapter="other", chat="9")), place.id),
    }
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.row_factory = sqlite3.Row
        for number, file in migrate.files():
            if number < ASKERS:
                for statement in migrate.statements(file.read_text(encoding="utf-8")):
                    connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {migrate.APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {ASKERS - 1}")
        insert = "INSERT INTO schedules (id, plan, owner, created) VALUES (?, ?, ?, 0)"
        for id, (each, owner) in plans.items():
            connection.execute(insert, (id, encode(each), owner))
        connection.execute(
            "INSERT INTO inbox (run, adapter, account, key, kind, conversation, state, message, accepted, ready)"
            " VALUES ('r', 'paper', 'main', 'k', 'commanded', ?, 'closed', ?, 0, 0)",
            (place.id, encode(said)),
        )
        migrate.upgrade(connection, tmp_path)
        rows = connection.execute("SELECT * FROM schedules ORDER BY id").fetchall()
        first, second, third, fourth = [msgspec.json.decode(row["plan"], type=Plan).asker for row in rows]
    assert first == said.asker, "also that the platform had proved who it was"
    assert second == replace(said, sender=Sender(id="8")).asker
    assert third is None, "the owner's"
    assert fourth == said.asker, "whoever has planned it where they talk, wherever it is told"

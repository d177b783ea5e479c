"""Approvals on bad days: odd clocks, stops, edits, people who lose their role, groups, and what is forgotten."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.scenario.operations.test_backup import moved
from tests.scenario.operations.test_forgetting import tables_with
from tests.scenario.spine.test_approvals import asked, until_said
from tests.scenario.spine.test_pairing import button, with_home
from tests.worlds.builders import store_of_version
from tests.worlds.careful import Careful
from tests.worlds.world import Echo, Gate, OwnedClock, World, handed
from tidings.core.agent import OutcomeKind
from tidings.core.desk.approvals import Choice
from tidings.core.roles import OWNER, Role
from tidings.core.settings import Rule
from tidings.core.store.sqlite import DATABASE

OPEN = "SELECT * FROM approvals WHERE state = 'open'"
TWO_BOTS = [Rule(platform="paper", chat="2", bot="echo")]


def said_of(world: World, key: str) -> str:
    return str(world.run(key)["state"])


# Clocks.


async def test_a_clock_that_nobody_trusts_expires_nothing_and_keeps_nobody_busy(tmp_path: Path) -> None:
    agent, clock = Careful(), OwnedClock()
    async with World(tmp_path, agent, owners=["paper:7"], clock=clock) as world:
        world.paper.says("clean up")
        await world.until(lambda: world.paper.posts_in("1"))
        clock.confirmed = False
        await clock.advance(3 * 3600)
        assert len(world.rows(OPEN)) == 1
        clock.confirmed = True
        await clock.advance(20)
        await world.until(lambda: any("nobody answered" in post for post in world.paper.posts_in("1")))


@pytest.mark.parametrize("seconds", [-86_400 * 400, 86_400, 10 * 86_400 * 365])
async def test_a_jump_of_the_wall_clock_expires_nothing(tmp_path: Path, seconds: float) -> None:
    agent, clock = Careful(), OwnedClock()
    async with World(tmp_path, agent, owners=["paper:7"], clock=clock) as world:
        world.paper.says("clean up")
        await world.until(lambda: world.paper.posts_in("1"))
        clock.jump(seconds)
        await clock.advance(29 * 60)
        await world.restart()
        assert len(world.rows(OPEN)) == 1
        world.paper.says("/approve")
        await world.until(lambda: len(agent.acted) == 1)


async def test_a_later_question_does_not_put_off_an_earlier_deadline(tmp_path: Path) -> None:
    agent, clock = Careful(), OwnedClock()
    async with World(tmp_path, agent, owners=["paper:7"], clock=clock) as world:
        await clock.advance(7)
        world.paper.says("clean up")
        await world.until(lambda: world.paper.posts_in("1"))
        await clock.advance(600)
        world.paper.says("clean up", chat="2")
        await world.until(lambda: world.paper.posts_in("2"))
        (first, second) = world.rows("SELECT id, deadline FROM approvals ORDER BY seq")
        await clock.advance(first["deadline"] - clock.now() + 0.1)
        assert [row["id"] for row in world.rows(OPEN)] == [second["id"]]


# Stopping, and what comes meanwhile.


async def test_a_run_that_was_approved_and_waits_for_its_turn_can_be_stopped(tmp_path: Path) -> None:
    """Whoever approves and thinks again is heard, although no slot is free; what was said before still stands."""
    gate, agent = Gate(), Careful(words="Let me clean up. ")
    agents = {"bot": agent, "echo": Echo({"long": gate})}
    async with World(tmp_path, agents, owners=["paper:7"], rules=TWO_BOTS, limits={"runs": 1}) as world:
        key = world.paper.says("clean up")
        question = await asked(world)
        world.paper.says("long", chat="2")
        await gate.reached()
        world.paper.presses(question.id, button(question, "Once"))
        await world.eventually(lambda: said_of(world, key) == "waiting")
        world.paper.says("/stop")
        outcome = await world.outcome(key)
        assert (outcome.kind, outcome.text) == (OutcomeKind.CANCELLED, "Let me clean up. ")
        gate.open()
        await world.settled()
        assert agent.acted == []


async def test_whoever_is_removed_after_the_approval_gets_nothing_done(tmp_path: Path) -> None:
    gate, agent = Gate(), Careful(words="Let me clean up. ")
    agents = {"bot": agent, "echo": Echo({"long": gate})}
    async with World(
        tmp_path, agents, allow=["paper:7"], owners=["paper:7"], rules=TWO_BOTS, limits={"runs": 1}
    ) as world:
        await with_home(world)
        await world.admit("paper:8")
        key = world.paper.says("clean up", sender="8", chat="8")
        question = await asked(world, "home")
        world.paper.says("long", chat="2")
        await gate.reached()
        world.paper.presses(question.id, button(question, "Once"), sender="7")
        await world.eventually(lambda: said_of(world, key) == "waiting")
        await world.remove("paper:8")
        gate.open()
        outcome = await world.outcome(key)
        assert (outcome.kind, outcome.text) == (OutcomeKind.CANCELLED, "Let me clean up. ")
        assert agent.acted == []


async def test_an_admin_who_was_demoted_cannot_answer_any_more(tmp_path: Path) -> None:
    agent = Careful()
    async with World(tmp_path, agent, allow=["paper:8"], owners=["paper:1"]) as world:
        await with_home(world)
        await world.admit("paper:7", Role.ADMIN)
        world.paper.says("clean up", sender="8", chat="8")
        question = await asked(world, "home")
        await world.remove("paper:7")
        await world.admit("paper:7", Role.MEMBER)
        world.ignored.add(world.paper.presses(question.id, button(question, "Once"), sender="7"))
        await world.settled()
        id = button(question, "Once").partition("/")[0]
        world.paper.says(f"/approve {id}")
        await until_said(world, "You can't use /approve: you are a member here.")
        assert len(world.rows(OPEN)) == 1
        assert agent.acted == []


@pytest.mark.parametrize("label", ["For this talk", "Always"])
async def test_what_somebody_approved_for_longer_ends_with_their_right_to_approve(tmp_path: Path, label: str) -> None:
    agent = Careful()
    async with World(tmp_path, agent, allow=["paper:8"], owners=["paper:1"]) as world:
        await with_home(world)
        await world.admit("paper:7", Role.OWNER)
        world.paper.says("clean up", sender="8", chat="8")
        question = await asked(world, "home")
        world.paper.presses(question.id, button(question, label), sender="7")
        await world.eventually(lambda: len(agent.acted) == 1)
        world.paper.says("clean up", sender="8", chat="8")
        await world.eventually(lambda: len(agent.acted) == 2)
        await world.remove("paper:7")
        await world.admit("paper:7", Role.MEMBER)
        key = world.paper.says("clean up", sender="8", chat="8")
        await world.eventually(
            lambda: world.rows("SELECT 1 FROM inbox WHERE key = ? AND (asking <> '' OR ended > 0)", key)
        )
        assert len(agent.acted) == 2


async def test_commands_and_changes_of_the_message_do_not_disturb_a_question(tmp_path: Path) -> None:
    agent = Careful()
    async with World(tmp_path, agent, owners=["paper:7"]) as world:
        key = world.paper.says("clean up")
        await asked(world)
        for command in ("/undo", "/retry"):
            world.paper.says(command)
            await until_said(world, "Send /stop first")
        world.paper.edits(key, "clean up everything")
        world.paper.says("/new")
        await until_said(world, "This is a new conversation")
        world.paper.deletes(key)
        await world.paper.until(lambda paper: not paper.unconfirmed)
        assert len(world.rows(OPEN)) == 1
        world.paper.says("/approve")
        await until_said(world, "Done: rm build.")
        assert agent.turns[-1].message.text == "clean up"
        (memory,) = world.rows("SELECT generation FROM conversations")
        remembered = world.rows("SELECT text FROM history WHERE generation < ? ORDER BY seq", memory["generation"])
        assert [row["text"] for row in remembered] == ["clean up", "Done: rm build. "]


async def test_new_settings_count_for_the_answer(tmp_path: Path) -> None:
    """The right to answer is looked up when somebody answers, not when they are asked."""
    agent = Careful()
    async with World(tmp_path, agent, approvals={"members_approve": True}, owners=["paper:1"]) as world:
        world.paper.says("clean up")
        question = await asked(world)
        people = world.gateway._parts.people
        people.renew(people.settings.model_copy(update={"requires": {}}))
        world.ignored.add(world.paper.presses(question.id, button(question, "Once")))
        await world.settled()
        assert len(world.rows(OPEN)) == 1
        await world.gateway.desk.approvals.answer(OWNER, button(question, "Once").partition("/")[0], Choice.ONCE)
        await until_said(world, "Done: rm build.")


# Groups.


async def test_members_of_a_group_answer_only_their_own_questions(tmp_path: Path) -> None:
    agent = Careful()
    async with World(
        tmp_path,
        agent,
        allow=["paper:7", "paper:8"],
        groups={"memory": "member"},
        approvals={"members_approve": True},
    ) as world:
        for sender in ("7", "8"):
            world.paper.says("clean up", chat="g", sender=sender, private=False)
        await world.eventually(lambda: len(world.rows(OPEN)) == 2)
        await world.paper.until(lambda paper: len(paper.posts_in("g")) == 2)
        ids = {row["person"]: row["id"] for row in world.rows(OPEN)}
        for question in world.paper.visible("g"):
            own = "7" if ids["paper:7"] in button(question, "Once") else "8"
            other = "8" if own == "7" else "7"
            world.ignored.add(world.paper.presses(question.id, button(question, "Once"), sender=other))
        world.paper.says(f"/approve {ids['paper:8']}", chat="g", sender="7", private=False)
        await until_said(world, "Only an owner or admin can answer this.", "g")
        assert agent.acted == []
        world.paper.says("/approve", chat="g", sender="8", private=False)
        await world.eventually(lambda: len(agent.acted) == 1)
        assert [row["id"] for row in world.rows(OPEN)] == [ids["paper:7"]]


# Forgetting, backups, and stores of earlier versions.


@pytest.mark.parametrize("choice", ["Once", "For this talk", "Always", "Deny", "/stop"])
async def test_what_was_asked_is_forgotten_with_its_run(tmp_path: Path, choice: str) -> None:
    word = "aubergine"
    agent, clock = Careful(f"rm {word}", read=[f"the page {word}"]), OwnedClock()
    async with World(tmp_path, agent, allow=["paper:8"], owners=["paper:7"], clock=clock) as world:
        await with_home(world)
        key = world.paper.says("clean up", sender="8", chat="8")
        await world.until(lambda: world.paper.posts_in("home"))
        run = world.run(key)["run"]
        (question,) = world.paper.visible("home")
        await world.gateway.desk.forget(run)
        if choice == "/stop":
            world.paper.says("/stop", sender="8", chat="8")
        else:
            world.paper.presses(question.id, button(question, choice), sender="7")
        await world.until(lambda: said_of(world, key) == "done")
        await clock.advance(200)
        assert tables_with(world, word) == []


async def test_a_restored_question_is_answered_in_its_new_home(tmp_path: Path) -> None:
    agent, clock = Careful(), OwnedClock()
    async with World(tmp_path / "home", agent, owners=["paper:7"], clock=clock) as world:
        world.paper.says("clean up")
        await world.until(lambda: world.paper.posts_in("1"))
        (question,) = world.paper.visible("1")
        assert (await moved(world, tmp_path / "elsewhere")).runs == 1
        assert len(agent.turns) == 1
        world.paper.presses(question.id, button(question, "Once"))
        await world.until(lambda: world.paper.posts_in("1")[-1] == "Done: rm build.")
        assert len(agent.acted) == 1


async def test_a_run_at_work_survives_the_upgrade_that_brings_approvals(tmp_path: Path) -> None:
    agent = Careful()
    message = msgspec.json.encode(handed("clean up", key="old"))
    with store_of_version(tmp_path / DATABASE, 17) as store:
        columns = {row[1] for row in store.execute("PRAGMA table_info(inbox)")}
        assert "asking" not in columns
        store.execute("INSERT INTO conversations (id) VALUES ('paper:main:1')")
        store.execute(
            "INSERT INTO inbox (run, adapter, account, key, conversation, kind, message, state, accepted, attempt,"
            " fence, said, ready) VALUES ('run_old', 'paper', 'main', 'old', 'paper:main:1', 'message', ?, 'running',"
            " 0, 1, 1, 0, 0)",
            (message,),
        )
    async with World(tmp_path, agent, owners=["paper:7"]) as world:
        question = await asked(world)
        assert agent.turns[0].attempt == 2
        await world.gateway.desk.approvals.answer(OWNER, button(question, "Once").partition("/")[0], Choice.ONCE)
        await until_said(world, "Done: rm build.")
        assert len(agent.acted) == 1

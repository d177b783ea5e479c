"""What is told beside the talk (by `notify`, schedules, tasks and tools) is remembered where it landed, as a notice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.simulators.paper.simulator import Kind
from tests.worlds.discord import DiscordWorld
from tests.worlds.slack import SlackWorld
from tests.worlds.telegram import TelegramWorld
from tests.worlds.telegram_stories import asks
from tests.worlds.world import KEYED, PROOFS, OwnedClock, Scripted, World
from tidings.core.agent import Turn
from tidings.core.desk.work import Plan
from tidings.core.types import Author, Body, Target, parse_target

NEWS = "The tea is ready."


def notices(turn: Turn) -> list[str]:
    return [entry.text for entry in turn.history if entry.author is Author.NOTICE]


def remembered(world: Any) -> list[tuple[str, str]]:
    rows = world.rows("SELECT conversation, text FROM history WHERE author = 'notice' ORDER BY conversation")
    return [(row["conversation"], row["text"]) for row in rows]


async def owe(world: Any, target: str, text: str = NEWS, cause: str = "notify") -> str:
    return str(await world.gateway.desk.owe(parse_target(target), Body(text=text), cause))


def owed_and_done(world: Any) -> bool:
    return not world.rows("SELECT 1 FROM deliveries WHERE state NOT IN ('delivered', 'dead')")


# Slack: a post opens a thread for whoever replies to it, and a person's id is not their conversation's.


async def test_a_reply_below_a_post_of_a_schedule_reaches_the_agent_with_what_it_said(tmp_path: Path) -> None:
    agent = Scripted(lambda turn: NEWS if turn.message.errand else "ok")
    async with SlackWorld(tmp_path, agent, clock=OwnedClock()) as world:
        target = Target(adapter="slack", chat=world.room.id)
        added = await world.gateway.desk.schedules.add(
            Plan(name="tea", when="every day at 9:00", target=target, prompt="tea")
        )
        await world.gateway.desk.schedules.fire(added.id)
        await world.until(lambda: world.posts == [NEWS] and owed_and_done(world))
        (post,) = world.slack.sent
        world.ada.says(world.room, "what was that?", thread=post)
        await world.until(lambda: len(world.posts) == 2)
        assert notices(agent.turns[-1]) == [NEWS]
        (entry,) = agent.turns[-1].history
        assert entry.source == "the schedule “tea”"


@pytest.mark.parametrize("in_thread", [False, True])
async def test_a_notice_to_a_person_on_slack_is_remembered_in_their_direct_messages(
    tmp_path: Path, in_thread: bool
) -> None:
    agent = Scripted("ok")
    async with SlackWorld(tmp_path, agent, clock=OwnedClock()) as world:
        await owe(world, f"slack:{world.ada.id}")
        await world.until(lambda: world.posts == [NEWS] and owed_and_done(world))
        (post,) = world.slack.sent
        world.ada.says(world.ada.direct, "what was that?", thread=post if in_thread else "")
        await world.until(lambda: len(world.posts) == 2)
        assert notices(agent.turns[-1]) == [NEWS]
        assert not [place for place, _ in remembered(world) if world.ada.id in place]


# Elsewhere.


@pytest.mark.parametrize("in_thread", [False, True])
async def test_a_notice_on_discord_is_remembered_in_its_channel_and_in_the_thread_that_is_opened_of_it(
    tmp_path: Path, in_thread: bool
) -> None:
    agent = Scripted("ok")
    async with DiscordWorld(tmp_path, agent, clock=OwnedClock()) as world:
        await owe(world, f"discord:{world.room.id}")
        await world.until(lambda: world.posts == [NEWS] and owed_and_done(world))
        (post,) = world.discord.sent
        place = world.ada.opens_thread(post.id) if in_thread else world.room
        world.ada.says(place, "what was that?", mention=True)
        await world.until(lambda: len(world.posts) == 2)
        assert notices(agent.turns[-1]) == [NEWS]


@pytest.mark.parametrize("moved", [False, True])
async def test_a_notice_on_telegram_is_remembered_in_its_chat_also_after_that_has_moved(
    tmp_path: Path, moved: bool
) -> None:
    agent = Scripted("ok")
    async with TelegramWorld(tmp_path, agent, clock=OwnedClock()) as world:
        chat = "-5" if moved else "7"
        if moved:
            asks(world, "hello", chat="-5")
            await world.until(lambda: len(world.telegram.posts) == 1)
            chat = "-1000000000005"
            world.telegram.migrate("-5", chat)
            await world.until(lambda: world.rows("SELECT 1 FROM aliases"))
        await owe(world, f"telegram:{chat}")
        await world.until(lambda: world.telegram.posts[-1:] == [NEWS] and owed_and_done(world))
        before = len(agent.turns)
        asks(world, "what was that?", chat=chat)
        await world.until(lambda: len(agent.turns) == before + 1)
        assert notices(agent.turns[-1]) == [NEWS]


async def test_a_notice_is_told_with_what_it_came_from_and_only_once_however_long_it_is(tmp_path: Path) -> None:
    agent, long = Scripted("ok"), "word " * 1500
    async with World(tmp_path, agent, kind=KEYED, clock=OwnedClock()) as world:
        await owe(world, "paper:1", long)
        await world.until(lambda: owed_and_done(world))
        assert len(world.posts) > 2
        world.paper.says("what was that?")
        await world.until(lambda: agent.turns)
        (entry,) = agent.turns[-1].history
        assert (entry.author, entry.text, entry.source) == (Author.NOTICE, long, "a notice")


async def test_a_file_that_was_sent_along_is_named_in_the_memory_of_the_notice(tmp_path: Path) -> None:
    (tmp_path / "plan.txt").write_text("tea at five")
    async with World(tmp_path / "home", Scripted("ok"), kind=KEYED, clock=OwnedClock()) as world:
        file = await world.gateway.desk.adopt(str(tmp_path / "plan.txt"))
        await world.gateway.desk.owe(parse_target("paper:1"), Body(text=NEWS, files=(file,)), "notify")
        await world.until(lambda: owed_and_done(world))
        assert remembered(world) == [("paper:main:1", f"{NEWS}\n(Files: plan.txt)")]


async def test_what_a_bot_writes_elsewhere_is_remembered_there_and_not_where_it_was_asked(tmp_path: Path) -> None:
    async def write(turn: Turn) -> str:
        await world.gateway.desk.owe(parse_target("paper:2"), Body(text=NEWS), f"tool/{turn.run}")
        return "done"

    async with World(tmp_path, Scripted(write), kind=KEYED, clock=OwnedClock()) as world:
        world.paper.open_chat("2")
        world.paper.says("tell them")
        await world.until(lambda: len(world.posts) == 2 and owed_and_done(world))
        assert remembered(world) == [("paper:main:2", NEWS)]


@pytest.mark.parametrize("after_effect", [False, True])
@pytest.mark.parametrize("kind", PROOFS.values(), ids=PROOFS.keys())
async def test_a_notice_is_remembered_once_though_the_process_dies_before_its_receipt(
    tmp_path: Path, kind: Kind, after_effect: bool
) -> None:
    async with World(tmp_path, Scripted("ok"), kind=kind, clock=OwnedClock()) as world:
        world.paper.hold_next("post", after_effect=after_effect)
        await owe(world, "paper:1")
        await world.eventually(lambda: world.rows("SELECT 1 FROM parts WHERE state = 'sending'"))
        assert remembered(world) == []
        await world.crash()
        await world.start()
        await world.until(lambda: owed_and_done(world))
        assert remembered(world) == [("paper:main:1", NEWS)]
        await world.crash()
        await world.start()
        await world.settled()
        assert remembered(world) == [("paper:main:1", NEWS)]


async def test_what_never_arrived_was_never_said(tmp_path: Path) -> None:
    async with World(tmp_path, Scripted("ok"), kind=KEYED, clock=OwnedClock()) as world:
        world.paper.block("1")
        await owe(world, "paper:1")
        await world.until(lambda: owed_and_done(world))
        assert remembered(world) == []


async def test_a_notice_after_a_fresh_start_is_part_of_the_new_talk_alone(tmp_path: Path) -> None:
    agent = Scripted("ok")
    async with World(tmp_path, agent, kind=KEYED, clock=OwnedClock()) as world:
        await owe(world, "paper:1", "old news")
        await world.until(lambda: world.posts and owed_and_done(world))
        world.paper.says("hi")
        world.paper.commands("new")
        await world.until(lambda: len(world.posts) == 3)
        await owe(world, "paper:1")
        await world.until(lambda: len(world.posts) == 4 and owed_and_done(world))
        world.paper.says("what was that?")
        await world.until(lambda: len(agent.turns) == 2)
        assert [notices(turn) for turn in agent.turns] == [["old news"], [NEWS]]

"""What a command promises arrives, though the way by which the command is answered ends soon; else it is refused."""

from __future__ import annotations

from pathlib import Path

from tests.simulators.slack.simulator import text_of
from tests.worlds.discord import DiscordWorld
from tests.worlds.slack import SlackWorld
from tests.worlds.world import Echo, OwnedClock, Scripted
from tidings.core import context
from tidings.core.agent import Turn
from tidings.core.types import Body, Target

# Longer than any platform lets a command be answered.
LATER_SECONDS = 3600.0
REFUSED = "I cannot do that here: only you can see my reply"


async def test_work_begun_by_a_command_ends_in_its_channel_however_long_it_takes(tmp_path: Path) -> None:
    clock = OwnedClock()

    async def take_long(turn: Turn) -> None:
        await clock.sleep(LATER_SECONDS)

    limits = {"errand_seconds": 2 * LATER_SECONDS}
    async with DiscordWorld(tmp_path, Scripted(take_long, "gold"), clock=clock, limits=limits) as world:
        await world.until(lambda: "bg" in world.discord.commands())
        world.ada.commands("bg", world.room, text="dig for it")
        await world.until(lambda: len(world.posts) == 1)
        await clock.advance(LATER_SECONDS)
        await world.until(lambda: len(world.posts) == 2)
        assert world.discord.posts_in(world.room)[1] == "✓ “dig for it” is done.\n\ngold"
        assert not any(sent.only_for for sent in world.discord.sent), "whoever reads the end may read the beginning"


async def test_what_a_command_plans_comes_to_its_channel(tmp_path: Path) -> None:
    clock = OwnedClock()
    async with DiscordWorld(tmp_path, Echo(), clock=clock) as world:
        await world.until(lambda: "at" in world.discord.commands())
        world.ada.commands("at", world.room, text="in 20m call mum")
        await world.until(lambda: len(world.posts) == 1)
        await clock.advance(LATER_SECONDS)
        await world.until(lambda: len(world.posts) == 2)
        assert world.discord.posts_in(world.room)[1] == "you said: call mum"


async def test_where_only_one_person_is_answered_nothing_is_promised(tmp_path: Path) -> None:
    async with SlackWorld(tmp_path, Echo(), clock=OwnedClock()) as world:
        for words in ("bg dig for it", "at in 20m call mum", "every 30m look"):
            world.ada.commands("/tidings", words, world.room)
        await world.until(lambda: len(world.slack.whispers) == 3)
        assert all(REFUSED in text_of(whisper) for whisper in world.slack.whispers)
        assert not any(world.rows(f"SELECT 1 FROM {table}") for table in ("tasks", "schedules"))
        assert world.posts == []


async def test_a_home_is_the_channel_and_not_whoever_chose_it(tmp_path: Path) -> None:
    clock = OwnedClock()
    async with SlackWorld(tmp_path, Echo(), clock=clock) as world:
        world.access = {"owners": (f"slack:{world.ada.id}",)}
        await world.restart()
        world.ada.commands("/tidings", "sethome", world.room)
        await world.until(lambda: len(world.slack.whispers) == 1)
        await clock.advance(LATER_SECONDS)
        await world.gateway.desk.owe(Target(adapter="slack"), Body(text="tidings"), cause="test")
        await world.until(lambda: world.slack.posts_in(world.room) == ["tidings"])


async def test_a_bot_that_answers_one_person_alone_knows_that_it_can_promise_nothing(tmp_path: Path) -> None:
    seen: list[bool] = []

    async def look(turn: Turn) -> None:
        seen.append(context.current().can.async_delivery)

    async with SlackWorld(tmp_path, Scripted(look, "hello"), clock=OwnedClock()) as world:
        world.ada.commands("/tidings", "how are you?", world.room)
        await world.until(lambda: len(world.slack.whispers) == 1)
        world.ada.says(world.room, "how are you?", mention=True)
        await world.until(lambda: len(world.posts) == 1)
        assert seen == [False, True]

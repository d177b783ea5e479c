"""Groups on each real platform: who is meant, when silence is right, other bots, and /listen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.worlds.discord import DiscordWorld
from tests.worlds.slack import SlackWorld
from tests.worlds.stages import PLATFORMS, Stage, stage
from tests.worlds.telegram import TelegramWorld
from tests.worlds.world import Echo, Gate, OwnedClock, Scripted
from tidings.core.agent import Turn
from tidings.core.inbound import listen_command

each = pytest.mark.parametrize("platform", PLATFORMS)
GROUP = -5


def said(*texts: str) -> list[str]:
    return [f"you said: {text}" for text in texts]


async def listens(there: Stage, who: str, argument: str = "10m") -> None:
    """Somebody gives the command in the room, and its reply is read."""
    before = len(there.heard) + len(there.whispered(who))
    there.says(who, f"/listen {argument}".strip(), room=True)
    await there.until(lambda: len(there.heard) + len(there.whispered(who)) > before)
    await there.world.settled()


@each
async def test_it_listens_to_a_person_without_a_mention_until_the_time_is_over(tmp_path: Path, platform: str) -> None:
    echo, clock = Echo(), OwnedClock()
    async with stage(tmp_path, platform, echo, members=["carol"], clock=clock) as there:
        await there.passed_over(there.says("carol", "between us", room=True, to_bot=False))
        await listens(there, "carol")
        there.says("carol", "one", room=True, to_bot=False)
        await there.until(lambda: there.heard[-1:] == said("one"))
        # Nobody else is listened to, and that costs no row.
        await there.passed_over(there.says("ada", "not for you", room=True, to_bot=False))
        await there.world.restart()
        there.says("carol", "two", room=True, to_bot=False)
        await there.until(lambda: there.heard[-1:] == said("two"))
        await there.world.settled()
        await clock.advance(600)
        await there.passed_over(there.says("carol", "three", room=True, to_bot=False))
        assert there.heard[-2:] == said("one", "two")
    assert echo.heard == ["one", "two"]


@each
async def test_what_it_overhears_may_stay_unanswered_without_a_trace(tmp_path: Path, platform: str) -> None:
    """F18: A word to the bot that it leaves unanswered is told as a failure all the same (A7)."""

    def choose(turn: Turn) -> str | None:
        return "[SILENT]" if turn.message.overheard else None

    gate, clock = Gate(), OwnedClock()
    agent = Scripted(gate, choose)
    async with stage(tmp_path, platform, agent, hears_all=True, clock=clock) as there:
        shown = len(there.world.platform.effects)
        key = there.says("ada", "between us", room=True, to_bot=False)
        await gate.reached()
        await clock.advance(10)
        gate.open()
        await there.world.eventually(lambda: there.world.run(key)["state"] == "done")
        await there.world.settled()
        await clock.advance(30)
        assert there.world.run(key)["outcome"] == "completed"
        assert {effect.act for effect in there.world.platform.effects[shown:]} <= {"confirm"}
        there.says("ada", "and you?", room=True)
        await there.until(lambda: there.heard)
        assert there.heard == ["⚠ I could not finish this: the agent ended without an answer."]


@each
async def test_the_role_decides_who_may_let_it_listen(tmp_path: Path, platform: str) -> None:
    async with stage(tmp_path, platform, Echo(), guests=True) as there:
        await listens(there, "bob")
        assert "You can't use /listen" in [*there.heard, *there.whispered("bob")][-1]
        await there.passed_over(there.says("bob", "hello?", room=True, to_bot=False))
        await listens(there, "ada", "10m all")
        there.says("bob", "hello?", room=True, to_bot=False)
        await there.until(lambda: there.heard[-1] == said("hello?")[0])


async def test_telegram_s_privacy_mode_would_make_it_an_empty_promise(tmp_path: Path) -> None:
    async with TelegramWorld(tmp_path, Echo(), clock=OwnedClock()) as world:
        world.telegram.says("/listen@tidings_bot 10m", chat=GROUP)
        await world.until(lambda: world.telegram.posts_in(GROUP) == [listen_command.HIDDEN])


async def test_discord_without_the_intent_would_make_it_an_empty_promise(tmp_path: Path) -> None:
    settings = {"message_content": False}
    async with DiscordWorld(tmp_path, Echo(), clock=OwnedClock(), settings=settings) as world:
        world.ada.says(world.room, "/listen 10m", mention=True)
        await world.until(lambda: world.posts == [listen_command.HIDDEN])


async def test_where_only_mentions_count_a_reply_on_telegram_does_not(tmp_path: Path) -> None:
    echo = Echo()
    settings, server = {"groups": "mentioned"}, {"reads_all": True}
    async with TelegramWorld(tmp_path, echo, clock=OwnedClock(), settings=settings, server=server) as world:
        telegram = world.telegram
        telegram.says("@tidings_bot one", chat=GROUP)
        await world.until(lambda: telegram.posts_in(GROUP) == said("one"))
        answer = telegram.sent[0].id
        ignored = telegram.says("thank you", chat=GROUP, reply_to=answer)
        await telegram.until(lambda telegram: ignored in telegram.confirmed)
        assert world.rows("SELECT 1 FROM inbox WHERE key = ?", ignored) == []
        telegram.says("@tidings_bot two", chat=GROUP, reply_to=answer)
        telegram.says("/whoami", chat=GROUP, reply_to=answer)
        await world.until(lambda: len(telegram.posts) == 3)
    assert echo.heard == ["one", "two"]


async def test_where_only_mentions_count_a_reply_on_discord_does_not_although_it_rings(tmp_path: Path) -> None:
    echo = Echo()
    async with DiscordWorld(tmp_path, echo, clock=OwnedClock(), settings={"channels": "mentioned"}) as world:
        world.ada.says(world.room, "one", mention=True)
        await world.until(lambda: world.posts)
        (answer,) = world.discord.visible(world.room)
        edited = world.ada.says(world.room, "thank you", reply_to=answer.id)
        world.ada.edits(edited, "thank you all")
        world.ada.says(world.room, "two", reply_to=answer.id, mention=True)
        await world.until(lambda: len(world.posts) == 2)
        await world.settled()
        assert len(world.rows("SELECT * FROM inbox")) == 2
    assert echo.heard == ["one", "two"]


async def test_where_only_mentions_count_a_thread_of_its_own_on_slack_is_quiet(tmp_path: Path) -> None:
    echo = Echo()
    async with SlackWorld(tmp_path, echo, clock=OwnedClock(), settings={"channels": "mentioned"}) as world:
        first = world.ada.says(world.room, "one", mention=True)
        await world.until(lambda: world.posts)
        world.ada.says(world.room, "thank you", thread=first)
        world.ada.says(world.room, "two", thread=first, mention=True)
        world.ada.says(world.room, "!whoami", thread=first)
        await world.until(lambda: len(world.posts) == 3 and not world.slack.unconfirmed)
        await world.settled()
    assert echo.heard == ["one", "two"]


# Other bots.


async def robots(world: Any, speak: Any) -> list[str]:
    """What of three messages of another bot's is taken: before and after a person's."""
    speak("beep one")
    await world.until(lambda: len(world.posts) == 1)
    speak("beep two")
    await world.rest()
    world.ada.says(world.room, "hello", mention=True)
    await world.until(lambda: len(world.posts) == 2)
    await world.settled()
    speak("beep three")
    await world.until(lambda: len(world.posts) == 3)
    await world.settled()
    return [row["text"] for row in world.rows("SELECT message ->> 'text' AS text FROM inbox ORDER BY seq")]


async def test_a_bot_that_is_let_in_on_discord_is_answered_once_until_a_person_writes(tmp_path: Path) -> None:
    async with DiscordWorld(tmp_path, Echo(), clock=OwnedClock()) as world:
        robot, hook = world.discord.person("robot", bot=True), world.discord.webhook()
        world.access["bots"] = (f"discord:{robot.id}", f"discord:{hook.id}")
        await world.restart()
        hook.says(world.room, "from nobody", mention=True)
        heard = await robots(world, lambda text: robot.says(world.room, text, mention=True))
    assert heard == ["beep one", "hello", "beep three"]


async def test_a_bot_that_is_let_in_on_slack_is_answered_once_until_a_person_writes(tmp_path: Path) -> None:
    async with SlackWorld(tmp_path, Echo(), clock=OwnedClock()) as world:
        robot = world.slack.main.person("robot", is_bot=True)
        world.access["bots"] = (f"slack:{robot.id}",)
        await world.restart()
        heard = await robots(world, lambda text: robot.says(world.room, text, mention=True))
    assert heard == ["beep one", "hello", "beep three"]


async def test_a_bot_that_is_let_in_on_telegram_is_answered_once_until_a_person_writes(tmp_path: Path) -> None:
    echo = Echo()
    async with TelegramWorld(tmp_path, echo, clock=OwnedClock(), access={"bots": ("telegram:99",)}) as world:
        telegram = world.telegram
        telegram.open_chat(GROUP)
        robot = {"id": 99, "is_bot": True, "first_name": "Robot", "username": "robot_bot"}
        chat = {"id": GROUP, "type": "group", "title": "Friends"}

        def beeps(number: int) -> str:
            mention = {"type": "mention", "offset": 0, "length": 12}
            text = {"text": f"@tidings_bot beep {number}", "entities": [mention]}
            return telegram.odd(
                {"message": {"message_id": 70 + number, "date": 1, "chat": chat, "from": robot, **text}}
            )

        beeps(1)
        await world.until(lambda: len(telegram.posts) == 1)
        ignored = beeps(2)
        await telegram.until(lambda telegram: ignored in telegram.confirmed)
        telegram.says("@tidings_bot hello", chat=GROUP)
        await world.until(lambda: len(telegram.posts) == 2)
        beeps(3)
        await world.until(lambda: len(telegram.posts) == 3)
    assert echo.heard == ["beep 1", "hello", "beep 3"]


async def test_two_bots_of_ours_in_one_thread_on_discord_stop(tmp_path: Path) -> None:
    """F7: in a thread of `main` all is for it, and each of its answers is a reply to the other; both are let in."""
    clock, echo = OwnedClock(), Scripted("what do you think of that?")
    settings = {"threads": True}
    async with DiscordWorld(tmp_path, echo, clock=clock, settings=settings, accounts={"other": {}}) as world:
        discord = world.discord
        world.access["bots"] = tuple(f"discord:{bot.id}" for bot in discord.places.bots.values())
        await world.restart()
        thread = world.ada.says(world.room, "hello", mention=True)
        await world.until(lambda: len(world.posts) == 1)
        world.ada.says(thread, "and you?", mention="other")
        await world.until(lambda: len(world.posts) >= 4)
        await clock.advance(120)
        await world.settled()
        await world.restart()
        await clock.advance(120)
        await world.settled()
        assert [turn.message.sender.is_bot for turn in echo.turns].count(True) == 1

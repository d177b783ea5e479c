"""Guests, commands and ids on each real platform: one check for every way in, and one name for every chat."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.worlds.stages import PLATFORMS, Stage, stage
from tests.worlds.world import Echo
from tidings.adapters.telegram.address import receipt_of
from tidings.core.types import Body, Target

REFUSED = "You can't use /bg: you are a guest here. An owner or admin can change that."

each = pytest.mark.parametrize("platform", PLATFORMS)


def said(*texts: str) -> list[str]:
    return [f"you said: {text}" for text in texts]


def all_for(there: Stage, who: str) -> list[str]:
    """What this person can read in the room."""
    return [*there.heard, *there.whispered(who)]


@each
async def test_a_guest_is_refused_a_command_whichever_way_it_comes(tmp_path: Path, platform: str) -> None:
    """D6: a slash command, a word that is written out, and text to the bot pass the same check."""
    async with stage(tmp_path, platform, Echo(), guests=True) as there:
        await there.ready()
        there.slash("bob", "bg", "work", room=True)
        await there.until(lambda: all_for(there, "bob") == [REFUSED])
        there.says("bob", "/bg work", room=True)
        await there.until(lambda: all_for(there, "bob") == [REFUSED] * 2)
        if platform != "telegram":
            there.says("bob", "!bg work", room=True)
            await there.until(lambda: all_for(there, "bob") == [REFUSED] * 3)
        await there.world.settled()
        assert there.world.rows("SELECT * FROM tasks") == []
        # A guest may still talk, and a member may do both.
        there.says("bob", "hi", room=True)
        await there.until(lambda: there.heard[-1] == said("hi")[0])
        there.says("ada", "/bg work", room=True)
        await there.world.eventually(lambda: there.world.rows("SELECT * FROM tasks"))


@each
async def test_where_the_bot_hears_everything_a_guest_must_still_speak_to_it(tmp_path: Path, platform: str) -> None:
    echo = Echo()
    async with stage(tmp_path, platform, echo, guests=True, members=["carol"], hears_all=True) as there:
        await there.passed_over(there.says("bob", "between us", room=True, to_bot=False))
        there.says("carol", "for all", room=True, to_bot=False)
        await there.until(lambda: there.heard == said("for all"))
        there.says("bob", "for you", room=True)
        await there.until(lambda: there.heard == said("for all", "for you"))
        there.says("bob", "/whoami", room=True, to_bot=False)
        await there.until(lambda: len(there.heard) == 3)
        await there.world.settled()
        assert echo.heard == ["for all", "for you"]
        assert "a guest here" in there.heard[-1]


async def test_a_guest_who_answers_in_the_bot_s_own_thread_speaks_to_it(tmp_path: Path) -> None:
    """On Slack all that is said in a thread with the bot is for the bot, also where it hears everything."""
    echo = Echo()
    async with stage(tmp_path, "slack", echo, guests=True, hears_all=True) as there:
        slack, room = there.world.slack, there.world.room
        bob = slack.person("bob")
        first = bob.says(room, "hello", mention=True)
        await there.until(lambda: there.heard == said("hello"))
        bob.says(room, "and this?", thread=first)
        await there.until(lambda: there.heard == said("hello", "and this?"))
        other = slack.person("carol").says(room, "lunch?")
        bob.says(room, "yes", thread=other)
        await there.until(lambda: not slack.unconfirmed)
        await there.world.settled()
        assert echo.heard == ["hello", "and this?"]


async def test_what_a_guest_edits_stays_to_the_bot_or_not(tmp_path: Path) -> None:
    echo = Echo()
    async with stage(tmp_path, "discord", echo, guests=True, hears_all=True) as there:
        bob = there.world.discord.person("bob")
        overheard = bob.says(there.world.room, "between us")
        bob.edits(overheard, "between us two")
        bob.says(there.world.room, "for you", mention=True)
        await there.until(lambda: there.heard == said("for you"))
        await there.world.settled()
        assert [row["kind"] for row in there.world.rows("SELECT kind FROM inbox")] == ["message"]


@each
async def test_a_stranger_s_words_and_commands_in_a_room_are_not_heard(tmp_path: Path, platform: str) -> None:
    async with stage(tmp_path, platform, Echo()) as there:
        await there.passed_over(there.says("bob", "hi", room=True))
        await there.passed_over(there.says("bob", "/bg work", room=True))
        assert (there.heard, there.world.rows("SELECT * FROM codes")) == ([], [])


@each
async def test_a_private_chat_has_one_name_whether_we_write_first_or_the_person_does(
    tmp_path: Path, platform: str
) -> None:
    """C4: Slack and Discord also take a person's id for the chat; what lands there is remembered in the same place."""
    echo = Echo()
    async with stage(tmp_path, platform, echo) as there:
        by_person = Target(adapter=platform, chat=there.identity("ada").partition(":")[2])
        for number, target in enumerate((by_person, there.private("ada")), 1):
            await there.world.gateway.desk.owe(target, Body(text=f"notice {number}"), "test")
            await there.until(lambda number=number: len(there.told("ada")) == number)  # type: ignore[misc]
        there.says("ada", "what was that?")
        await there.until(lambda: len(there.told("ada")) == 3)
        await there.world.settled()
        here = f"{platform}:main:{there.private('ada').chat}"
        rows = there.world.rows("SELECT text FROM history WHERE conversation = ? ORDER BY seq", here)
        assert [row["text"] for row in rows][:2] == ["notice 1", "notice 2"]
        # Besides, a notice is remembered in the thread that a reply to it would open.
        places = there.world.rows("SELECT DISTINCT conversation FROM history")
        assert all(row["conversation"].startswith(here) for row in places)
        (run,) = there.world.rows("SELECT conversation FROM inbox")
        assert run["conversation"] == here


def test_a_public_name_on_telegram_is_remembered_by_its_id() -> None:
    """C4."""
    posted = {"message_id": 5, "chat": {"id": -1_000_000_000_005, "type": "supergroup", "username": "workshop"}}
    assert receipt_of(posted).chat == "-1000000000005"

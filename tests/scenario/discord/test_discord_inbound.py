"""What comes in from Discord: who is heard, where the answer goes, and what strange or slow things do to us."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.simulators.discord.simulator import DiscordServer
from tests.worlds.discord import DiscordWorld
from tests.worlds.world import Echo, Gate, OwnedClock, Scripted, Takes, armed
from tidings.adapters.discord import socket
from tidings.adapters.shared import replies
from tidings.core.agent import ChoicesOffered, Event, Finished, TextDelta, Turn
from tidings.core.errors import Misconfigured
from tidings.core.inbound.commands import Command
from tidings.core.inbound.door import QUESTION_CLOSED
from tidings.core.roles import Permission
from tidings.core.store.sqlite import DATABASE
from tidings.core.types import Quoted


def said(*texts: str) -> list[str]:
    return [f"you said: {text}" for text in texts]


class Fetcher:
    """Fetches what came along, and says what was in it."""

    def __init__(self) -> None:
        self.fetched: list[tuple[str, str, bytes]] = []

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        for attachment in turn.message.attachments:
            path = await turn.desk.fetch(attachment)
            data = await asyncio.to_thread(path.read_bytes)
            self.fetched.append((attachment.name, attachment.media_type, data))
        yield TextDelta(f"I have {len(turn.message.attachments)}")
        yield Finished()


# Who is heard, and where.


async def test_a_private_message_is_answered_where_it_was_said(tmp_path: Path) -> None:
    async with DiscordWorld(tmp_path, Echo()) as world:
        world.ada.says(world.ada.private(), "hi")
        await world.until(lambda: world.posts)

        assert world.discord.posts_in(world.ada.private()) == said("hi")


async def test_in_a_channel_only_who_addresses_the_bot_is_answered(tmp_path: Path) -> None:
    echo = Echo()
    async with DiscordWorld(tmp_path, echo, clock=OwnedClock()) as world:
        bob = world.discord.person("bob")
        world.allow.append(f"discord:{bob.id}")
        await world.restart()
        world.ada.says(world.room, "not for you")
        world.ada.says(world.room, "not for you either", mention=bob)
        world.ada.says(world.room, "one", mention=True)
        await world.until(lambda: len(world.posts) == 1)
        (answer,) = world.discord.visible(world.room)
        world.ada.says(world.room, "two", reply_to=answer.id)
        world.ada.says(world.room, "three", reply_to=answer.id, ping=False)
        await world.until(lambda: len(world.posts) == 3)

    assert echo.heard == ["one", "two", "three"]


async def test_a_role_of_the_bot_s_addresses_it(tmp_path: Path) -> None:
    echo = Echo()
    async with DiscordWorld(tmp_path, echo) as world:
        guild = world.discord.places.guilds[world.room.guild]
        mine = world.discord.role("helpers", guild, world.discord.bot.id)
        other = world.discord.role("cooks", guild, world.ada.id)
        await world.restart()
        world.ada.says(world.room, "cook!", roles=[other])
        world.ada.says(world.room, "help!", roles=[mine])
        await world.until(lambda: world.posts)

        later = world.discord.role("heralds", guild, world.discord.bot.id)
        member = {"guild_id": guild.id, "user": {"id": world.discord.bot.id}, "roles": [later]}
        world.discord.odd("GUILD_MEMBER_UPDATE", member)
        world.ada.says(world.room, "sing!", roles=[later])
        await world.until(lambda: len(world.posts) == 2)

    assert echo.heard == ["help!", "sing!"]


async def test_in_a_channel_set_to_all_everybody_who_is_admitted_is_answered(tmp_path: Path) -> None:
    echo = Echo()
    async with DiscordWorld(tmp_path, echo, settings={"channels": "all"}) as world:
        quiet = world.discord.channel("quiet")
        world.account_settings["chats"] = {quiet.id: "never"}
        await world.restart()
        world.ada.says(quiet, "nobody there?", mention=True)
        world.discord.person("bob").says(world.room, "I am not admitted")
        world.ada.says(world.room, "hello")
        thread = world.ada.opens_thread(world.room, "aside")
        world.ada.says(thread, "in the thread")
        await world.until(lambda: len(world.posts) == 2)

        assert world.discord.posts_in(thread) == said("in the thread")
    assert sorted(echo.heard) == ["hello", "in the thread"]


async def test_other_bots_and_webhooks_are_not_heard(tmp_path: Path) -> None:
    echo = Echo()
    async with DiscordWorld(tmp_path, echo, settings={"channels": "all"}) as world:
        world.discord.person("robot", bot=True).says(world.room, "beep", mention=True)
        world.discord.webhook("hook").says(world.room, "news", mention=True)
        world.ada.says(world.room, "hello")
        await world.until(lambda: world.posts)
        await world.settled()

    assert echo.heard == ["hello"]


async def test_a_stranger_is_told_how_to_be_admitted_in_private_only(tmp_path: Path) -> None:
    async with DiscordWorld(tmp_path, Echo(), allow=["discord:1"]) as world:
        world.ada.says(world.room, "hi", mention=True)
        world.ada.says(world.ada.private(), "hi")
        await world.until(lambda: world.posts)
        await world.settled()

        assert world.discord.posts_in(world.room) == []
        assert world.posts[0].startswith("I don't know you yet. Your code is ")
        assert len(world.posts) == 1


async def test_what_it_answers_and_who_is_named_come_along(tmp_path: Path) -> None:
    agent = Scripted("ok")
    async with DiscordWorld(tmp_path, agent) as world:
        bob = world.discord.person("bob")
        before = bob.says(world.room, "the plan is tea")
        world.ada.says(world.room, f"what does {bob.mention} mean?", mention=True, reply_to=before)
        await world.until(lambda: world.posts)
    message = agent.turns[0].message

    assert message.text == "what does @Bob mean?"
    assert message.quoted == Quoted(text="the plan is tea", sender="Bob")
    assert (message.sender.id, message.sender.name) == (world.ada.id, "Ada")


async def test_files_and_voice_messages_are_fetched(tmp_path: Path) -> None:
    agent = Fetcher()
    async with DiscordWorld(tmp_path, agent) as world:
        world.ada.says(world.ada.private(), "look", files=[("a.txt", b"one"), ("b.png", b"two")])
        await world.until(lambda: world.posts == ["I have 2"])
        world.ada.says(world.ada.private(), voice=b"OggS")
        await world.until(lambda: world.posts == ["I have 2", "I have 1"])

    assert agent.fetched == [
        ("a.txt", "text/plain", b"one"),
        ("b.png", "image/png", b"two"),
        ("voice-message.ogg", "audio/ogg", b"OggS"),
    ]


async def test_a_thread_is_a_conversation_of_its_own(tmp_path: Path) -> None:
    agent = Scripted("noted")
    async with DiscordWorld(tmp_path, agent, clock=OwnedClock()) as world:
        world.ada.says(world.room, "in the channel", mention=True)
        await world.until(lambda: len(world.posts) == 1)
        thread = world.ada.opens_thread(world.room, "aside")
        world.ada.says(thread, "in the thread", mention=True)
        await world.until(lambda: len(world.posts) == 2)

        assert world.discord.posts_in(thread) == ["noted"]
    assert agent.turns[1].history == ()


async def test_with_threads_on_the_conversation_lives_in_the_thread_it_opens(tmp_path: Path) -> None:
    agent = Echo()
    async with DiscordWorld(tmp_path, agent, settings={"threads": True}) as world:
        question = world.ada.says(world.room, "hi", mention=True)
        await world.until(lambda: world.discord.posts_in(question) == said("hi"))
        # Nobody is mentioned here: the thread is ours.
        world.ada.says(question, "and more")
        await world.until(lambda: world.discord.posts_in(question) == said("hi", "and more"))

        assert world.discord.posts_in(world.room) == []


async def test_a_thread_that_was_put_away_before_we_came_is_known_when_somebody_speaks_there(tmp_path: Path) -> None:
    async with DiscordWorld(tmp_path, Echo()) as world:
        thread = world.ada.opens_thread(world.room, "old")
        world.discord.archive(thread)
        await world.restart()
        world.ada.says(thread, "again", mention=True)
        await world.until(lambda: world.posts)

        assert world.discord.posts_in(thread) == said("again")


async def test_a_server_that_the_bot_leaves_and_joins_is_heard_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with DiscordWorld(tmp_path, Echo()) as world:
        guild = world.discord.places.guilds[world.room.guild]
        with caplog.at_level("INFO"):
            world.discord.remove_bot(guild)
            world.ada.says(world.room, "unheard", mention=True)
            world.discord.invite(guild)
            world.ada.says(world.room, "heard", mention=True)
            await world.until(lambda: said("heard")[0] in world.posts)

        assert f"was removed from the server {guild.id}" in caplog.text


# Changes of what was said.


async def test_an_edit_corrects_and_a_deletion_cancels_what_still_waits(tmp_path: Path) -> None:
    gate = Gate()
    echo = Echo({"first": gate})
    async with DiscordWorld(tmp_path, echo, clock=OwnedClock()) as world:
        here = world.ada.private()
        world.ada.says(here, "first")
        await gate.reached()
        second, third = world.ada.says(here, "secnod"), world.ada.says(here, "third")
        fourth, fifth = world.ada.says(here, "fourth"), world.ada.says(here, "fifth")
        world.ada.says(here, "sixth")
        world.ada.edits(second, "second")
        world.ada.deletes(third)
        world.discord.purge(here, [fourth, fifth])
        await world.eventually(lambda: world.rows("SELECT 1 FROM inbox WHERE key = ?", f"{here.id}:{fifth}:deleted"))
        gate.open()
        await world.until(lambda: said("sixth")[0] in world.posts)

    assert echo.heard == ["first", "second", "sixth"]


async def test_deletions_of_what_was_not_for_us_leave_no_rows(tmp_path: Path) -> None:
    clock = OwnedClock()
    async with DiscordWorld(tmp_path, Echo(), clock=clock) as world:
        # By then nothing was said before we came.
        await clock.advance(120)
        for number in range(5):
            world.ada.deletes(world.ada.says(world.room, f"chatter {number}"))
        world.ada.says(world.room, "hi", mention=True)
        await world.until(lambda: world.posts)

        assert [row["key"] for row in world.rows("SELECT key FROM inbox") if "deleted" in row["key"]] == []


# Strange, slow and much.


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("MESSAGE_CREATE", {}),
        ("MESSAGE_CREATE", None),
        ("MESSAGE_CREATE", {"id": "x", "channel_id": "1"}),
        ("MESSAGE_CREATE", {"id": "5", "channel_id": "6", "author": 7, "content": []}),
        ("MESSAGE_UPDATE", {"id": "5", "channel_id": None, "edited_timestamp": 1, "author": {}}),
        ("MESSAGE_DELETE", {"channel_id": "7"}),
        ("MESSAGE_DELETE_BULK", {"channel_id": "7", "ids": [None]}),
        ("INTERACTION_CREATE", {"type": 2, "channel_id": "7"}),
        ("INTERACTION_CREATE", {"type": 2, "id": "7", "channel_id": "7", "channel": {"id": "7", "type": 1}}),
        ("INTERACTION_CREATE", [1]),
        ("GUILD_CREATE", {"id": "1", "channels": [{"type": "x"}]}),
        ("GUILD_CREATE", 5),
        ("GUILD_MEMBER_UPDATE", {}),
        ("THREAD_CREATE", {"id": "1"}),
        ("THREAD_LIST_SYNC", {"guild_id": "1", "threads": [{}]}),
        ("TYPING_START", {"nonsense": True}),
        ("A_NEW_EVENT", {"nonsense": True}),
    ],
)
async def test_an_event_of_a_strange_shape_is_passed_over(tmp_path: Path, name: str, data: Any) -> None:
    async with DiscordWorld(tmp_path, Echo()) as world:
        world.discord.odd(name, data)
        world.ada.says(world.ada.private(), "hi")
        await world.until(lambda: world.posts == said("hi"))

        assert (world.discord.identifies(), world.discord.resumes()) == (1, 0)
        assert (await world.listener()).restarts == 0


async def test_a_message_told_twice_is_answered_once(tmp_path: Path) -> None:
    echo = Echo()
    async with DiscordWorld(tmp_path, echo, clock=OwnedClock()) as world:
        world.discord.redeliver(world.ada.says(world.ada.private(), "hi"))
        world.ada.says(world.ada.private(), "bye")
        await world.until(lambda: len(world.posts) == 2)
        await world.settled()

    assert echo.heard == ["hi", "bye"]


async def test_what_cannot_be_stored_is_kept_in_order_until_it_can(tmp_path: Path) -> None:
    echo = Echo()
    async with DiscordWorld(tmp_path, echo) as world:
        world.ada.says(world.ada.private(), "zero")
        await world.until(lambda: len(world.posts) == 1)
        await world.settled()
        with armed(",".join(f"store.pre_commit:{hit}:enospc" for hit in range(1, 3))):
            # The second place has never been seen before, so its cursor must be looked up.
            thread = world.ada.opens_thread(world.room, "aside")
            for text in ("one", "two", "three"):
                world.ada.says(world.ada.private(), text)
                world.ada.says(thread, f"aside {text}", mention=True)
            await world.eventually(lambda: len(echo.heard) == 7)

    assert [text for text in echo.heard if "aside" not in text] == ["zero", "one", "two", "three"]
    assert [text for text in echo.heard if "aside" in text] == ["aside one", "aside two", "aside three"]


async def test_one_channel_that_waits_does_not_hold_up_another(tmp_path: Path) -> None:
    """The past of one channel cannot be read for a while; everybody else is heard meanwhile."""
    echo = Echo()
    async with DiscordWorld(tmp_path, echo) as world:
        slow, quick = world.room, world.discord.channel("quick")
        await world.eventually(lambda: world.note(f"cursor/{quick.id}"))
        await world.stop()
        world.ada.says(slow, "while you were away", mention=True)
        held = world.discord.hold_next("history", channel=slow)
        await world.start()
        world.ada.says(slow, "and now", mention=True)
        world.ada.says(quick, "quick", mention=True)
        await world.until(lambda: world.posts == said("quick"))
        held.set()
        await world.until(lambda: world.discord.posts_in(slow) == said("while you were away", "and now"))


async def test_a_flood_waits_at_discord_and_not_in_our_memory(tmp_path: Path) -> None:
    echo, built_with = Echo(), {"limits": socket.Limits(events_waiting=5)}
    async with DiscordWorld(tmp_path, echo, clock=OwnedClock(), built_with=built_with) as world:
        with closing(sqlite3.connect(tmp_path / DATABASE, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            for number in range(30):
                world.ada.says(world.ada.private(), str(number))
            await asyncio.sleep(0.2)
            other.execute("COMMIT")
        await world.until(lambda: len(world.posts) == 30, real_limit=30)

    assert echo.heard == [str(number) for number in range(30)]


# Commands.


async def test_commands_are_told_to_discord_only_when_they_have_changed(tmp_path: Path) -> None:
    async with DiscordWorld(tmp_path, Echo()) as world:
        await world.until(lambda: {"new", "stop", "status", "help"} <= set(world.discord.commands()))
        await world.eventually(lambda: world.note("commands"))
        await world.restart()
        world.ada.says(world.ada.private(), "hi")
        await world.until(lambda: world.posts)

        assert len(world.discord.calls("commands")) == 1


async def ready(world: DiscordWorld) -> None:
    await world.until(lambda: world.discord.commands())


async def test_a_slash_command_in_a_channel_is_answered_for_one_person(tmp_path: Path) -> None:
    async with DiscordWorld(tmp_path, Echo()) as world:
        await ready(world)
        asked = world.ada.commands("/whoami", world.room)
        await world.until(lambda: world.posts)
        await world.settled()
        (answer,) = world.discord.visible(world.room)

        assert f"You are discord:{world.ada.id}" in answer.text
        assert answer.only_for == world.ada.id
        assert world.discord.interaction(asked).original == answer.id
        assert world.run(f"interaction:{asked}")["kind"] == "commanded"


async def test_a_command_from_where_the_bot_is_not_stays_with_who_asked(tmp_path: Path) -> None:
    async with DiscordWorld(tmp_path, Echo()) as world:
        await ready(world)
        elsewhere = world.discord.channel("elsewhere", world.discord.guild("Elsewhere", accounts=()))
        for _ in range(2):
            world.ada.commands("/whoami", elsewhere, user_installed=True)
        await world.until(lambda: len(world.posts) == 2)

        assert [message.only_for for message in world.discord.visible(elsewhere)] == [world.ada.id] * 2


async def test_a_slash_command_in_private_is_an_ordinary_message(tmp_path: Path) -> None:
    async with DiscordWorld(tmp_path, Echo()) as world:
        await ready(world)
        world.ada.commands("/status", world.ada.private())
        await world.until(lambda: world.posts)
        (answer,) = world.discord.visible(world.ada.private())

        assert ("Nothing is running" in answer.text, answer.only_for) == (True, "")


async def test_a_slash_command_whose_answer_is_a_run_s_is_seen_by_all(tmp_path: Path) -> None:
    agent = Takes(Scripted("once"), Scripted("again"))
    async with DiscordWorld(tmp_path, agent, clock=OwnedClock()) as world:
        await ready(world)
        world.ada.says(world.room, "go", mention=True)
        await world.until(lambda: world.posts == ["once"])
        asked = world.ada.commands("/retry", world.room)
        await world.until(lambda: world.posts[-1] == "again")

        assert world.discord.message(world.discord.interaction(asked).original).only_for == ""


async def test_a_command_written_out_is_obeyed_too(tmp_path: Path) -> None:
    async with DiscordWorld(tmp_path, Echo()) as world:
        world.ada.says(world.room, "!whoami", mention=True)
        world.ada.says(world.ada.private(), "/whoami")
        await world.until(lambda: len(world.posts) == 2)

        assert all("You are discord:" in post for post in world.posts)


async def test_a_command_is_answered_for_in_time_though_the_store_is_slow(tmp_path: Path) -> None:
    async with DiscordWorld(tmp_path, Echo()) as world:
        await ready(world)
        await world.eventually(lambda: world.note("commands"))
        with closing(sqlite3.connect(tmp_path / DATABASE, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            asked = world.ada.commands("/whoami", world.room)
            await world.until(lambda: world.discord.interaction(asked).answer == "thinking")
            assert world.rows("SELECT 1 FROM inbox") == []
            other.execute("COMMIT")
        await world.until(lambda: world.posts)

        assert "You are discord:" in world.posts[0]


async def test_a_command_that_cannot_be_stored_says_so_to_who_asked(tmp_path: Path) -> None:
    async with DiscordWorld(tmp_path, Echo()) as world:
        await ready(world)
        await world.eventually(lambda: world.note("commands"))
        with armed(",".join(f"store.pre_commit:{hit}:enospc" for hit in range(1, 6))):
            asked = world.ada.commands("/whoami", world.room)
            await world.until(lambda: world.posts == [replies.UNSTORED])

        assert world.discord.message(world.discord.interaction(asked).original).only_for == world.ada.id


@pytest.mark.parametrize("after_effect", [False, True])
async def test_a_lost_call_does_not_keep_a_command_from_its_answer(tmp_path: Path, after_effect: bool) -> None:
    async with DiscordWorld(tmp_path, Echo()) as world:
        await ready(world)
        world.discord.drop_next(after_effect, "callback")
        world.ada.commands("/whoami", world.room)
        await world.until(lambda: world.posts)
        await world.settled()

        assert len(world.posts) == 1


async def test_a_reply_that_is_ready_before_discord_has_heard_of_us_waits_for_it(tmp_path: Path) -> None:
    async with DiscordWorld(tmp_path, Echo()) as world:
        await ready(world)
        held = world.discord.hold_next("callback")
        world.ada.commands("/whoami", world.room)
        await world.eventually(lambda: world.rows("SELECT 1 FROM parts WHERE state = 'sending'"))
        held.set()
        await world.until(lambda: world.posts)

        assert [message.only_for for message in world.discord.sent] == [world.ada.id]


async def test_a_stranger_s_command_and_one_in_a_silent_channel_get_a_word(tmp_path: Path) -> None:
    async with DiscordWorld(tmp_path, Echo()) as world:
        quiet = world.discord.channel("quiet")
        world.account_settings["chats"] = {quiet.id: "never"}
        await world.restart()
        await ready(world)
        bob = world.discord.person("bob")
        bob.commands("/stop", world.room)
        world.ada.commands("/stop", quiet)
        await world.until(lambda: len(world.posts) == 2)

        assert f"Your id is discord:{bob.id}." in world.discord.posts_in(world.room)[0]
        assert world.discord.posts_in(quiet) == [replies.SILENT]
        assert world.rows("SELECT 1 FROM inbox") == []


async def test_a_command_with_words_says_them(tmp_path: Path) -> None:
    echo = Echo()
    async with DiscordWorld(tmp_path, echo, commands=[Command("ask", "ask me", None, Permission.TALK)]) as world:
        await ready(world)
        world.ada.commands("/ask", world.room, text="what is new?")
        await world.until(lambda: world.posts)

    assert echo.heard == ["/ask what is new?"]


# Buttons.

ASKS = Scripted("Tea?", ChoicesOffered(("Yes", "No")))


async def test_a_button_says_its_words_after_a_restart_too(tmp_path: Path) -> None:
    agent = Takes(ASKS, Echo())
    async with DiscordWorld(tmp_path, agent, clock=OwnedClock()) as world:
        world.ada.says(world.room, "ask me", mention=True)
        await world.until(lambda: world.posts)
        await world.restart()
        (question,) = world.discord.visible(world.room)
        press = world.ada.presses(question.id, question.choices[0].id)
        await world.until(lambda: said("Yes")[0] in world.posts)

        assert world.discord.interaction(press).answer == "silence"
    assert [turn.message.text for turn in agent.turns] == ["ask me", "Yes"]


async def test_a_second_press_is_told_that_it_was_answered(tmp_path: Path) -> None:
    agent = Takes(ASKS, Echo())
    async with DiscordWorld(tmp_path, agent, clock=OwnedClock()) as world:
        world.ada.says(world.room, "ask me", mention=True)
        await world.until(lambda: world.posts)
        (question,) = world.discord.visible(world.room)
        world.ada.presses(question.id, question.choices[0].id)
        world.ada.presses(question.id, question.choices[1].id)
        await world.until(lambda: replies.ANSWERED in world.posts and said("Yes")[0] in world.posts)
        told = next(each for each in world.discord.sent if each.text == replies.ANSWERED)

        assert told.only_for == world.ada.id
        assert QUESTION_CLOSED not in world.posts


# Two of us.


async def test_two_accounts_hear_what_is_said_to_each(tmp_path: Path) -> None:
    async with DiscordWorld(tmp_path, Echo(), accounts={"other": {}}) as world:
        world.ada.says(world.room, "to the first", mention=True)
        world.ada.says(world.room, "to the other", mention="other")
        await world.until(lambda: len(world.posts) == 2)
        by = {message.account: message.text for message in world.discord.sent}

    assert by == {"main": said("to the first")[0], "other": said("to the other")[0]}


async def test_two_different_addresses_in_one_process_are_refused(tmp_path: Path) -> None:
    async with DiscordServer() as elsewhere, DiscordWorld(tmp_path, Echo()) as world:
        elsewhere_too = socket._pointed_at(elsewhere.api_url, elsewhere.gateway_url)
        with pytest.raises(Misconfigured, match="different addresses"), elsewhere_too:
            raise AssertionError
        world.ada.says(world.ada.private(), "hi")
        await world.until(lambda: world.posts)

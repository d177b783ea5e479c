"""What Discord may leave out or word otherwise costs no message, and whoever is slow holds nobody else up."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import discord
import pytest

from tests.worlds.discord import DiscordWorld
from tests.worlds.world import Echo, OwnedClock
from tidings.adapters.discord import socket
from tidings.core.errors import Misconfigured


def said(*texts: str) -> list[str]:
    return [f"you said: {text}" for text in texts]


async def acquainted(world: DiscordWorld) -> None:
    await world.until(lambda: world.discord.commands())
    await world.eventually(lambda: world.note(f"cursor/{world.room.id}") and world.note("commands"))


# What is left out, or null.


async def test_what_is_null_counts_as_left_out(tmp_path: Path) -> None:
    optional = ("guild_id", "member", "mentions", "mention_roles", "attachments", "message_reference", "type")

    def change(name: str, data: Any) -> Any:
        return dict.fromkeys(optional) | data if name == "MESSAGE_CREATE" else data

    def bare(name: str, data: Any) -> Any:
        is_private = name == "MESSAGE_CREATE" and not data.get("guild_id")
        return change(name, {key: value for key, value in data.items() if value or not is_private})

    async with DiscordWorld(tmp_path, Echo(), server={"told_as": bare}) as world:
        world.ada.says(world.ada.private(), "hi")
        await world.until(lambda: world.posts == said("hi"))
        world.ada.says(world.room, "there", mention=True)
        await world.until(lambda: world.posts == said("hi", "there"))


async def test_a_session_that_does_not_name_its_application_listens(tmp_path: Path) -> None:
    def change(name: str, data: Any) -> Any:
        return {**data, "application": None} if name == "READY" else data

    async with DiscordWorld(tmp_path, Echo(), server={"told_as": change}) as world:
        world.ada.says(world.room, "hi", mention=True)
        await world.until(lambda: world.posts == said("hi"))


@pytest.mark.parametrize("channel", [None, {"id": "1"}], ids=["no channel", "half a channel"])
async def test_a_command_that_does_not_show_its_channel_is_answered_for_one_person(
    tmp_path: Path, channel: Any
) -> None:
    def change(name: str, data: Any) -> Any:
        return {**data, "channel": channel} if name == "INTERACTION_CREATE" else data

    async with DiscordWorld(tmp_path, Echo(), server={"told_as": change}) as world:
        await acquainted(world)
        world.ada.commands("/whoami", world.room)
        await world.until(lambda: world.posts)
        (answer,) = world.discord.visible(world.room)

        assert answer.only_for == world.ada.id


async def test_one_strange_channel_does_not_cost_the_others_their_past(tmp_path: Path) -> None:
    def change(name: str, data: Any) -> Any:
        if name != "GUILD_CREATE":
            return data
        return {**data, "channels": [{"id": "5"}, None, *data["channels"]], "members": [{}, *data["members"]]}

    async with DiscordWorld(tmp_path, Echo(), server={"told_as": change}) as world:
        await acquainted(world)
        await world.stop()
        world.ada.says(world.room, "meanwhile", mention=True)
        await world.start()
        await world.until(lambda: world.posts == said("meanwhile"))


async def test_a_thread_that_does_not_name_its_server_is_not_taken_for_a_private_talk(tmp_path: Path) -> None:
    def change(name: str, data: Any) -> Any:
        is_thread = name in ("THREAD_CREATE", "THREAD_UPDATE")
        return {key: value for key, value in data.items() if not is_thread or key != "guild_id"}

    echo = Echo()
    async with DiscordWorld(tmp_path, echo, server={"told_as": change}) as world:
        thread = world.ada.opens_thread(world.room, "among ourselves")
        world.ada.says(thread, "not for the bot")
        world.ada.says(thread, "for the bot", mention=True)
        await world.until(lambda: world.posts)
        await world.settled()

    assert echo.heard == ["for the bot"]


# The past.


async def test_a_last_message_that_was_deleted_does_not_close_the_past_of_its_channel(tmp_path: Path) -> None:
    async with DiscordWorld(tmp_path, Echo(), clock=OwnedClock()) as world:
        await acquainted(world)
        world.ada.says(world.room, "first", mention=True)
        await world.until(lambda: world.posts == said("first"))
        for text in ("", "second"):
            world.discord.forget_sessions()
            world.discord.refuse_gateway()
            world.discord.abort_gateway()
            world.discord.erase(world.ada.says(world.room, "a slip"))
            if text:
                world.ada.says(world.room, text, mention=True)
            begun = world.discord.identifies()
            world.discord.refuse_gateway(False)
            await world.until(lambda begun=begun: world.discord.identifies() > begun)  # type: ignore[misc]
            await world.settled()
        await world.until(lambda: world.posts == said("first", "second"))


async def test_who_wrote_first_while_we_were_away_is_answered_when_they_write_again(tmp_path: Path) -> None:
    clock = OwnedClock()
    async with DiscordWorld(tmp_path, Echo(), clock=clock) as world:
        world.ada.says(world.room, "hi", mention=True)
        await world.until(lambda: world.posts and world.note("seen"))
        await world.stop()
        await clock.advance(10)
        world.ada.says(world.ada.private(), "one")
        await clock.advance(10)
        await world.start()
        world.ada.says(world.ada.private(), "two")
        await world.until(lambda: world.posts == said("hi", "one", "two"))


async def test_channels_whose_past_waits_leave_room_to_another(tmp_path: Path) -> None:
    clock = OwnedClock()
    async with DiscordWorld(tmp_path, Echo(), clock=clock) as world:
        slow = [world.discord.channel(f"slow {number}") for number in range(5)]
        other = world.discord.channel("other")
        await acquainted(world)
        await world.eventually(lambda: all(world.note(f"cursor/{each.id}") for each in (*slow, other)))
        await world.stop()
        for channel in (*slow, other):
            world.ada.says(channel, "meanwhile", mention=True)
        for channel in slow:
            world.discord.fail_next(429, 100.0, method="history", channel=channel)
        begun = clock.now()
        await world.start()
        await world.until(lambda: world.posts)
        assert clock.now() - begun < 50.0
        assert world.discord.posts_in(other) == said("meanwhile")
        await world.until(lambda: len(world.posts) == 6)


async def test_a_thread_that_cannot_be_asked_for_yet_is_not_taken_for_a_channel(tmp_path: Path) -> None:
    def change(name: str, data: Any) -> Any:
        return {} if name in ("THREAD_CREATE", "THREAD_UPDATE") else data

    async with DiscordWorld(tmp_path, Echo(), server={"told_as": change}, clock=OwnedClock()) as world:
        thread = world.ada.opens_thread(world.room, "untold")
        world.discord.fail_next(503, method="channel", count=2)
        for number, text in enumerate(("one", "two"), 1):
            world.ada.says(thread, text, mention=True)
            await world.until(lambda number=number: len(world.posts) == number)  # type: ignore[misc]

        assert [call.verdict for call in world.discord.calls("channel")] == ["503", "503", "ok"]
        assert len({row["conversation"] for row in world.rows("SELECT conversation FROM inbox")}) == 1


# The end of a connection.


async def test_a_gateway_that_hangs_up_at_once_is_not_stormed(tmp_path: Path) -> None:
    clock = OwnedClock()
    async with DiscordWorld(tmp_path, Echo(), clock=clock) as world:
        begun = clock.now()
        for _ in range(8):
            resumes = world.discord.resumes()
            world.discord.close_gateway(4000)
            await world.until(lambda resumes=resumes: world.discord.resumes() > resumes)  # type: ignore[misc]

        assert clock.now() - begun > 15.0
        assert world.discord.identifies() == 1


class Stuck(discord.Client):
    """A client whose goodbye never ends."""

    async def close(self) -> None:
        await asyncio.Event().wait()


async def test_a_goodbye_that_never_ends_is_cut_short_and_does_not_replace_the_reason() -> None:
    async def fail() -> None:
        try:
            raise Misconfigured("the reason")
        finally:
            await socket._end(Stuck(intents=discord.Intents.none()), seconds=0.05)

    with pytest.raises(Misconfigured, match="the reason"):
        await fail()

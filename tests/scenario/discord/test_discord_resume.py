"""Connections to Discord that end, in every way they do: nothing is lost, and nothing is answered twice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import discord
import pytest
from discord.gateway import DiscordWebSocket, KeepAliveHandler

from tests.simulators.discord.simulator import DiscordServer
from tests.worlds.discord import DiscordWorld
from tests.worlds.world import Echo, Gate, OwnedClock
from tidings.adapters.discord import socket

GAP = ("two", "three", "four")


def said(*texts: str) -> list[str]:
    return [f"you said: {text}" for text in texts]


class HastyWorld(DiscordWorld):
    """The pause before a new session that replaces an invalid one takes no time here."""

    def __init__(self, home: Path, agent: Echo, **more: Any) -> None:
        limits = more.pop("patience", socket.USUAL)._replace(invalid_seconds=(0.0, 0.01))
        super().__init__(home, agent, built_with={"limits": limits}, **more)


async def answered(world: DiscordWorld, *texts: str) -> None:
    await world.until(lambda: len(world.posts) >= len(texts), real_limit=30)
    await world.settled()
    assert world.posts == said(*texts)


async def acquainted(world: DiscordWorld) -> None:
    """Everything that a first session writes down is written."""
    await world.until(lambda: world.discord.commands())
    await world.eventually(lambda: world.note(f"cursor/{world.room.id}") and world.note("commands"))


# Sessions that go on.


def asked_to_come_again(discord: DiscordServer) -> None:
    discord.ask_to_reconnect()


def closed(discord: DiscordServer) -> None:
    discord.close_gateway(4000)


def closed_by_a_fault(discord: DiscordServer) -> None:
    discord.close_gateway(1011)


def closed_with_goodbye(discord: DiscordServer) -> None:
    discord.close_gateway(1000)


def reset(discord: DiscordServer) -> None:
    discord.abort_gateway()


def invalid_but_resumable(discord: DiscordServer) -> None:
    discord.invalidate(resumable=True)


@pytest.mark.parametrize(
    "ends",
    [asked_to_come_again, closed, closed_by_a_fault, closed_with_goodbye, reset, invalid_but_resumable],
    ids=lambda ends: ends.__name__,
)
async def test_a_session_goes_on_and_tells_what_was_said_meanwhile(
    tmp_path: Path, ends: Callable[[DiscordServer], None]
) -> None:
    echo = Echo()
    async with HastyWorld(tmp_path, echo, clock=OwnedClock()) as world:
        here = world.ada.private()
        world.ada.says(here, "one")
        await answered(world, "one")
        ends(world.discord)
        for text in GAP:
            world.ada.says(here, text)
        await answered(world, "one", *GAP)

        assert (world.discord.identifies(), world.discord.resumes()) == (1, 1)
        assert world.discord.calls("history") == ()
        assert (await world.listener()).restarts == 0
    assert echo.heard == ["one", *GAP]


async def test_a_dead_connection_is_noticed_and_the_session_goes_on(tmp_path: Path) -> None:
    patience, server = socket.Limits(heartbeat_seconds=0.4), {"heartbeat_interval": 0.1}
    async with HastyWorld(tmp_path, Echo(), patience=patience, server=server) as world:
        here = world.ada.private()
        world.ada.says(here, "one")
        await answered(world, "one")
        world.discord.mute_gateway()
        world.ada.says(here, "two")
        await answered(world, "one", "two")

        assert (world.discord.identifies(), world.discord.resumes()) == (1, 1)


async def test_a_connection_that_breaks_again_and_again_still_resumes(tmp_path: Path) -> None:
    async with HastyWorld(tmp_path, Echo(), clock=OwnedClock()) as world:
        here = world.ada.private()
        texts = [str(number) for number in range(12)]
        for text in texts:
            resumes = world.discord.resumes()
            world.ada.says(here, text)
            world.discord.abort_gateway()
            await world.until(lambda resumes=resumes: world.discord.resumes() > resumes)  # type: ignore[misc]
        await answered(world, *texts)

        assert world.discord.identifies() == 1


async def test_a_session_goes_on_after_a_gateway_that_was_away_for_a_moment(tmp_path: Path) -> None:
    async with HastyWorld(tmp_path, Echo()) as world:
        await acquainted(world)
        world.discord.refuse_gateway()
        world.discord.abort_gateway()
        world.ada.says(world.room, "meanwhile", mention=True)
        await asyncio.sleep(0.2)
        world.discord.refuse_gateway(False)
        await answered(world, "meanwhile")

        assert (world.discord.identifies(), world.discord.resumes()) == (1, 1)


# Sessions that do not.


@pytest.mark.parametrize("forgets", [DiscordServer.invalidate, DiscordServer.forget_sessions])
async def test_a_session_that_is_forgotten_is_followed_by_another_that_finds_what_was_said(
    tmp_path: Path, forgets: Callable[[DiscordServer], None]
) -> None:
    echo = Echo()
    async with HastyWorld(tmp_path, echo, clock=OwnedClock()) as world:
        here = world.ada.private()
        thread = world.ada.opens_thread(world.room, "aside")
        world.ada.says(here, "one")
        world.ada.says(thread, "one", mention=True)
        world.ada.says(world.room, "one", mention=True)
        await world.until(lambda: len(world.posts) == 3)
        forgets(world.discord)
        for text in GAP:
            for place in (here, thread, world.room):
                world.ada.says(place, text, mention=place is not here)
        world.discord.abort_gateway()
        await world.until(lambda: world.discord.identifies() == 2)
        for place in (here, thread, world.room):
            world.ada.says(place, "five", mention=place is not here)
        await world.until(lambda: len(world.posts) == 15, real_limit=30)
        await world.settled()

        for place in (here, thread, world.room):
            assert world.discord.posts_in(place) == said("one", *GAP, "five")


async def test_a_process_that_was_down_answers_130_messages_once_and_in_order(tmp_path: Path) -> None:
    echo = Echo()
    async with HastyWorld(tmp_path, echo, clock=OwnedClock(), limits={"queued_per_conversation": 500}) as world:
        await acquainted(world)
        await world.stop()
        texts = [str(number) for number in range(130)]
        for text in texts:
            world.ada.says(world.room, text, mention=True)
        await world.start()
        world.ada.says(world.room, "live", mention=True)
        await world.until(lambda: len(world.posts) == 131, real_limit=60)
        await world.settled()

        assert world.discord.posts_in(world.room) == said(*texts, "live")
        assert len(world.discord.calls("history")) == 2
    assert echo.heard == [*texts, "live"]


@pytest.mark.parametrize("turns", [0, 1, 2, 4, 8, 16, 32])
async def test_a_crash_at_any_moment_loses_no_message_and_repeats_none(tmp_path: Path, turns: int) -> None:
    gate = Gate()
    texts = [str(number) for number in range(4)]
    async with HastyWorld(tmp_path, Echo(dict.fromkeys(texts, gate)), clock=OwnedClock()) as world:
        places = (world.ada.private(), world.room)
        for place in places:
            world.ada.says(place, "hello", mention=place is world.room)
        await world.until(lambda: len(world.posts) == 2)
        await world.settled()
        for text in texts:
            for place in places:
                world.ada.says(place, text, mention=place is world.room)
        for _ in range(turns):
            await asyncio.sleep(0.001)
        await world.crash()
        await world.start()
        gate.open()
        await world.until(lambda: len(world.posts) == 10, real_limit=30)
        await world.settled()

        for place in places:
            assert world.discord.posts_in(place) == said("hello", *texts)


async def test_a_private_channel_and_a_thread_that_was_put_away_are_looked_at_after_a_restart(tmp_path: Path) -> None:
    async with HastyWorld(tmp_path, Echo(), clock=OwnedClock(), settings={"threads": True}) as world:
        question = world.ada.says(world.room, "one", mention=True)
        world.ada.says(world.ada.private(), "one")
        await world.until(lambda: len(world.posts) == 2)
        await world.eventually(lambda: question in (world.note("places") or ""))
        await world.stop()
        world.ada.says(question, "two")
        world.discord.archive(question)
        world.ada.says(world.ada.private(), "two")
        await world.start()
        await world.until(lambda: len(world.posts) == 4)

        assert world.discord.posts_in(question) == said("one", "two")
        assert world.discord.posts_in(world.ada.private()) == said("one", "two")


async def test_everybody_who_wrote_first_at_the_same_moment_is_found_after_a_restart(tmp_path: Path) -> None:
    async with HastyWorld(tmp_path, Echo(), clock=OwnedClock(), allow=()) as world:
        people = [world.discord.person(f"person{number}") for number in range(8)]
        await world.crash()
        world.allow = [f"discord:{person.id}" for person in people]
        await world.start()
        for person in people:
            person.says(person.private(), "one")
        await world.until(lambda: len(world.posts) == 8)
        await world.crash()
        for person in people:
            person.says(person.private(), "two")
        await world.start()
        await world.until(lambda: len(world.posts) == 16)

        for person in people:
            assert world.discord.posts_in(person.private()) == said("one", "two")


async def test_what_was_said_before_the_first_start_is_not_answered(tmp_path: Path) -> None:
    discord = DiscordServer()
    room = discord.channel("room")
    old = discord.person("ada").says(room, "long ago", mention=True)
    async with discord, HastyWorld(tmp_path, Echo(), discord=discord) as world:
        await world.eventually(lambda: world.note(f"cursor/{room.id}") == old)
        world.ada.says(room, "now", mention=True)
        await world.until(lambda: world.posts)
        await world.restart()
        world.ada.says(room, "then", mention=True)
        await answered(world, "now", "then")


async def test_places_made_while_we_were_away_are_read_from_their_beginning(tmp_path: Path) -> None:
    async with HastyWorld(tmp_path, Echo(), clock=OwnedClock()) as world:
        old = world.ada.says(world.room, "an old remark")
        await acquainted(world)
        world.ada.says(world.room, "hi", mention=True)
        await world.until(lambda: len(world.posts) == 1)
        await world.until(lambda: world.note("seen"))
        await world.stop()
        assert isinstance(world.clock, OwnedClock)
        await world.clock.advance(10)
        channel = world.discord.channel("new")
        thread = world.ada.opens_thread(old, "about the old remark")
        world.ada.says(channel, "in a new channel", mention=True)
        world.ada.says(thread, "in a new thread", mention=True)
        await world.start()
        await world.until(lambda: len(world.posts) == 3)

        assert world.discord.posts_in(channel) == said("in a new channel")
        assert world.discord.posts_in(thread) == said("in a new thread")


async def test_what_was_said_meanwhile_is_as_old_as_discord_says(tmp_path: Path) -> None:
    clock = OwnedClock()
    settings = {"missed_hours": 1.0}
    async with HastyWorld(tmp_path, Echo(), clock=clock, settings=settings, server={"skew": -7200.0}) as world:
        await acquainted(world)
        await world.stop()
        world.ada.says(world.room, "just now", mention=True)
        await clock.advance(60)
        await world.start()
        await world.until(lambda: said("just now")[0] in world.posts)


async def test_what_is_too_old_or_too_much_is_left_out_and_told_to_the_owner(tmp_path: Path) -> None:
    echo = Echo()
    clock = OwnedClock()
    settings = {"missed_hours": 1.0, "missed_messages": 3}
    async with HastyWorld(tmp_path, echo, clock=clock, settings=settings) as world:
        await acquainted(world)
        await world.stop()
        world.ada.says(world.room, "too old", mention=True)
        await clock.advance(2 * 3600)
        for number in range(5):
            world.ada.says(world.room, str(number), mention=True)
        await world.start()
        await world.until(lambda: len(world.posts) == 3)
        await world.settled()
        alarms = [alarm.last for alarm in (await world.gateway.desk.health()).alarms]

        assert echo.heard == ["2", "3", "4"]
        assert any("more than 3 messages and messages older than 1 hours" in words for words in alarms)


async def test_a_past_that_may_not_be_read_keeps_nobody_from_being_heard(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with HastyWorld(tmp_path, Echo()) as world:
        await acquainted(world)
        world.discord.forbid(world.room, "read_message_history")
        await world.stop()
        world.ada.says(world.room, "unheard", mention=True)
        with caplog.at_level("INFO"):
            await world.start()
            world.ada.says(world.room, "heard", mention=True)
            await answered(world, "heard")

        assert caplog.text.count("may not read the message history") == 1


@pytest.mark.parametrize("status", [500, 503, 429])
async def test_a_past_that_cannot_be_read_yet_is_read_later(tmp_path: Path, status: int) -> None:
    async with HastyWorld(tmp_path, Echo(), clock=OwnedClock()) as world:
        await acquainted(world)
        await world.stop()
        world.ada.says(world.room, "meanwhile", mention=True)
        world.discord.fail_next(status, method="history", count=3)
        await world.start()
        world.ada.says(world.room, "now", mention=True)
        await answered(world, "meanwhile", "now")


async def test_what_is_not_for_us_moves_the_cursors_now_and_then(tmp_path: Path) -> None:
    clock = OwnedClock()
    async with HastyWorld(tmp_path, Echo(), clock=clock) as world:
        await acquainted(world)
        before = world.note(f"cursor/{world.room.id}")
        for number in range(20):
            last = world.ada.says(world.room, f"chatter {number}")
        world.ada.says(world.ada.private(), "hi")
        await world.eventually(lambda: world.rows("SELECT 1 FROM inbox"))
        assert world.note(f"cursor/{world.room.id}") == before
        await world.until(lambda: world.note(f"cursor/{world.room.id}") == last)
        await world.settled()
        await world.restart()
        world.ada.says(world.room, "hi", mention=True)
        await world.until(lambda: len(world.posts) == 2)

        assert [call.channel for call in world.discord.calls("history")] == [world.ada.private().id]


# What only the owner can mend, and what nobody should hurry.


async def test_a_wrong_token_is_said_and_not_tried_again_and_again(tmp_path: Path) -> None:
    world = HastyWorld(tmp_path, Echo())
    world.account_settings["token"] = "a.wrong.token"
    async with world.discord:
        world._owns_discord = False
        await world.start(attached=False)
        await world.eventually(lambda: world.discord.calls("me"))
        await world.eventually(lambda: _state(world) == "misconfigured")
        health = await world.listener()
        await world.end()

    assert health.last_error.startswith("Discord does not accept the token")
    assert world.discord.identifies() == 0


async def test_a_token_that_is_taken_away_is_said(tmp_path: Path) -> None:
    async with HastyWorld(tmp_path, Echo()) as world:
        world.discord.revoke()
        await world.eventually(lambda: _state(world) == "misconfigured")

        assert (await world.listener()).last_error.startswith("Discord does not accept the token")


async def test_a_missing_intent_is_said_in_words_that_help(tmp_path: Path) -> None:
    world = HastyWorld(tmp_path, Echo(), server={"intents": ()})
    async with world.discord:
        world._owns_discord = False
        await world.start(attached=False)
        await world.eventually(lambda: _state(world) == "misconfigured")
        health = await world.listener()
        await world.end()

        assert "switch on “Message Content Intent” in the developer portal under Bot" in health.last_error
        assert "message_content = false" in health.last_error

        world.account_settings["message_content"] = False
        await world.start()
        world.ada.says(world.room, "unread")
        world.ada.says(world.room, "hi", mention=True)
        await answered(world, "hi")
        await world.end()


async def test_a_gateway_that_cannot_be_reached_is_said_and_found_again(tmp_path: Path) -> None:
    async with HastyWorld(tmp_path, Echo(), clock=OwnedClock()) as world:
        await acquainted(world)
        world.discord.refuse_gateway()
        world.discord.abort_gateway()
        await world.until(lambda: _state(world) == "degraded")
        assert "cannot be reached" in (await world.listener()).last_error
        world.ada.says(world.room, "meanwhile", mention=True)
        world.discord.refuse_gateway(False)
        await world.until(lambda: world.discord.attached())
        await answered(world, "meanwhile")

        assert world.discord.identifies() == 2


async def test_a_login_that_is_never_answered_is_tried_again(tmp_path: Path) -> None:
    async with DiscordServer() as discord:
        discord.hang_next(False, "GET /users/@me")
        patience = socket.Limits(connect_seconds=0.2)
        async with HastyWorld(tmp_path, Echo(), discord=discord, patience=patience) as world:
            world.ada.says(world.ada.private(), "hi")
            await answered(world, "hi")


async def test_an_outage_of_everything_is_survived(tmp_path: Path) -> None:
    async with HastyWorld(tmp_path, Echo(), clock=OwnedClock()) as world:
        await acquainted(world)
        await world.discord.outage(True)
        world.ada.says(world.room, "meanwhile", mention=True)
        await world.until(lambda: _state(world) == "degraded")
        await world.discord.outage(False)
        await world.until(lambda: world.discord.attached())
        await answered(world, "meanwhile")


class Unready:
    """A connection of which the library knows only its own thread: it broke before it was ready."""

    thread_id = 0
    _max_heartbeat_timeout = 60.0

    def __init__(self, client: discord.Client) -> None:
        self._connection = client._connection


async def test_no_heartbeat_outlives_its_client_not_even_that_of_a_connection_that_was_never_ready() -> None:
    """It would beat on for a loop that is gone."""
    client, other = (discord.Client(intents=discord.Intents.none()) for _ in range(2))
    beats = [KeepAliveHandler(ws=cast(DiscordWebSocket, Unready(each)), interval=60.0) for each in (client, other)]
    for beat in beats:
        beat.start()
    await socket._end(client, seconds=2.0)
    await asyncio.to_thread(beats[0].join, 10)
    assert [beat.is_alive() for beat in beats] == [False, True]
    await socket._end(other, seconds=2.0)
    await asyncio.to_thread(beats[1].join, 10)


async def test_no_crash_loop_can_use_up_the_sessions_of_a_day(tmp_path: Path) -> None:
    clock = OwnedClock()
    async with HastyWorld(tmp_path, Echo(), clock=clock, patience=socket.Limits(sessions_at_once=3)) as world:
        for _ in range(2):
            await world.crash()
            await world.start()
        await world.crash()
        await world.start(attached=False)
        await world.eventually(lambda: _state(world) == "standing by")
        assert "so often" in (await world.listener()).last_error
        assert world.discord.identifies() == 3
        await clock.advance(socket.IDENTIFY_SECONDS + 1)
        await world.until(lambda: world.discord.attached())

        assert world.discord.identifies() == 4
        assert json.loads(world.note("identifies") or "")["left"] < 1


def test_the_sessions_of_a_day_stay_below_what_discord_allows() -> None:
    left, now, begun = socket.Allowance(float(socket.IDENTIFIES_BURST), 0.0), 0.0, 0
    while now < 24 * 3600:
        left = left.at_time(now)
        if left.left >= 1:
            left, begun = socket.Allowance(left.left - 1, now), begun + 1
        now += 5.0

    assert 750 < begun <= socket.IDENTIFIES_A_DAY


def _state(world: DiscordWorld) -> Any:
    return next(part.state for part in world.gateway._parts.supervisor.health() if part.name == "discord@main")

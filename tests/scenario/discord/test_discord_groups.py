"""Discord's servers: who is meant in a channel, where the answer stands, and that nobody is ever pinged by it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.simulators.discord.simulator import DiscordServer
from tests.worlds.discord import DiscordWorld
from tests.worlds.world import Echo, Gate, OwnedClock, Scripted
from tidings.core.agent import ChoicesOffered, Event, FileMade, Finished, TextDelta, Turn
from tidings.core.inbound.commands import Command
from tidings.core.roles import Permission
from tidings.core.types import Author, Body, Target


class Rememberer:
    """Says what was said here before."""

    def __init__(self, gates: dict[str, Gate] | None = None) -> None:
        self._gates = gates or {}

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        if turn.message.text in self._gates:
            await self._gates[turn.message.text].wait()
        before = [entry.text for entry in turn.history if entry.author is Author.PERSON]
        yield TextDelta(f"{turn.message.text} after {', '.join(before) or 'nothing'}")
        yield Finished()


def said(*texts: str) -> list[str]:
    return [f"you said: {text}" for text in texts]


def reason_of_death(world: DiscordWorld) -> str:
    (row,) = world.rows("SELECT reason FROM deliveries WHERE kind = 'final' AND state = 'dead'")
    return str(row["reason"])


def state_of(world: DiscordWorld, delivery: str) -> str:
    (row,) = world.rows("SELECT state FROM deliveries WHERE id = ?", delivery)
    return str(row["state"])


async def until_dead(world: DiscordWorld) -> None:
    await world.until(lambda: world.rows("SELECT 1 FROM deliveries WHERE kind = 'final' AND state = 'dead'"))


# Who is meant.


async def test_each_channel_may_have_a_rule_of_its_own_and_a_thread_too(tmp_path: Path) -> None:
    echo = Echo()
    async with DiscordWorld(tmp_path, echo, settings={"channels": "never"}, clock=OwnedClock()) as world:
        free, strict = world.discord.channel("free"), world.discord.channel("strict")
        aside = world.ada.opens_thread(free, "aside")
        world.account_settings["chats"] = {free.id: "all", strict.id: "addressed", aside.id: "never"}
        await world.restart()
        world.ada.says(world.room, "nobody answers here", mention=True)
        world.ada.says(aside, "nor here", mention=True)
        world.ada.says(strict, "who is meant?")
        world.ada.says(free, "one")
        world.ada.says(strict, "two", mention=True)
        world.ada.says(world.ada.private(), "three")
        await world.until(lambda: len(world.posts) == 3)
        await world.settled()

        assert world.discord.posts_in(free) == said("one")
        assert world.discord.posts_in(strict) == said("two")
    assert sorted(echo.heard) == ["one", "three", "two"]


async def test_a_reply_to_what_it_said_before_a_restart_is_for_it_with_ping_or_without(tmp_path: Path) -> None:
    echo = Echo()
    async with DiscordWorld(tmp_path, echo, clock=OwnedClock()) as world:
        asked = world.ada.says(world.room, "one", mention=True)
        await world.until(lambda: world.posts)
        (answer,) = world.discord.visible(world.room)
        await world.restart()
        world.ada.says(world.room, "who asked you, me?", reply_to=asked)
        world.ada.says(world.room, "two", reply_to=answer.id, ping=False)
        world.ada.says(world.room, "three", reply_to=answer.id)
        await world.until(lambda: len(world.posts) == 3)

    assert echo.heard == ["one", "two", "three"]


async def test_a_shout_to_everyone_is_not_for_it(tmp_path: Path) -> None:
    echo = Echo()
    async with DiscordWorld(tmp_path, echo) as world:
        for shout in ("@everyone lunch!", "@here lunch!", "@tidings lunch!"):
            world.ada.says(world.room, shout)
        world.ada.says(world.room, "hi", mention=True)
        await world.until(lambda: world.posts)
        await world.settled()

    assert echo.heard == ["hi"]


async def test_a_channel_may_be_admitted_as_a_whole_with_its_threads(tmp_path: Path) -> None:
    async with DiscordWorld(tmp_path, Echo(), clock=OwnedClock()) as world:
        hall = world.discord.channel("hall")
        world.allow = [f"discord:{world.room.id}"]
        await world.restart()
        bob = world.discord.person("bob")
        thread = bob.opens_thread(world.room, "aside")
        bob.says(hall, "elsewhere", mention=True)
        bob.says(world.room, "one", mention=True)
        bob.says(thread, "two", mention=True)
        await world.until(lambda: len(world.posts) == 2)
        await world.settled()

        assert world.discord.posts_in(world.room) == said("one")
        assert world.discord.posts_in(thread) == said("two")
        assert world.discord.posts_in(hall) == []


# What changes and what comes along.


async def test_a_correction_counts_though_it_no_longer_names_the_bot(tmp_path: Path) -> None:
    gate = Gate()
    echo = Echo({"first": gate})
    async with DiscordWorld(tmp_path, echo, clock=OwnedClock()) as world:
        world.ada.says(world.room, "first", mention=True)
        await gate.reached()
        named, unnamed = (world.ada.says(world.room, text, mention=True) for text in ("secnod", "thrid"))
        world.ada.edits(named, f"<@{world.discord.bot.id}> second")
        world.ada.edits(unnamed, "third")
        edits = "SELECT 1 FROM inbox WHERE key LIKE '%:edited:%'"
        await world.eventually(lambda: len(world.rows(edits)) == 2)
        gate.open()
        await world.until(lambda: len(world.posts) == 3)

    assert echo.heard == ["first", "second", "third"]


async def test_an_edit_after_the_answer_and_one_of_a_stranger_bring_no_second(tmp_path: Path) -> None:
    echo = Echo()
    async with DiscordWorld(tmp_path, echo, clock=OwnedClock()) as world:
        bob = world.discord.person("bob")
        asked, by_bob = world.ada.says(world.room, "one", mention=True), bob.says(world.room, "let me in", mention=True)
        await world.until(lambda: len(world.posts) == 1)
        world.ada.edits(asked, f"<@{world.discord.bot.id}> one, or two?")
        bob.edits(by_bob, f"<@{world.discord.bot.id}> please")
        world.ada.deletes(asked)
        world.ada.says(world.room, "three", mention=True)
        await world.until(lambda: len(world.posts) == 2)
        await world.settled()

        assert world.discord.posts_in(world.room) == said("one", "three")
    assert echo.heard == ["one", "three"]


async def test_a_file_in_a_channel_comes_along_with_the_mention(tmp_path: Path) -> None:
    async def fetch(turn: Turn) -> str:
        texts = [await turn.desk.fetch(attachment) for attachment in turn.message.attachments]
        return f"read {[await asyncio.to_thread(path.read_bytes) for path in texts]}"

    async with DiscordWorld(tmp_path, Scripted(fetch), clock=OwnedClock()) as world:
        world.ada.says(world.room, "unseen", files=[("a.txt", b"not for you")])
        world.ada.says(world.room, mention=True, files=[("b.txt", b"for you")])
        await world.until(lambda: world.posts)
        await world.settled()

        assert world.discord.posts_in(world.room) == ["read [b'for you']"]


# Threads that open with an answer.


async def test_the_conversation_goes_on_in_its_thread_after_a_restart(tmp_path: Path) -> None:
    async with DiscordWorld(tmp_path, Rememberer(), clock=OwnedClock(), settings={"threads": True}) as world:
        first, second = (world.ada.says(world.room, text, mention=True) for text in ("bread", "wine"))
        await world.until(lambda: len(world.posts) == 2)
        await world.restart()
        world.ada.says(first, "flour")
        world.ada.says(second, "grapes", mention=True)
        await world.until(lambda: len(world.posts) == 4)

        assert world.discord.posts_in(first) == ["bread after nothing", "flour after bread"]
        assert world.discord.posts_in(second) == ["wine after nothing", "grapes after wine"]
        assert world.discord.posts_in(world.room) == []
        # One thread each, named after what opened it.
        assert [world.discord.places.channels[id].name for id in (first, second)] == ["bread", "wine"]


def lost_before(discord: DiscordServer) -> None:
    discord.drop_next(False, "thread_from")


def lost_after(discord: DiscordServer) -> None:
    discord.drop_next(True, "thread_from")


def a_fault(discord: DiscordServer) -> None:
    discord.fail_next(503, method="thread_from", count=2)


def limited(discord: DiscordServer) -> None:
    discord.fail_next(429, retry_after=20.0, method="thread_from")


@pytest.mark.parametrize("trouble", [lost_before, lost_after, a_fault, limited])
async def test_a_thread_that_is_hard_to_open_opens_once(
    tmp_path: Path, trouble: Callable[[DiscordServer], None]
) -> None:
    async with DiscordWorld(tmp_path, Echo(), clock=OwnedClock(), settings={"threads": True}) as world:
        trouble(world.discord)
        asked = world.ada.says(world.room, "hi", mention=True)
        await world.until(lambda: world.posts)
        await world.settled()

        assert world.discord.posts_in(asked) == said("hi")
        assert [effect.act for effect in world.discord.effects if effect.act == "thread"] == ["thread"]


async def test_a_crash_between_the_thread_and_the_answer_loses_and_repeats_nothing(tmp_path: Path) -> None:
    clock = OwnedClock()
    async with DiscordWorld(tmp_path, Echo(), clock=clock, settings={"threads": True}) as world:
        held = world.discord.hold_next("send")
        asked = world.ada.says(world.room, "hi", mention=True)
        await world.until(lambda: world.discord.calls("send"))
        await world.crash()
        held.set()
        await world.start()
        await world.until(lambda: world.posts)
        await world.settled()

        assert world.discord.posts_in(asked) == said("hi")
        assert world.discord.posts_in(world.room) == []


async def test_a_command_and_a_private_message_open_no_thread(tmp_path: Path) -> None:
    async with DiscordWorld(tmp_path, Echo(), clock=OwnedClock(), settings={"threads": True}) as world:
        world.ada.says(world.room, "/whoami", mention=True)
        world.ada.says(world.ada.private(), "hi")
        await world.until(lambda: len(world.posts) == 2)
        await world.settled()

        assert len(world.discord.posts_in(world.room)) == 1
        assert world.discord.posts_in(world.ada.private()) == said("hi")
        assert world.discord.calls("thread_from") == ()


REFUSALS: dict[str, Callable[[DiscordWorld], None]] = {
    "no right to open one": lambda world: world.discord.forbid(world.room, "create_public_threads"),
    "no right to write in one": lambda world: world.discord.forbid(world.room, "send_messages_in_threads"),
}


@pytest.mark.parametrize("why", REFUSALS)
@pytest.mark.parametrize("grows", [False, True])
async def test_where_no_thread_can_be_opened_the_answer_stands_below_the_question(
    tmp_path: Path, why: str, grows: bool
) -> None:
    gate, clock = Gate(), OwnedClock()

    async def pause(turn: Turn) -> None:
        await clock.sleep(10.0)

    begun = ("so far", pause) if grows else ()
    agent = Scripted(gate, *begun, " and the end")
    async with DiscordWorld(tmp_path, agent, clock=clock, settings={"threads": True}) as world:
        asked = world.ada.says(world.room, "hi", mention=True)
        await world.until(gate.entered.is_set)
        REFUSALS[why](world)
        gate.open()
        await world.until(lambda: any("the end" in post for post in world.posts))
        await world.settled()

        (answer,) = world.discord.visible(world.room)
        assert answer.text == "".join((*begun[:1], " and the end")).strip()
        assert answer.reply_to == asked
        assert world.discord.visible(asked) == ()
        assert {row["state"] for row in world.rows("SELECT state FROM deliveries")} == {"delivered"}


@pytest.mark.parametrize("after", [False, True])
async def test_an_answer_in_doubt_where_no_thread_can_be_opened_is_there_once(tmp_path: Path, after: bool) -> None:
    clock = OwnedClock()
    async with DiscordWorld(tmp_path, Echo(), clock=clock, settings={"threads": True}) as world:
        world.discord.forbid(world.room, "create_public_threads")
        world.discord.drop_next(after, method="send")
        world.ada.says(world.room, "hi", mention=True)
        await world.until(lambda: world.discord.calls("send"))
        await world.crash()
        await clock.advance(400.0)
        await world.start()
        await world.until(lambda: world.rows("SELECT 1 FROM deliveries WHERE kind = 'final' AND state = 'delivered'"))

        assert world.discord.posts_in(world.room) == said("hi")
        assert world.posts == said("hi")


# Who is named by their own id is written to in private.


async def test_a_person_who_is_named_by_their_id_is_written_to_in_their_direct_messages(tmp_path: Path) -> None:
    clock = OwnedClock()
    async with DiscordWorld(tmp_path, Echo(), clock=clock) as world:
        target = Target(adapter="discord", chat=world.ada.id)
        first = await world.gateway.desk.owe(target, Body(text="one"), "test")
        await world.until(lambda: world.posts == ["one"])
        world.discord.drop_next(True, method="send", channel=world.ada.private())
        second = await world.gateway.desk.owe(target, Body(text="two"), "test")
        await world.until(lambda: world.posts == ["one", "two"])
        await world.crash()
        await clock.advance(400.0)
        await world.start()
        for delivery in (first, second):
            await world.until(lambda id=delivery: state_of(world, id) == "delivered")  # type: ignore[misc]

        assert world.discord.posts_in(world.ada.private()) == ["one", "two"]


async def test_an_id_that_is_neither_a_channel_nor_a_person_says_so(tmp_path: Path) -> None:
    async with DiscordWorld(tmp_path, Echo(), clock=OwnedClock()) as world:
        nowhere = Target(adapter="discord", chat="123456789012345678")
        owed = await world.gateway.desk.owe(nowhere, Body(text="one"), "test")
        await world.until(lambda: state_of(world, owed) == "dead")

        assert (
            await world.gateway.desk.delivery(owed)
        ).reason == "no channel or person has this id, or the bot was never there"
        assert world.posts == []


# Where an answer cannot go, it goes nowhere.


def thread_removed(world: DiscordWorld, place: Any) -> None:
    world.discord.remove_channel(place)


def channel_removed(world: DiscordWorld, place: Any) -> None:
    world.discord.remove_channel(world.room)


def bot_removed(world: DiscordWorld, place: Any) -> None:
    world.discord.remove_bot(world.discord.places.guilds[world.room.guild])


def thread_locked(world: DiscordWorld, place: Any) -> None:
    world.discord.archive(place, locked=True)


def may_not_write(world: DiscordWorld, place: Any) -> None:
    world.discord.forbid(world.room, "send_messages_in_threads")


def may_not_see(world: DiscordWorld, place: Any) -> None:
    world.discord.forbid(world.room, "view_channel")


HAPPENINGS: dict[Callable[[DiscordWorld, Any], None], str] = {
    thread_removed: "is gone",
    channel_removed: "is gone",
    bot_removed: "was removed from the server",
    thread_locked: "locked",
    may_not_write: "lacks a permission",
    may_not_see: "may not see this channel",
}
# What stands there already may be changed by who may not write any more.
GROWING = [happens for happens in HAPPENINGS if happens is not may_not_write]


@pytest.mark.parametrize(
    ("happens", "grows"),
    [*((happens, False) for happens in HAPPENINGS), *((happens, True) for happens in GROWING)],
)
async def test_what_cannot_be_said_in_a_thread_is_dead_with_a_reason_and_said_nowhere_else(
    tmp_path: Path, happens: Callable[[DiscordWorld, Any], None], grows: bool
) -> None:
    gate, clock = Gate(), OwnedClock()

    async def pause(turn: Turn) -> None:
        await clock.sleep(10.0)

    begun = ("so far", pause) if grows else ()
    async with DiscordWorld(tmp_path, Scripted(*begun, gate, " and the secret"), clock=clock) as world:
        thread = world.ada.opens_thread(world.room, "aside")
        world.ada.says(thread, "go on", mention=True)
        await world.until(gate.entered.is_set)
        happens(world, thread)
        gate.open()
        await until_dead(world)
        await world.settled()

        assert HAPPENINGS[happens] in reason_of_death(world)
        assert [message.text for message in world.discord.sent if "secret" in message.text] == []
        assert {message.channel for message in world.discord.sent} <= {thread.id}
        sends = len(world.discord.calls("send"))
        await clock.advance(90)
        # It is not tried again and again: Discord counts every no against us.
        assert len(world.discord.calls("send")) == sends


async def test_a_person_who_takes_no_messages_is_not_answered_elsewhere(tmp_path: Path) -> None:
    gate = Gate()
    async with DiscordWorld(tmp_path, Scripted(gate, "the secret"), clock=OwnedClock()) as world:
        world.ada.says(world.ada.private(), "go on")
        await gate.reached()
        world.ada.blocks()
        gate.open()
        await until_dead(world)

        assert reason_of_death(world) == "this person takes no messages from the bot"
        assert world.posts == []


# Nobody is pinged.

SHOUTS = (
    "@everyone and @here, {ada}, {nick}, {bob} and {role}: `@everyone` [@here](https://a.org) > {bob}\n\n- @everyone"
)


def shout(world: DiscordWorld) -> str:
    guild = world.discord.places.guilds[world.room.guild]
    bob = world.discord.person("bob")
    role = world.discord.role("cooks", guild, world.ada.id, bob.id)
    return SHOUTS.format(ada=world.ada.mention, nick=f"<@!{bob.id}>", bob=bob.mention, role=f"<@&{role}>")


def said_by_us(discord: DiscordServer) -> list[Any]:
    """Every call of the bot's that says something, refused ones included."""
    return [call for call in discord.calls() if isinstance(call.body, dict) and "content" in call.body]


async def test_nobody_is_pinged_whatever_is_said_and_by_whatever_way(tmp_path: Path) -> None:
    clock, words = OwnedClock(), ""
    agent = Scripted()
    (tmp_path / "a.txt").write_bytes(b"text")

    async def pause(turn: Turn) -> None:
        await clock.sleep(2.0)

    def shouts(turn: Turn) -> str:
        return words

    def fails(turn: Turn) -> None:
        raise RuntimeError(words)

    ways: dict[str, tuple[Any, ...]] = {
        "at once": (shouts,),
        "growing": (shouts, pause, " and ", pause, shouts),
        "long": (lambda turn: f"{words}\n\n" * 30,),
        "as a file": (lambda turn: f"{words}\n\n" * 200,),
        "with a file": ("here", FileMade(str(tmp_path / "a.txt"), "@everyone.txt")),
        "with a file that is gone": ("here", FileMade(str(tmp_path / "gone"), "@everyone <@1>.txt")),
        "with a button": (shouts, ChoicesOffered(("@everyone",))),
        "with an error": ("so far", fails),
    }
    commands = [Command("ask", "ask me", None, Permission.TALK)]
    async with DiscordWorld(tmp_path / "home", agent, clock=clock, commands=commands) as world:
        words = shout(world)
        await world.until(lambda: "ask" in world.discord.commands())
        for number, (way, steps) in enumerate(ways.items(), 1):
            agent.steps = steps
            for place in (world.room, world.ada.private()):
                world.ada.says(place, f"{way} {words}", mention=place is world.room)
            world.ada.commands("/ask", world.room, text=words)
            await world.until(lambda due=3 * number: len(agent.turns) == due and not world._unsettled())  # type: ignore[misc]
        # What only one person sees, and what the gateway itself has to say to a stranger.
        world.ada.commands("/whoami", world.room, text=words)
        world.discord.person("bob").commands("/stop", world.room, text=words)
        await world.until(lambda: len([message for message in world.discord.sent if message.only_for]) == 2)

        assert any(world.ada.mention in call.text for call in world.discord.calls("edit"))
        for phrase in ("I could not finish this", "I could not send @everyone", "The whole answer is in the file"):
            assert len([post for post in world.posts if phrase in post]) == 3, phrase
        assert [call.body["allowed_mentions"] for call in said_by_us(world.discord)] == [{"parse": []}] * len(
            said_by_us(world.discord)
        )
        assert world.discord.pings == []


# Other bots.


async def test_two_of_our_bots_that_face_each_other_stop_at_once(tmp_path: Path) -> None:
    """Both hear everything, and each names the other in all that it says."""

    def greet(turn: Turn) -> str:
        ours = {bot.account: f"<@{bot.id}>" for bot in discord.places.bots.values()}
        other = "other" if turn.message.target.account == "main" else "main"
        return f"{ours[other]}, what do you think of that?"

    settings, clock = {"channels": "all"}, OwnedClock()
    agent = Scripted(greet)
    async with DiscordWorld(tmp_path, agent, clock=clock, settings=settings, accounts={"other": {}}) as world:
        discord = world.discord
        world.ada.says(world.room, "hello, you two", mention=True)
        await world.until(lambda: len(world.posts) == 2)
        await world.settled()
        await clock.advance(60)

        assert sorted(message.account for message in discord.sent) == ["main", "other"]
    assert len(agent.turns) == 2


async def test_two_gateways_with_a_bot_each_stop_at_once_too(tmp_path: Path) -> None:
    first, second = Echo(), Echo()
    settings = {"channels": "all"}
    async with DiscordWorld(tmp_path / "one", first, clock=OwnedClock(), settings=settings) as one:
        other = one.discord.add_bot("main-of-two", "token.of.two", "two")
        one.discord.invite(one.discord.places.guilds[one.room.guild], account="main-of-two")
        two = DiscordWorld(tmp_path / "two", second, discord=one.discord, settings={**settings, "token": other.token})
        await two.start(attached=False)
        await one.discord.until(lambda discord: discord.attached("main-of-two"))
        one.ada.says(one.room, "hello, you two")
        await one.until(lambda: len(one.posts) == 2)
        await asyncio.gather(one.settled(), two.settled())
        await two.end()

        assert sorted(message.account for message in one.discord.sent) == ["main", "main-of-two"]
    assert (first.heard, second.heard) == (["hello, you two"], ["hello, you two"])

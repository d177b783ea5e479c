"""Threads, channels and the assistant's pane on Slack: each its own conversation, and nobody is called by an answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.simulators.slack.simulator import Call, SlackServer, choices_of, text_of
from tests.worlds.slack import SlackWorld
from tests.worlds.world import Echo, Gate, OwnedClock, Scripted
from tidings.adapters.slack import render
from tidings.core.agent import ChoicesOffered, Event, FileMade, Finished, TextDelta, Turn
from tidings.core.errors import TidingsError


def said(*texts: str) -> list[str]:
    return [f"you said: {text}" for text in texts]


def owed(world: SlackWorld) -> set[str]:
    return {row["state"] for row in world.rows("SELECT state FROM deliveries WHERE kind IN ('final', 'reply')")}


def finished(world: SlackWorld) -> bool:
    """Every run has ended, and all that is owed has arrived."""
    running = "SELECT 1 FROM inbox WHERE state IN ('waiting', 'running')"
    return owed(world) == {"delivered"} and not world.rows(running)


# Each thread is a conversation.


async def test_a_thread_is_a_conversation_that_goes_on_without_a_mention_after_a_restart(tmp_path: Path) -> None:
    agent = Scripted("ok")
    async with SlackWorld(tmp_path, agent, clock=OwnedClock()) as world:
        first, second = (world.ada.says(world.room, text, mention=True) for text in ("one", "two"))
        await world.until(lambda: len(world.posts) == 2)
        await world.restart()
        world.ada.says(world.room, "and then?", thread=first)
        world.ada.says(world.room, "for all to see", thread=second, broadcast=True)
        world.ada.says(world.room, "not for the app")
        await world.until(lambda: len(world.posts) == 4)
        await world.settled()

        for root in (first, second):
            assert world.slack.posts_in(world.room, root.ts) == ["ok", "ok"]
        assert world.slack.posts_in(world.room, "") == []
        ids = [turn.message.conversation.id for turn in agent.turns]
        assert sorted(set(ids)) == [f"slack:main:{world.room.id}:{root.ts}" for root in (first, second)]
        assert len(ids) == 4


async def test_in_a_thread_of_others_it_speaks_when_it_was_named_and_from_then_on(tmp_path: Path) -> None:
    echo = Echo()
    async with SlackWorld(tmp_path, echo, clock=OwnedClock()) as world:
        bob = world.slack.person("bob")
        root = bob.says(world.room, "what shall we eat?")
        world.ada.says(world.room, "soup", thread=root)
        world.ada.says(world.room, "what do you think?", thread=root, mention=True)
        await world.until(lambda: len(world.posts) == 1)
        world.ada.says(world.room, "and to drink?", thread=root)
        # Who is not admitted is not heard there either.
        bob.says(world.room, "beer", thread=root)
        await world.until(lambda: len(world.posts) == 2)
        await world.settled()

        assert world.slack.posts_in(world.room, root.ts) == said("what do you think?", "and to drink?")
    assert echo.heard == ["what do you think?", "and to drink?"]


async def test_a_thread_in_private_is_answered_in_it_and_is_not_the_rest(tmp_path: Path) -> None:
    agent = Scripted("ok")
    async with SlackWorld(tmp_path, agent, clock=OwnedClock()) as world:
        root = world.ada.says(world.ada.direct, "one")
        await world.until(lambda: world.posts)
        world.ada.says(world.ada.direct, "two", thread=root)
        await world.until(lambda: len(world.posts) == 2)

        assert world.slack.posts_in(world.ada.direct, "") == ["ok"]
        assert world.slack.posts_in(world.ada.direct, root.ts) == ["ok"]
    assert len({turn.message.conversation.id for turn in agent.turns}) == 2


async def test_a_private_channel_is_a_channel(tmp_path: Path) -> None:
    async with SlackWorld(tmp_path, Echo(), clock=OwnedClock()) as world:
        vault = world.slack.channel("vault", private=True)
        asked = world.ada.says(vault, "hi", mention=True)
        await world.until(lambda: finished(world))

        assert world.slack.posts_in(vault, asked.ts) == said("hi")


async def test_commands_in_a_thread_are_for_that_thread_alone(tmp_path: Path) -> None:
    """Slack takes no slash commands there."""
    gates = {"a": Gate(), "b": Gate()}
    async with SlackWorld(tmp_path, Echo(gates), clock=OwnedClock()) as world:
        first, second = (world.ada.says(world.room, text, mention=True) for text in ("a", "b"))
        for gate in gates.values():
            await gate.reached()
        world.ada.says(world.room, "!stop", thread=first)
        assert (await world.outcome(first.id)).kind == "cancelled"
        gates["b"].open()
        await world.until(lambda: finished(world))

        assert world.slack.posts_in(world.room, second.ts) == said("b")
        assert not [text for text in world.slack.posts_in(world.room, first.ts) if "you said" in text]
        assert world.slack.posts_in(world.room, "") == []


# The assistant's pane.


async def test_an_answer_grows_in_the_pane_below_a_status_which_goes_also_when_it_fails(tmp_path: Path) -> None:
    clock = OwnedClock()
    gate = Gate()

    async def pause(turn: Turn) -> None:
        await clock.sleep(2.0)

    def fails(turn: Turn) -> None:
        raise RuntimeError("no")

    agent = Scripted("one ", pause, "two ", pause, "three", gate)
    async with SlackWorld(tmp_path, agent, clock=clock) as world:
        root = world.ada.opens_assistant()
        world.ada.says(world.ada.direct, "count", thread=root)
        await world.until(lambda: gate.entered.is_set())
        gate.open()
        await world.until(lambda: finished(world))
        (sent,) = world.slack.sent
        assert (text_of(sent), sent.stream, sent.thread) == ("one two three", "stopped", root.ts)
        await world.until(lambda: not world.slack.status(world.ada.direct, root.ts))

        agent.steps = (pause, pause, fails)
        world.ada.says(world.ada.direct, "again", thread=root)
        await world.until(lambda: world.slack.status(world.ada.direct, root.ts))
        await world.until(lambda: len(world.posts) == 2 and finished(world))
        await world.until(lambda: not world.slack.status(world.ada.direct, root.ts))
        assert "could not finish" in world.posts[1]


async def test_an_agents_session_works_while_its_answer_grows_and_is_called_after_what_was_said_first(
    tmp_path: Path,
) -> None:
    """A session is a thread in the direct messages, whose root is the person's own message."""
    gates = {"count: for me": Gate()}
    settings, server = {"prompts": ("What is new?",)}, {"view": "agent"}
    async with SlackWorld(tmp_path, Echo(gates), settings=settings, clock=OwnedClock(), server=server) as world:
        direct = world.ada.direct
        world.ada.opens_messages()
        world.ada.opens_messages("home")
        await world.until(lambda: world.slack.truth.prompts)
        assert world.slack.truth.prompts == {(direct.id, ""): (("What is new?", "What is new?"),)}
        root = world.ada.says(direct, "hello")
        await world.until(lambda: finished(world))
        world.ada.says(direct, "count: for me", thread=root)
        await world.until(lambda: world.slack.session(direct, root.ts) == "processing")
        gates["count: for me"].open()
        await world.until(lambda: finished(world) and len(world.posts) == 2)
        await world.until(lambda: world.slack.session(direct, root.ts) == "active")
        assert world.slack.truth.titles[direct.id, root.ts] == "count: for me"
        # Who has given it another name keeps it.
        world.ada.renames(root, "Numbers")
        world.ada.says(direct, "again", thread=root)
        await world.until(lambda: finished(world) and len(world.posts) == 3)
        assert world.slack.truth.titles[direct.id, root.ts] == "Numbers"
        assert not world.slack.calls("assistant.threads.setStatus")
        assert not world.slack.calls("assistant.threads.setTitle")


@pytest.mark.parametrize("view", ["assistant", "neither"])
async def test_an_app_without_sessions_shows_its_work_as_before_and_asks_for_them_once(
    tmp_path: Path, view: str
) -> None:
    gates = {"one": Gate(), "two": Gate()}
    async with SlackWorld(tmp_path, Echo(gates), clock=OwnedClock(), server={"view": view}) as world:
        root = world.ada.opens_assistant()
        for text, gate in gates.items():
            world.ada.says(world.ada.direct, text, thread=root)
            await world.until(lambda: world.slack.status(world.ada.direct, root.ts))
            gate.open()
            await world.until(lambda: finished(world))
            await world.until(lambda: not world.slack.status(world.ada.direct, root.ts))
        asked = [call.method for call in world.slack.calls() if call.method.startswith("agents.")]
        assert len(asked) == 1
        assert world.slack.truth.titles[world.ada.direct.id, root.ts] == "one"


async def test_a_stop_in_slacks_own_way_stops_that_run_and_ends_the_work_of_its_session(tmp_path: Path) -> None:
    gate = Gate()
    agent = Scripted("half an ", gate, "answer")
    async with SlackWorld(tmp_path, agent, clock=OwnedClock(), server={"view": "agent"}) as world:
        asked = world.ada.says(world.room, "go on", mention=True)
        await world.until(lambda: world.posts == ["half an"])
        assert world.slack.session(world.room, asked.ts) == "processing"
        world.ada.stops(world.slack.sent[0])
        assert (await world.outcome(asked.id)).kind == "cancelled"
        await world.until(lambda: finished(world))
        await world.until(lambda: world.slack.session(world.room, asked.ts) == "active")
        (told,) = world.slack.posts_in(world.room, asked.ts)
        assert told.startswith("half an \n\nStopped by") or told.startswith("half an\n\nStopped by")


async def test_a_late_stop_in_slacks_own_way_neither_stops_the_next_run_nor_says_anything(tmp_path: Path) -> None:
    gates = {"two": Gate()}
    async with SlackWorld(tmp_path, Echo(gates), clock=OwnedClock(), server={"view": "agent"}) as world:
        asked = world.ada.says(world.room, "one", mention=True)
        await world.until(lambda: finished(world))
        (first,) = world.slack.sent
        world.ada.says(world.room, "two", thread=asked)
        await gates["two"].reached()
        pressed = world.slack.tells(
            {
                "type": "agent_session_stopped",
                "channel": world.room.id,
                "thread_ts": asked.ts,
                "user": world.ada.id,
                "streaming_message_ts": [first.ts],
                "event_ts": world.slack.truth.next_ts(),
            }
        )
        await world.until(lambda: pressed.state == "confirmed")
        gates["two"].open()
        await world.until(lambda: finished(world) and len(world.posts) == 2)
        assert world.slack.posts_in(world.room, asked.ts) == said("one", "two")


@pytest.mark.parametrize("private", [True, False])
async def test_a_stream_that_slack_says_was_stopped_is_a_stop_where_only_one_person_could_press_it(
    tmp_path: Path, private: bool
) -> None:
    """An app that is not told of the button hears of it only when its answer can grow no more."""
    gate, late = Gate(), Gate()
    agent = Scripted("half an ", gate, "answer", late)
    async with SlackWorld(tmp_path, agent, clock=OwnedClock()) as world:
        world.slack.app.events.discard("agent_session_stopped")
        place = world.ada.direct if private else world.room
        root = world.ada.says(place, "hello") if private else None
        if root:
            gate.open()
            late.open()
            await world.until(lambda: finished(world))
            gate, late = Gate(), Gate()
            agent.steps = ("half an ", gate, "answer", late)
        asked = world.ada.says(place, "go on", thread=root or "", mention=not private)
        await world.until(lambda: world.posts[-1:] == ["half an"])
        assert world.ada.stops(world.slack.sent[-1]) is None
        gate.open()
        await world.until(lambda: any(call.verdict == "stopped_by_user" for call in world.slack.calls()))
        if not private:
            await world.rest()
            late.open()
        await world.until(lambda: finished(world))
        assert (await world.outcome(asked.id)).kind == ("cancelled" if private else "completed")
        assert ("Stopped by" in world.posts[-1]) is private


async def test_a_pane_whose_abilities_are_missing_still_answers(tmp_path: Path) -> None:
    """Neither prompts, nor a title, nor a status."""
    settings = {"prompts": ("What is new?",)}
    async with SlackWorld(tmp_path, Echo(), settings=settings, clock=OwnedClock()) as world:
        world.slack.drop_scope(world.slack.main, "assistant:write")
        root = world.ada.opens_assistant()
        world.ada.says(world.ada.direct, "hi", thread=root)
        await world.until(lambda: finished(world))

        assert world.slack.posts_in(world.ada.direct, root.ts) == said("hi")
        assert (await world.listener()).restarts == 0


# Files.


class Reads:
    """Says what is in a file, or why it cannot be had."""

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        for attachment in turn.message.attachments:
            try:
                path = await turn.desk.fetch(attachment)
            except TidingsError as error:
                yield TextDelta(f"no: {error}")
            else:
                yield TextDelta((await asyncio.to_thread(path.read_bytes)).decode())
        yield Finished()


@pytest.mark.parametrize("name", ["a.txt", "page.html"])
async def test_a_login_page_is_not_a_file(tmp_path: Path, name: str) -> None:
    """Whoever may not have a file is shown a page to sign in, with a status of 200."""
    async with SlackWorld(tmp_path, Reads(), clock=OwnedClock()) as world:
        world.ada.says(world.room, "look", mention=True, files=[(name, b"<p>the file</p>")])
        await world.until(lambda: finished(world))
        world.slack.drop_scope(world.slack.main, "files:read")
        world.ada.says(world.room, "look", mention=True, files=[(name, b"<p>the file</p>")])
        await world.until(lambda: len(world.posts) == 2 and finished(world))

        assert world.posts[0] == "<p>the file</p>"
        assert world.posts[1].startswith("no: ")
        assert "files:read" in world.posts[1]


# What it looks like in the end.

TABLE = "| name | count |\n|---|---|\n| apples | 3 |\n| pears | 12 |"


@pytest.mark.parametrize("grows", [False, True])
@pytest.mark.parametrize("place", ["thread", "private"])
async def test_a_table_can_be_read_however_it_came(tmp_path: Path, grows: bool, place: str) -> None:
    clock = OwnedClock()

    async def pause(turn: Turn) -> None:
        await clock.sleep(4.0 if grows else 0.0)

    agent = Scripted("Look:\n\n", pause, TABLE[:50], pause, TABLE[50:], pause, "\n\nThat is all.")
    async with SlackWorld(tmp_path, agent, clock=clock) as world:
        if place == "thread":
            world.ada.says(world.room, "go on", mention=True)
        else:
            world.ada.says(world.ada.direct, "go on")
        await world.until(lambda: finished(world))
        (sent,) = world.slack.sent

        if sent.stream:
            # Slack draws no table in a stream, so that it is laid out.
            assert "```" in text_of(sent)
            assert TABLE not in text_of(sent)
        else:
            assert text_of(sent) == f"Look:\n\n{TABLE}\n\nThat is all."
            assert [block["type"] for block in sent.blocks] == ["markdown"]
            assert sent.text.startswith("Look:")
        assert ("stopped" if grows and place == "thread" else "") == sent.stream


async def test_two_tables_are_readable_too(tmp_path: Path) -> None:
    """Slack draws only one in a message."""
    async with SlackWorld(tmp_path, Scripted(f"{TABLE}\n\nand\n\n{TABLE}"), clock=OwnedClock()) as world:
        world.ada.says(world.room, "go on", mention=True)
        await world.until(lambda: finished(world))
        (post,) = world.posts

        assert post.count("apples") == 2
        assert post.count("```") == 4


# Nobody is called.

SHOUTS = (
    "<!channel> <!here|here> <!everyone> @channel @here, @everyone: <@{ada}> <@{ada}|ada> <!subteam^S123> "
    "<!subteam^S123|@cooks> `<!channel>` [<!here>](https://a.org) > <@{bob}>\n\n- <!everyone>\n\n# <!channel>\n\n"
    "| <!here> | <@{bob}> |\n|---|---|\n| <!channel> | @everyone |"
)


def said_by_us(slack: SlackServer) -> list[Call]:
    """Every call of the app's that says something, refused ones included."""
    return [call for call in slack.calls() if any(name in call.params for name in ("text", "blocks", "markdown_text"))]


def shouted(slack: SlackServer) -> bool:
    """It can be read, and calls nobody."""
    return any("!channel>" in text.replace(render.APART, "") for text in slack.posts)


async def test_nobody_is_called_whatever_is_said_and_by_whatever_way(tmp_path: Path) -> None:
    clock, words = OwnedClock(), ""
    agent = Scripted()
    (tmp_path / "a.txt").write_bytes(b"text")

    async def pause(turn: Turn) -> None:
        await clock.sleep(4.0)

    def shouts(turn: Turn) -> str:
        return words

    def fails(turn: Turn) -> None:
        raise RuntimeError(words)

    def bit_by_bit(start: int, end: int) -> Callable[[Turn], str]:
        return lambda turn: words[start:end]

    ways: dict[str, tuple[Any, ...]] = {
        "straight away": (shouts,),
        "growing": (shouts, pause, " and ", pause, shouts),
        "in pieces": tuple(step for n in range(0, 60, 5) for step in (bit_by_bit(n, n + 5), pause)),
        "long": (lambda turn: f"{words}\n\n" * 60,),
        "with a file": ("here", FileMade(str(tmp_path / "a.txt"), "<!channel> @here.txt")),
        "with a file that is gone": ("here", FileMade(str(tmp_path / "gone"), "<!channel> <@U000000001>.txt")),
        "with a button": (shouts, ChoicesOffered(("<!channel>", "@everyone"))),
        "with an error": ("so far", fails),
    }
    async with SlackWorld(tmp_path / "home", agent, clock=clock) as world:
        bob = world.slack.person("bob")
        words = SHOUTS.format(ada=world.ada.id, bob=bob.id)
        for number, (way, steps) in enumerate(ways.items(), 1):
            agent.steps = steps
            world.ada.says(world.room, way, mention=True)
            world.ada.says(world.ada.direct, way)
            world.ada.commands("/tidings", f"{way} please", world.room)
            await world.until(
                lambda due=3 * number: len(agent.turns) == due and not world._unsettled(),  # type: ignore[misc]
                real_limit=30.0,
            )
        # What the gateway itself has to say.
        world.ada.commands("/tidings", f"stop {words}", world.room)
        bob.commands("/tidings", f"whoami {words}", world.room)
        bob.says(bob.direct, words)
        await world.until(lambda: len({each.whispered_to for each in world.slack.whispers}) == 2)
        await world.until(lambda: not world._unsettled())

        methods = {call.method for call in said_by_us(world.slack)}
        assert {"chat.postMessage", "chat.update", "chat.appendStream"} <= methods
        assert shouted(world.slack)
        assert [label.label for message in world.slack.sent for label in choices_of(message)] != []
        assert world.slack.pings == ()
        assert [each.pings for each in world.slack.whispers if each.pings] == []
        for call in world.slack.calls("chat.postMessage"):
            assert (call.params["unfurl_links"], call.params["unfurl_media"]) == (False, False)


async def test_people_are_called_and_links_unfold_where_the_owner_wants_it(tmp_path: Path) -> None:
    settings = {"mentions": True, "unfurl": True}
    agent = Scripted(lambda turn: f"<@{turn.message.sender.id}> <!channel> https://example.com")
    async with SlackWorld(tmp_path, agent, settings=settings, clock=OwnedClock()) as world:
        world.ada.says(world.room, "go on", mention=True)
        await world.until(lambda: finished(world))

        assert world.slack.pings == (world.ada.id,)
        (call,) = world.slack.calls("chat.postMessage")
        assert (call.params["unfurl_links"], call.params["unfurl_media"]) == (True, True)


# In which order, and who may stop it.


async def test_what_slack_tells_late_is_still_answered_in_the_order_in_which_it_was_said(tmp_path: Path) -> None:
    """Each was confirmed before the next one came; only what runs already cannot be overtaken."""
    gate = Gate()
    echo = Echo({"wait": gate})
    async with SlackWorld(tmp_path, echo, clock=OwnedClock()) as world:
        root = world.ada.says(world.room, "wait", mention=True)
        await gate.reached()
        event = {"type": "message", "channel": world.room.id, "channel_type": "channel", "user": world.ada.id}
        for number in (3, 1, 2):
            ts = f"{int(float(root.ts)) + 10}.00000{number}"
            told = world.slack.tells(
                {**event, "thread_ts": root.ts, "ts": ts, "event_ts": ts, "text": f"number {number}"}
            )
            await world.until(lambda told=told: told.state == "confirmed")  # type: ignore[misc]
        gate.open()
        await world.until(lambda: len(world.posts) == 4)

    assert echo.heard == ["wait", "number 1", "number 2", "number 3"]


async def test_a_stranger_who_presses_stop_stops_nothing_and_the_answer_comes(tmp_path: Path) -> None:
    gate = Gate()
    async with SlackWorld(tmp_path, Scripted("half an ", gate, "answer"), clock=OwnedClock()) as world:
        asked = world.ada.says(world.room, "go on", mention=True)
        await world.until(lambda: world.posts == ["half an"])
        pressed = world.slack.person("bob").stops(world.slack.sent[0])
        assert pressed is not None
        await world.until(lambda: pressed.state == "confirmed")
        gate.open()
        await world.until(lambda: finished(world))

        assert (await world.outcome(asked.id)).kind == "completed"
        assert world.slack.posts_in(world.room, asked.ts)[-1] == "half an answer"
        assert not any(message.streaming for message in world.slack.sent)


async def test_many_answers_that_grow_at_once_keep_to_slacks_limits(tmp_path: Path) -> None:
    """More than Slack lets us open as streams: the others are messages that are edited."""
    clock = OwnedClock()

    async def pause(turn: Turn) -> None:
        await clock.sleep(4.0)

    steps = [f"step {number}. " for number in range(6)]
    agent = Scripted(*(each for step in steps for each in (step, pause)))
    async with SlackWorld(tmp_path, agent, clock=clock) as world:
        world.slack.limit_rates()
        rooms = [world.slack.channel(f"room{number}") for number in range(15)]
        asked = [(room, world.ada.says(room, "go on", mention=True)) for room in rooms]
        await world.until(lambda: len(world.posts) == 15 and finished(world), real_limit=30.0)

        for room, root in asked:
            assert world.slack.posts_in(room, root.ts) == ["".join(steps).strip()]
        assert {message.stream for message in world.slack.sent} == {"stopped", ""}
        said = [call.verdict for call in said_by_us(world.slack)]
        assert said.count("ratelimited") <= len(said) // 20

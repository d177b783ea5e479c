"""What comes in from Slack: who is heard, where the answer goes, and that nothing is lost however it comes."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Literal

import pytest

from tests.simulators.slack.pair import app_for, connected
from tests.simulators.slack.simulator import Message, Odds, choices_of, text_of
from tests.worlds.slack import SlackWorld
from tests.worlds.world import Echo, Gate, OwnedClock, Scripted, Takes, armed
from tidings.adapters.shared import replies
from tidings.adapters.slack import listen
from tidings.adapters.slack.socket import Limits
from tidings.core.agent import ChoicesOffered, Event, Finished, TextDelta, Turn
from tidings.core.desk.health import PartHealth
from tidings.core.inbound.door import QUESTION_CLOSED
from tidings.core.store.sqlite import DATABASE
from tidings.core.types import Quoted

Mode = Literal["socket", "http"]
both = pytest.mark.parametrize("mode", ["socket", "http"])
# Slack's own pauses, shortened, where the time is real.
QUICK = {"retry_seconds": (0.0, 0.2, 0.4), "ack_seconds": 1.0}


# The disk is full for one commit.
FULL_ONCE = "store.pre_commit:1:enospc"


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


class Locked:
    """While it is entered, nobody can write into the store."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def __enter__(self) -> None:
        self._connection = sqlite3.connect(self._home / DATABASE, isolation_level=None)
        self._connection.execute("BEGIN IMMEDIATE")

    def __exit__(self, *_: object) -> None:
        with closing(self._connection) as connection:
            connection.execute("ROLLBACK")


async def settled_in(world: SlackWorld) -> None:
    """What is written at the start has been."""
    await world.eventually(lambda: world.note("listened"))
    await world.rest()


# Who is heard, and where.


@both
async def test_a_direct_message_is_answered_where_it_was_said(tmp_path: Path, mode: Mode) -> None:
    async with SlackWorld(tmp_path, Echo(), mode=mode) as world:
        message = world.ada.says(world.ada.direct, "hi &amp; welcome")
        await world.until(lambda: world.posts)

        assert world.slack.posts_in(world.ada.direct) == said("hi & welcome")
        await world.until(lambda: message.id in world.slack.confirmed)
        assert world.run(message.id)["conversation"] == f"slack:main:{world.ada.direct.id}"


@both
async def test_a_mention_comes_as_two_events_and_is_one_run_with_one_answer_in_its_thread(
    tmp_path: Path, mode: Mode
) -> None:
    echo = Echo()
    async with SlackWorld(tmp_path, echo, mode=mode) as world:
        message = world.ada.says(world.room, "hi", mention=True)
        await world.until(lambda: world.posts and len(world.slack.acks) >= 2)

        assert len({each.event for each in world.slack.deliveries(message.id)}) == 2
        assert world.slack.posts_in(world.room, message.ts) == said("hi")
        await world.settled()
        assert echo.heard == ["hi"]


async def test_the_same_message_again_ten_minutes_later_after_a_restart_is_no_second_run(tmp_path: Path) -> None:
    echo, clock = Echo(), OwnedClock()
    async with SlackWorld(tmp_path, echo, clock=clock) as world:
        message = world.ada.says(world.room, "hi", mention=True)
        await world.until(lambda: world.posts)
        await world.stop()
        await clock.advance(600)
        await world.start()
        before = len(world.slack.acks)
        world.slack.redeliver(message.id)
        await world.until(lambda: len(world.slack.acks) == before + 2)
        await world.settled()

        assert echo.heard == ["hi"]
        assert world.posts == said("hi")


@both
async def test_five_messages_at_once_in_five_threads_get_five_answers_in_their_threads(
    tmp_path: Path, mode: Mode
) -> None:
    async with SlackWorld(tmp_path, Echo(), mode=mode) as world:
        messages = [world.ada.says(world.room, f"number {number}", mention=True) for number in range(5)]
        await world.until(lambda: len(world.posts) == 5)

        for number, message in enumerate(messages):
            assert world.slack.posts_in(world.room, message.ts) == said(f"number {number}")


async def test_in_a_channel_only_who_names_the_app_or_speaks_in_its_threads_is_answered(tmp_path: Path) -> None:
    echo = Echo()
    async with SlackWorld(tmp_path, echo) as world:
        aside = world.ada.says(world.room, "not for you")
        world.ada.says(world.room, "nor is this", thread=aside)
        first = world.ada.says(world.room, "one", mention=True)
        await world.until(lambda: len(world.posts) == 1)
        world.ada.says(world.room, "two", thread=first)
        await world.until(lambda: len(world.posts) == 2)
        await world.restart()
        world.ada.says(world.room, "three", thread=first, broadcast=True)
        await world.until(lambda: len(world.posts) == 3)

        assert world.slack.posts_in(world.room, first.ts) == said("one", "two", "three")
        await world.until(lambda: not world.slack.unconfirmed)
    assert echo.heard == ["one", "two", "three"]


async def test_what_is_said_below_a_message_of_the_apps_own_is_for_it(tmp_path: Path) -> None:
    async with SlackWorld(tmp_path, Echo()) as world:
        first = world.ada.says(world.room, "hi", mention=True)
        await world.until(lambda: world.posts)
        notice = world.slack.board.post(world.slack.main, world.room, world.slack.main.bot.id, "the build is red")
        world.ada.says(world.room, "why?", thread=notice)
        await world.until(lambda: said("why?")[0] in world.posts)

        assert world.slack.posts_in(world.room, notice.ts) == said("why?")
        assert world.slack.posts_in(world.room, first.ts) == said("hi")


async def test_in_a_channel_set_to_all_everybody_who_is_admitted_is_answered_and_in_one_set_to_never_nobody(
    tmp_path: Path,
) -> None:
    echo = Echo()
    async with SlackWorld(tmp_path, echo, settings={"channels": "all"}) as world:
        quiet = world.slack.channel("quiet")
        world.account_settings["chats"] = {quiet.id: "never"}
        await world.restart()
        world.ada.says(quiet, "nobody there?", mention=True)
        asked = world.ada.commands("/tidings", "status", quiet)
        world.ada.says(world.room, "anybody?")
        await world.until(lambda: world.posts and asked.state == "confirmed")
        await world.until(lambda: not world.slack.unconfirmed)

        assert [text_of(each) for each in world.slack.whispers] == [replies.SILENT]
    assert echo.heard == ["anybody?"]


async def test_a_stranger_is_told_in_private_how_to_be_admitted_and_ignored_in_a_channel(tmp_path: Path) -> None:
    echo = Echo()
    async with SlackWorld(tmp_path, echo) as world:
        eve = world.slack.person("eve")
        eve.says(world.room, "let me in", mention=True)
        eve.commands("/tidings", "status", world.room)
        eve.says(eve.direct, "let me in")
        await world.until(lambda: world.posts and world.slack.whispers)

        assert world.slack.posts_in(eve.direct)[0].startswith("I don't know you yet. Your code is ")
        assert f"slack:{eve.id}" in text_of(world.slack.whispers[0])
        assert world.slack.posts_in(world.room, None) == []
    assert echo.heard == []


async def test_bots_and_the_apps_own_words_are_never_answered(tmp_path: Path) -> None:
    echo = Echo()
    async with SlackWorld(tmp_path, echo, settings={"channels": "all"}) as world:
        other = world.slack.main.person("robot", is_bot=True)
        world.allow.append(f"slack:{other.id}")
        world.allow.append(f"slack:{world.slack.main.bot.id}")
        await world.restart()
        other.says(world.room, "ping", mention=True)
        world.slack.tells({"type": "message", "subtype": "channel_join", "user": world.ada.id, "text": "joined"})
        world.ada.says(world.room, "hi")
        await world.until(lambda: world.posts and not world.slack.unconfirmed)
        await world.settled()

    assert echo.heard == ["hi"]


async def test_people_channels_and_links_are_read_as_they_were_seen(tmp_path: Path) -> None:
    echo = Echo()
    async with SlackWorld(tmp_path, echo) as world:
        bob = world.slack.person("bob")
        world.ada.says(world.ada.direct, f"tell <@{bob.id}>")
        await world.until(lambda: len(world.posts) == 1)
        await world.until(lambda: len(world.slack.calls("users.info")) >= 2)
        await world.until(lambda: all(call.verdict for call in world.slack.calls("users.info")))
        text = f"tell <@{bob.id}> in <#C1|general>: <https://example.org|look> &lt;here&gt;"
        last = world.ada.says(world.ada.direct, text)
        await world.until(lambda: len(world.posts) == 2)

        assert '"name":"ada"' in world.run(last.id)["message"].decode().replace(" ", "")
    assert echo.heard[1] == "tell @bob in #general: look (https://example.org) <here>"


async def test_a_missing_scope_costs_names_and_nothing_else(tmp_path: Path) -> None:
    echo = Echo()
    async with SlackWorld(tmp_path, echo) as world:
        world.slack.fail_next("missing_scope", "users.info")
        world.ada.says(world.ada.direct, "one")
        await world.until(lambda: len(world.posts) == 1 and world.slack.calls("users.info"))
        world.ada.says(world.ada.direct, "two")
        await world.until(lambda: len(world.posts) == 2)

        assert len(world.slack.calls("users.info")) == 1


async def test_files_come_along(tmp_path: Path) -> None:
    fetcher = Fetcher()
    async with SlackWorld(tmp_path, fetcher) as world:
        world.ada.says(world.ada.direct, "look", files=[("a.txt", b"one"), ("b.png", b"two")])
        await world.until(lambda: world.posts == ["I have 2"])

    assert [(name, data) for name, _, data in fetcher.fetched] == [("a.txt", b"one"), ("b.png", b"two")]


async def test_a_message_that_is_passed_on_is_read_as_anothers_words(tmp_path: Path) -> None:
    agent = Scripted("ok")
    async with SlackWorld(tmp_path, agent) as world:
        direct = world.ada.direct
        shared = {"is_share": True, "from_url": "https://x", "text": "buy &lt;this&gt;", "author_name": "Bob"}
        event = {"type": "message", "channel": direct.id, "channel_type": "im", "user": world.ada.id}
        world.slack.tells({**event, "ts": "1750000001.000001", "text": "", "attachments": [shared]})
        await world.until(lambda: len(world.posts) == 1)
        world.slack.tells({**event, "ts": "1750000002.000001", "text": "is this so?", "attachments": [shared]})
        await world.until(lambda: len(world.posts) == 2)

    passed_on, quoting = (turn.message for turn in agent.turns)
    assert (passed_on.text, passed_on.forwarded, passed_on.quoted) == ("buy <this>", "Bob", None)
    assert (quoting.text, quoting.forwarded) == ("is this so?", "")
    assert quoting.quoted == Quoted(text="buy <this>", sender="Bob")


# Commands, presses and the assistant pane.


@both
async def test_a_slash_command_is_obeyed_and_only_who_gave_it_sees_the_answer(tmp_path: Path, mode: Mode) -> None:
    async with SlackWorld(tmp_path, Echo(), mode=mode) as world:
        world.ada.commands("/tidings", "whoami", world.room)
        world.ada.commands("/tidings", "", world.room)
        await world.until(lambda: len(world.slack.whispers) == 2)

        texts = sorted(text_of(each) for each in world.slack.whispers)
        assert "I also know these commands" in texts[0]
        assert f"slack:{world.ada.id}" in texts[1]
        assert world.posts == []
        assert {each.whispered_to for each in world.slack.whispers} == {world.ada.id}


async def test_words_that_are_no_command_are_answered_to_who_asked_alone(tmp_path: Path) -> None:
    async with SlackWorld(tmp_path, Echo()) as world:
        world.ada.commands("/tidings", "how are you?", world.room)
        await world.until(lambda: world.slack.whispers)

        assert [text_of(each) for each in world.slack.whispers] == said("how are you?")
        assert world.posts == []


@both
async def test_a_command_may_contain_any_word(tmp_path: Path, mode: Mode) -> None:
    async with SlackWorld(tmp_path, Echo(), mode=mode) as world:
        world.ada.commands("/tidings", "explain this payload: a&b=c", world.room)
        await world.until(lambda: world.slack.whispers)

        assert [text_of(each) for each in world.slack.whispers] == said("explain this payload: a&b=c")


async def test_in_threads_and_in_private_commands_begin_with_an_exclamation_mark(tmp_path: Path) -> None:
    gate = Gate()
    async with SlackWorld(tmp_path, Echo({"wait": gate})) as world:
        first = world.ada.says(world.room, "wait", mention=True)
        await gate.reached()
        world.ada.says(world.room, "!status", thread=first)
        await world.until(lambda: world.slack.posts_in(world.room, first.ts))
        world.ada.says(world.room, "!stop", thread=first)
        assert (await world.outcome(first.id)).kind == "cancelled"
        world.ada.says(world.ada.direct, "!new")
        world.ada.says(world.ada.direct, "!important: read this")
        await world.until(lambda: len(world.slack.posts_in(world.ada.direct)) == 2)

        assert world.slack.posts_in(world.room, first.ts)[0].startswith("Working on your message")
        assert "This is a new conversation" in world.slack.posts_in(world.ada.direct)[0]
        assert world.slack.posts_in(world.ada.direct)[1] == said("!important: read this")[0]


async def test_a_command_that_cannot_be_stored_is_answered_for_and_may_be_given_again(tmp_path: Path) -> None:
    async with SlackWorld(tmp_path, Echo()) as world:
        await settled_in(world)
        with armed(FULL_ONCE):
            world.ada.commands("/tidings", "status", world.room)
            await world.until(lambda: world.slack.whispers)
        world.ada.commands("/tidings", "status", world.room)
        await world.until(lambda: len(world.slack.whispers) == 2)

        assert [text_of(each).splitlines()[0] for each in world.slack.whispers] == [
            replies.UNSTORED,
            "Nothing is running here.",
        ]


async def test_a_command_that_takes_long_to_store_is_answered_for_in_time_and_obeyed_later(tmp_path: Path) -> None:
    async with SlackWorld(tmp_path, Echo(), built_with={"limits": Limits(answer_seconds=0.2)}) as world:
        await settled_in(world)
        with Locked(tmp_path):
            world.ada.commands("/tidings", "status", world.room)
            await world.until(lambda: world.slack.whispers)
        await world.until(lambda: len(world.slack.whispers) == 2)

        first, second = (text_of(each) for each in world.slack.whispers)
        assert first == listen.SLOW
        assert second.startswith("Nothing is running here.")


@both
async def test_a_press_says_its_words_also_after_a_restart_and_once(tmp_path: Path, mode: Mode) -> None:
    asking = Scripted(TextDelta("tea?"), ChoicesOffered(("yes", "no")))
    echo = Echo()
    async with SlackWorld(tmp_path, Takes(asking, echo), mode=mode) as world:
        first = world.ada.says(world.room, "hi", mention=True)
        await world.until(lambda: world.slack.visible(world.room, first.ts))
        await world.restart()
        question = world.slack.visible(world.room, first.ts)[-1]
        yes, no = choices_of(question)
        world.ada.presses(question, yes.id)
        await world.until(lambda: len(world.slack.posts_in(world.room, first.ts)) >= 2)
        world.ada.presses(question, no.id)
        await world.until(lambda: world.slack.whispers)

        assert world.slack.posts_in(world.room, first.ts)[-1] == said("yes")[0]
        assert [text_of(each) for each in world.slack.whispers] == [replies.ANSWERED]
    assert echo.heard == ["yes"]


async def test_a_press_that_nobody_waits_for_is_told_so(tmp_path: Path) -> None:
    async with SlackWorld(tmp_path, Echo()) as world:
        button = {"type": "button", "action_id": "old", "text": {"type": "plain_text", "text": "go"}}
        blocks = ({"type": "actions", "block_id": "b", "elements": [button]},)
        bot = world.slack.main.bot.id
        message = world.slack.board.post(world.slack.main, world.ada.direct, bot, "old", blocks=blocks)
        world.ada.presses(message, "old")
        await world.until(lambda: QUESTION_CLOSED in world.slack.posts_in(world.ada.direct))


async def test_the_assistant_pane_has_prompts_and_a_title_and_is_a_conversation_of_its_own(tmp_path: Path) -> None:
    async with SlackWorld(tmp_path, Echo(), settings={"prompts": ("What is new?", "Help me")}) as world:
        pane = world.ada.opens_assistant()
        await world.until(lambda: world.slack.truth.prompts)
        message = world.ada.says(world.ada.direct, "plan my day", thread=pane)
        world.ada.says(world.ada.direct, "elsewhere")
        await world.until(lambda: len(world.posts) == 2 and world.slack.truth.titles)

        place = (world.ada.direct.id, pane.ts)
        assert world.slack.truth.prompts[place] == (("What is new?", "What is new?"), ("Help me", "Help me"))
        assert world.slack.truth.titles == {place: "plan my day"}
        assert world.slack.posts_in(world.ada.direct, pane.ts) == said("plan my day")
        assert world.slack.posts_in(world.ada.direct, "") == said("elsewhere")
        assert '{\\"assistant\\":true}' in world.run(message.id)["message"].decode()


async def test_whoever_presses_stop_stops_the_run(tmp_path: Path) -> None:
    gate = Gate()
    async with SlackWorld(tmp_path, Echo({"wait": gate})) as world:
        first = world.ada.says(world.room, "wait", mention=True)
        await gate.reached()
        stopped = world.ada.stops(first)
        assert stopped is not None
        outcome = await world.outcome(first.id)
        world.slack.redeliver(stopped.name)
        await world.until(lambda: len([each for each in world.slack.acks if each.name == stopped.name]) == 2)
        await world.settled()

        assert outcome.kind == "cancelled"
        assert len(world.slack.posts_in(world.room, first.ts)) == 1


async def test_an_edit_corrects_and_a_deletion_cancels_what_still_waits(tmp_path: Path) -> None:
    gate = Gate()
    echo = Echo({"wait": gate})
    async with SlackWorld(tmp_path, echo) as world:
        first = world.ada.says(world.room, "wait", mention=True)
        await gate.reached()
        wrong = world.ada.says(world.room, "wrong", thread=first)
        gone = world.ada.says(world.room, "gone", thread=first)
        await world.until(lambda: {wrong.id, gone.id} <= set(world.slack.confirmed))
        world.ada.edits(wrong, "right")
        world.ada.deletes(gone)
        await world.until(lambda: {f"{wrong.id} changed", f"{gone.id} deleted"} <= set(world.slack.confirmed))
        gate.open()
        await world.until(lambda: said("right")[0] in world.slack.posts_in(world.room, first.ts))
        await world.settled()

    assert echo.heard == ["wait", "right"]


async def test_an_edit_and_a_deletion_in_the_assistant_pane_count_as_anywhere(tmp_path: Path) -> None:
    gate = Gate()
    echo = Echo({"wait": gate})
    async with SlackWorld(tmp_path, echo) as world:
        pane = world.ada.opens_assistant()
        world.ada.says(world.ada.direct, "wait", thread=pane)
        await gate.reached()
        wrong = world.ada.says(world.ada.direct, "wrong", thread=pane)
        gone = world.ada.says(world.ada.direct, "gone", thread=pane)
        await world.until(lambda: {wrong.id, gone.id} <= set(world.slack.confirmed))
        world.ada.edits(wrong, "right")
        world.ada.deletes(gone)
        await world.until(lambda: {f"{wrong.id} changed", f"{gone.id} deleted"} <= set(world.slack.confirmed))
        gate.open()
        await world.until(lambda: said("right")[0] in world.slack.posts_in(world.ada.direct, pane.ts))
        await world.settled()

    assert echo.heard == ["wait", "right"]


# Stored, then confirmed.


async def test_who_hears_asks_slack_nothing(tmp_path: Path) -> None:
    """A call before an event is stored could fail, and the event would be lost with it."""
    async with SlackWorld(tmp_path, Echo()) as world:
        for number in range(3):
            world.ada.says(world.ada.direct, f"number {number}")
        await world.until(lambda: len(world.posts) == 3)

        assert len(world.slack.calls("auth.test")) == 1


@both
async def test_what_could_not_be_stored_is_not_confirmed_and_comes_again(tmp_path: Path, mode: Mode) -> None:
    echo = Echo()
    async with SlackWorld(tmp_path, echo, mode=mode, server=QUICK) as world:
        await settled_in(world)
        with armed(FULL_ONCE):
            message = world.ada.says(world.ada.direct, "hi")
            await world.until(lambda: world.posts)
        await world.until(lambda: message.id in world.slack.confirmed)

        first, second, *_ = world.slack.deliveries(message.id)
        assert (first.acked, second.acked) == (False, True)
        assert second.attempt == 1
    assert echo.heard == ["hi"]


@both
async def test_a_store_that_is_too_slow_gives_one_run_however_often_slack_says_it(tmp_path: Path, mode: Mode) -> None:
    echo = Echo()
    async with SlackWorld(
        tmp_path, echo, mode=mode, server={"retry_seconds": (0.0, 0.1, 0.1), "ack_seconds": 0.2}
    ) as world:
        with Locked(tmp_path):
            message = world.ada.says(world.ada.direct, "hi")
            await world.until(lambda: len(world.slack.deliveries(message.id)) >= 3)
            assert not [each for each in world.slack.acks if each.name == message.id]
        await world.until(lambda: world.posts)
        await world.settled()

    assert echo.heard == ["hi"]


async def test_what_was_said_later_is_not_stored_before_what_could_not_be(tmp_path: Path) -> None:
    echo = Echo()
    async with SlackWorld(tmp_path, echo, server=QUICK) as world:
        await settled_in(world)
        with armed(FULL_ONCE):
            for number in range(3):
                world.ada.says(world.ada.direct, f"number {number}")
            await world.until(lambda: len(world.posts) == 3)

    assert echo.heard == ["number 0", "number 1", "number 2"]


async def test_what_comes_together_is_taken_in_the_order_in_which_it_was_said(tmp_path: Path) -> None:
    echo = Echo()
    async with SlackWorld(tmp_path, echo) as world:
        event = {"type": "message", "channel": world.ada.direct.id, "channel_type": "im", "user": world.ada.id}
        for number in (3, 1, 2):
            ts = f"1750000000.00000{number}"
            world.slack.tells({**event, "ts": ts, "event_ts": ts, "text": f"number {number}"})
        await world.until(lambda: len(world.posts) == 3)

    assert echo.heard == ["number 1", "number 2", "number 3"]


async def test_a_crash_between_storing_and_confirming_gives_one_run(tmp_path: Path) -> None:
    echo = Echo()
    async with SlackWorld(tmp_path, echo, server=QUICK) as world:
        with armed("in.pre_ack:1:raise"):
            message = world.ada.says(world.ada.direct, "hi")
            await world.until(lambda: world.posts)
            await world.crash()
        await world.start()
        await world.until(lambda: message.id in world.slack.confirmed)
        await world.settled()

        assert world.posts == said("hi")
    assert echo.heard == ["hi"]


@both
async def test_what_is_said_while_nobody_listens_comes_when_somebody_does(tmp_path: Path, mode: Mode) -> None:
    echo = Echo()
    async with SlackWorld(tmp_path, echo, mode=mode, server={"retry_seconds": (0.0, 1.0, 1.0)}) as world:
        await world.stop()
        message = world.ada.says(world.ada.direct, "hi")
        await world.until(lambda: len(world.slack.deliveries(message.id)) == 2)
        await world.start()
        await world.until(lambda: world.posts)

        assert [each.attempt for each in world.slack.acks if each.name == message.id] == [2]
    assert echo.heard == ["hi"]


async def test_strange_events_are_passed_over_and_confirmed(tmp_path: Path) -> None:
    async with SlackWorld(tmp_path, Echo()) as world:
        channel = world.ada.direct.id
        odd = [
            world.slack.tells({"type": "message", "channel": channel, "user": world.ada.id}),
            world.slack.tells({"type": "message", "channel": channel, "user": {}, "ts": "7"}),
            world.slack.tells({"type": "message", "subtype": "message_changed", "channel": channel}),
            world.slack.tells({"type": "message", "ts": "1.1", "user": world.ada.id, "channel": channel, "files": [3]}),
            world.slack.tells({"type": "assistant_thread_started"}),
            world.slack.tells({"type": "assistant_thread_started", "assistant_thread": {}}),
            world.slack.tells({"type": "something_new"}),
            world.slack.tells({"type": "tokens_revoked", "tokens": {"bot": ["U1"]}}),
        ]
        world.ada.says(world.ada.direct, "hi")
        await world.until(lambda: said("hi")[0] in world.posts)
        await world.until(lambda: all(each.state == "confirmed" for each in odd))

        assert (await world.listener()).restarts == 0


# Sockets come and go.


@pytest.mark.parametrize("reason", ["warning", "refresh_requested"])
async def test_told_to_go_another_socket_opens_before_the_old_one_ends_and_nothing_is_lost(
    tmp_path: Path, reason: str
) -> None:
    echo = Echo()
    async with SlackWorld(tmp_path, echo) as world:
        (old,) = world.slack.sockets.open
        with Locked(tmp_path):
            pending = world.ada.says(world.ada.direct, "before")
            world.slack.disconnect(reason, close=False)
            await world.until(lambda: len(world.slack.sockets.open) == 2)
            assert old in world.slack.sockets.open
            world.ada.says(world.ada.direct, "during")
        await world.until(lambda: len(world.posts) == 2)
        await world.until(lambda: old not in world.slack.sockets.open)
        world.ada.says(world.ada.direct, "after")
        await world.until(lambda: len(world.posts) == 3)

        # Answered by the socket by which it came.
        assert [(each.socket, each.verdict) for each in world.slack.deliveries(pending.id)] == [(old.number, "ok")]
        assert len(world.slack.sockets.open) == 1
    assert sorted(echo.heard) == ["after", "before", "during"]


async def test_a_socket_that_is_closed_at_once_costs_nothing(tmp_path: Path) -> None:
    echo = Echo()
    async with SlackWorld(tmp_path, echo, server=QUICK) as world:
        for number in range(3):
            world.slack.disconnect()
            world.ada.says(world.ada.direct, f"number {number}")
            await world.until(lambda number=number: len(world.posts) == number + 1)  # type: ignore[misc]

    assert echo.heard == ["number 0", "number 1", "number 2"]


async def test_an_aborted_connection_is_noticed_and_what_was_said_comes(tmp_path: Path) -> None:
    async with SlackWorld(tmp_path, Echo(), server=QUICK, built_with={"limits": Limits(ping_seconds=0.2)}) as world:
        world.slack.abort_sockets()
        world.ada.says(world.ada.direct, "hi")
        await world.until(lambda: world.posts)

        assert world.posts == said("hi")


async def test_a_socket_that_has_gone_deaf_is_noticed_by_its_silence(tmp_path: Path) -> None:
    async with SlackWorld(tmp_path, Echo(), server=QUICK, built_with={"limits": Limits(ping_seconds=0.2)}) as world:
        (deaf,) = world.slack.deafen()
        world.ada.says(world.ada.direct, "hi")
        await world.until(lambda: world.posts)

        assert world.posts == said("hi")
        assert deaf.number not in [each.socket for each in world.slack.acks]


async def test_doubled_late_and_cut_events_give_one_run_and_one_answer_each(tmp_path: Path) -> None:
    echo = Echo()
    # A cut costs a retry, and the last one must never be it.
    patient = {"retry_seconds": (0.0, *[0.3] * 10), "ack_seconds": 1.0}
    async with SlackWorld(tmp_path, echo, server=patient, built_with={"limits": Limits(ping_seconds=0.2)}) as world:
        people = [world.slack.person(f"person{number}") for number in range(10)]
        world.allow += [f"slack:{person.id}" for person in people]
        await world.restart()
        world.slack.schedule(7, Odds(duplicate=0.3, reorder=0.3, cut=0.1))
        for number, person in enumerate(people):
            for turn in range(3):
                person.says(person.direct, f"{number}.{turn}")
        await world.until(lambda: len(world.posts) >= 30, real_limit=60.0)
        world.slack.heal()
        await world.until(lambda: not world.slack.unconfirmed, real_limit=60.0)
        await world.settled()

        assert not world.slack.lost
        for number, person in enumerate(people):
            wanted = said(*(f"{number}.{turn}" for turn in range(3)))
            assert sorted(world.slack.posts_in(person.direct)) == wanted
    assert sorted(echo.heard) == sorted(f"{number}.{turn}" for number in range(10) for turn in range(3))


async def test_a_quiet_socket_is_kept(tmp_path: Path) -> None:
    async with SlackWorld(tmp_path, Echo(), built_with={"limits": Limits(ping_seconds=0.1)}) as world:
        (only,) = world.slack.sockets.open
        await world.until(lambda: only.pings >= 10)

        assert world.slack.sockets.open == [only]


async def test_after_an_outage_it_listens_again(tmp_path: Path) -> None:
    async with SlackWorld(tmp_path, Echo(), server=QUICK, built_with={"limits": Limits(ping_seconds=0.2)}) as world:
        await world.slack.outage(True)
        await world.until(lambda: not world.slack.sockets.open)
        await world.slack.outage(False)
        await world.until(lambda: world.slack.sockets.open, real_limit=15.0)
        world.ada.says(world.ada.direct, "hi")
        await world.until(lambda: world.posts)


async def test_a_limit_on_opening_sockets_is_waited_for_while_the_old_one_hears(tmp_path: Path) -> None:
    clock = OwnedClock()
    async with SlackWorld(tmp_path, Echo(), clock=clock) as world:
        world.slack.fail_next(429, "apps.connections.open", retry_after=30)
        world.slack.disconnect("warning", close=False)
        await world.until(lambda: len(world.slack.calls("apps.connections.open")) == 2)
        world.ada.says(world.ada.direct, "hi")
        await world.until(lambda: world.posts)
        await world.until(lambda: len(world.slack.calls("apps.connections.open")) == 3)

        assert world.posts == said("hi")


async def test_when_there_are_too_many_sockets_it_waits_for_its_turn(tmp_path: Path) -> None:
    async with SlackWorld(tmp_path, Echo(), server=QUICK) as world:
        await world.end()
        async with AsyncExitStack() as others:
            for _ in range(10):
                await others.enter_async_context(connected(world.slack, app_for(world.slack)))
            await world.start(attached=False)
            # Its own first one, theirs, and two that were sent away.
            await world.until(lambda: len(world.slack.calls("apps.connections.open")) >= 13)
        await world.until(lambda: len(world.slack.sockets.open) == 1, real_limit=20.0)
        world.ada.says(world.ada.direct, "hi")
        await world.until(lambda: world.posts)


# What the owner must mend.


async def misconfigured(world: SlackWorld) -> PartHealth:
    async with asyncio.timeout(10):
        while True:
            if (part := await world.listener()).state == "misconfigured":
                return part
            await asyncio.sleep(0.01)


async def test_a_wrong_token_is_said_in_plain_words(tmp_path: Path) -> None:
    async with SlackWorld(tmp_path, Echo()) as world:
        await world.end()
        world.account_settings["bot_token"] = "xoxb-wrong"
        await world.start(attached=False)

        assert "bot_token" in (await misconfigured(world)).last_error


async def test_a_wrong_app_token_is_said_in_plain_words(tmp_path: Path) -> None:
    async with SlackWorld(tmp_path, Echo()) as world:
        world.slack.revoke_app(world.slack.app)

        assert "app_token" in (await misconfigured(world)).last_error


async def test_an_absence_that_slack_does_not_bridge_is_told_to_the_owner(tmp_path: Path) -> None:
    clock = OwnedClock()
    async with SlackWorld(tmp_path, Echo(), clock=clock) as world:
        await world.until(lambda: world.note("listened"))
        await world.stop()
        await clock.advance(300)
        await world.start()
        assert not [alarm for alarm in (await world.gateway.desk.health()).alarms if "offline" in alarm.last]
        await world.stop()
        await clock.advance(1200)
        await world.start()

        last = [alarm.last for alarm in (await world.gateway.desk.health()).alarms]
        assert any("offline for 20 minutes" in words for words in last), last


# Several workspaces.


@both
@pytest.mark.parametrize("own_apps", [False, True], ids=["one app", "two apps"])
async def test_each_workspace_is_heard_and_answered_by_its_own_account(
    tmp_path: Path, mode: Mode, own_apps: bool
) -> None:
    async with SlackWorld(tmp_path, Echo(), mode=mode, accounts={"other": {}}, own_apps=own_apps) as world:
        other = world.workspace("other")
        bob, room = other.person("bob"), other.channel("room")
        world.allow.append(f"slack@other:{bob.id}")
        await world.restart()
        mine = [world.ada.says(world.room, f"mine {number}", mention=True) for number in range(4)]
        theirs = [bob.says(room, f"theirs {number}", mention=True) for number in range(4)]
        world.ada.commands("/tidings", "whoami", world.room)
        bob.commands("/tidings", "whoami", room)
        await world.until(lambda: len(world.posts) == 8 and len(world.slack.whispers) == 2)
        await world.settled()

        assert {world.run(each.id)["account"] for each in mine} == {"main"}
        assert {world.run(each.id)["account"] for each in theirs} == {"other"}
        for number in range(4):
            assert world.slack.posts_in(world.room, mine[number].ts) == said(f"mine {number}")
            assert world.slack.posts_in(room, theirs[number].ts) == said(f"theirs {number}")


async def test_a_workspace_whose_account_is_not_up_yet_is_not_confirmed_by_another(tmp_path: Path) -> None:
    async with SlackWorld(tmp_path, Echo(), accounts={"other": {}}, server=QUICK) as world:
        other = world.workspace("other")
        bob = other.person("bob")
        world.allow.append(f"slack@other:{bob.id}")
        await world.stop()
        gate = world.slack.hold_next("auth.test")
        await world.start(attached=False)
        await world.until(lambda: len(world.slack.sockets.open) == 1)
        (held,) = [call.account for call in world.slack.calls("auth.test") if not call.verdict]
        person = bob if held == "other" else world.ada
        message: Message = person.says(person.direct, "hi")
        await world.until(lambda: len(world.slack.deliveries(message.id)) >= 2)
        assert message.id not in world.slack.confirmed
        gate.set()
        await world.until(lambda: world.slack.posts_in(person.direct) == said("hi"))


async def test_the_same_direct_message_is_one_conversation_however_it_is_named(tmp_path: Path) -> None:
    agent = Scripted("ok")
    async with SlackWorld(tmp_path, agent) as world:
        world.ada.says(world.ada.direct, "one")
        await world.until(lambda: len(world.posts) == 1)
        world.ada.commands("/tidings", "two", world.ada.direct)
        await world.until(lambda: world.slack.whispers)

        assert {turn.message.conversation.id for turn in agent.turns} == {f"slack:main:{world.ada.direct.id}"}

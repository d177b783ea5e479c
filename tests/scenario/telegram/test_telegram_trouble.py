"""Whatever Telegram does to an answer, it arrives once and whole in its chat, or its loss is told; never elsewhere."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.simulators.telegram.simulator import TOKEN, Call, TelegramServer
from tests.worlds.telegram import TelegramWorld
from tests.worlds.telegram_stories import (
    FORUM,
    GROUP,
    PERSON,
    Dictated,
    alarms,
    asks,
    begins,
    calls_to,
    finished,
    shown,
    texts,
)
from tests.worlds.world import Echo, Gate, OwnedClock, Scripted
from tidings.core.agent import FileMade
from tidings.core.inbound.door import MAY_BE_LOST
from tidings.core.outbound.outbox import MARK
from tidings.core.outbound.resolver import ANCHORS, PATIENCE_SECONDS
from tidings.core.store.sqlite import DATABASE
from tidings.core.types import Body, Target

PAUSE_SECONDS = 35
SUPERGROUP = "-1000000000006"
OTHER_SUPERGROUP = "-1000000000007"


class Mode(NamedTuple):
    chat: str
    grows: str
    drafts: bool = True


MODES = {
    "drafts": Mode(PERSON, "sendMessageDraft"),
    "edits": Mode(PERSON, "editMessageText", drafts=False),
    "group": Mode(GROUP, "editMessageText"),
}
each_mode = pytest.mark.parametrize("mode", [pytest.param(mode, id=name) for name, mode in MODES.items()])
by_edits = pytest.mark.parametrize("mode", [pytest.param(MODES[name], id=name) for name in ("edits", "group")])
each_place = pytest.mark.parametrize("chat", [PERSON, GROUP], ids=["private", "group"])


@pytest.fixture
def mode() -> Mode:
    return MODES["drafts"]


@pytest.fixture
def open_world(tmp_path: Path, agent: Dictated, clock: OwnedClock, mode: Mode) -> Callable[..., TelegramWorld]:
    def build(answering: Any = None, **options: Any) -> TelegramWorld:
        allow = [f"telegram:{who}" for who in (7, 8)]
        world = TelegramWorld(
            tmp_path, answering or agent, clock=clock, server={"drafts": mode.drafts}, allow=allow, **options
        )
        for chat in (GROUP, SUPERGROUP, OTHER_SUPERGROUP, "8"):
            world.telegram.open_chat(chat)
        return world

    return build


def is_settled(world: TelegramWorld) -> bool:
    runs = world.rows("SELECT 1 FROM inbox WHERE state IN ('waiting', 'running')")
    return not runs and not world.rows("SELECT 1 FROM deliveries WHERE state IN ('waiting', 'doubtful')")


def is_dead(world: TelegramWorld) -> list[Any]:
    return world.rows("SELECT * FROM deliveries WHERE state = 'dead' AND kind <> 'opening'")


def places(telegram: TelegramServer) -> set[tuple[str, str]]:
    """Wherever anything of ours appeared, or tried to."""
    return {(call.chat, call.thread) for call in telegram.calls() if call.chat}


def limited_call(telegram: TelegramServer) -> Call | None:
    return next((call for call in telegram.calls() if call.verdict == "429"), None)


def assert_left_alone(telegram: TelegramServer, limited: Call) -> None:
    """Nobody called that chat, by any method, before the time that the server named."""
    until = limited.now + PAUSE_SECONDS
    early = [call for call in calls_to(telegram, limited.chat) if limited.now < call.now < until]
    assert [(call.method, call.now - limited.now) for call in early] == []


# Floods.


@each_mode
async def test_a_flood_while_an_answer_grows_silences_that_chat_only(
    open_world: Callable[..., TelegramWorld], agent: Dictated, clock: OwnedClock, mode: Mode
) -> None:
    """B1."""
    async with open_world() as world:
        await begins(world, agent, "one", chat=mode.chat)
        busy = agent.turns[-1].run
        world.telegram.fail_next(429, retry_after=PAUSE_SECONDS, method=mode.grows, chat=mode.chat)
        agent.say(" two")
        await world.until(lambda: limited_call(world.telegram), limit=10.0)
        limited = limited_call(world.telegram)
        assert limited is not None
        agent.say(" three", " four")
        agent.end()
        await world.until(lambda: world.rows("SELECT 1 FROM inbox WHERE run = ? AND state = 'done'", busy), limit=0.0)
        await begins(world, agent, "meanwhile", chat="8")
        agent.end()
        await world.until(lambda: world.telegram.posts_in("8") == ["meanwhile"], limit=10.0)
        assert clock.now() < limited.now + PAUSE_SECONDS, "the others went on"
        await world.until(finished(world))
        assert texts(world.telegram, mode.chat) == ["one two three four"]
        assert_left_alone(world.telegram, limited)
        (again,) = [call for call in calls_to(world.telegram, mode.chat) if call.text == "one two three four"]
        assert again.now - limited.now < PAUSE_SECONDS + 5.0


@each_mode
async def test_a_pause_outlives_the_process(
    open_world: Callable[..., TelegramWorld], agent: Dictated, clock: OwnedClock, mode: Mode
) -> None:
    """B1, across a crash."""
    async with open_world() as world:
        await begins(world, agent, "one", chat=mode.chat)
        world.telegram.fail_next(429, retry_after=PAUSE_SECONDS, method=mode.grows, chat=mode.chat)
        agent.say(" two")
        await world.until(lambda: world.rows("SELECT 1 FROM pauses"), limit=10.0)
        limited = limited_call(world.telegram)
        assert limited is not None
        await clock.advance(5.0)
        await world.crash()
        await world.start()
        await world.until(lambda: len(agent.turns) == 2, limit=0.0)
        agent.say("one two three")
        await clock.advance(12.0)
        agent.end()
        await world.until(finished(world))
        assert texts(world.telegram, mode.chat) == ["one two three"]
        assert_left_alone(world.telegram, limited)


MEETS = ("sendMessage", "sendMessageDraft", "editMessageText", "sendChatAction", "setMessageReaction", "sendDocument")


@pytest.mark.parametrize("method", MEETS)
async def test_a_pause_counts_for_every_kind_of_call_whoever_met_it(
    open_world: Callable[..., TelegramWorld], agent: Dictated, clock: OwnedClock, tmp_path: Path, method: str
) -> None:
    (tmp_path / "a.txt").write_text("a file")
    chat = GROUP if method == "editMessageText" else PERSON
    async with open_world() as world:
        world.telegram.fail_next(429, retry_after=PAUSE_SECONDS, method=method)
        asks(world, chat=chat)
        await world.until(lambda: agent.turns, limit=0.0)
        for word in ("one", " two", " three"):
            agent.say(word)
            await clock.advance(6.0)
        agent.do(FileMade(str(tmp_path / "a.txt"), "a.txt"))
        agent.end()
        await world.until(finished(world))
        limited = limited_call(world.telegram)
        assert limited is not None
        assert limited.method == method
        assert_left_alone(world.telegram, limited)
        text, file = world.telegram.visible(chat)
        assert text.text == "one two three"
        assert [each.name for each in file.files] == ["a.txt"]


@pytest.mark.parametrize("body", [b"", b'{"ok":false,"parameters":null}'], ids=["no time", "no parameters"])
async def test_a_flood_that_names_no_time_is_met_with_growing_pauses(
    open_world: Callable[..., TelegramWorld], body: bytes
) -> None:
    async with open_world(Scripted("hello")) as world:
        world.telegram.fail_next(429, method="sendMessage", count=4, body=body)
        asks(world)
        await world.until(finished(world))
        assert texts(world.telegram) == ["hello"]
        at = [call.now for call in world.telegram.calls("sendMessage")]
        assert [round(later - earlier) for earlier, later in zip(at, at[1:], strict=False)] == [1, 2, 4, 8]


# Sends of which nobody knows what became.

LOSSES: dict[str, tuple[Callable[[TelegramServer, str, int], None], bool]] = {
    "cut before": (lambda telegram, method, count: telegram.drop_next(False, method, count), False),
    "cut after": (lambda telegram, method, count: telegram.drop_next(True, method, count), True),
    "half an answer": (lambda telegram, method, count: telegram.garble_next(method, count), True),
    "a body that ends too soon": (lambda telegram, method, count: telegram.truncate_next(method, count), True),
    "an error before": (lambda telegram, method, count: telegram.fail_next(500, method=method, count=count), False),
    "a bad gateway after": (
        lambda telegram, method, count: telegram.fail_next(
            502, method=method, count=count, html=True, after_effect=True
        ),
        True,
    ),
}
each_loss = pytest.mark.parametrize("loss", LOSSES)


def lose(telegram: TelegramServer, loss: str, method: str = "sendMessage", count: int = 1) -> bool:
    """True where what was lost has arrived all the same."""
    arm, arrived = LOSSES[loss]
    arm(telegram, method, count)
    return arrived


@each_loss
@each_place
async def test_a_send_in_doubt_is_there_once_more_at_most_and_says_so(
    open_world: Callable[..., TelegramWorld], loss: str, chat: str
) -> None:
    async with open_world(Scripted("hello")) as world:
        arrived = lose(world.telegram, loss)
        name = asks(world, chat=chat)
        await world.until(finished(world))
        first, copy = ["hello"] if arrived else [], MARK + "hello"
        assert texts(world.telegram, chat) == [*first, copy]
        sent, placeholder = world.telegram.calls("sendMessage")
        assert placeholder.text == "…", "by a placeholder, so that the copy cannot come into doubt itself"
        assert placeholder.now - sent.now >= PATIENCE_SECONDS
        assert [call.text for call in world.telegram.calls("editMessageText")] == [copy]
        assert world.telegram.visible(chat)[-1].reply_to == name, "so that both stand together"
        assert await alarms(world) == {}


async def test_the_copy_of_a_rich_message_is_rich(open_world: Callable[..., TelegramWorld]) -> None:
    table = "| a | b |\n|---|---|\n| 1 | 2 |"
    async with open_world(Scripted(table)) as world:
        world.telegram.drop_next(True, "sendRichMessage")
        asks(world)
        await world.until(finished(world))
        assert texts(world.telegram) == [table, MARK + table]
        assert [message.rich for message in world.telegram.visible()] == ["markdown", "markdown"]


@each_place
async def test_a_send_that_hangs_comes_into_doubt_and_keeps_no_other_chat_waiting(
    open_world: Callable[..., TelegramWorld], clock: OwnedClock, chat: str
) -> None:
    async with open_world(Scripted("hello")) as world:
        world.telegram.hold_next("sendMessage", after_effect=True, chat=chat)
        asks(world, chat=chat)
        await world.until(lambda: world.telegram.posts, limit=0.0)
        asks(world, chat="8")
        await world.until(lambda: world.telegram.posts_in("8") == ["hello"], limit=5.0)
        await world.until(finished(world))
        assert texts(world.telegram, chat) == ["hello", MARK + "hello"]
        assert texts(world.telegram, "8") == ["hello"]


@pytest.mark.parametrize("loss", ["cut before", "cut after"])
async def test_a_lost_placeholder_leaves_dots_and_one_copy(open_world: Callable[..., TelegramWorld], loss: str) -> None:
    async with open_world(Scripted("hello")) as world:
        world.telegram.drop_next(True, "sendMessage")
        arrived = lose(world.telegram, loss, count=2)
        asks(world)
        await world.until(finished(world))
        assert texts(world.telegram) == ["hello", *["…", "…"] * arrived, MARK + "hello"]


async def test_a_placeholder_is_its_own_though_another_chat_has_a_message_of_the_same_number(
    open_world: Callable[..., TelegramWorld],
) -> None:
    """Telegram counts messages anew in each supergroup, so an equal number proves nothing about another chat."""
    here, there = "-1000000000071", "-1000000000072"
    async with open_world(Scripted("hello")) as world:
        for chat in (here, there):
            world.telegram.open_chat(chat)
        for _ in range(6):
            asks(world, chat=there)
            await world.until(finished(world))
        world.telegram.drop_next(True, "sendMessage")
        lose(world.telegram, "cut after", count=1)
        asks(world, chat=here)
        await world.until(finished(world))
        assert texts(world.telegram, here) == ["hello", "…", MARK + "hello"]


@each_loss
async def test_a_copy_whose_edit_is_in_doubt_is_still_one_copy(
    open_world: Callable[..., TelegramWorld], loss: str
) -> None:
    async with open_world(Scripted("hello")) as world:
        world.telegram.drop_next(True, "sendMessage")
        lose(world.telegram, loss, "editMessageText", count=3)
        asks(world)
        await world.until(finished(world))
        assert texts(world.telegram) == ["hello", MARK + "hello"]
        assert len(world.telegram.calls("sendMessage")) == 2


async def test_an_answer_of_which_no_copy_gets_through_is_told_of_at_the_next_contact(
    open_world: Callable[..., TelegramWorld],
) -> None:
    async with open_world(Echo()) as world:
        world.telegram.drop_next(False, "sendMessage", 1 + ANCHORS)
        asks(world, "hello")
        await world.until(lambda: is_dead(world))
        assert world.telegram.visible() == ()
        rung = (await alarms(world))["unconfirmed"]
        assert "telegram:7" in rung.last
        assert (await world.health()).deliveries == {"dead": 1}
        asks(world, "are you there?")
        await world.until(lambda: len(texts(world.telegram)) == 2)
        assert texts(world.telegram) == [MAY_BE_LOST, "you said: are you there?"]


async def test_a_file_in_doubt_is_named_and_never_sent_twice(
    open_world: Callable[..., TelegramWorld], tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("a file")
    made = FileMade(str(tmp_path / "a.txt"), "a.txt")
    async with open_world(Scripted("Look:", made)) as world:
        world.telegram.drop_next(True, "sendDocument")
        asks(world)
        await world.until(finished(world))
        text, file, line = world.telegram.visible()
        assert (text.text, [each.name for each in file.files]) == ("Look:", ["a.txt"])
        assert line.text == "I tried to send a.txt, but the connection broke; it may not have arrived."
        assert len(world.telegram.calls("sendDocument")) == 1


async def test_messages_of_other_chats_that_have_the_same_number_prove_nothing(
    open_world: Callable[..., TelegramWorld], tmp_path: Path
) -> None:
    """Every supergroup numbers its messages by itself: the line is there once, and the placeholder too."""
    (tmp_path / "a.txt").write_text("a file")
    made = FileMade(str(tmp_path / "a.txt"), "a.txt")
    async with open_world(Scripted("Look:", made)) as world:
        asks(world, chat=OTHER_SUPERGROUP)
        asks(world, chat=OTHER_SUPERGROUP)
        await world.until(finished(world))
        world.telegram.drop_next(True, "sendDocument", chat=SUPERGROUP)
        asks(world, chat=SUPERGROUP)
        await world.until(finished(world))
        line = "I tried to send a.txt, but the connection broke; it may not have arrived."
        assert texts(world.telegram, SUPERGROUP) == ["Look:", "", line]


async def test_what_never_left_us_is_simply_sent_again(
    open_world: Callable[..., TelegramWorld], clock: OwnedClock
) -> None:
    """Nobody listened, so there is nothing to doubt."""
    gate = Gate()
    async with open_world(Scripted(gate, "hello")) as world:
        asks(world)
        await gate.reached()
        await world.telegram.outage(True)
        for number in range(2):
            await world.gateway.desk.owe(Target(adapter="telegram", chat=PERSON), Body(text=f"and {number}"), "test")
        gate.open()
        await clock.advance(100.0)
        assert world.telegram.visible() == ()
        await world.telegram.outage(False)
        await world.until(lambda: is_settled(world))
        assert texts(world.telegram) == ["and 0", "and 1", "hello"]
        assert (await alarms(world)).keys() == {"adapter"}, "the outage, and no loss"


# Edits of which nobody knows what became.


@by_edits
@each_loss
async def test_a_final_edit_in_doubt_is_repeated_in_place(
    open_world: Callable[..., TelegramWorld], agent: Dictated, mode: Mode, loss: str
) -> None:
    async with open_world() as world:
        await begins(world, agent, "one", chat=mode.chat)
        lose(world.telegram, loss, "editMessageText", count=3)
        agent.say(" two")
        agent.end()
        await world.until(finished(world))
        assert texts(world.telegram, mode.chat) == ["one two"]
        assert len(world.telegram.calls("sendMessage")) == 1
        assert await alarms(world) == {}


def erase(telegram: TelegramServer, method: str) -> None:
    """Somebody deletes what we have shown so far."""
    for message in telegram.sent:
        telegram.erase(message.id)


FAILURES: dict[str, Callable[[TelegramServer, str], object]] = {
    **{name: lambda telegram, method, name=name: lose(telegram, name, method) for name in LOSSES},  # type: ignore[misc]
    "limited": lambda telegram, method: telegram.fail_next(429, retry_after=7, method=method),
    "limited without a time": lambda telegram, method: telegram.fail_next(429, method=method),
    "gone": erase,
    "not to be edited": lambda telegram, method: telegram.fail_next(
        400, method=method, description="Bad Request: message can't be edited"
    ),
    "unreadable": lambda telegram, method: telegram.fail_next(
        400, method=method, description="Bad Request: can't parse entities: character '.' is reserved"
    ),
    "refused": lambda telegram, method: telegram.fail_next(400, method=method),
}
# Those that leave something to edit.
TRANSIENT = [*LOSSES, "limited", "limited without a time"]


@each_mode
async def test_a_sight_that_fails_never_harms_the_final(
    open_world: Callable[..., TelegramWorld], agent: Dictated, clock: OwnedClock, mode: Mode
) -> None:
    async with open_world() as world:
        for name, fail in FAILURES.items():
            await begins(world, agent, "one", chat=mode.chat)
            fail(world.telegram, mode.grows)
            agent.say(" *two*")
            await clock.advance(10.0)
            agent.say(" three")
            await clock.advance(10.0)
            agent.say(" four")
            agent.end()
            await world.until(finished(world))
            assert texts(world.telegram, mode.chat) == ["one two three four"], name
            assert world.telegram.faults.armed == (), name
            erase(world.telegram, "")
            await clock.advance(10.0)
        assert await alarms(world) == {}


@each_mode
@pytest.mark.parametrize("seed", range(4))
async def test_for_any_mix_of_failures_one_message_holds_the_final(
    open_world: Callable[..., TelegramWorld],
    agent: Dictated,
    clock: OwnedClock,
    caplog: pytest.LogCaptureFixture,
    mode: Mode,
    seed: int,
) -> None:
    """B2; and whatever broke, the token is in no log and no row."""
    caplog.set_level(logging.DEBUG)
    lots = random.Random(seed)
    words = [f" {number}," for number in range(1, 10)]
    async with open_world() as world:
        await begins(world, agent, "Count:", chat=mode.chat)
        for word in words:
            if lots.random() < 0.7:
                FAILURES[lots.choice(TRANSIENT)](world.telegram, mode.grows)
            agent.say(word)
            await clock.advance(lots.choice([0.5, 2.0, 5.0]))
        agent.end()
        await world.until(finished(world))
        assert texts(world.telegram, mode.chat) == ["Count:" + "".join(words)]
        assert places(world.telegram) == {(mode.chat, "")}
        assert TOKEN not in caplog.text
        stored = b"".join(path.read_bytes() for path in world.home.glob(f"{DATABASE}*"))
        assert TOKEN.encode() not in stored


@by_edits
@pytest.mark.parametrize("noticed", [True, False], ids=["noticed by a sight", "noticed by the final"])
async def test_when_a_person_deletes_the_growing_message_the_final_is_a_new_one(
    open_world: Callable[..., TelegramWorld], agent: Dictated, clock: OwnedClock, mode: Mode, noticed: bool
) -> None:
    async with open_world() as world:
        name = await begins(world, agent, "one", chat=mode.chat)
        erase(world.telegram, "")
        agent.say(" two")
        if noticed:
            await clock.advance(10.0)
            assert world.telegram.visible(mode.chat) == ()
        agent.end()
        await world.until(finished(world))
        (final,) = world.telegram.visible(mode.chat)
        assert final.text == "one two"
        assert final.reply_to == (name if mode.chat == GROUP else "")


@pytest.mark.parametrize("loss", ["cut before", "cut after"])
async def test_an_opening_in_doubt_never_holds_the_final(
    open_world: Callable[..., TelegramWorld], agent: Dictated, clock: OwnedClock, loss: str
) -> None:
    """In a group, where it is a message: nobody knows its id any more, so it stays as it was."""
    async with open_world() as world:
        arrived = lose(world.telegram, loss)
        asks(world, chat=GROUP)
        await world.until(lambda: agent.turns, limit=0.0)
        agent.say("one")
        await clock.advance(20.0)
        agent.say(" two")
        agent.end()
        await world.until(finished(world))
        assert texts(world.telegram, GROUP) == [*["one"] * arrived, "one two"]


@pytest.mark.parametrize("loss", ["cut before", "cut after"])
async def test_a_draft_in_doubt_costs_nothing(
    open_world: Callable[..., TelegramWorld], agent: Dictated, clock: OwnedClock, loss: str
) -> None:
    async with open_world() as world:
        lose(world.telegram, loss, "sendMessageDraft")
        asks(world)
        await world.until(lambda: agent.turns, limit=0.0)
        agent.say("one")
        await clock.advance(20.0)
        agent.say(" two")
        agent.end()
        await world.until(finished(world))
        await clock.advance(60.0)
        assert texts(world.telegram) == ["one two"]
        assert await alarms(world) == {}


# The process dies with a call in flight.


@each_place
@pytest.mark.parametrize("arrived", [True, False], ids=["arrived", "not arrived"])
async def test_a_restart_with_a_send_in_flight_leaves_one_marked_copy(
    open_world: Callable[..., TelegramWorld], chat: str, arrived: bool
) -> None:
    async with open_world(Scripted("hello")) as world:
        world.telegram.hold_next("sendMessage", after_effect=arrived)
        asks(world, chat=chat)
        await world.until(lambda: world.telegram.calls("sendMessage"), limit=0.0)
        await world.crash()
        await world.start()
        await world.until(finished(world))
        assert texts(world.telegram, chat) == [*["hello"] * arrived, MARK + "hello"]


@by_edits
@pytest.mark.parametrize("arrived", [True, False], ids=["arrived", "not arrived"])
async def test_a_restart_with_the_final_edit_in_flight_repeats_it(
    open_world: Callable[..., TelegramWorld], agent: Dictated, mode: Mode, arrived: bool
) -> None:
    async with open_world() as world:
        await begins(world, agent, "one", chat=mode.chat)
        world.telegram.hold_next("editMessageText", after_effect=arrived)
        agent.say(" two")
        agent.end()
        await world.until(lambda: world.telegram.calls("editMessageText"), limit=10.0)
        await world.crash()
        await world.start()
        await world.until(finished(world))
        assert texts(world.telegram, mode.chat) == ["one two"]
        assert len(agent.turns) == 1, "only its delivery was repeated"


@pytest.mark.parametrize("arrived", [True, False], ids=["arrived", "not arrived"])
async def test_a_restart_with_a_draft_in_flight_begins_it_anew(
    open_world: Callable[..., TelegramWorld], agent: Dictated, clock: OwnedClock, arrived: bool
) -> None:
    async with open_world() as world:
        await begins(world, agent, "one")
        world.telegram.hold_next("sendMessageDraft", after_effect=arrived)
        agent.say(" two")
        await world.until(lambda: world.telegram.calls()[-1].text == "one two", limit=10.0)
        await world.crash()
        await world.start()
        await world.until(lambda: len(agent.turns) == 2, limit=0.0)
        agent.say("again")
        await clock.advance(3.0)
        assert shown(world.telegram) == "again"
        agent.end()
        await world.until(finished(world))
        assert texts(world.telegram) == ["again"]


# Chats that are closed to us.

CLOSED: dict[str, tuple[str, str, Callable[[TelegramServer], None], str]] = {
    "blocked": (PERSON, "", lambda telegram: telegram.block(PERSON), "bot was blocked by the user"),
    "kicked": (GROUP, "", lambda telegram: telegram.kick(GROUP), "bot was kicked from the group chat"),
    "topic deleted": (
        FORUM,
        "12",
        lambda telegram: telegram.delete_topic(FORUM, "12"),
        "message thread not found",
    ),
    "topic closed": (FORUM, "12", lambda telegram: telegram.close_topic(FORUM, "12"), "topic_closed"),
    "silenced": (
        GROUP,
        "",
        lambda telegram: telegram.fail_next(
            400, chat=GROUP, count=20, description="Bad Request: not enough rights to send text messages to the chat"
        ),
        "not enough rights to send text messages to the chat",
    ),
}


@pytest.mark.parametrize(
    ("how", "grown"),
    [
        pytest.param(how, grown, id=f"{how} {'in mid-stream' if grown else 'at once'}")
        for how in CLOSED
        for grown in (False, True)
        # What stands in a closed topic can still be edited.
        if not (grown and how == "topic closed")
    ],
)
async def test_what_cannot_be_delivered_dies_with_the_platform_s_reason_and_goes_nowhere_else(
    open_world: Callable[..., TelegramWorld], agent: Dictated, clock: OwnedClock, how: str, grown: bool
) -> None:
    """I7, and H6: the owner sees it."""
    chat, thread, close, reason = CLOSED[how]
    async with open_world() as world:
        asks(world, chat=chat, thread=thread)
        await world.until(lambda: agent.turns, limit=0.0)
        if grown:
            agent.say("A | table\n--|--\n**a** | secret")
            await clock.advance(5.0)
        close(world.telegram)
        agent.say("\n\n*and more*")
        await clock.advance(5.0 * grown)
        agent.end()
        await world.until(lambda: is_dead(world))
        (dead,) = is_dead(world)
        assert reason in dead["reason"].lower()
        rung = (await alarms(world))["dead"]
        assert dead["id"] in rung.last
        assert reason in rung.last.lower()
        assert (await world.health()).deliveries == {"dead": 1}
        ended = len(calls_to(world.telegram, chat))
        await clock.advance(120.0)
        named = [call for call in world.telegram.calls() if call.chat]
        assert len(named) == ended, "never again, and nobody else was told"
        # An edit and a reaction name a message, and so no topic.
        assert {call.thread for call in named if "message_id" not in call.params} == {thread}


async def test_a_person_who_comes_back_is_told_what_they_may_have_missed(
    open_world: Callable[..., TelegramWorld],
) -> None:
    gate = Gate()
    async with open_world(Echo({"hello": gate})) as world:
        asks(world, "hello")
        await gate.reached()
        world.telegram.block(PERSON)
        gate.open()
        await world.until(lambda: is_dead(world))
        world.telegram.block(PERSON, on=False)
        asks(world, "I am back")
        await world.until(lambda: len(texts(world.telegram)) == 2)
        assert texts(world.telegram) == [MAY_BE_LOST, "you said: I am back"]


async def test_a_message_to_a_chat_that_is_not_there_dies_and_says_why(
    open_world: Callable[..., TelegramWorld],
) -> None:
    async with open_world(Echo()) as world:
        id = await world.gateway.desk.owe(Target(adapter="telegram", chat="99"), Body(text="a **secret**"), "test")
        await world.until(lambda: is_dead(world))
        assert (await world.gateway.desk.delivery(id)).reason.lower() == "chat not found"
        assert "dead" in await alarms(world)
        assert world.telegram.sent == ()
        assert len(calls_to(world.telegram, "99")) == 1, "a closed door is not knocked at in other words"


async def test_a_revoked_token_holds_what_is_owed_until_there_is_a_new_one(
    open_world: Callable[..., TelegramWorld], agent: Dictated, clock: OwnedClock
) -> None:
    async with open_world() as world:
        await begins(world, agent, "one")
        world.telegram.revoke("1000001:another-token")
        agent.say(" two")
        await clock.advance(5.0)
        agent.end()
        await world.until(lambda: world.rows("SELECT 1 FROM deliveries WHERE state = 'held'"))
        rung = (await alarms(world))["held"]
        assert "BotFather" in rung.last
        await clock.advance(600.0)
        assert world.rows("SELECT 1 FROM deliveries WHERE state = 'held'"), "no attempt is spent on it"
        await world.end()
        await world.start()
        await world.until(finished(world))
        assert texts(world.telegram) == ["one two"]


# Chats that move.


@pytest.mark.parametrize("heard", [True, False], ids=["told by an update", "told by the refusal"])
@pytest.mark.parametrize("grown", [False, True], ids=["at once", "in mid-stream"])
async def test_the_answer_follows_a_group_that_became_a_supergroup(
    open_world: Callable[..., TelegramWorld], agent: Dictated, clock: OwnedClock, heard: bool, grown: bool
) -> None:
    async with open_world() as world:
        world.telegram.open_chat(GROUP)
        if not heard:
            # The poll that is open brings the question; the next one hears nothing for a while.
            poll = world.telegram.hold_next("getUpdates")
        asks(world, chat=GROUP)
        await world.until(lambda: agent.turns, limit=0.0)
        agent.say("one")
        await clock.advance(5.0 * grown)
        world.telegram.migrate(GROUP, "-1000000000077")
        agent.say(" two")
        await clock.advance(5.0 * grown)
        agent.end()
        await world.until(finished(world))
        assert texts(world.telegram, "-1000000000077") == ["one two"]
        assert [message.text for message in world.telegram.visible(GROUP)] == ["one"] * grown, "it stayed behind"
        if not heard:
            poll.set()
        asks(world, "still there?", chat="-1000000000077")
        await world.until(lambda: len(agent.turns) == 2, limit=60.0)
        agent.say("yes")
        agent.end()
        await world.until(finished(world))
        assert texts(world.telegram, "-1000000000077") == ["one two", "yes"]
        assert [entry.text for entry in agent.turns[1].history][-1] == "one two", "one conversation"
        assert await alarms(world) == {}

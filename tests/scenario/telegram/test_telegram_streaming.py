"""On Telegram an answer grows as a draft or by edits, at the platform's pace, with typing and reactions beside it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.simulators.telegram.simulator import Call, Message, TelegramServer
from tests.worlds.telegram import TelegramWorld
from tests.worlds.telegram_stories import (
    FORUM,
    GROUP,
    PERSON,
    TEXTS,
    Dictated,
    alarms,
    asks,
    begins,
    calls_to,
    finished,
    gaps,
    shown,
    texts,
)
from tests.worlds.world import Gate, OwnedClock, Scripted
from tidings.core.agent import FileMade, Finished, OutcomeKind, Progress, ToolFinished, ToolStarted


class Mode(NamedTuple):
    """Where an answer grows, how, and how many seconds must lie between two sights of it."""

    chat: str
    grows: str
    seconds: float
    drafts: bool = True


MODES = {
    "drafts": Mode(PERSON, "sendMessageDraft", 1.2),
    "edits": Mode(PERSON, "editMessageText", 1.2, drafts=False),
    "group": Mode(GROUP, "editMessageText", 3.5),
}
each_mode = pytest.mark.parametrize("mode", [pytest.param(mode, id=name) for name, mode in MODES.items()])
DRAFTS = MODES["drafts"]

# Typing fades on the screen after this.
FADES_SECONDS = 5.0
# A20: not a single typing action more than this after the end.
LATEST_SECONDS = 6.0
# A draft is gone after this.
DRAFT_SECONDS = 30.0


@pytest.fixture
def mode() -> Mode:
    return DRAFTS


@pytest.fixture
def open_world(tmp_path: Path, agent: Dictated, clock: OwnedClock, mode: Mode) -> Callable[..., TelegramWorld]:
    def build(answering: Any = None, **options: Any) -> TelegramWorld:
        server = {"drafts": mode.drafts, **options.pop("server", {})}
        allow = [f"telegram:{who}" for who in (7, 8, 9)]
        world = TelegramWorld(tmp_path, answering or agent, clock=clock, server=server, allow=allow, **options)
        for chat in (GROUP, "8", "9"):
            world.telegram.open_chat(chat)
        return world

    return build


def told(telegram: TelegramServer, chat: str = PERSON) -> list[Call]:
    """Everything that showed a text there, in whatever way."""
    return calls_to(telegram, chat, *TEXTS)


def verdicts(telegram: TelegramServer) -> set[str]:
    return {call.verdict for call in telegram.calls() if call.verdict and call.method != "getUpdates"}


# Growing.


@each_mode
async def test_an_answer_grows_in_place_and_ends_as_one_message(
    open_world: Callable[..., TelegramWorld], agent: Dictated, clock: OwnedClock, mode: Mode
) -> None:
    async with open_world() as world:
        await begins(world, agent, "Once upon", chat=mode.chat)
        for word in (" a time", " there was", " a bot"):
            agent.say(word)
            await clock.advance(4.0)
            assert shown(world.telegram, mode.chat).endswith(word)
            assert len(world.telegram.visible(mode.chat)) == 1
        agent.say(". The end.")
        agent.end()
        await world.until(finished(world))
        assert texts(world.telegram, mode.chat) == ["Once upon a time there was a bot. The end."]
        methods = [call.method for call in told(world.telegram, mode.chat)]
        if mode is DRAFTS:
            assert methods == ["sendMessageDraft"] * (len(methods) - 1) + ["sendMessage"], "a plain send ends it"
            assert len({call.params["draft_id"] for call in world.telegram.calls("sendMessageDraft")}) == 1
        else:
            tried = [] if mode.drafts else ["sendMessageDraft"]
            assert methods == [*tried, "sendMessage", *["editMessageText"] * 4]
        assert await alarms(world) == {}


@each_mode
async def test_sights_of_an_answer_keep_their_distance_and_the_latest_wins(
    open_world: Callable[..., TelegramWorld], agent: Dictated, clock: OwnedClock, mode: Mode
) -> None:
    """The final keeps it too: it is what a flood would cost."""
    async with open_world() as world:
        await begins(world, agent, "Words:", chat=mode.chat)
        said = [(clock.now(), "Words:")]
        for number in range(1, 100):
            await clock.advance(0.1)
            agent.say(f" {number},")
            said.append((clock.now(), f"{said[-1][1]} {number},"))
        agent.end()
        await world.until(finished(world))
        sights = [call for call in told(world.telegram, mode.chat) if call.verdict == "ok"]
        assert len(sights) >= 4
        # To a hair: an owned clock adds up tenths.
        assert min(gaps(sights)) >= mode.seconds - 1e-3, gaps(sights)
        for call in sights:
            before = [text for at, text in said if at < call.now - 1e-6]
            assert call.text.startswith(before[-1] if before else "Words:"), "never what was said a while ago"
        assert sights[-1].text == said[-1][1]


@each_mode
async def test_three_hundred_deltas_in_six_seconds_meet_no_limit_and_lose_nothing(
    open_world: Callable[..., TelegramWorld], agent: Dictated, clock: OwnedClock, mode: Mode
) -> None:
    lines = [f"\n{number:03d} it is a long way." for number in range(300)]
    async with open_world() as world:
        world.telegram.limit_rates()
        await begins(world, agent, lines[0], chat=mode.chat)
        for first in range(1, 300, 10):
            agent.say(*lines[first : first + 10])
            await clock.advance(0.2)
        agent.end()
        await world.until(finished(world))
        parts = texts(world.telegram, mode.chat)
        assert len(parts) == 2
        assert "\n".join(parts) == "".join(lines).strip()
        assert "429" not in verdicts(world.telegram)
        assert len(told(world.telegram, mode.chat)) <= 10


@each_mode
async def test_past_one_message_the_tail_is_shown_and_the_final_is_cut(
    open_world: Callable[..., TelegramWorld], agent: Dictated, clock: OwnedClock, mode: Mode
) -> None:
    lines = [f"{number:03d} 👍 a line of the answer" for number in range(400)]
    async with open_world() as world:
        await begins(world, agent, lines[0], chat=mode.chat)
        for first in range(1, 400, 57):
            agent.say("\n" + "\n".join(lines[first : first + 57]))
            await clock.advance(4.0)
            assert shown(world.telegram, mode.chat).endswith(lines[min(first + 56, 399)])
            assert len(world.telegram.visible(mode.chat)) == 1
        agent.end()
        await world.until(finished(world))
        parts = texts(world.telegram, mode.chat)
        assert "\n".join(parts) == "\n".join(lines)
        assert len(parts) == 3
        assert "400" not in verdicts(world.telegram)


GROWING = """# A title

Some *words* and a [link](https://example.org/a_b) with `code`, __init__.py and 2 * 3 * 4.

- one
  - two with **bold words**
    1. three

```python
def f(x: Vec<T>) -> str:
    return "*not bold*"
```

> a quotation 👩‍👩‍👧

The end.
"""
RICH = "\n| a | b |\n|---|--:|\n| 1 | $x^2$ |\n\n<details><summary>more</summary>inside</details>\n"


@each_mode
@pytest.mark.parametrize("rich", ["", RICH], ids=["entities", "rich"])
async def test_what_is_streamed_equals_what_is_sent_at_once(
    open_world: Callable[..., TelegramWorld], agent: Dictated, clock: OwnedClock, mode: Mode, rich: str
) -> None:
    """B6; and no state of half-written Markdown on the way is refused."""
    answer = GROWING + rich
    async with open_world() as world:
        asks(world, chat=mode.chat)
        await world.until(lambda: agent.turns, limit=0.0)
        agent.say(answer)
        agent.end()
        await world.until(finished(world))
        await clock.advance(10.0)
        asks(world, chat=mode.chat)
        await world.until(lambda: len(agent.turns) == 2, limit=0.0)
        for first in range(0, len(answer), 13):
            agent.say(answer[first : first + 13])
            await clock.advance(mode.seconds)
        agent.end()
        await world.until(finished(world))
        at_once, streamed = world.telegram.visible(mode.chat)
        assert content(streamed) == content(at_once)
        assert (at_once.kind == "rich") == bool(rich)
        refused = [call.result for call in told(world.telegram, mode.chat) if call.verdict == "400"]
        assert all("message is not modified" in result for result in refused), refused


def content(message: Message) -> tuple[Any, ...]:
    return message.kind, message.text, message.entities, message.rich


@each_mode
async def test_a_tool_at_work_and_progress_are_shown_and_never_part_of_the_answer(
    open_world: Callable[..., TelegramWorld], agent: Dictated, clock: OwnedClock, mode: Mode
) -> None:
    async with open_world() as world:
        await begins(world, agent, "Let me look.", chat=mode.chat)
        agent.do(ToolStarted("c1", "search"))
        await clock.advance(4.0)
        assert shown(world.telegram, mode.chat) == "Let me look.\n\nsearch …"
        agent.do(ToolFinished("c1", "found"), Progress("reading page 2"))
        await clock.advance(4.0)
        assert shown(world.telegram, mode.chat) == "Let me look.\n\nreading page 2"
        agent.say(" Done.")
        agent.end()
        await world.until(finished(world))
        assert texts(world.telegram, mode.chat) == ["Let me look. Done."]


@each_mode
async def test_a_quick_answer_is_one_call(
    open_world: Callable[..., TelegramWorld], agent: Dictated, clock: OwnedClock, mode: Mode
) -> None:
    async with open_world() as world:
        asks(world, chat=mode.chat)
        await world.until(lambda: agent.turns, limit=0.0)
        agent.say("hello")
        agent.end()
        await world.until(finished(world), limit=0.0)
        await clock.advance(30.0)
        assert [call.method for call in calls_to(world.telegram, mode.chat)] == ["sendMessage"]


@each_mode
async def test_two_answers_in_one_chat_are_two_messages(
    open_world: Callable[..., TelegramWorld], agent: Dictated, clock: OwnedClock, mode: Mode
) -> None:
    async with open_world() as world:
        await begins(world, agent, "first", chat=mode.chat)
        asks(world, "and another", chat=mode.chat)
        agent.end()
        await world.until(lambda: len(agent.turns) == 2)
        agent.say("second")
        await clock.advance(8.0)
        agent.end()
        await world.until(finished(world))
        assert texts(world.telegram, mode.chat) == ["first", "second"]
        if mode is DRAFTS:
            assert len({call.params["draft_id"] for call in world.telegram.calls("sendMessageDraft")}) == 2


async def test_files_follow_the_text_that_grew(
    open_world: Callable[..., TelegramWorld], agent: Dictated, tmp_path: Path
) -> None:
    (tmp_path / "report.txt").write_text("all of it")
    async with open_world() as world:
        await begins(world, agent, "Here")
        agent.do(FileMade(str(tmp_path / "report.txt"), "report.txt"))
        agent.say(" it is.")
        agent.end()
        await world.until(finished(world))
        text, file = world.telegram.visible()
        assert text.text == "Here it is."
        assert [(each.name, each.data) for each in file.files] == [("report.txt", b"all of it")]


# Drafts, and where there are none.


async def test_a_draft_is_kept_alive_through_a_long_silence(
    open_world: Callable[..., TelegramWorld], agent: Dictated, clock: OwnedClock
) -> None:
    """The platform lets it fade after half a minute."""
    async with open_world() as world:
        await begins(world, agent, "Let me think.")
        for _ in range(36):
            await clock.advance(5.0)
            (draft,) = world.telegram.visible()
            assert (draft.streaming, draft.text) == (True, "Let me think.")
        drafts = calls_to(world.telegram, PERSON, "sendMessageDraft")
        assert max(gaps(drafts)) < DRAFT_SECONDS
        assert len(drafts) <= 180 / 15, "no more often than it takes"
        agent.say(" Yes.")
        agent.end()
        await world.until(finished(world))
        assert texts(world.telegram) == ["Let me think. Yes."]


async def test_a_chat_that_refuses_drafts_gets_edits_and_is_not_asked_again(
    open_world: Callable[..., TelegramWorld], agent: Dictated, clock: OwnedClock
) -> None:
    async with open_world() as world:
        world.telegram.forbid_drafts(PERSON)
        for turn in ("one", "two"):
            await begins(world, agent, turn)
            agent.say(" and more")
            await clock.advance(2.0)
            agent.end()
            await world.until(finished(world))
            await clock.advance(10.0)
        assert texts(world.telegram) == ["one and more", "two and more"]
        (refused,) = calls_to(world.telegram, PERSON, "sendMessageDraft")
        assert "TEXTDRAFT_PEER_INVALID" in refused.result
        await begins(world, agent, "elsewhere", chat="8")
        assert [message.streaming for message in world.telegram.visible("8")] == [True], "other chats have theirs"
        agent.end()
        await world.until(finished(world))


async def test_a_server_that_knows_no_drafts_is_asked_once(
    open_world: Callable[..., TelegramWorld], agent: Dictated, clock: OwnedClock
) -> None:
    async with open_world(server={"drafts": False}) as world:
        for chat in (PERSON, "8", PERSON):
            await begins(world, agent, "Slowly", chat=chat)
            agent.say(" it goes")
            await clock.advance(2.0)
            assert shown(world.telegram, chat) == "Slowly it goes"
            agent.end()
            await world.until(finished(world))
            await clock.advance(10.0)
        assert len(world.telegram.calls("sendMessageDraft")) == 1
        assert await alarms(world) == {}


async def test_a_draft_that_is_refused_while_it_grows_costs_only_the_view(
    open_world: Callable[..., TelegramWorld], agent: Dictated, clock: OwnedClock
) -> None:
    async with open_world() as world:
        await begins(world, agent, "one")
        world.telegram.forbid_drafts(PERSON)
        agent.say(" two")
        await clock.advance(5.0)
        agent.say(" three")
        agent.end()
        await world.until(finished(world))
        assert texts(world.telegram) == ["one two three"]
        await clock.advance(10.0)
        drafts = len(world.telegram.calls("sendMessageDraft"))
        await begins(world, agent, "by edits")
        assert not world.telegram.visible()[-1].streaming
        assert len(world.telegram.calls("sendMessageDraft")) == drafts
        agent.end()
        await world.until(finished(world))


@pytest.mark.parametrize("opening", [True, False], ids=["when it opens", "while it grows"])
async def test_a_flood_on_a_draft_is_no_reason_to_edit_instead(
    open_world: Callable[..., TelegramWorld], agent: Dictated, clock: OwnedClock, opening: bool
) -> None:
    async with open_world() as world:
        if not opening:
            await begins(world, agent, "one")
        world.telegram.fail_next(429, retry_after=20, method="sendMessageDraft")
        if opening:
            asks(world)
            await world.until(lambda: agent.turns, limit=0.0)
            agent.say("one")
        agent.say(" two")
        await world.until(lambda: "429" in verdicts(world.telegram), limit=5.0)
        limited = world.telegram.calls()[-1]
        await clock.advance(60.0)
        drafts = calls_to(world.telegram, PERSON, "sendMessageDraft")
        after = drafts[[call.order for call in drafts].index(limited.order) + 1]
        assert after.now - limited.now >= 20.0
        assert (after.text, after.verdict) == ("one two", "ok"), "a draft again, with the newest text"
        agent.say(" three")
        agent.end()
        await world.until(finished(world))
        assert texts(world.telegram) == ["one two three"]
        methods = [call.method for call in told(world.telegram)]
        assert methods == ["sendMessageDraft"] * (len(methods) - 1) + ["sendMessage"]


# The end is the end.


@each_mode
async def test_a_sight_in_flight_never_overwrites_the_final(
    open_world: Callable[..., TelegramWorld], agent: Dictated, clock: OwnedClock, mode: Mode
) -> None:
    async with open_world() as world:
        await begins(world, agent, "one", chat=mode.chat)
        gate = world.telegram.hold_next(mode.grows)
        agent.say(" two")
        await clock.advance(mode.seconds)
        agent.say(" three")
        agent.end()
        await world.until(lambda: world.runs()[0]["state"] == "done", limit=0.0)
        await clock.advance(2.0)
        assert told(world.telegram, mode.chat)[-1].verdict == "", "the final waits for it"
        gate.set()
        await world.until(finished(world))
        await clock.advance(DRAFT_SECONDS)
        assert texts(world.telegram, mode.chat) == ["one two three"]


@each_mode
async def test_a_sight_that_hangs_does_not_keep_the_final_from_a_person(
    open_world: Callable[..., TelegramWorld], agent: Dictated, clock: OwnedClock, mode: Mode
) -> None:
    async with open_world() as world:
        await begins(world, agent, "one", chat=mode.chat)
        world.telegram.hold_next(mode.grows)
        agent.say(" two")
        await clock.advance(mode.seconds)
        agent.end()
        await world.until(finished(world), limit=15.0)
        assert texts(world.telegram, mode.chat) == ["one two"]


@each_mode
async def test_nothing_of_a_stopped_run_is_shown_after_its_end(
    open_world: Callable[..., TelegramWorld], agent: Dictated, clock: OwnedClock, mode: Mode
) -> None:
    async with open_world() as world:
        await begins(world, agent, "one", chat=mode.chat)
        agent.say(" two")
        await clock.advance(4.0)
        agent.say(" three")
        world.telegram.says("/stop", chat=mode.chat)
        await world.until(
            lambda: (
                not world.rows("SELECT 1 FROM deliveries WHERE state IN ('waiting', 'doubtful')")
                and world.runs()[0]["state"] == "done"
            )
        )
        agent.say(" four")
        ended = len(calls_to(world.telegram, mode.chat))
        await clock.advance(60.0)
        assert len(calls_to(world.telegram, mode.chat)) == ended
        assert texts(world.telegram, mode.chat)[0].startswith("one two three\n\nStopped by ")


async def test_whoever_presses_stop_below_a_draft_stops_that_run(
    open_world: Callable[..., TelegramWorld], agent: Dictated, clock: OwnedClock
) -> None:
    async with open_world() as world:
        await begins(world, agent, "one")
        world.telegram.stops(PERSON)
        await world.until(finished(world))
        agent.say(" two")
        await clock.advance(60.0)
        assert [row["outcome"] for row in world.runs() if row["outcome"]] == ["cancelled"]
        (told,) = texts(world.telegram)
        assert told.startswith("one\n\nStopped by ")


async def test_a_late_press_of_stop_neither_stops_the_next_run_nor_says_anything(
    open_world: Callable[..., TelegramWorld], agent: Dictated, clock: OwnedClock
) -> None:
    """The button was pressed as the answer ended, and the next one had begun when we heard of it."""
    async with open_world() as world:
        await begins(world, agent, "one")
        (draft,) = [message.key for message in world.telegram.visible() if message.streaming]
        agent.end()
        await world.until(finished(world))
        await begins(world, agent, "two")
        world.telegram.stops(PERSON, draft=draft)
        await world.until(lambda: f"stopped:{draft}" in world.telegram.confirmed)
        agent.end()
        await world.until(finished(world))
        world.telegram.stops(PERSON, draft=draft)
        await clock.advance(10.0)
        assert texts(world.telegram) == ["one", "two"]


@pytest.mark.parametrize("stops", ["ignored", "refused"])
async def test_a_server_that_is_older_than_the_stop_of_drafts_shows_them_all_the_same(
    open_world: Callable[..., TelegramWorld], agent: Dictated, clock: OwnedClock, stops: str
) -> None:
    async with open_world(server={"stops": stops}) as world:
        for answer in ("one", "two"):
            await begins(world, agent, answer)
            assert [message.streaming for message in world.telegram.visible()][-1]
            agent.say(" more")
            await clock.advance(2.0)
            assert shown(world.telegram) == f"{answer} more"
            agent.end()
            await world.until(finished(world))
            await clock.advance(10.0)
        refused = [call for call in world.telegram.calls("sendMessageDraft") if call.verdict != "ok"]
        assert len(refused) == (1 if stops == "refused" else 0)
        assert await alarms(world) == {}


@each_mode
async def test_an_answer_that_fails_says_so_where_it_grew(
    open_world: Callable[..., TelegramWorld], agent: Dictated, mode: Mode
) -> None:
    async with open_world() as world:
        await begins(world, agent, "one", chat=mode.chat)
        agent.do(RuntimeError("the model went away"))
        await world.until(finished(world))
        assert texts(world.telegram, mode.chat) == ["one\n\n⚠ I could not finish this: the model went away."]


@each_mode
async def test_a_restart_in_mid_stream_goes_on_in_the_same_place(
    open_world: Callable[..., TelegramWorld], agent: Dictated, clock: OwnedClock, mode: Mode
) -> None:
    async with open_world() as world:
        await begins(world, agent, "one", chat=mode.chat)
        agent.say(" two")
        await clock.advance(4.0)
        await world.crash()
        await world.start()
        await world.until(lambda: len(agent.turns) == 2, limit=0.0)
        agent.say("another")
        await clock.advance(8.0)
        (view,) = world.telegram.visible(mode.chat)
        assert view.text == "another"
        agent.say(" beginning")
        agent.end()
        await world.until(finished(world))
        assert texts(world.telegram, mode.chat) == ["another beginning"]


# Typing.


async def opens(world: TelegramWorld, gate: Gate) -> None:
    gate.open()


async def is_stopped(world: TelegramWorld, gate: Gate) -> None:
    world.telegram.says("/stop")


async def runs_out_of_time(world: TelegramWorld, gate: Gate) -> None:
    """Its deadline comes by itself."""


async def dies_with_the_process(world: TelegramWorld, gate: Gate) -> None:
    world.agents["bot"] = Scripted("again")
    await world.crash()
    await world.start()


async def blocks_us(world: TelegramWorld, gate: Gate) -> None:
    world.telegram.block(PERSON)
    gate.open()


End = Callable[[TelegramWorld, Gate], Awaitable[None]]
ENDS: dict[str, tuple[Callable[[Gate], Any], End, str]] = {
    "a reply": (lambda gate: Scripted("well", gate, "done"), opens, "completed"),
    "a failure": (lambda gate: Scripted(gate, RuntimeError("broken")), opens, "failed"),
    "a failure it reports": (lambda gate: Scripted(gate, Finished(OutcomeKind.FAILED, "401")), opens, "failed"),
    "silence": (lambda gate: Scripted(gate), opens, "failed"),
    "no end at all": (lambda gate: Scripted("half", gate, finish=False), opens, "failed"),
    "a flood": (lambda gate: Scripted(gate, "x" * 5000), opens, "halted"),
    "a stop": (lambda gate: Scripted(gate, "done"), is_stopped, "cancelled"),
    "the deadline": (lambda gate: Scripted(gate, "done"), runs_out_of_time, "halted"),
    "a tool that crashes": (
        lambda gate: Scripted(ToolStarted("c1", "dig"), gate, OSError("no shovel")),
        opens,
        "failed",
    ),
    "a restart": (lambda gate: Scripted(gate, "done"), dies_with_the_process, "completed"),
    "a chat that blocks us": (lambda gate: Scripted(gate, "done"), blocks_us, "completed"),
}


@pytest.mark.parametrize("how", ENDS)
async def test_typing_is_shown_while_it_works_and_never_after_the_end(
    open_world: Callable[..., TelegramWorld], clock: OwnedClock, how: str
) -> None:
    """A20."""
    build, end, outcome = ENDS[how]
    gate = Gate()
    async with open_world(build(gate), limits={"run_seconds": 30.0, "output_characters": 1000}) as world:
        began = clock.wall()
        name = asks(world)
        await world.until(lambda: gate.entered.is_set(), limit=0.0)
        await clock.advance(9.0)
        times = [at - began for at in world.telegram.typing_times()]
        assert len(times) == 3
        assert times[0] <= 1.0
        await end(world, gate)
        await world.until(lambda: world.run(name)["state"] == "done")
        over = clock.wall()
        assert world.run(name)["outcome"] == outcome
        await clock.advance(120.0)
        asked = [call.at for call in world.telegram.calls("sendChatAction")]
        assert [at - over for at in asked if at > over + LATEST_SECONDS] == []
        assert max(asked) <= over, "the promise is 6 s; ours end with the run"


@pytest.mark.parametrize("place", ["group", "topic"])
async def test_typing_lasts_as_long_as_the_work_and_stands_where_the_person_waits(
    open_world: Callable[..., TelegramWorld], clock: OwnedClock, place: str
) -> None:
    gate = Gate()
    async with open_world(Scripted(gate, "done")) as world:
        chat, thread = (GROUP, "") if place == "group" else (FORUM, "12")
        asks(world, chat=chat, thread=thread)
        await world.until(lambda: gate.entered.is_set(), limit=0.0)
        await clock.advance(60.0)
        actions = world.telegram.calls("sendChatAction")
        assert {(call.chat, call.thread, call.verdict) for call in actions} == {(chat, thread, "ok")}
        assert max(gaps(actions)) < FADES_SECONDS
        assert clock.now() - actions[-1].now < FADES_SECONDS
        gate.open()
        await world.until(finished(world))
        assert world.telegram.posts_in(chat, thread) == ["done"]


SIGNAL_FAULTS: dict[str, Callable[[TelegramServer, str], None]] = {
    "refused": lambda telegram, method: telegram.fail_next(
        400, method=method, count=50, description="Bad Request: not enough rights to send text messages to the chat"
    ),
    "forbidden": lambda telegram, method: telegram.fail_next(403, method=method, count=50),
    "an error": lambda telegram, method: telegram.fail_next(502, method=method, count=50, html=True),
    "lost": lambda telegram, method: telegram.drop_next(True, method=method, count=50),
    "nonsense": lambda telegram, method: telegram.garble_next(method=method, count=50),
}


@pytest.mark.parametrize("fault", SIGNAL_FAULTS)
async def test_a_signal_that_fails_costs_nothing_and_ends_with_the_run(
    open_world: Callable[..., TelegramWorld], clock: OwnedClock, fault: str
) -> None:
    gate = Gate()
    async with open_world(Scripted(gate, "done")) as world:
        for method in ("sendChatAction", "setMessageReaction"):
            SIGNAL_FAULTS[fault](world.telegram, method)
        name = asks(world)
        await world.until(lambda: gate.entered.is_set(), limit=0.0)
        await clock.advance(10.0)
        assert len(world.telegram.calls("sendChatAction")) == 3, "they were tried"
        gate.open()
        await world.until(finished(world))
        over = clock.now()
        assert texts(world.telegram) == ["done"]
        assert world.run(name)["outcome"] == "completed"
        await clock.advance(60.0)
        assert max(call.now for call in world.telegram.calls("sendChatAction")) <= over
        assert await alarms(world) == {}


# Reactions.


@pytest.mark.parametrize(
    ("step", "expected"),
    [("fine", "👍"), (RuntimeError("broken"), "💔"), (Finished(OutcomeKind.HALTED, "enough"), "👍")],
    ids=["done", "failed", "halted"],
)
@pytest.mark.parametrize("chat", [PERSON, GROUP], ids=["private", "group"])
async def test_a_message_is_seen_and_then_done_or_failed(
    open_world: Callable[..., TelegramWorld], clock: OwnedClock, step: Any, expected: str, chat: str
) -> None:
    gate = Gate()
    async with open_world(Scripted("so far", gate, step)) as world:
        name = asks(world, chat=chat)
        await world.until(lambda: gate.entered.is_set(), limit=0.0)
        await clock.advance(1.0)
        assert world.telegram.reactions == {name: "👀"}
        gate.open()
        await world.until(finished(world))
        await world.rest()
        assert world.telegram.reactions == {name: expected}
        assert len(world.telegram.calls("setMessageReaction")) == 2


@pytest.mark.parametrize("chat", [PERSON, GROUP], ids=["private", "group"])
async def test_an_answer_that_telegram_refuses_for_good_leaves_no_thumb_up(
    open_world: Callable[..., TelegramWorld], clock: OwnedClock, chat: str
) -> None:
    gate = Gate()
    async with open_world(Scripted(gate, "fine")) as world:
        name = asks(world, chat=chat)
        await world.until(lambda: world.telegram.reactions == {name: "👀"})
        world.telegram.fail_next(400, method="sendMessage", description="Bad Request: not enough rights", count=50)
        gate.open()
        await world.until(lambda: world.telegram.reactions == {name: "💔"})
        assert len(world.telegram.calls("setMessageReaction")) == 2
        assert texts(world.telegram, chat) == []


async def test_reactions_are_switched_off_in_a_chat_that_refuses_them(
    open_world: Callable[..., TelegramWorld], agent: Dictated
) -> None:
    async with open_world() as world:
        world.telegram.forbid_reactions(GROUP)
        for chat in (GROUP, GROUP, PERSON):
            await begins(world, agent, "one", chat=chat)
            agent.end()
            await world.until(finished(world))
            await world.rest()
        assert [call.verdict for call in calls_to(world.telegram, GROUP, "setMessageReaction")] == ["400"]
        assert [call.verdict for call in calls_to(world.telegram, PERSON, "setMessageReaction")] == ["ok", "ok"]
        assert texts(world.telegram, GROUP) == ["one", "one"]
        assert await alarms(world) == {}


async def test_a_deleted_question_costs_its_reaction_and_nothing_else(
    open_world: Callable[..., TelegramWorld], agent: Dictated
) -> None:
    async with open_world() as world:
        name = await begins(world, agent, "one", chat=GROUP)
        world.telegram.erase(name)
        agent.end()
        await world.until(finished(world))
        name = await begins(world, agent, "two", chat=GROUP)
        agent.end()
        await world.until(finished(world))
        await world.rest()
        assert texts(world.telegram, GROUP) == ["one", "two"]
        assert world.telegram.reactions == {name: "👍"}, "reactions are still on"


async def test_without_reactions_in_the_settings_there_are_none(
    open_world: Callable[..., TelegramWorld], agent: Dictated, clock: OwnedClock
) -> None:
    async with open_world(settings={"reactions": False}) as world:
        await begins(world, agent, "one")
        await clock.advance(5.0)
        agent.end()
        await world.until(finished(world))
        await world.rest()
        assert world.telegram.calls("setMessageReaction") == ()
        assert world.telegram.calls("sendChatAction") != ()

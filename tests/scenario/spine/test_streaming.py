"""A growing answer is shown in place, paced and latest wins; the final text arrives once and stands alone."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.simulators.paper.simulator import Kind, PaperServer
from tests.worlds.builders import body, target
from tests.worlds.dictated import Dictated
from tests.worlds.world import Doorway, OwnedClock, World
from tidings.core.agent import Progress, ToolFinished, ToolStarted
from tidings.core.inbound.door import MAY_BE_LOST
from tidings.core.outbound.compose import QUICK_CHARACTERS
from tidings.core.outbound.draft import REFRESH_SECONDS, SHOWN_CHARACTERS
from tidings.core.outbound.outbox import MARK
from tidings.core.types import Body, Capabilities, Pace, Target

MODES = ("edits", "drafts", "append")
# How each of them opens a view, grows it, and finishes it.
OPENS = {"edits": "post", "drafts": "draft", "append": "stream_start"}
GROWS = {"edits": "edit", "drafts": "draft", "append": "append"}
PROOF: dict[str, dict[str, Any]] = {"keyed": {"keyed_for": 3600.0}, "readback": {"readback": True}, "neither": {}}

each_mode = pytest.mark.parametrize("mode", MODES)
each_proof = pytest.mark.parametrize("proof", PROOF)


@pytest.fixture
def open_world(tmp_path: Path, agent: Dictated, clock: OwnedClock) -> Callable[..., World]:
    def build(mode: str = "edits", *, proof: str = "keyed", limit: int = 2000, **declared: Any) -> World:
        kind = Kind(streaming=mode, **{**PROOF[proof], **declared})  # type: ignore[arg-type]
        return World(tmp_path, agent, kind=kind, clock=clock, limit=limit, settings={"call_seconds": 0.15})

    return build


async def begins(world: World, agent: Dictated, *texts: str) -> str:
    """Somebody asks, and the first words are on the screen."""
    key = world.paper.says("go on")
    await world.until(lambda: agent.turns, limit=0.0)
    agent.say(*texts)
    await world.until(lambda: shown(world) == "".join(texts).strip(), limit=60.0)
    return key


def shown(world: World) -> str:
    """The newest thing that a person sees of the bot."""
    visible = world.paper.visible()
    return visible[-1].text if visible else ""


def texts(world: World) -> list[str]:
    """Everything of the bot that a person sees at the end; nothing may still be growing."""
    visible = world.paper.visible()
    assert not any(message.streaming for message in visible)
    return [message.text for message in visible]


def finished(world: World) -> Callable[[], bool]:
    return lambda: (
        [row["state"] for row in world.rows("SELECT state FROM deliveries WHERE kind = 'final'")]
        == ["delivered"] * len(world.runs())
    )


def told(paper: PaperServer, *methods: str) -> list[str]:
    """The texts that reached the platform by these methods, in order."""
    return [call.ask.text for call in paper.calls() if call.method in methods]


# Growing.


@each_mode
async def test_an_answer_grows_in_place_and_ends_as_one_message(
    open_world: Callable[..., World], agent: Dictated, clock: OwnedClock, mode: str
) -> None:
    async with open_world(mode) as world:
        await begins(world, agent, "Once upon")
        for word in (" a time", " there was", " a bot"):
            agent.say(word)
            await clock.advance(1.0)
            assert shown(world).endswith(word)
            assert len(world.paper.visible()) == 1
        agent.say(". The end.")
        agent.end()
        await world.until(finished(world))
        assert texts(world) == ["Once upon a time there was a bot. The end."]
        if mode != "drafts":
            assert len(world.paper.calls("post")) == (mode == "edits"), "finished in place"


@each_mode
async def test_what_is_streamed_equals_what_is_sent(
    open_world: Callable[..., World], agent: Dictated, clock: OwnedClock, mode: str
) -> None:
    """B6: byte for byte, line breaks, indentation and the first characters included."""
    pieces = ["  # T", "itle\n", "\n", "```py\nx", " = 1\n", "\n\n```", "\n- a\n", "- b 👩‍👩‍👧 ", "\u0301e"]
    async with open_world(mode) as world:
        await begins(world, agent, *pieces[:3])
        for piece in pieces[3:]:
            agent.say(piece)
            await clock.advance(2.0)
        agent.end()
        await world.until(finished(world))
        assert texts(world) == ["".join(pieces).strip()]


@each_mode
async def test_three_hundred_deltas_make_few_calls_and_the_latest_text_wins(
    open_world: Callable[..., World], agent: Dictated, clock: OwnedClock, mode: str
) -> None:
    pace = (Pace(key="chat {chat}", seconds=1.2, burst=3),)
    async with open_world(mode, pace=pace, typing=False, reactions=False) as world:
        world.paper.limit_rate("1", 1.2, 3)
        words = [f" {number}." for number in range(300)]
        await begins(world, agent, words[0])
        for first in range(1, 300, 7):
            agent.say(*words[first : first + 7])
            await clock.advance(0.15)
        agent.end()
        await world.until(finished(world))
        whole = "".join(words).strip()
        assert texts(world) == [whole]
        assert {call.verdict for call in world.paper.calls()} == {"ok"}, "paced, so nobody had to turn us away"
        assert len(world.paper.calls()) <= 10
        if mode != "append":
            views = told(world.paper, "post", "edit", "draft")
            assert all(whole.startswith(text) for text in views)
            assert views == sorted(views, key=len)


async def test_text_that_did_not_change_is_not_shown_again(
    open_world: Callable[..., World], agent: Dictated, clock: OwnedClock
) -> None:
    async with open_world() as world:
        await begins(world, agent, "Wait.")
        agent.do(Progress("  "))
        agent.say(" ", "\n")
        await clock.advance(10.0)
        agent.end()
        await world.until(finished(world))
        assert "not modified" not in [call.verdict for call in world.paper.calls()]
        assert told(world.paper, "post", "edit").count("Wait.") <= 2


async def test_a_draft_that_fades_is_shown_again_though_nothing_new_is_said(
    open_world: Callable[..., World], agent: Dictated, clock: OwnedClock
) -> None:
    async with open_world("drafts") as world:
        await begins(world, agent, "Wait.")
        drafts = len(world.paper.calls("draft"))
        for _ in range(10):
            agent.say(" ")
            await clock.advance(REFRESH_SECONDS / 4)
        assert len(world.paper.calls("draft")) == drafts + 2
        agent.end()
        await world.until(finished(world))


async def test_a_tool_at_work_and_progress_are_shown_and_never_part_of_the_answer(
    open_world: Callable[..., World], agent: Dictated, clock: OwnedClock
) -> None:
    async with open_world() as world:
        await begins(world, agent, "Let me look.")
        agent.do(ToolStarted("c1", "search"))
        await clock.advance(1.0)
        assert shown(world) == "Let me look.\n\nsearch …"
        agent.do(ToolFinished("c1", "found"), Progress("reading page 2"))
        await clock.advance(1.0)
        assert shown(world) == "Let me look.\n\nreading page 2"
        agent.say(" Done.")
        agent.end()
        await world.until(finished(world))
        assert texts(world) == ["Let me look. Done."]


@each_mode
async def test_past_one_message_the_tail_is_shown_and_the_final_is_split(
    open_world: Callable[..., World], agent: Dictated, clock: OwnedClock, mode: str
) -> None:
    lines = [f"line {number:03d}." for number in range(150)]
    async with open_world(mode, limit=500) as world:
        await begins(world, agent, "\n".join(lines[:20]))
        agent.say("\n" + "\n".join(lines[20:120]))
        await clock.advance(3.0)
        assert shown(world).endswith("line 119.")
        assert len(shown(world)) <= 500
        assert len(world.paper.visible()) == 1
        agent.say("\n" + "\n".join(lines[120:]))
        agent.end()
        await world.until(finished(world))
        assert "\n".join(texts(world)) == "\n".join(lines)
        assert "413" not in [call.verdict for call in world.paper.calls()]


class Composing(Doorway):
    """Notes how much it is given to compose, and whether the loop stands still meanwhile."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.composed: list[int] = []
        self.on_the_loop: list[int] = []
        # How often something was composed, and how often it was shown, before the answer was whole.
        self.for_views = self.shows = 0

    def compose(self, target: Target, body: Body) -> tuple[Body, ...]:
        self.composed.append(len(body.text))
        if threading.current_thread() is threading.main_thread():
            self.on_the_loop.append(len(body.text))
        return super().compose(target, body)


async def composed(home: Path, characters: int) -> Composing:
    """What it took to show and to deliver an answer of this length."""
    agent, clock = Dictated(), OwnedClock()
    kind = Kind(streaming="edits", keyed_for=3600.0, typing=False, reactions=False)
    async with World(home, agent, kind=kind, clock=clock, adapter=Composing) as world:
        await begins(world, agent, "It begins.")
        for number in range(characters // 1000):
            agent.say(f"\n\n{number:04d} " + "ten chars " * 99)
            await clock.advance(1.0)
            assert shown(world).endswith("ten chars")
        adapter = world.adapters["paper"]
        assert isinstance(adapter, Composing)
        adapter.for_views, adapter.shows = len(adapter.composed), len(world.paper.calls("edit"))
        agent.end()
        await world.until(finished(world))
        assert len(world.posts) > characters // 2000
        return adapter


async def test_what_is_composed_of_an_answer_that_grows_is_linear_in_its_length(tmp_path: Path) -> None:
    half = await composed(tmp_path / "half", 40_000)
    whole = await composed(tmp_path / "whole", 80_000)
    assert sum(whole.composed) < 2.5 * sum(half.composed)
    assert [length > SHOWN_CHARACTERS for length in whole.composed].count(True) == 1, "all of it only for the final"


async def test_what_is_shown_is_composed_once_each_time(tmp_path: Path) -> None:
    adapter = await composed(tmp_path, 20_000)
    assert adapter.shows == 20
    assert adapter.for_views == adapter.shows + 2, "twice more to open the view: its text, and what is sent of it"


async def test_a_long_final_is_composed_while_the_loop_goes_on(tmp_path: Path) -> None:
    adapter = await composed(tmp_path, 40_000)
    assert max(adapter.composed) > QUICK_CHARACTERS
    assert max(adapter.on_the_loop) <= QUICK_CHARACTERS


async def test_a_quick_answer_needs_no_view(open_world: Callable[..., World], agent: Dictated) -> None:
    async with open_world() as world:
        world.paper.says("hi")
        await world.until(lambda: agent.turns, limit=0.0)
        agent.say("hello")
        agent.end()
        await world.until(finished(world), limit=0.0)
        assert [call.method for call in world.paper.calls()] == ["post"]


async def test_a_platform_that_cannot_grow_a_message_gets_only_the_final(
    open_world: Callable[..., World], agent: Dictated, clock: OwnedClock
) -> None:
    async with open_world("none") as world:
        world.paper.says("hi")
        await world.until(lambda: agent.turns, limit=0.0)
        for word in ("slow", " and", " steady"):
            agent.say(word)
            await clock.advance(10.0)
        agent.end()
        await world.until(finished(world))
        assert [call.ask.text for call in world.paper.calls() if call.ask.text and call.method != "react"] == [
            "slow and steady"
        ]


async def test_two_answers_in_one_chat_have_two_messages(
    open_world: Callable[..., World], agent: Dictated, clock: OwnedClock
) -> None:
    async with open_world() as world:
        await begins(world, agent, "first")
        world.paper.says("and another")
        agent.end()
        await world.until(lambda: len(agent.turns) == 2)
        agent.say("second")
        await clock.advance(2.0)
        agent.end()
        await world.until(finished(world))
        assert texts(world) == ["first", "second"]


# What goes wrong while it grows.


@each_mode
async def test_a_limit_met_by_a_show_pauses_the_chat_and_the_final_arrives_after_it(
    open_world: Callable[..., World], agent: Dictated, clock: OwnedClock, mode: str
) -> None:
    """B1: no call of any kind to that chat before the time that the platform named."""
    async with open_world(mode) as world:
        await begins(world, agent, "one")
        world.paper.fail_next(429, retry_after=35.0, method=GROWS[mode])
        agent.say(" two")
        await world.until(lambda: "429" in [call.verdict for call in world.paper.calls()], limit=5.0)
        limited, calls = clock.now(), len(world.paper.calls())
        for word in (" three", " four"):
            agent.say(word)
            await clock.advance(10.0)
        agent.end()
        await clock.advance(limited + 34.9 - clock.now())
        assert len(world.paper.calls()) == calls
        await world.until(finished(world))
        assert texts(world) == ["one two three four"]


@each_mode
async def test_a_limit_met_by_a_show_in_flight_holds_back_a_final_that_waited_for_it(
    open_world: Callable[..., World], agent: Dictated, clock: OwnedClock, mode: str
) -> None:
    async with open_world(mode, typing=False, reactions=False) as world:
        await begins(world, agent, "one")
        gate = world.paper.hold_next(GROWS[mode])
        world.paper.limit_rate("1", 35.0, 1)
        world.paper.chats.rates["1"].spend()
        agent.say(" two")
        await clock.advance(1.0)
        agent.say(" three")
        agent.end()
        await world.until(lambda: world.runs()[0]["state"] == "done", limit=0.0)
        await world.rest()
        gate.set()
        await world.until(lambda: "429" in [call.verdict for call in world.paper.calls()], limit=0.0)
        calls = len(world.paper.calls())
        await clock.advance(33.0)
        assert len(world.paper.calls()) == calls
        world.paper.chats.rates.clear()
        await world.until(finished(world))
        assert texts(world) == ["one two three"]


@each_mode
async def test_a_show_in_flight_never_overwrites_the_final(
    open_world: Callable[..., World], agent: Dictated, clock: OwnedClock, mode: str
) -> None:
    async with open_world(mode, typing=False, reactions=False) as world:
        await begins(world, agent, "one")
        gate = world.paper.hold_next(GROWS[mode])
        agent.say(" two")
        await clock.advance(1.0)
        agent.say(" three")
        agent.end()
        await world.until(lambda: world.runs()[0]["state"] == "done", limit=0.0)
        await world.rest()
        assert world.paper.calls()[-1].verdict == "", "the final waits for it"
        gate.set()
        await world.until(finished(world))
        await world.rest()
        assert texts(world) == ["one two three"]


async def test_a_limit_met_by_a_show_survives_a_restart(
    open_world: Callable[..., World], agent: Dictated, clock: OwnedClock
) -> None:
    async with open_world() as world:
        await begins(world, agent, "one")
        world.paper.fail_next(429, retry_after=35.0, method="edit")
        agent.say(" two")
        await world.until(lambda: world.rows("SELECT 1 FROM pauses"), limit=5.0)
        limited, calls = clock.now(), len(world.paper.calls())
        await world.crash()
        await world.start()
        await world.until(lambda: len(agent.turns) == 2, limit=0.0)
        agent.say("one two")
        agent.end()
        await clock.advance(limited + 34.0 - clock.now())
        assert len(world.paper.calls()) == calls
        await world.until(finished(world))
        assert texts(world) == ["one two"]


@pytest.mark.parametrize("mode", ["edits", "append"])
@pytest.mark.parametrize("noticed", [True, False], ids=["noticed by a show", "noticed by the final"])
async def test_when_the_view_was_deleted_the_final_is_a_new_message(
    open_world: Callable[..., World], agent: Dictated, clock: OwnedClock, mode: str, noticed: bool
) -> None:
    """B11: once."""
    async with open_world(mode) as world:
        await begins(world, agent, "one")
        world.paper.erase(world.paper.sent[0].id)
        agent.say(" two")
        if noticed:
            await clock.advance(5.0)
            agent.say(" three")
            await clock.advance(5.0)
            assert world.paper.visible() == ()
        agent.end()
        await world.until(finished(world))
        assert texts(world) == ["one two three" if noticed else "one two"]


async def test_a_stream_that_the_platform_ended_goes_on_by_edits(
    open_world: Callable[..., World], agent: Dictated, clock: OwnedClock
) -> None:
    async with open_world("append") as world:
        await begins(world, agent, "one")
        world.paper.end_stream(world.paper.sent[0].id)
        agent.say(" two")
        await clock.advance(2.0)
        assert shown(world) == "one two"
        agent.say(" three")
        agent.end()
        await world.until(finished(world))
        assert texts(world) == ["one two three"]
        assert len(world.paper.sent) == 1


SHOW_FAULTS: dict[str, Callable[[PaperServer, str], None]] = {
    "hangs before": lambda paper, method: paper.hang_next(after_effect=False, method=method),
    "hangs after": lambda paper, method: paper.hang_next(after_effect=True, method=method),
    "lost before": lambda paper, method: paper.drop_next(after_effect=False, method=method),
    "lost after": lambda paper, method: paper.drop_next(after_effect=True, method=method),
    "half an answer": lambda paper, method: paper.garble_next(method=method),
    "an error": lambda paper, method: paper.fail_next(500, method=method),
    "not allowed": lambda paper, method: paper.fail_next(403, method=method),
    "limited": lambda paper, method: paper.fail_next(429, method=method),
}


@each_mode
@pytest.mark.parametrize("fault", SHOW_FAULTS)
async def test_a_show_that_fails_never_harms_the_final(
    open_world: Callable[..., World], agent: Dictated, clock: OwnedClock, mode: str, fault: str
) -> None:
    async with open_world(mode, proof="neither") as world:
        await begins(world, agent, "one")
        SHOW_FAULTS[fault](world.paper, GROWS[mode])
        agent.say(" two")
        await clock.advance(2.0)
        agent.say(" three")
        await clock.advance(2.0)
        agent.say(" four")
        agent.end()
        await world.until(finished(world))
        assert texts(world) == ["one two three four"]


@each_mode
@each_proof
@pytest.mark.parametrize("seed", range(2))
async def test_for_any_mix_of_failures_one_visible_message_holds_the_final(
    open_world: Callable[..., World], agent: Dictated, clock: OwnedClock, mode: str, proof: str, seed: int
) -> None:
    """B2. Only what grows and finishes a view fails here; a draft is finished by a send, which is another story."""
    lots = random.Random(seed)
    faults = [fault for name, fault in SHOW_FAULTS.items() if "hangs" not in name and name != "not allowed"]
    async with open_world(mode, proof=proof) as world:
        await begins(world, agent, "0.")
        for number in range(1, 12):
            if lots.random() < 0.6:
                lots.choice(faults)(world.paper, GROWS[mode])
            agent.say(f" {number}.")
            await clock.advance(lots.choice([0.05, 0.5, 3.0]))
        if mode == "append" and lots.random() < 0.5:
            lots.choice(faults)(world.paper, "stop")
        agent.end()
        await world.until(finished(world))
        assert texts(world) == [" ".join(f"{number}." for number in range(12))]


@pytest.mark.parametrize("mode", ["edits", "append"])
@each_proof
@pytest.mark.parametrize("arrived", [True, False])
async def test_a_final_in_doubt_that_finishes_a_view_is_repeated_in_place(
    open_world: Callable[..., World], agent: Dictated, clock: OwnedClock, mode: str, proof: str, arrived: bool
) -> None:
    async with open_world(mode, proof=proof) as world:
        await begins(world, agent, "one")
        for method in ("edit", "stop"):
            world.paper.drop_next(after_effect=arrived, method=method, count=3)
        agent.say(" two")
        agent.end()
        await world.until(finished(world))
        assert texts(world) == ["one two"]
        assert len(world.paper.sent) == 1


@each_proof
@pytest.mark.parametrize("arrived", [True, False])
async def test_a_final_in_doubt_behind_a_draft_is_settled_like_any_send(
    open_world: Callable[..., World], agent: Dictated, clock: OwnedClock, proof: str, arrived: bool
) -> None:
    """A draft has no id, so there is nothing to repeat in place."""
    async with open_world("drafts", proof=proof) as world:
        await begins(world, agent, "one")
        world.paper.drop_next(after_effect=arrived, method="post")
        agent.say(" two")
        agent.end()
        await world.until(finished(world))
        if proof == "neither":
            assert texts(world) == [*(["one two"] if arrived else []), f"{MARK}one two"]
        else:
            assert texts(world) == ["one two"]


async def test_a_chat_that_turns_us_away_in_mid_stream_is_told_at_the_next_contact(
    open_world: Callable[..., World], agent: Dictated, clock: OwnedClock
) -> None:
    async with open_world() as world:
        await begins(world, agent, "one")
        world.paper.block("1")
        agent.say(" two")
        await clock.advance(2.0)
        agent.end()
        await world.until(lambda: world.rows("SELECT 1 FROM deliveries WHERE kind = 'final' AND state = 'dead'"))
        assert [alarm.name for alarm in (await world.gateway.desk.health()).alarms] == ["dead"]
        world.paper.block("1", on=False)
        world.paper.says("hello?")
        await world.until(lambda: len(agent.turns) == 2)
        agent.say("here")
        agent.end()
        await world.until(lambda: world.posts[1:] == [MAY_BE_LOST, "here"])


async def test_a_chat_that_moves_in_mid_stream_gets_the_whole_answer_at_its_new_place(
    open_world: Callable[..., World], agent: Dictated, clock: OwnedClock
) -> None:
    async with open_world() as world:
        await begins(world, agent, "one")
        world.paper.move("1", "99")
        agent.say(" two")
        await clock.advance(2.0)
        agent.end()
        await world.until(finished(world))
        assert world.paper.posts_in("99") == ["one two"]


# Opening it.


@each_mode
@each_proof
@pytest.mark.parametrize("arrived", [True, False])
async def test_an_opening_in_doubt_never_doubles_the_final(
    open_world: Callable[..., World], agent: Dictated, clock: OwnedClock, mode: str, proof: str, arrived: bool
) -> None:
    async with open_world(mode, proof=proof) as world:
        world.paper.drop_next(after_effect=arrived, method=OPENS[mode])
        world.paper.says("go on")
        await world.until(lambda: agent.turns, limit=0.0)
        agent.say("one")
        await clock.advance(20.0)
        agent.say(" two")
        await clock.advance(20.0)
        agent.end()
        await world.until(finished(world))
        if proof == "neither" and arrived and mode != "drafts":
            # Nobody knows the id of the first one any more, so it stays; it never holds the final text.
            assert texts_or_streams(world) == ["one", "one two"]
        else:
            assert texts(world) == ["one two"]


def texts_or_streams(world: World) -> list[str]:
    return [message.text for message in world.paper.visible()]


@each_mode
@pytest.mark.parametrize("proof", ["keyed", "readback"])
async def test_a_final_waits_for_the_doubt_of_its_own_opening(
    open_world: Callable[..., World], agent: Dictated, clock: OwnedClock, mode: str, proof: str
) -> None:
    async with open_world(mode, proof=proof) as world:
        world.paper.drop_next(after_effect=True, method=OPENS[mode])
        world.paper.says("go on")
        await world.until(lambda: agent.turns, limit=0.0)
        agent.say("one")
        await world.until(lambda: world.paper.calls(OPENS[mode]), limit=5.0)
        agent.say(" two")
        agent.end()
        await world.until(finished(world))
        assert texts(world) == ["one two"]


@each_mode
async def test_an_opening_that_could_not_leave_yet_gives_way_to_the_final(
    open_world: Callable[..., World], agent: Dictated, clock: OwnedClock, mode: str
) -> None:
    async with open_world(mode, typing=False, reactions=False) as world:
        world.paper.fail_next(429, retry_after=30.0, method=OPENS[mode])
        world.paper.says("go on")
        await world.until(lambda: agent.turns, limit=0.0)
        agent.say("one")
        await world.until(lambda: world.paper.calls(OPENS[mode]), limit=5.0)
        await clock.advance(5.0)
        agent.say(" two")
        agent.end()
        await world.until(finished(world))
        assert [effect.text for effect in world.paper.effects if effect.act != "confirm"] == ["one two"]


async def test_an_opening_that_waits_for_its_turn_gives_way_to_the_final(
    open_world: Callable[..., World], agent: Dictated, clock: OwnedClock
) -> None:
    pace = (Pace(key="chat {chat}", seconds=30.0, burst=1),)
    async with open_world(pace=pace) as world:
        await world.gateway.desk.owe(target(), body("just before"), "test")
        await world.until(lambda: world.posts)
        world.paper.says("go on")
        await world.until(lambda: agent.turns, limit=0.0)
        agent.say("one")
        await clock.advance(2.0)
        agent.say(" two")
        agent.end()
        await world.until(finished(world))
        assert [effect.text for effect in world.paper.effects if effect.act != "confirm"] == ["just before", "one two"]


class FewViews(Doorway):
    """A platform that lets a view be opened or changed twice, and then once an hour."""

    def can(self, target: Target) -> Capabilities:
        return replace(super().can(target), show_pace=(Pace(key="views", seconds=3600.0, burst=2),))


async def test_an_answer_does_not_wait_for_the_room_that_only_its_view_would_need(
    tmp_path: Path, agent: Dictated, clock: OwnedClock
) -> None:
    async with World(
        tmp_path, agent, kind=Kind(streaming="edits", keyed_for=7200.0), clock=clock, adapter=FewViews
    ) as world:
        await begins(world, agent, "one")
        agent.end()
        await world.until(finished(world))
        world.paper.says("and now?")
        await world.until(lambda: len(agent.turns) == 2, limit=0.0)
        agent.say("two")
        await clock.advance(2.0)
        assert world.rows("SELECT 1 FROM deliveries WHERE kind = 'opening' AND state = 'waiting'")
        agent.end()
        await world.until(finished(world), limit=5.0)
        assert texts(world) == ["one", "two"]


async def test_an_opening_that_is_refused_leaves_the_final_a_plain_message(
    open_world: Callable[..., World], agent: Dictated, clock: OwnedClock
) -> None:
    async with open_world() as world:
        world.paper.fail_next(400, method="post")
        world.paper.says("go on")
        await world.until(lambda: agent.turns, limit=0.0)
        agent.say("one")
        await clock.advance(5.0)
        agent.say(" two")
        agent.end()
        await world.until(finished(world))
        assert texts(world) == ["one two"]
        assert (await world.gateway.desk.health()).alarms == (), "a view is no loss"


@each_mode
async def test_an_opening_that_does_not_fit_is_not_cut_into_two_views(
    open_world: Callable[..., World], agent: Dictated, clock: OwnedClock, mode: str
) -> None:
    async with open_world(mode, limit=2000) as world:
        world.paper.chats.limit = 300
        lines = [f"line {number:03d}." for number in range(100)]
        world.paper.says("go on")
        await world.until(lambda: agent.turns, limit=0.0)
        agent.say("\n".join(lines))
        await clock.advance(5.0)
        agent.end()
        await world.until(finished(world))
        assert "\n".join(texts(world)) == "\n".join(lines)


# Across a restart.


@each_mode
@each_proof
async def test_a_restart_in_mid_stream_finishes_the_same_view(
    open_world: Callable[..., World], agent: Dictated, clock: OwnedClock, mode: str, proof: str
) -> None:
    async with open_world(mode, proof=proof) as world:
        await begins(world, agent, "one")
        agent.say(" two")
        await clock.advance(2.0)
        await world.crash()
        await world.start()
        await world.until(lambda: len(agent.turns) == 2, limit=0.0)
        agent.say("another")
        await clock.advance(2.0)
        assert shown(world) == "another"
        agent.say(" beginning")
        agent.end()
        await world.until(finished(world))
        assert texts(world) == ["another beginning"]
        if mode != "drafts":
            assert len(world.paper.sent) == 1


@each_mode
@each_proof
@pytest.mark.parametrize("arrived", [True, False])
async def test_a_restart_while_the_view_was_being_opened_opens_no_second_one(
    open_world: Callable[..., World], agent: Dictated, clock: OwnedClock, mode: str, proof: str, arrived: bool
) -> None:
    async with open_world(mode, proof=proof) as world:
        world.paper.hold_next(OPENS[mode], after_effect=arrived)
        world.paper.says("go on")
        await world.until(lambda: agent.turns, limit=0.0)
        agent.say("one")
        await world.until(lambda: world.paper.calls(OPENS[mode]), limit=5.0)
        await world.crash()
        await world.start()
        await world.until(lambda: len(agent.turns) == 2, limit=0.0)
        agent.say("one")
        await clock.advance(20.0)
        agent.say(" two")
        await clock.advance(20.0)
        agent.end()
        await world.until(finished(world))
        if proof == "neither" and arrived and mode != "drafts":
            assert texts_or_streams(world) == ["one", "one two"]
        else:
            assert texts(world) == ["one two"]


@each_mode
async def test_a_restart_that_ends_the_run_finishes_its_view(
    open_world: Callable[..., World], agent: Dictated, clock: OwnedClock, mode: str
) -> None:
    async with open_world(mode) as world:
        await begins(world, agent, "Paying.")
        agent.do(ToolStarted("c1", "pay"))
        await clock.advance(2.0)
        await world.crash()
        await world.start()
        await world.until(finished(world))
        (text,) = texts(world)
        assert text.startswith("Paying.\n\n⚠ I could not finish this: interrupted by a restart while pay was at work")


# The end is the end.


@each_mode
async def test_nothing_of_a_stopped_run_is_shown_after_its_end(
    open_world: Callable[..., World], agent: Dictated, clock: OwnedClock, mode: str
) -> None:
    """I15."""
    async with open_world(mode) as world:
        await begins(world, agent, "one")
        agent.say(" two")
        await clock.advance(2.0)
        agent.say(" three")
        world.paper.says("/stop")
        await world.until(finished_or_replied(world))
        agent.say(" four")
        ended = len(world.paper.calls())
        await clock.advance(60.0)
        assert len(world.paper.calls()) == ended
        (text,) = texts(world)
        assert text == "one two three\n\nStopped by 7."


def finished_or_replied(world: World) -> Callable[[], bool]:
    return lambda: (
        [row["state"] for row in world.rows("SELECT state FROM deliveries WHERE kind = 'final'")] == ["delivered"]
    )


async def test_an_opening_of_a_stopped_run_that_was_limited_is_never_sent(
    open_world: Callable[..., World], agent: Dictated, clock: OwnedClock
) -> None:
    async with open_world(typing=False, reactions=False) as world:
        world.paper.fail_next(429, retry_after=30.0, method="post")
        world.paper.says("go on")
        await world.until(lambda: agent.turns, limit=0.0)
        agent.say("a secret plan")
        await world.until(lambda: world.paper.calls("post"), limit=5.0)
        world.paper.says("/stop")
        await world.until(finished_or_replied(world))
        effects = [effect.text for effect in world.paper.effects if effect.act != "confirm"]
        assert effects == ["a secret plan\n\nStopped by 7."]


@each_mode
async def test_an_answer_that_fails_in_mid_stream_says_so_in_its_view(
    open_world: Callable[..., World], agent: Dictated, clock: OwnedClock, mode: str
) -> None:
    async with open_world(mode) as world:
        await begins(world, agent, "one")
        agent.do(RuntimeError("the model went away"))
        await world.until(finished(world))
        assert texts(world) == ["one\n\n⚠ I could not finish this: the model went away."]

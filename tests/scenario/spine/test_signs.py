"""Signs on messages: seen, waiting, at work, done or failed, each in place of the one before, and none for longer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.simulators.paper.simulator import Kind
from tests.worlds.careful import Careful
from tests.worlds.world import Gate, OwnedClock, Scripted, World, handed
from tidings.core.agent import Turn
from tidings.core.roles import OWNER
from tidings.core.types import Pace


def mute(**declared: Any) -> Kind:
    """No view and no typing, so that every call but an answer is a sign."""
    return Kind(**{"keyed_for": 3600.0, "streaming": "none", "typing": False, **declared})


def signs(world: World, key: str) -> list[str]:
    """All that was ever shown on a message, oldest first."""
    return [effect.text for effect in world.paper.truth.effects if (effect.act, effect.message) == ("react", key)]


def sign(world: World, key: str) -> str:
    return world.paper.message(key).reaction


class Turns:
    """Answers each message with its own text, after the gate for that text if there is one."""

    def __init__(self, **gates: Gate) -> None:
        self.gates = gates

    def agent(self) -> Scripted:
        async def wait(turn: Turn) -> str:
            if gate := self.gates.get(turn.message.text.split()[0]):
                await gate.wait()
            return f"re {turn.message.text}"

        return Scripted(wait)


async def busy(world: World, gate: Gate, chat: str = "1") -> str:
    """A first message keeps the bot busy."""
    key = world.paper.says("first", chat=chat)
    await world.until(lambda: gate.entered.is_set(), limit=0.0)
    return key


def all_done(world: World) -> Callable[[], bool]:
    return lambda: all(row["state"] == "done" for row in world.runs())


# The order.


async def test_a_message_shows_that_it_was_seen_waits_is_worked_on_and_done(tmp_path: Path, clock: OwnedClock) -> None:
    first, second = Gate(), Gate()
    agent = Turns(first=first, second=second).agent()
    async with World(tmp_path, agent, kind=mute(), clock=clock) as world:
        await busy(world, first)
        key = world.paper.says("second")
        await clock.advance(1.3)
        assert signs(world, key) == []
        await clock.advance(0.2)
        assert signs(world, key) == ["👀"]
        await clock.advance(3.0)
        assert signs(world, key) == ["👀"]
        await clock.advance(1.0)
        assert signs(world, key) == ["👀", "⏳"]
        first.open()
        await clock.advance(1.0)
        assert signs(world, key) == ["👀", "⏳", "✍"], "it had waited visibly"
        await clock.advance(30.0)
        second.open()
        await world.until(all_done(world))
        await world.rest()
        assert signs(world, key) == ["👀", "⏳", "✍", "✅"]
        assert world.posts == ["re first", "re second"]


async def test_a_run_that_lasts_shows_that_it_works(tmp_path: Path, clock: OwnedClock) -> None:
    gate = Gate()
    async with World(tmp_path, Turns(first=gate).agent(), kind=mute(), clock=clock) as world:
        key = await busy(world, gate)
        await clock.advance(1.9)
        assert signs(world, key) == ["👀"]
        await clock.advance(0.2)
        assert signs(world, key) == ["👀", "✍"]
        gate.open()
        await world.until(all_done(world))
        await world.rest()
        assert signs(world, key) == ["👀", "✍", "✅"]


async def test_a_quick_answer_after_a_short_wait_shows_nothing_in_between(tmp_path: Path, clock: OwnedClock) -> None:
    gate = Gate()
    async with World(tmp_path, Turns(first=gate).agent(), kind=mute(), clock=clock) as world:
        await busy(world, gate)
        await clock.advance(10.0)
        quick = world.paper.says("quick")
        await clock.advance(0.3)
        gate.open()
        await world.until(all_done(world), limit=0.0)
        await clock.advance(30.0)
        assert signs(world, quick) == []


async def test_a_message_that_waited_and_is_answered_quickly_goes_straight_to_done(
    tmp_path: Path, clock: OwnedClock
) -> None:
    gate = Gate()
    async with World(tmp_path, Turns(first=gate).agent(), kind=mute(), clock=clock) as world:
        await busy(world, gate)
        key = world.paper.says("second")
        await clock.advance(6.0)
        gate.open()
        await world.until(all_done(world), limit=0.0)
        await clock.advance(10.0)
        assert signs(world, key) == ["👀", "⏳", "✅"]


async def test_a_message_that_waits_for_a_slot_shows_so(tmp_path: Path, clock: OwnedClock) -> None:
    gate = Gate()
    async with World(tmp_path, Turns(first=gate).agent(), kind=mute(), clock=clock, limits={"runs": 1}) as world:
        await busy(world, gate)
        key = world.paper.says("elsewhere", chat="2")
        await clock.advance(6.0)
        assert signs(world, key) == ["👀", "⏳"]
        gate.open()
        await world.until(all_done(world))


async def test_waiting_is_not_shown_once_the_run_has_begun(tmp_path: Path, clock: OwnedClock) -> None:
    """Also if no wake-up told so."""
    first, second = Gate(), Gate()
    agent = Turns(first=first, second=second).agent()
    async with World(tmp_path, agent, kind=mute(), clock=clock) as world:
        await busy(world, first)
        key = world.paper.says("second")
        await clock.advance(4.8)
        first.open()
        await world.until(lambda: second.entered.is_set(), limit=0.0)
        await clock.advance(60.0)
        assert signs(world, key) == ["👀", "✍"]
        second.open()
        await world.until(all_done(world))


async def test_waiting_messages_share_one_timer(tmp_path: Path, clock: OwnedClock) -> None:
    gate = Gate()
    async with World(tmp_path, Turns(first=gate).agent(), kind=mute(), clock=clock, limits={"runs": 1}) as world:
        await busy(world, gate)
        await clock.advance(3.0)
        before = clock.waiting
        keys = [world.paper.says("me too", chat=f"c{number}") for number in range(100)]
        await world.rest()
        assert clock.waiting - before <= 1
        await clock.advance(6.0)
        assert [signs(world, key) for key in keys] == [["👀", "⏳"]] * 100
        gate.open()
        await world.until(all_done(world))


# However it ends.


async def test_what_waited_is_marked_when_it_is_stopped(tmp_path: Path, clock: OwnedClock) -> None:
    gate = Gate()
    async with World(tmp_path, Turns(first=gate).agent(), kind=mute(), clock=clock) as world:
        key = await busy(world, gate)
        waiting = world.paper.says("second")
        await clock.advance(6.0)
        world.paper.says("/stop")
        await world.until(all_done(world))
        await clock.advance(1.0)
        assert {sign(world, each) for each in (key, waiting)} <= {"✅", ""}
        shown = signs(world, waiting)
        await clock.advance(120.0)
        assert signs(world, waiting) == shown, "nothing more is shown after the end"


async def test_a_message_that_is_dropped_without_words_loses_its_sign(tmp_path: Path, clock: OwnedClock) -> None:
    """Its sender is forgotten while it waits."""
    gate = Gate()
    async with World(tmp_path, Turns(first=gate).agent(), kind=mute(), clock=clock, limits={"runs": 1}) as world:
        await world.admit("paper:8")
        world.paper.says("hello", chat="2", sender="8")
        await world.until(all_done(world), limit=0.0)
        await busy(world, gate)
        key = world.paper.says("me too", chat="2", sender="8")
        await clock.advance(6.0)
        assert sign(world, key) == "⏳"
        await world.gateway.desk.people.forget(OWNER, "paper:8")
        await world.until(lambda: sign(world, key) == "", limit=1.0)
        world.skip |= {"I4"}
        gate.open()
        await world.until(all_done(world))


# After a crash.


@pytest.mark.parametrize("waits", [1.5, 3.0, 8.0], ids=["seen", "at work", "for longer"])
async def test_a_sign_of_a_dead_process_is_replaced_at_the_end(tmp_path: Path, clock: OwnedClock, waits: float) -> None:
    gate = Gate()
    async with World(tmp_path, Turns(first=gate).agent(), kind=mute(), clock=clock) as world:
        key = await busy(world, gate)
        await clock.advance(waits)
        assert sign(world, key) in ("👀", "✍")
        world.agents["bot"] = Scripted("again")
        await world.crash()
        await world.start()
        await world.until(lambda: sign(world, key) == "✅", limit=1.0)


async def test_a_message_that_waited_through_a_crash_is_marked_when_its_quick_answer_arrives(
    tmp_path: Path, clock: OwnedClock
) -> None:
    """Neither its first attempt nor this process ever showed anything on it."""
    gate = Gate()
    async with World(tmp_path, Turns(first=gate).agent(), kind=mute(), clock=clock) as world:
        await busy(world, gate)
        key = world.paper.says("second")
        await clock.advance(6.0)
        assert sign(world, key) == "⏳"
        world.agents["bot"] = Scripted("again")
        await world.crash()
        await world.start()
        await world.until(lambda: sign(world, key) == "✅", limit=1.0)
        assert world.run(key)["attempt"] == 1


async def test_a_message_that_still_waits_after_a_crash_shows_so(tmp_path: Path, clock: OwnedClock) -> None:
    first = Gate()
    async with World(tmp_path, Turns(first=first).agent(), kind=mute(), clock=clock) as world:
        await busy(world, first)
        key = world.paper.says("second")
        await clock.advance(2.0)
        await world.crash()
        first.entered.clear()
        await clock.advance(60.0)
        await world.start()
        await world.until(lambda: first.entered.is_set(), limit=0.0)
        await clock.advance(2.0)
        assert signs(world, key) == ["👀", "⏳"]
        first.open()
        await world.until(lambda: sign(world, key) == "✅")


async def test_an_answer_that_arrived_just_before_a_crash_is_shown_as_done_after_it(
    tmp_path: Path, clock: OwnedClock
) -> None:
    gate = Gate()
    async with World(tmp_path, Turns(first=gate).agent(), kind=mute(), clock=clock) as world:
        key = await busy(world, gate)
        await clock.advance(3.0)
        held = world.paper.hold_next("react")
        gate.open()
        await world.until(all_done(world), limit=0.0)
        await world.settled()
        await world.crash()
        held.set()
        assert sign(world, key) == "✍"
        await world.start()
        await world.until(lambda: sign(world, key) == "✅", limit=1.0)


# Messages that joined another run.


async def test_every_message_of_an_album_shows_how_its_run_stands(tmp_path: Path, clock: OwnedClock) -> None:
    gate = Gate()
    async with World(tmp_path, Scripted(gate, "nice"), kind=mute(), clock=clock) as world:
        keys = [world.paper.says("look", group="g", files=[(f"{n}.jpg", b"x")]) for n in range(3)]
        await world.until(lambda: gate.entered.is_set())
        await clock.advance(3.0)
        assert [signs(world, key) for key in keys] == [["👀", "✍"]] * 3
        gate.open()
        await world.until(all_done(world))
        await world.rest()
        assert [signs(world, key) for key in keys] == [["👀", "✍", "✅"]] * 3
        await clock.advance(120.0)
        assert [sign(world, key) for key in keys] == ["✅"] * 3


async def test_the_messages_of_an_album_get_their_end_after_a_crash(tmp_path: Path, clock: OwnedClock) -> None:
    gate = Gate()
    async with World(tmp_path, Scripted(gate, "nice"), kind=mute(), clock=clock) as world:
        keys = [world.paper.says("look", group="g", files=[(f"{n}.jpg", b"x")]) for n in range(3)]
        await world.until(lambda: gate.entered.is_set())
        await clock.advance(3.0)
        world.agents["bot"] = Scripted("again")
        await world.crash()
        await world.start()
        await world.until(lambda: [sign(world, key) for key in keys] == ["✅"] * 3, limit=1.0)


# Words.


def notices(world: World) -> list[str]:
    return [post for post in world.posts if post.startswith("I'm ")]


async def test_without_reactions_a_person_is_told_once_with_the_place(tmp_path: Path, clock: OwnedClock) -> None:
    gate = Gate()
    kind = mute(reactions=False)
    async with World(tmp_path, Turns(first=gate).agent(), kind=kind, clock=clock) as world:
        await busy(world, gate)
        world.paper.says("second")
        await clock.advance(5.0)
        world.paper.says("third")
        await clock.advance(14.0)
        assert notices(world) == []
        await clock.advance(2.0)
        assert notices(world) == ["I'm still busy with an earlier message. Yours is next."]
        await clock.advance(50.0)
        assert len(notices(world)) == 1, "once a minute in a conversation"
        world.paper.says("fourth")
        await clock.advance(25.0)
        assert notices(world)[1:] == ["I'm still busy with an earlier message. Yours is number 3 in line."]
        gate.open()
        await world.until(all_done(world))
        await clock.advance(120.0)
        assert len(notices(world)) == 2


async def test_with_reactions_words_come_only_after_a_minute(tmp_path: Path, clock: OwnedClock) -> None:
    gate = Gate()
    async with World(tmp_path, Turns(first=gate).agent(), kind=mute(), clock=clock, limits={"runs": 1}) as world:
        await busy(world, gate)
        world.paper.says("elsewhere", chat="2")
        world.paper.says("further back", chat="3")
        await clock.advance(59.0)
        assert notices(world) == []
        await clock.advance(2.0)
        # Which of the two is next is not said.
        told = "I'm busy with other conversations right now. I'll answer you as soon as I can."
        assert notices(world) == [told, told]
        gate.open()
        await world.until(all_done(world))


async def test_nothing_is_said_about_a_message_whose_run_has_begun(tmp_path: Path, clock: OwnedClock) -> None:
    first, second = Gate(), Gate()
    agent = Turns(first=first, second=second).agent()
    async with World(tmp_path, agent, kind=mute(reactions=False), clock=clock) as world:
        await busy(world, first)
        world.paper.says("second")
        await clock.advance(19.5)
        first.open()
        await world.until(lambda: second.entered.is_set(), limit=0.0)
        await clock.advance(120.0)
        assert notices(world) == []
        second.open()
        await world.until(all_done(world))


async def test_nothing_is_said_where_people_are_asked_something(tmp_path: Path, clock: OwnedClock) -> None:
    """They were told already whose answer their message waits for."""
    kind = mute(reactions=False)
    async with World(tmp_path, Careful("rm x"), kind=kind, clock=clock, owners=["paper:7"]) as world:
        world.paper.says("clean up")
        await world.until(lambda: world.rows("SELECT 1 FROM inbox WHERE asking <> ''"), limit=0.0)
        key = world.paper.says("second")
        await clock.advance(120.0)
        assert world.run(key)["state"] == "waiting"
        assert notices(world) == []
        world.paper.says("/stop")
        await world.until(all_done(world))


async def test_nothing_is_said_where_nothing_can_be_sent_later(tmp_path: Path, clock: OwnedClock) -> None:
    gate = Gate()
    kind = mute(reactions=False, async_delivery=False)
    async with World(tmp_path, Turns(first=gate).agent(), kind=kind, clock=clock, limits={"runs": 1}) as world:
        await busy(world, gate)
        world.paper.says("second", chat="2")
        await clock.advance(120.0)
        assert world.posts == []
        gate.open()
        await world.until(all_done(world))


# They are only signs.


async def test_the_last_sign_waits_for_its_turn_rather_than_stay_away(tmp_path: Path, clock: OwnedClock) -> None:
    gate = Gate()
    pace = (Pace(key="chat {chat}", seconds=5.0, burst=3),)
    async with World(tmp_path, Turns(first=gate).agent(), kind=mute(pace=pace), clock=clock) as world:
        key = await busy(world, gate)
        await clock.advance(3.0)
        gate.open()
        await world.until(lambda: world.posts == ["re first"], limit=20.0)
        await world.until(lambda: sign(world, key) == "✅", limit=30.0)


async def test_the_last_sign_is_shown_after_a_limit(tmp_path: Path, clock: OwnedClock) -> None:
    gate = Gate()
    async with World(tmp_path, Turns(first=gate).agent(), kind=mute(), clock=clock) as world:
        key = await busy(world, gate)
        await clock.advance(3.0)
        world.paper.fail_next(429, retry_after=20.0, method="react")
        gate.open()
        await world.until(all_done(world), limit=0.0)
        await clock.advance(19.0)
        assert sign(world, key) == "✍"
        await clock.advance(2.0)
        assert sign(world, key) == "✅"


async def test_what_is_only_overheard_has_no_sign_and_no_typing_until_it_is_answered(
    tmp_path: Path, clock: OwnedClock
) -> None:
    thinks, speaks = Gate(), Gate()
    agent = Scripted(thinks, "by the way, ", speaks, "yes")
    async with World(tmp_path, agent, kind=mute(typing=True, streaming="edits"), clock=clock) as world:
        key = world.paper.says("between us", key="m-1", private=False, addressed=False)
        world.ignored.add(key)
        message = replace(handed("between us", private=False), overheard=True)
        message = replace(message, target=replace(message.target, reply_to=key))
        await world.receive(message)
        await world.until(lambda: thinks.entered.is_set(), limit=0.0)
        await clock.advance(30.0)
        assert [call.method for call in world.paper.calls()] == []
        thinks.open()
        await clock.advance(1.0)
        assert world.paper.calls("typing") != ()
        speaks.open()
        await world.until(all_done(world))
        await clock.advance(10.0)
        assert signs(world, key) == []
        assert world.posts == ["by the way, yes"]


async def test_a_message_that_waited_in_vain_shows_so(tmp_path: Path, clock: OwnedClock) -> None:
    """The allowance was used up while it waited: its person is told in words, and nothing says that it waits."""
    gate = Gate()
    members = {"roles": {"member": {"runs": 2}}}
    agent = Turns(first=gate).agent()
    async with World(tmp_path, agent, kind=mute(), clock=clock, allowances=members) as world:
        await busy(world, gate)
        keys = [world.paper.says(text) for text in ("second", "third", "fourth")]
        await clock.advance(10.0)
        assert [sign(world, key) for key in keys] == ["⏳", "⏳", "⏳"]
        gate.open()
        await world.until(all_done(world))
        await clock.advance(5.0)
        assert [sign(world, key) for key in keys] == ["✅", "❌", "❌"]


async def test_talk_that_was_only_overheard_is_not_answered_with_an_allowance(
    tmp_path: Path, clock: OwnedClock
) -> None:
    members = {"roles": {"member": {"runs": 1}}}
    async with World(tmp_path, Turns().agent(), kind=mute(), clock=clock, allowances=members) as world:
        world.paper.says("first")
        await world.until(all_done(world))
        for text in ("lunch?", "soup?"):
            key = world.paper.says(text, private=False, addressed=False)
            message = replace(handed(text, private=False), overheard=True)
            await world.receive(replace(message, target=replace(message.target, reply_to=key)))
            await clock.advance(10.0)
            assert signs(world, key) == []
            world.ignored.add(key)
        assert world.posts == ["re first"]

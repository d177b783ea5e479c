"""Typing and reactions: best effort while a run lives, never a call after it, and never the reason of a failure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Self

import pytest

from tests.simulators.paper.simulator import Kind
from tests.worlds.world import Doorway, Gate, OwnedClock, Scripted, World
from tidings.core.agent import Event, Finished, OutcomeKind, TextDelta, ToolFinished, ToolStarted, Turn
from tidings.core.outbound.draft import TYPING_SECONDS
from tidings.core.outbound.outbox import EXPIRES_SECONDS
from tidings.core.types import Pace, Signal, Target

# A platform shows typing for so long after it was told.
FADES_SECONDS = 5.0
# A20: not a single typing action more than this after the end.
LATEST_SECONDS = 6.0
SIGNALS = ("typing", "react")


def mute(**declared: Any) -> Kind:
    """No view, so that every call but the final is a signal."""
    return Kind(**{"keyed_for": 3600.0, "streaming": "none", **declared})


def signals(world: World, *methods: str) -> list[str]:
    return [call.method for call in world.paper.calls() if call.method in (methods or SIGNALS)]


def reaction(world: World, key: str) -> str:
    return world.paper.message(key).reaction


async def begins(world: World, gate: Gate, **place: Any) -> str:
    key = world.paper.says("go on", **place)
    await world.until(lambda: gate.entered.is_set(), limit=0.0)
    return key


def ended(world: World) -> Callable[[], bool]:
    return lambda: [row["state"] for row in world.runs()] == ["done"]


# While it works.


async def test_typing_is_shown_as_long_as_the_run_lives(tmp_path: Path, clock: OwnedClock) -> None:
    gate = Gate()
    async with World(tmp_path, Scripted(gate, "done"), kind=mute(), clock=clock) as world:
        began = clock.wall()
        await begins(world, gate)
        await clock.advance(60.0)
        times = [at - began for at in world.paper.typing_times()]
        assert times[0] <= 1.0
        assert all(later - earlier < FADES_SECONDS for earlier, later in zip(times, times[1:], strict=False))
        assert times[-1] > 60.0 - FADES_SECONDS
        gate.open()
        await world.until(lambda: world.posts == ["done"])


async def test_typing_is_shown_where_the_person_waits(tmp_path: Path, clock: OwnedClock) -> None:
    gate = Gate()
    async with World(tmp_path, Scripted(gate, "done"), kind=mute(), clock=clock) as world:
        world.paper.open_chat("2")
        await begins(world, gate, chat="1", thread="t", private=False)
        await clock.advance(10.0)
        assert {(call.ask.chat, call.ask.thread) for call in world.paper.calls()} == {("1", "t")}
        gate.open()
        await world.until(ended(world))


async def test_a_quick_answer_needs_no_signal(tmp_path: Path, clock: OwnedClock) -> None:
    async with World(tmp_path, Scripted("at once"), kind=mute(), clock=clock) as world:
        key = world.paper.says("hi")
        await world.until(lambda: world.posts, limit=0.0)
        await clock.advance(30.0)
        assert signals(world) == []
        assert reaction(world, key) == ""


# However it ends.


class Stubborn:
    """Does not end when it is told to."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        while True:
            try:
                await self._gate.wait()
            except asyncio.CancelledError:
                continue
            break
        yield TextDelta("too late")


async def opens(world: World, gate: Gate) -> None:
    gate.open()


async def is_stopped(world: World, gate: Gate) -> None:
    world.paper.says("/stop")


async def runs_out_of_time(world: World, gate: Gate) -> None:
    """Its deadline comes by itself."""


async def dies_with_the_process(world: World, gate: Gate) -> None:
    world.agents["bot"] = Scripted("again")
    await world.crash()
    await world.start()


End = Callable[[World, Gate], Awaitable[None]]
ENDS: dict[str, tuple[Callable[[Gate], Any], End, str]] = {
    "a reply": (lambda gate: Scripted(gate, "done"), opens, "completed"),
    "a failure": (lambda gate: Scripted(gate, RuntimeError("broken")), opens, "failed"),
    "a failure it reports": (lambda gate: Scripted(gate, Finished(OutcomeKind.FAILED, "401")), opens, "failed"),
    "silence": (lambda gate: Scripted(gate), opens, "failed"),
    "no end at all": (lambda gate: Scripted("half", gate, finish=False), opens, "failed"),
    "a flood": (lambda gate: Scripted(gate, "x" * 5000), opens, "halted"),
    "a stop": (lambda gate: Scripted(gate, "done"), is_stopped, "cancelled"),
    "a stop that the agent ignores": (Stubborn, is_stopped, "cancelled"),
    "the deadline": (lambda gate: Scripted(gate, "done"), runs_out_of_time, "halted"),
    "a tool that crashes": (
        lambda gate: Scripted(ToolStarted("c1", "dig"), gate, OSError("no shovel")),
        opens,
        "failed",
    ),
    "a tool that nobody saw end": (
        lambda gate: Scripted(ToolStarted("c1", "dig"), gate, ToolFinished("c1")),
        dies_with_the_process,
        "failed",
    ),
    "a restart": (lambda gate: Scripted(gate, "done"), dies_with_the_process, "completed"),
}


@pytest.mark.parametrize("streaming", ["none", "edits"])
@pytest.mark.parametrize("how", ENDS)
async def test_typing_never_outlives_the_run(tmp_path: Path, clock: OwnedClock, how: str, streaming: str) -> None:
    """A20."""
    build, end, outcome = ENDS[how]
    gate = Gate()
    limits = {"run_seconds": 30.0, "output_characters": 1000}
    async with World(tmp_path, build(gate), kind=mute(streaming=streaming), clock=clock, limits=limits) as world:
        key = await begins(world, gate)
        await clock.advance(9.0)
        assert len(world.paper.typing_times()) == 3
        await end(world, gate)
        await world.until(ended(world))
        assert world.run(key)["outcome"] == outcome
        over = clock.wall()
        await clock.advance(120.0)
        assert [at - over for at in world.paper.typing_times() if at > over + LATEST_SECONDS] == []
        assert max(world.paper.typing_times()) <= over, "the promise is 6 s; ours end with the run"
        gate.open()


async def test_a_run_that_waits_for_its_turn_does_not_type(tmp_path: Path, clock: OwnedClock) -> None:
    gate = Gate()
    async with World(tmp_path, Scripted(gate, "done"), kind=mute(), clock=clock, limits={"runs": 1}) as world:
        await begins(world, gate)
        world.paper.says("me too", chat="2")
        await clock.advance(20.0)
        assert world.paper.typing_times("2") == []
        gate.open()
        await world.until(lambda: len(world.posts) == 2)


# Reactions.


@pytest.mark.parametrize(
    ("step", "expected"),
    [("fine", "✅"), (RuntimeError("broken"), "❌"), (Finished(OutcomeKind.HALTED, "enough"), "✅")],
)
async def test_a_message_is_seen_and_then_done_or_failed(
    tmp_path: Path, clock: OwnedClock, step: Any, expected: str
) -> None:
    gate = Gate()
    async with World(tmp_path, Scripted(gate, step), kind=mute(), clock=clock) as world:
        key = await begins(world, gate)
        await clock.advance(1.0)
        assert reaction(world, key) == "👀"
        gate.open()
        await world.until(ended(world))
        await world.rest()
        assert reaction(world, key) == expected
        assert signals(world, "react") == ["react", "react"]


class Waits:
    """Asked, seen, and about to be answered."""

    def __init__(self, home: Path, clock: OwnedClock, *said: Any, begun: str = "", **declared: Any) -> None:
        self.gate = Gate()
        agent = Scripted(*filter(None, (begun, self.gate, *said)))
        self.world = World(home, agent, kind=mute(**declared), clock=clock, settings={"call_seconds": 0.15})
        self.key = ""

    async def __aenter__(self) -> Self:
        await self.world.__aenter__()
        self.key = await begins(self.world, self.gate)
        await self.world.until(lambda: self.reaction == "👀", limit=1.0)
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.world.__aexit__(*error)

    @property
    def reaction(self) -> str:
        return reaction(self.world, self.key)

    async def answers(self) -> None:
        self.gate.open()
        await self.world.until(ended(self.world), limit=0.0)
        await self.world.rest()


each_view = pytest.mark.parametrize("streaming", ["none", "edits"])


@each_view
async def test_a_message_is_done_only_when_its_answer_has_arrived(
    tmp_path: Path, clock: OwnedClock, streaming: str
) -> None:
    async with Waits(tmp_path, clock, "done", begun="well ", streaming=streaming) as told:
        if streaming == "edits":
            await told.world.until(lambda: told.world.paper.visible(), limit=2.0)
        on_its_way = told.world.paper.hold_next("post" if streaming == "none" else "edit")
        await told.answers()
        assert told.reaction == "👀"
        on_its_way.set()
        await told.world.until(lambda: told.reaction == "✅")
        assert [message.text for message in told.world.paper.visible()] == ["well done"]


async def test_a_long_answer_is_done_with_its_last_part(tmp_path: Path, clock: OwnedClock) -> None:
    async with Waits(tmp_path, clock, "word " * 1000) as told:
        await told.world.rest()
        first = told.world.paper.hold_next("post", after_effect=True)
        await told.answers()
        last = told.world.paper.hold_next("post")
        first.set()
        await told.world.until(lambda: len(told.world.paper.calls("post")) == 2)
        await told.world.rest()
        assert told.reaction == "👀"
        last.set()
        await told.world.until(lambda: told.reaction == "✅")
        assert len(told.world.posts) == 3


async def test_an_answer_that_the_platform_refuses_for_good_means_failed(tmp_path: Path, clock: OwnedClock) -> None:
    async with Waits(tmp_path, clock, "done") as told:
        told.world.paper.fail_next(403, method="post")
        await told.answers()
        await told.world.until(lambda: told.reaction == "❌")
        assert told.world.posts == []
        assert signals(told.world, "react") == ["react", "react"], "it was never done"


async def test_an_answer_that_expires_means_failed(tmp_path: Path, clock: OwnedClock) -> None:
    async with Waits(tmp_path, clock, "done", pace=()) as told:
        told.world.paper.fail_next(429, retry_after=2 * EXPIRES_SECONDS, method="post")
        await told.answers()
        await told.world.crash()
        await clock.advance(EXPIRES_SECONDS - 60.0)
        await told.world.start()
        await told.world.rest()
        assert told.reaction == "👀"
        await told.world.until(lambda: told.reaction == "❌", limit=600.0)
        assert told.world.posts == []


@pytest.mark.parametrize("arrived", [True, False])
async def test_a_doubt_leaves_the_message_open_until_it_is_settled(
    tmp_path: Path, clock: OwnedClock, arrived: bool
) -> None:
    async with Waits(tmp_path, clock, "done", keyed_for=0.0, readback=True) as told:
        told.world.paper.drop_next(arrived, method="post")
        await told.answers()
        assert told.reaction == "👀"
        await told.world.until(lambda: told.reaction == "✅")
        assert told.world.posts == ["done"]


async def test_a_doubt_that_nobody_can_settle_means_failed(tmp_path: Path, clock: OwnedClock) -> None:
    async with Waits(tmp_path, clock, "done", keyed_for=0.0) as told:
        told.world.paper.drop_next(False, method="post", count=2)
        await told.answers()
        await told.world.until(lambda: told.reaction == "❌")


async def test_an_answer_that_the_owner_drops_means_failed(tmp_path: Path, clock: OwnedClock) -> None:
    async with Waits(tmp_path, clock, "done") as told:
        told.world.paper.fail_next(401, method="post")
        await told.answers()
        (row,) = told.world.rows("SELECT id, state FROM deliveries WHERE kind = 'final'")
        assert (row["state"], told.reaction) == ("held", "👀")
        await told.world.gateway.desk.upkeep.drop(row["id"])
        await told.world.until(lambda: told.reaction == "❌", limit=0.0)


async def test_an_answer_that_arrives_after_a_restart_is_done_then(tmp_path: Path, clock: OwnedClock) -> None:
    async with Waits(tmp_path, clock, "done") as told:
        told.world.paper.fail_next(429, retry_after=30.0, method="post")
        await told.answers()
        await told.world.crash()
        await told.world.start()
        await told.world.rest()
        assert told.reaction == "👀"
        await told.world.until(lambda: told.reaction == "✅")
        assert told.world.posts == ["done"]


@pytest.mark.parametrize(("effect", "expected"), [(False, "✅"), (True, "❌")], ids=["runs again", "is given up"])
async def test_a_run_that_a_restart_cut_off_closes_the_sign_that_the_first_one_gave(
    tmp_path: Path, clock: OwnedClock, effect: bool, expected: str
) -> None:
    gate = Gate()
    steps = (ToolStarted("c1", "dig"), gate) if effect else (gate,)
    async with World(tmp_path, Scripted(*steps, "done"), kind=mute(), clock=clock) as world:
        key = await begins(world, gate)
        await world.until(lambda: reaction(world, key) == "👀", limit=1.0)
        await dies_with_the_process(world, gate)
        await world.until(lambda: reaction(world, key) == expected, limit=0.0)


async def test_a_run_with_nothing_to_deliver_is_done_when_it_ends(tmp_path: Path, clock: OwnedClock) -> None:
    async with Waits(tmp_path, clock, "done", async_delivery=False) as told:
        await told.answers()
        assert told.reaction == "✅"
        assert told.world.posts == []


class Slow(Doorway):
    async def signal(self, target: Target, signal: Signal) -> None:
        await asyncio.sleep(0.2)
        await super().signal(target, signal)


async def test_a_slow_reaction_never_takes_the_place_of_a_later_one(tmp_path: Path, clock: OwnedClock) -> None:
    """An answer that has arrived is shown as done, however long the platform took to show that it was heard."""
    gate, seen = Gate(), Gate()

    class Sluggish(Doorway):
        async def signal(self, target: Target, signal: Signal) -> None:
            if signal is Signal.SEEN:
                await seen.wait()
            await super().signal(target, signal)

    async with World(tmp_path, Scripted(gate, "done"), kind=mute(), clock=clock, adapter=Sluggish) as world:
        key = await begins(world, gate)
        await clock.advance(1.0)
        assert seen.entered.is_set()
        gate.open()
        await world.until(lambda: world.posts == ["done"])
        await world.until(ended(world), limit=0.0)
        await clock.advance(1.0)
        seen.open()
        await world.until(lambda: len(signals(world, "react")) == 2)
        await clock.advance(1.0)
        assert reaction(world, key) == "✅"


async def test_an_answer_that_arrives_while_the_gateway_stops_is_still_shown_as_done(tmp_path: Path) -> None:
    gate = Gate()
    limits = {"drain_seconds": 5}
    async with World(tmp_path, Scripted(gate, "done"), kind=mute(), limits=limits, adapter=Slow) as world:
        key = world.paper.says("go on")
        await world.until(lambda: reaction(world, key) == "👀")
        on_its_way = world.paper.hold_next("post")
        gate.open()
        await world.until(lambda: world.paper.calls("post"))
        stopping = asyncio.create_task(world.end())
        on_its_way.set()
        await stopping
        assert reaction(world, key) == "✅"


# They are only signals.

FAULTS: dict[str, Callable[[World], None]] = {
    "refused": lambda world: arm(world, lambda method: world.paper.fail_next(403, method=method, count=50)),
    "an error": lambda world: arm(world, lambda method: world.paper.fail_next(500, method=method, count=50)),
    "lost": lambda world: arm(world, lambda method: world.paper.drop_next(False, method=method, count=50)),
    "hanging": lambda world: arm(world, lambda method: world.paper.hang_next(True, method=method, count=50)),
    "nonsense": lambda world: arm(world, lambda method: world.paper.garble_next(method=method, count=50)),
    "a wrong token": lambda world: arm(world, lambda method: world.paper.fail_next(401, method=method, count=50)),
}


def arm(world: World, fault: Callable[[str], None]) -> None:
    for method in SIGNALS:
        fault(method)


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_signal_that_fails_never_fails_a_run(tmp_path: Path, clock: OwnedClock, fault: str) -> None:
    gate = Gate()
    settings = {"call_seconds": 0.1}
    async with World(tmp_path, Scripted(gate, "done"), kind=mute(), clock=clock, settings=settings) as world:
        FAULTS[fault](world)
        key = await begins(world, gate)
        await clock.advance(10.0)
        assert signals(world), "they were tried"
        gate.open()
        await world.until(lambda: world.posts == ["done"])
        assert world.run(key)["outcome"] == "completed"
        assert (await world.gateway.desk.health()).alarms == ()


async def test_a_signal_that_hangs_does_not_keep_the_answer_waiting(tmp_path: Path, clock: OwnedClock) -> None:
    gate = Gate()
    async with World(tmp_path, Scripted(gate, "done"), kind=mute(), clock=clock) as world:
        held = [world.paper.hold_next(method) for method in SIGNALS]
        await begins(world, gate)
        await clock.advance(1.0)
        gate.open()
        await world.until(lambda: world.posts == ["done"], limit=0.0)
        for each in held:
            each.set()


async def test_a_limit_met_by_a_signal_counts_for_the_answer_too(tmp_path: Path, clock: OwnedClock) -> None:
    gate = Gate()
    async with World(tmp_path, Scripted(gate, "done"), kind=mute(reactions=False), clock=clock) as world:
        world.paper.fail_next(429, retry_after=20.0, method="typing")
        await begins(world, gate)
        await clock.advance(1.0)
        assert signals(world) == ["typing"]
        gate.open()
        await clock.advance(18.0)
        assert world.posts == []
        assert len(world.paper.calls()) == 1
        await world.until(lambda: world.posts == ["done"])


async def test_a_signal_is_skipped_where_it_would_cost_the_answer_its_turn(tmp_path: Path, clock: OwnedClock) -> None:
    gate = Gate()
    pace = (Pace(key="chat {chat}", seconds=30.0, burst=2),)
    async with World(tmp_path, Scripted(gate, "done"), kind=mute(pace=pace, reactions=False), clock=clock) as world:
        await begins(world, gate)
        await clock.advance(4 * TYPING_SECONDS)
        assert signals(world) == ["typing"], "a second one would have taken the last turn"
        gate.open()
        await world.until(lambda: world.posts == ["done"], limit=0.0)


@pytest.mark.parametrize("declared", [{"typing": False}, {"reactions": False}, {"typing": False, "reactions": False}])
async def test_what_is_not_declared_is_never_signalled(
    tmp_path: Path, clock: OwnedClock, declared: dict[str, bool]
) -> None:
    gate = Gate()
    async with World(tmp_path, Scripted(gate, "done"), kind=mute(**declared), clock=clock) as world:
        await begins(world, gate)
        await clock.advance(20.0)
        gate.open()
        await world.until(lambda: world.posts == ["done"])
        await world.rest()
        expected = {method for method, able in (("typing", "typing"), ("react", "reactions")) if able not in declared}
        assert set(signals(world)) == expected

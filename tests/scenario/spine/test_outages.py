"""A platform that cannot be reached: many chats wait for one that tries, and then all of them go."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulators.paper.simulator import Kind
from tests.worlds.fakes import FakeClock
from tests.worlds.world import Doorway, Echo, OwnedClock, World
from tidings.core.errors import Unreachable
from tidings.core.outbound import outages, pace
from tidings.core.outbound.outages import Outages
from tidings.core.types import Body, Part, Receipt, Target

CHATS = 40
ACCOUNT = ("paper", "main")
FREE = Kind(keyed_for=3600.0)


async def owe_all(world: World, *texts: str) -> None:
    for number in range(CHATS):
        world.paper.open_chat(str(number))
        for text in texts:
            await world.gateway.desk.owe(Target(adapter="paper", chat=str(number)), Body(text=text), cause="test")


def waiting(world: World) -> int:
    return len(world.rows("SELECT 1 FROM deliveries WHERE state = 'waiting'"))


def misses(world: World) -> int:
    return sum(
        count for (name, verdict), count in world.gateway.desk.meters.outbound.items() if verdict == "unreachable"
    )


async def test_an_outage_costs_as_little_for_many_chats_as_for_one(tmp_path: Path) -> None:
    """E8."""
    clock = OwnedClock()
    async with World(tmp_path, Echo(), kind=FREE, clock=clock) as world:
        await world.paper.outage(True)
        await owe_all(world, "one", "two")
        await clock.advance(600.0)
        # All of them once, for nobody knew; then one of them at a time.
        assert misses(world) < CHATS + 30
        assert waiting(world) == 2 * CHATS
        await world.paper.outage(False)
        await world.until(lambda: not waiting(world), limit=2 * pace.BACKOFF_SECONDS[-1])
        for number in range(CHATS):
            assert world.paper.posts_in(str(number)) == ["one", "two"]


async def test_as_soon_as_the_platform_is_heard_of_everybody_goes(tmp_path: Path) -> None:
    clock = OwnedClock()
    async with World(tmp_path, Echo(), kind=FREE, clock=clock) as world:
        world.paper.fail_next(503, method="post", count=10_000)
        await owe_all(world, "one")
        await clock.advance(600.0)
        world.paper.heal()
        await world.gateway._reported.reachable("paper", "main")
        await world.until(lambda: not waiting(world), limit=0.0)


class OneBadChat(Doorway):
    async def send(self, part: Part) -> Receipt:
        if part.target.chat == "bad":
            raise Unreachable("nobody answers there")
        return await super().send(part)


async def test_a_chat_with_a_trouble_of_its_own_delays_nobody(tmp_path: Path) -> None:
    clock = OwnedClock()
    async with World(tmp_path, Echo(), kind=FREE, clock=clock, adapter=OneBadChat) as world:
        world.paper.open_chat("bad")
        await world.gateway.desk.owe(Target(adapter="paper", chat="bad"), Body(text="one"), cause="test")
        await clock.advance(300.0)
        await owe_all(world, "one")
        await world.until(lambda: waiting(world) == 1, limit=0.0)


class Lanes:
    """Who was told to look again."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.poked: list[str] = []
        self.outages = Outages(self.clock, self.poked.append)

    def fail(self, *names: str) -> None:
        for name in names:
            self.outages.missed(ACCOUNT, name)


@pytest.fixture
def lanes() -> Lanes:
    return Lanes()


async def test_two_chats_that_fail_hold_nobody_and_three_hold_all(lanes: Lanes) -> None:
    lanes.fail("a", "b", "a", "b")
    assert not lanes.outages.holds(ACCOUNT, "c")
    lanes.fail("c")
    assert lanes.outages.holds(ACCOUNT, "d")
    assert not lanes.outages.holds(("other", "main"), "d")


async def test_each_gets_its_turn_and_the_pauses_grow_by_turns_not_by_chats(lanes: Lanes) -> None:
    lanes.fail("a", "b", "c", "d", "e")
    assert all(lanes.outages.holds(ACCOUNT, name) for name in "abcde")
    for turn, name in enumerate("abcde"):
        await lanes.clock.advance(pace.backoff(turn) - 0.1)
        assert name not in lanes.poked
        await lanes.clock.advance(0.2)
        assert lanes.poked[-1] == name
        assert not lanes.outages.holds(ACCOUNT, name)
        lanes.fail(name)
        assert lanes.outages.holds(ACCOUNT, name)


async def test_whoever_has_the_turn_and_nothing_to_send_passes_it_on(lanes: Lanes) -> None:
    lanes.fail("a", "b", "c")
    assert lanes.outages.holds(ACCOUNT, "a")
    assert lanes.outages.holds(ACCOUNT, "b")
    await lanes.clock.advance(pace.backoff(0))
    assert lanes.poked == ["a"]
    lanes.outages.left("a")
    assert lanes.poked == ["a", "b"]


async def test_where_nobody_waits_the_next_who_comes_tries_at_once(lanes: Lanes) -> None:
    lanes.fail("a", "b", "c")
    await lanes.clock.advance(pace.backoff(0))
    assert not lanes.outages.holds(ACCOUNT, "new")
    assert lanes.outages.holds(ACCOUNT, "another"), "one at a time"


async def test_one_answer_lets_all_go_and_nothing_is_left_of_the_outage(lanes: Lanes) -> None:
    lanes.fail("a", "b", "c")
    assert lanes.outages.holds(ACCOUNT, "d")
    assert lanes.outages.holds(ACCOUNT, "e")
    assert lanes.outages.reached(ACCOUNT)
    assert lanes.poked == ["d", "e"]
    assert not lanes.outages.holds(ACCOUNT, "d")
    assert lanes.clock.waiting == 0
    assert outages.LANES == 3

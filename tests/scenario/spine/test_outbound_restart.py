"""A restart in each state of a delivery, on each kind of proof: nothing is lost, nothing is doubled unsaid."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tests.simulators.paper.simulator import Kind
from tests.worlds.builders import body, target
from tests.worlds.world import PROOFS, Echo, OwnedClock, World
from tidings.core.inbound.door import MAY_BE_LOST
from tidings.core.outbound.outbox import MARK

End = Callable[[World], Awaitable[None]]

each_proof = pytest.mark.parametrize("kind", [pytest.param(kind, id=name) for name, kind in PROOFS.items()])
# The process is killed, or a clean stop does not wait for what is in flight.
each_end = pytest.mark.parametrize("end", [World.crash, World.cut_off], ids=["killed", "cut off"])
arrived_or_not = pytest.mark.parametrize("arrived", [True, False], ids=["arrived", "not arrived"])


@pytest.fixture
def kind() -> Kind:
    return PROOFS["keyed, edits"]


@pytest.fixture
async def world(tmp_path: Path, clock: OwnedClock, kind: Kind) -> AsyncIterator[World]:
    async with World(tmp_path, Echo(), kind=kind, clock=clock) as world:
        yield world


async def owe(world: World, text: str = "hello", chat: str = "1") -> str:
    return await world.gateway.desk.owe(target(chat), body(text), "test")


def states(world: World) -> list[str]:
    return [row["state"] for row in world.rows("SELECT state FROM deliveries ORDER BY seq")]


def part_states(world: World) -> list[str]:
    return [row["state"] for row in world.rows("SELECT state FROM parts ORDER BY delivery, position")]


def settled(world: World) -> Callable[[], bool]:
    return lambda: set(states(world)) <= {"delivered", "dead"}


def is_proved(world: World) -> bool:
    return bool(world.paper.kind.keyed_for or world.paper.kind.readback)


def expected(world: World, *, arrived: bool, text: str = "hello") -> list[str]:
    """What a person sees of one text whose first sending was in doubt."""
    if is_proved(world):
        return [text]
    return [*([text] if arrived else []), f"{MARK}{text}"]


# It had not left.


@each_proof
async def test_what_waited_goes_out_in_order(world: World) -> None:
    await world.paper.outage(True)
    for text in ("one", "two", "three"):
        await owe(world, text)
    await world.until(lambda: world.rows("SELECT 1 FROM parts WHERE misses > 0"), limit=0.0)
    assert states(world) == ["waiting"] * 3
    await world.crash()
    await world.paper.outage(False)
    await world.start()
    await world.until(settled(world))
    assert world.posts == ["one", "two", "three"]


@each_proof
async def test_a_pause_that_the_platform_named_is_kept(world: World, clock: OwnedClock) -> None:
    world.paper.fail_next(429, retry_after=120.0, method="post")
    await owe(world)
    await world.until(lambda: world.rows("SELECT 1 FROM parts WHERE not_before > 0"), limit=0.0)
    assert part_states(world) == ["waiting"]
    limited = clock.now()
    await world.crash()
    await clock.advance(60.0)
    await world.start()
    await owe(world, "later")
    await clock.advance(limited + 119.0 - clock.now())
    assert len(world.paper.calls("post")) == 1
    await world.until(settled(world))
    assert world.posts == ["hello", "later"]


async def test_a_pause_that_ended_while_we_were_away_is_over(world: World, clock: OwnedClock) -> None:
    world.paper.fail_next(429, retry_after=120.0, method="post")
    await owe(world)
    await world.until(lambda: world.rows("SELECT 1 FROM pauses"), limit=0.0)
    await world.crash()
    await clock.advance(121.0)
    await world.start()
    await world.until(settled(world), limit=0.0)
    assert world.posts == ["hello"]
    assert world.rows("SELECT 1 FROM pauses") == []


@each_proof
async def test_what_was_held_is_tried_again(world: World) -> None:
    world.paper.fail_next(401, method="post")
    await owe(world)
    await world.until(lambda: states(world) == ["held"], limit=0.0)
    await world.crash()
    await world.start()
    await world.until(settled(world))
    assert world.posts == ["hello"]


async def test_a_row_that_was_never_looked_at_goes_out(world: World) -> None:
    """The answer was owed with the outcome, and the process died before anybody could send it."""
    gate = world.paper.hold_next("post")
    await owe(world, "in the way")
    await world.until(lambda: world.paper.calls("post"), limit=0.0)
    world.paper.says("hi")
    await world.until(lambda: len(states(world)) == 2, limit=0.0)
    assert world.rows("SELECT 1 FROM parts WHERE delivery IN (SELECT id FROM deliveries WHERE kind = 'final')") == []
    await world.crash()
    gate.set()
    await world.start()
    await world.until(settled(world))
    assert world.posts == ["in the way", "you said: hi"]


# It may have left.


@each_proof
@each_end
@arrived_or_not
async def test_a_send_that_was_cut_off_is_settled_by_what_the_platform_can_prove(
    world: World, end: End, arrived: bool
) -> None:
    gate = world.paper.hold_next("post", after_effect=arrived)
    await owe(world)
    await world.until(lambda: world.paper.calls("post") and part_states(world) == ["sending"], limit=0.0)
    await end(world)
    if arrived:
        gate.set()
    await world.start()
    await world.until(settled(world))
    assert states(world) == ["delivered"]
    assert world.posts == expected(world, arrived=arrived)


@each_proof
@arrived_or_not
async def test_an_answer_that_was_cut_off_is_settled_and_not_thought_out_again(world: World, arrived: bool) -> None:
    agent = world.agents["bot"]
    assert isinstance(agent, Echo)
    world.paper.hold_next("post", after_effect=arrived)
    key = world.paper.says("hi")
    await world.until(lambda: world.paper.calls("post"), limit=0.0)
    assert world.run(key)["state"] == "done"
    await world.crash()
    await world.start()
    await world.until(settled(world))
    assert world.posts == expected(world, arrived=arrived, text="you said: hi")
    assert agent.heard == ["hi"]


@each_proof
@each_end
@arrived_or_not
async def test_a_doubt_is_settled_after_the_restart(world: World, end: End, arrived: bool) -> None:
    world.paper.drop_next(after_effect=arrived, method="post")
    await owe(world)
    await world.until(lambda: states(world) == ["doubtful"], limit=0.0)
    await end(world)
    await world.start()
    await world.until(settled(world))
    assert states(world) == ["delivered"]
    assert world.posts == expected(world, arrived=arrived)


@each_proof
async def test_a_doubt_waits_for_an_adapter_that_can_be_asked(world: World, clock: OwnedClock) -> None:
    world.paper.drop_next(after_effect=True, method="post")
    await owe(world)
    await world.until(lambda: states(world) == ["doubtful"], limit=0.0)
    await world.crash()
    world.absent = {"paper"}
    await world.start()
    await clock.advance(120.0)
    assert states(world) == ["doubtful"]
    await world.crash()
    world.absent = set()
    await world.start()
    await world.until(settled(world))
    assert world.posts == expected(world, arrived=True)


@each_proof
async def test_a_process_that_dies_at_every_send_never_floods_a_chat(world: World) -> None:
    for _ in range(5):
        gate = world.paper.hold_next("post", after_effect=True)
        if not states(world):
            await owe(world)
        if set(states(world)) <= {"delivered", "dead"}:
            break
        calls = len(world.paper.calls("post"))
        await world.until(lambda calls=calls: len(world.paper.calls("post")) > calls or settled(world)())
        await world.crash()
        gate.set()
        await world.start()
    world.paper.heal()
    await world.until(settled(world))
    texts = [text for text in world.posts if text != "…"]
    if is_proved(world):
        assert (states(world), texts) == (["delivered"], ["hello"])
    else:
        assert texts in (["hello", f"{MARK}hello"], ["hello"])
        assert states(world) == ["delivered"] or world.rows("SELECT untold FROM deliveries")[0]["untold"] == 1


@pytest.mark.parametrize("kind", [Kind()])
@pytest.mark.parametrize("method", ["post", "edit"])
@arrived_or_not
async def test_a_marked_copy_that_was_cut_off_stays_the_only_one(world: World, method: str, arrived: bool) -> None:
    """By anchor and edit: an orphaned ellipsis at most, never a third text."""
    world.paper.drop_next(after_effect=True, method="post")
    await owe(world)
    await world.until(lambda: states(world) == ["doubtful"], limit=0.0)
    gate = world.paper.hold_next(method, after_effect=arrived)
    calls = len(world.paper.calls(method))
    await world.until(lambda: len(world.paper.calls(method)) > calls)
    await world.crash()
    if arrived:
        gate.set()
    await world.start()
    await world.until(settled(world))
    assert [text for text in world.posts if text != "…"] == ["hello", f"{MARK}hello"]
    assert world.posts.count("…") == (method == "post" and arrived)


@pytest.mark.parametrize("kind", [Kind(streaming="none")])
async def test_a_marked_copy_that_is_lost_too_is_told_at_the_next_contact(world: World) -> None:
    world.paper.drop_next(after_effect=False, method="post")
    await owe(world)
    await world.until(lambda: states(world) == ["doubtful"], limit=0.0)
    world.paper.hold_next("post")
    await world.until(lambda: len(world.paper.calls("post")) == 2)
    await world.crash()
    await world.start()
    await world.until(settled(world))
    assert (states(world), world.posts) == (["dead"], [])
    await world.crash()
    await world.start()
    world.paper.says("hi")
    await world.until(lambda: len(world.posts) == 2)
    assert world.posts == [MAY_BE_LOST, "you said: hi"]


@pytest.mark.parametrize(
    ("kind", "posts"),
    [
        (Kind(keyed_for=60.0, streaming="none"), ["hello", f"{MARK}hello"]),
        (Kind(keyed_for=60.0, readback=True), ["hello"]),
    ],
    ids=["key alone", "key and readback"],
)
async def test_a_key_that_ran_out_while_we_were_away_is_not_trusted(
    world: World, clock: OwnedClock, posts: list[str]
) -> None:
    gate = world.paper.hold_next("post", after_effect=True)
    await owe(world)
    await world.until(lambda: world.paper.calls("post"), limit=0.0)
    await world.crash()
    gate.set()
    await clock.advance(3600.0)
    await world.start()
    await world.until(settled(world))
    assert world.posts == posts


# Between two parts.


@each_proof
@arrived_or_not
async def test_a_long_answer_goes_on_where_it_was_cut_off(world: World, arrived: bool) -> None:
    parts = [f"{letter}" * 1900 for letter in "abc"]
    gate = world.paper.hold_next("post", after_effect=True)
    await owe(world, "\n\n".join(parts))
    await world.until(lambda: world.paper.calls("post"), limit=0.0)
    world.paper.hold_next("post", after_effect=arrived)
    gate.set()
    await world.until(lambda: part_states(world) == ["delivered", "sending", "waiting"], limit=0.0)
    await world.until(lambda: len(world.paper.calls("post")) == 2, limit=0.0)
    await world.crash()
    await world.start()
    await world.until(settled(world))
    assert world.posts == [parts[0], *expected(world, arrived=arrived, text=parts[1]), parts[2]]


# All at once.


@each_proof
async def test_a_restart_with_a_delivery_in_every_state_loses_none(world: World, clock: OwnedClock) -> None:
    for chat in ("limited", "held", "sending", "doubtful"):
        world.paper.open_chat(chat)
    world.paper.fail_next(429, retry_after=60.0, method="post")
    await owe(world, "to limited", "limited")
    await world.rest()
    world.paper.fail_next(401, method="post")
    await owe(world, "to held", "held")
    await world.rest()
    world.paper.hold_next("post", after_effect=True)
    await owe(world, "to sending", "sending")
    await world.rest()
    world.paper.drop_next(after_effect=True, method="post")
    await owe(world, "to doubtful", "doubtful")
    await world.rest()
    assert states(world) == ["waiting", "held", "waiting", "doubtful"]
    await world.crash()
    await world.start()
    await world.until(settled(world))
    assert world.paper.posts_in("limited") == ["to limited"]
    assert world.paper.posts_in("held") == ["to held"]
    assert world.paper.posts_in("sending") == expected(world, arrived=True, text="to sending")
    assert world.paper.posts_in("doubtful") == expected(world, arrived=True, text="to doubtful")

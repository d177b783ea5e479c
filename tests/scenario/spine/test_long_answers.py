"""Answers longer than one message arrive as parts 1…n, each once and in order, whatever happens between them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.simulators.paper.simulator import Kind, PaperServer
from tests.worlds.builders import body, target
from tests.worlds.world import KEYED, PROOFS, Gate, OwnedClock, Scripted, World
from tidings.core.outbound.outbox import MARK

# 13,000 characters in which every line is known by its number.
LINES = [f"{number:04d} the quick brown fox jumps over the lazy dog" for number in range(265)]
LONG = "\n".join(LINES)
MUTE = Kind(streaming="none")

each_proof = pytest.mark.parametrize("kind", [pytest.param(kind, id=name) for name, kind in PROOFS.items()])
proved = pytest.mark.parametrize(
    "kind", [pytest.param(kind, id=name) for name, kind in PROOFS.items() if "neither" not in name]
)


def numbers(posts: list[str]) -> list[int]:
    """The lines that arrived, in the order in which a person reads them."""
    return [int(number) for post in posts for number in re.findall(r"^(\d{4}) ", post, re.MULTILINE)]


def assert_whole(paper: PaperServer, chat: str = "1") -> None:
    posts = paper.posts_in(chat)
    assert numbers(posts) == list(range(len(LINES)))
    assert "\n".join(post.removeprefix(MARK) for post in posts) == LONG
    assert max(map(len, posts)) <= paper.limit


def delivered(world: World, finals: int = 1) -> Callable[[], bool]:
    return lambda: (
        [row["state"] for row in world.rows("SELECT state FROM deliveries WHERE kind <> 'opening'")]
        == ["delivered"] * finals
    )


def test_the_long_answer_is_as_long_as_in_the_complaint() -> None:
    assert 12_900 <= len(LONG) <= 13_100


@each_proof
async def test_a_limit_on_the_second_part_loses_and_repeats_nothing(
    tmp_path: Path, clock: OwnedClock, kind: Kind
) -> None:
    """B3."""
    async with World(tmp_path, Scripted(LONG), kind=kind, clock=clock) as world:
        gate = world.paper.hold_next("post", after_effect=True)
        world.paper.says("tell me everything")
        await world.paper.until(lambda paper: paper.posts)
        world.paper.fail_next(429, retry_after=35.0, method="post")
        gate.set()
        await clock.advance(34.0)
        assert len(world.posts) == 1
        await world.until(delivered(world))
        assert_whole(world.paper)
        assert len(world.posts) == 7


@each_proof
async def test_a_limit_on_every_part_only_takes_longer(tmp_path: Path, clock: OwnedClock, kind: Kind) -> None:
    async with World(tmp_path, Scripted(LONG), kind=kind, clock=clock) as world:
        world.paper.limit_rate("1", 30.0, 1)
        world.paper.says("tell me everything")
        await world.until(delivered(world))
        assert_whole(world.paper)


@each_proof
@pytest.mark.parametrize("number", [1, 4])
async def test_a_restart_between_two_parts_goes_on_with_the_next(
    tmp_path: Path, clock: OwnedClock, kind: Kind, number: int
) -> None:
    async with World(tmp_path, Scripted(LONG), kind=kind, clock=clock) as world:
        world.paper.limit_rate("1", 30.0, 1)
        world.paper.says("tell me everything")
        await world.until(lambda: len(world.rows("SELECT 1 FROM parts WHERE state = 'delivered'")) == number)
        await world.crash()
        await world.start()
        await world.until(delivered(world))
        assert_whole(world.paper)


@proved
@pytest.mark.parametrize("arrived", [True, False])
async def test_a_doubt_on_the_second_part_is_settled_before_the_third(
    tmp_path: Path, clock: OwnedClock, kind: Kind, arrived: bool
) -> None:
    async with World(tmp_path, Scripted(LONG), kind=kind, clock=clock) as world:
        await lose_the_second_part(world, arrived=arrived)
        await world.until(delivered(world))
        assert_whole(world.paper)
        assert len(world.posts) == 7


@pytest.mark.parametrize("streaming", ["edits", "none"])
async def test_a_second_part_that_nobody_can_prove_is_there_once_more_and_marked(
    tmp_path: Path, clock: OwnedClock, streaming: str
) -> None:
    kind = Kind(streaming=streaming)  # type: ignore[arg-type]
    async with World(tmp_path, Scripted(LONG), kind=kind, clock=clock) as world:
        await lose_the_second_part(world, arrived=True)
        await world.until(delivered(world))
        first, second, again, *rest = world.posts
        marked = again.startswith(MARK.strip())
        assert marked
        # The mark may have pushed the end of the copy into a part of its own.
        copy, after = [again.removeprefix(MARK)], rest
        while len("\n".join(copy)) < len(second):
            copy.append(after.pop(0).removeprefix(MARK))
        assert "\n".join(copy) == second
        assert "\n".join([first, second, *after]) == LONG


async def lose_the_second_part(world: World, *, arrived: bool) -> None:
    gate = world.paper.hold_next("post", after_effect=True)
    world.paper.says("tell me everything")
    await world.paper.until(lambda paper: paper.posts)
    world.paper.drop_next(after_effect=arrived, method="post")
    gate.set()


async def test_a_doubt_on_a_part_lets_other_deliveries_pass_but_not_its_own_parts(
    tmp_path: Path, clock: OwnedClock
) -> None:
    async with World(tmp_path, Scripted(LONG), kind=Kind(readback=True), clock=clock) as world:
        # Something passes between the parts, and that is the point.
        world.skip = {"I8"}
        await lose_the_second_part(world, arrived=False)
        await world.gateway.desk.owe(target(), body("in between"), "test")
        await world.paper.until(lambda paper: "in between" in paper.posts)
        assert len(world.posts) == 2
        await world.until(delivered(world, 2))
        assert numbers(world.posts) == list(range(len(LINES)))


async def test_a_streamed_long_answer_ends_as_the_same_parts_as_a_sent_one(tmp_path: Path, clock: OwnedClock) -> None:
    gate = Gate()
    async with World(tmp_path, Scripted(LONG[:6000], gate, LONG[6000:]), kind=Kind(), clock=clock) as world:
        world.paper.says("tell me everything")
        await gate.reached()
        await world.until(lambda: world.posts)
        gate.open()
        await world.until(delivered(world))
        assert_whole(world.paper)
        assert len(world.posts) == 7


async def test_code_fences_are_closed_and_reopened_at_every_cut(tmp_path: Path, clock: OwnedClock) -> None:
    code = "\n".join(f"print({number:04d})  # a line of code" for number in range(300))
    text = f"Here it is:\n\n```python\n{code}\n```\n\nThat was all."
    async with World(tmp_path, Scripted(text), kind=MUTE, clock=clock) as world:
        world.paper.says("code, please")
        await world.until(delivered(world))
        posts = world.posts
        assert len(posts) > 4
        assert all(post.count("```") % 2 == 0 for post in posts)
        inside = [post for post in posts if "print(" in post]
        assert all("```python\n" in post for post in inside)
        found = [int(number) for post in posts for number in re.findall(r"print\((\d{4})\)", post)]
        assert found == list(range(300))
        assert posts[-1].endswith("That was all.")


@pytest.mark.parametrize("limit", [60, 500, 2000, 13_000, 20_000])
async def test_every_part_fits_the_limit_of_the_platform(tmp_path: Path, clock: OwnedClock, limit: int) -> None:
    async with World(tmp_path, Scripted(LONG), kind=KEYED, clock=clock, limit=limit) as world:
        world.paper.says("tell me everything")
        await world.until(delivered(world), real_limit=30.0)
        assert {call.verdict for call in world.paper.calls("post")} == {"ok"}, "measured before, not found out"
        assert max(map(len, world.posts)) <= limit
        assert numbers(world.posts) == list(range(len(LINES)))


async def test_two_long_answers_to_one_chat_do_not_interleave(tmp_path: Path, clock: OwnedClock) -> None:
    async with World(tmp_path, Scripted(LONG), kind=KEYED, clock=clock) as world:
        world.paper.limit_rate("1", 5.0, 1)
        world.paper.says("once")
        world.paper.says("and once more")
        await world.until(delivered(world, 2), real_limit=20.0)
        assert numbers(world.posts) == 2 * list(range(len(LINES)))


async def test_a_long_answer_does_not_delay_another_chat(tmp_path: Path, clock: OwnedClock) -> None:
    async with World(tmp_path, Scripted(LONG), kind=KEYED, clock=clock) as world:
        world.paper.open_chat("2")
        world.paper.limit_rate("1", 60.0, 1)
        world.paper.says("tell me everything")
        await world.paper.until(lambda paper: paper.posts)
        await world.gateway.desk.owe(target("2"), body("hello"), "test")
        await world.paper.until(lambda paper: paper.posts_in("2") == ["hello"])
        assert len(world.paper.posts_in("1")) < 7
        await world.until(delivered(world, 2))
        assert_whole(world.paper)

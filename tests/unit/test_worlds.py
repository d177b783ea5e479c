"""The worlds that scenario tests stand in: a real adapter on its simulator, an owned clock, and checks at the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulators.paper.simulator import Kind
from tests.simulators.telegram.simulator import TelegramServer
from tests.worlds.telegram import TelegramWorld
from tests.worlds.world import Echo, OwnedClock, World


async def test_a_platform_that_is_shared_outlives_both_worlds(tmp_path: Path) -> None:
    async with TelegramServer() as telegram:
        for home in ("one", "other"):
            (tmp_path / home).mkdir()
            async with TelegramWorld(tmp_path / home, Echo(), telegram=telegram) as world:
                world.telegram.says(home)
                await world.until(lambda: f"you said: {home}" in world.posts)  # noqa: B023
                await world.settled()
        assert telegram.posts == ["you said: one", "you said: other"]


async def test_paper_platforms_stand_beside_a_real_one_and_their_people_are_admitted(tmp_path: Path) -> None:
    async with TelegramWorld(tmp_path, Echo(), platforms={"paper": Kind(keyed_for=3600.0)}) as world:
        world.papers["paper"].says("on paper")
        world.telegram.says("on Telegram")
        await world.papers["paper"].until(lambda paper: paper.posts == ["you said: on paper"])
        await world.until(lambda: world.posts == ["you said: on Telegram"])
        assert sorted(world.allow) == ["paper:7", "telegram:7"]
        assert (await world.listener()).name == "telegram@main"


async def test_an_owned_clock_waits_for_a_call_that_is_open(tmp_path: Path) -> None:
    """The call is held by the platform, so the world is at rest and time goes on; then the answer arrives."""
    clock = OwnedClock()
    async with TelegramWorld(tmp_path, Echo(), clock=clock) as world:
        gate = world.telegram.hold_next("sendMessage")
        world.telegram.says("hi")
        await world.until(lambda: world.telegram.calls("sendMessage"))
        before = clock.now()
        await clock.advance(1.0)
        assert clock.now() == before + 1.0
        assert world.posts == []
        gate.set()
        await world.until(lambda: world.posts == ["you said: hi"])


async def test_a_world_that_waits_in_vain_tells_what_was_there(tmp_path: Path) -> None:
    async with TelegramWorld(tmp_path, Echo(), clock=OwnedClock()) as world:
        world.telegram.says("hi")
        await world.until(lambda: world.posts == ["you said: hi"])
        with pytest.raises(TimeoutError, match=r"posts \['you said: hi'\].*sendMessage.*owed \[\('final', 'delivered'"):
            await world.until(lambda: False, limit=0.0, real_limit=0.2)


async def test_what_a_crash_finds_uncommitted_is_gone_and_the_rest_is_there(tmp_path: Path) -> None:
    async with World(tmp_path, Echo()) as world:
        first = world.paper.says("one")
        await world.until(lambda: world.posts == ["you said: one"])
        await world.settled()
        await world.crash()
        await world.start()
        assert world.run(first)["state"] == "done"


async def lose(home: Path, error: Exception | None = None) -> None:
    """A message is confirmed that was never stored; then the story ends, by itself or by an error."""
    async with World(home, Echo()) as world:
        world.paper.truth.confirmed.append("a message that was never stored")
        if error is not None:
            raise error


async def test_a_broken_invariant_fails_the_story_at_its_end(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="I1"):
        await lose(tmp_path)


async def test_a_story_that_failed_fails_with_its_own_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        await lose(tmp_path, ZeroDivisionError())

"""Every platform, the API and the console in one process: no answer is another's, no outage is the others'."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.worlds.all_platforms import PEOPLE, AllPlatforms, Mirror

FEW = 20


async def test_five_hundred_conversations_at_once_on_five_surfaces_are_never_mixed(tmp_path: Path) -> None:
    """Nobody is answered before everybody has been heard."""
    together = asyncio.Barrier(5 * PEOPLE)

    async def wait(adapter: str) -> None:
        await together.wait()

    async with AllPlatforms(tmp_path, Mirror(wait)) as world:
        for surface in world.surfaces.values():
            surface.ask("who am I?")
        for surface in world.surfaces.values():
            await surface.answers()
        await world.settled()
        for surface in world.surfaces.values():
            assert await surface.answers() == surface.right("who am I?")


@pytest.mark.parametrize("down", ["telegram", "discord", "slack"])
async def test_while_one_platform_is_down_all_others_are_answered_and_then_it_is_too(tmp_path: Path, down: str) -> None:
    async with AllPlatforms(tmp_path, Mirror(), people=FEW) as world:
        others = [surface for name, surface in world.surfaces.items() if name != down]
        await world.break_down(down, "and I?")
        for text in ("who am I?", "who else?"):
            for surface in others:
                surface.ask(text)
            for surface in others:
                await surface.answers()
        await world.outages[down].outage(False)
        await world.outages[down].answers()
        await world.settled()
        assert await world.outages[down].answers() == world.outages[down].right("and I?")
        for surface in others:
            assert await surface.answers() == surface.right("who am I?", "who else?")

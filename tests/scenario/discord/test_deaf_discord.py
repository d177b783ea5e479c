"""A gateway of Discord's from which nothing comes any more: noticed, shown, told, and mended by itself."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.worlds.black_hole import black_hole
from tests.worlds.discord import DiscordWorld
from tests.worlds.world import Echo
from tidings.adapters.discord.socket import USUAL, Limits
from tidings.core.gateway.supervisor import Pauses

QUICK = Limits(heartbeat_seconds=0.4, connect_seconds=0.4, troubled_seconds=0.3, pauses=(0.0, 0.05, 0.05, 0.05, 0.05))


SOON = Pauses(backoff=(0.1,), steady=0.1)


def state(world: DiscordWorld) -> str:
    parts = {part.name: part.state for part in world.gateway._parts.supervisor.health()}
    return parts["discord@main"]


def test_a_black_hole_is_noticed_within_three_minutes() -> None:
    """A38. A silent socket, then connections that hang until the time is up; Discord beats every 41 s."""
    hung = USUAL.connect_seconds + max(USUAL.pauses)
    assert USUAL.heartbeat_seconds + USUAL.troubled_seconds + hung < 180
    assert USUAL.heartbeat_seconds + 2 * 41.25 < 180


async def test_a_network_that_swallows_everything_is_told_of_and_then_it_hears_again(tmp_path: Path) -> None:
    """A38."""
    async with DiscordWorld(
        tmp_path, Echo(), pauses=SOON, server={"heartbeat_interval": 0.1}, built_with={"limits": QUICK}
    ) as world:
        await world.discord.outage(True)
        seen = []
        async with black_hole(world.discord.address) as came:
            await world.eventually(lambda: state(world) == "degraded")
            alarms = [alarm.last for alarm in (await world.gateway.desk.health()).alarms if alarm.name == "adapter"]
            assert alarms[0].startswith("discord@main is degraded: nothing was heard of Discord for ")
            for known in range(len(came), len(came) + 8):
                seen.append(state(world))
                await world.eventually(lambda known=known: len(came) > known)  # type: ignore[misc]
        assert set(seen) == {"degraded"}
        await world.discord.outage(False)
        await world.eventually(lambda: state(world) == "up")
        world.ada.says(world.ada.private(), "hi")
        await world.until(lambda: world.posts == ["you said: hi"])


async def test_a_gateway_that_tells_and_no_longer_listens_is_left_and_the_session_goes_on(tmp_path: Path) -> None:
    """Events keep coming and no heartbeat is answered: to the library that is a sign of life."""
    async with DiscordWorld(
        tmp_path, Echo(), pauses=SOON, server={"heartbeat_interval": 0.1}, built_with={"limits": QUICK}
    ) as world:
        world.discord.stop_acking()
        # Others talk all the time, so that there is never a silence which could be noticed.
        for number in range(60):
            world.ada.says(world.room, f"chatter {number}")
            await asyncio.sleep(0.05)
            if world.discord.resumes():
                break
        world.discord.stop_acking(False)
        assert world.discord.resumes()
        assert world.discord.identifies() == 1
        assert state(world) == "up"
        world.ada.says(world.ada.private(), "hi")
        await world.until(lambda: world.posts == ["you said: hi"])

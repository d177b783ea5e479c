"""A socket to Slack that hears nothing any more, and no other to be had: noticed, shown, told, mended by itself."""

from __future__ import annotations

from pathlib import Path

from tests.worlds.black_hole import black_hole
from tests.worlds.slack import SlackWorld
from tests.worlds.world import Echo
from tidings.adapters.slack.socket import USUAL, Limits
from tidings.core.gateway.supervisor import Pauses

QUICK = {"ack_seconds": 0.3, "retry_seconds": (0.0, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3)}
IMPATIENT = {
    "limits": Limits(
        ping_seconds=0.2, call_seconds=0.3, open_seconds=0.3, troubled_seconds=0.5, pauses=(0.05, 0.05, 0.05, 0.05)
    )
}
SOON = Pauses(backoff=(0.1,), steady=0.1)


def state(world: SlackWorld) -> str:
    parts = {part.name: part.state for part in world.gateway._parts.supervisor.health()}
    return parts["slack@main"]


def test_a_black_hole_is_noticed_within_three_minutes() -> None:
    """A38. A deaf socket, then calls for another one that hang until the time is up."""
    deaf, hung = 4 * USUAL.ping_seconds, USUAL.call_seconds + USUAL.open_seconds + max(USUAL.pauses)
    assert deaf + max(USUAL.troubled_seconds, hung) + hung < 180


async def test_a_deaf_socket_without_a_successor_is_told_of_and_then_it_hears_again(tmp_path: Path) -> None:
    """A38."""
    async with SlackWorld(tmp_path, Echo(), pauses=SOON, server=QUICK, built_with=IMPATIENT) as world:
        world.slack.hang_next(False, "apps.connections.open", count=100)
        world.slack.deafen()
        await world.eventually(lambda: state(world) == "degraded")
        alarms = [alarm.last for alarm in (await world.gateway.desk.health()).alarms if alarm.name == "adapter"]
        assert alarms[0].startswith("slack@main is degraded: no socket to Slack can be opened")

        world.slack.heal()
        await world.eventually(lambda: state(world) == "up")
        world.ada.says(world.ada.direct, "hi")
        await world.until(lambda: world.posts == ["you said: hi"])


async def test_a_network_that_swallows_everything_shows_until_it_is_over(tmp_path: Path) -> None:
    async with SlackWorld(tmp_path, Echo(), pauses=SOON, server=QUICK, built_with=IMPATIENT) as world:
        await world.slack.outage(True)
        seen = []
        async with black_hole(world.slack.address) as came:
            await world.eventually(lambda: state(world) == "degraded")
            for known in range(len(came), len(came) + 8):
                seen.append(state(world))
                await world.eventually(lambda known=known: len(came) > known)  # type: ignore[misc]
        assert set(seen) == {"degraded"}
        await world.slack.outage(False)
        await world.eventually(lambda: state(world) == "up")
        world.ada.says(world.ada.direct, "hi")
        await world.until(lambda: world.posts == ["you said: hi"])


async def test_a_socket_that_is_told_to_go_still_hears_so_nobody_is_alarmed(tmp_path: Path) -> None:
    """Slack turns its sockets over now and then; while the next one waits its turn, the old one does the work."""
    async with SlackWorld(
        tmp_path, Echo(), pauses=SOON, server=QUICK, built_with={"limits": Limits(troubled_seconds=0.0)}
    ) as world:
        world.slack.fail_next(429, retry_after=1, method="apps.connections.open")
        world.slack.disconnect(close=False)
        await world.until(lambda: len(world.slack.calls("apps.connections.open")) == 3)
        world.ada.says(world.ada.direct, "hi")
        await world.until(lambda: world.posts == ["you said: hi"])
        assert state(world) == "up"
        assert not (await world.gateway.desk.health()).alarms

"""A poller that hears nothing any more: noticed, shown, told, and mended by itself."""

from __future__ import annotations

from pathlib import Path

from tests.worlds.black_hole import black_hole
from tests.worlds.telegram import TelegramWorld
from tests.worlds.world import Echo
from tidings.adapters.telegram.listen import USUAL, Limits
from tidings.core.gateway.supervisor import Pauses

QUICK = Limits(
    poll_seconds=1,
    late_seconds=0.2,
    whole_seconds=0.4,
    troubled_seconds=1.5,
    pauses=(0.1, 0.1, 0.1, 0.1, 0.1, 0.1),
    look_seconds=0.2,
)


SOON = Pauses(backoff=(0.1,), steady=0.1)


def state(world: TelegramWorld) -> str:
    parts = {part.name: part.state for part in world.gateway._parts.supervisor.health()}
    return parts["telegram@main"]


async def told(world: TelegramWorld) -> list[str]:
    return [alarm.last for alarm in (await world.health()).alarms if alarm.name == "adapter"]


def test_a_black_hole_is_noticed_within_three_minutes() -> None:
    """A38. One long poll that hangs, then short ones until the time is up."""
    first = USUAL.poll_seconds + USUAL.whole_seconds
    following = USUAL.whole_seconds + max(USUAL.pauses)
    assert first + max(USUAL.troubled_seconds - first, 0) + following < 180


async def test_polls_that_are_never_answered_are_told_of_and_then_it_hears_again(tmp_path: Path) -> None:
    """A38. Only the polls: who looks at calls alone sees a bot that is well."""
    async with TelegramWorld(tmp_path, Echo(), pauses=SOON, built_with={"limits": QUICK}) as world:
        telegram = world.telegram
        telegram.hang_next(False, "getUpdates", count=100)
        await world.eventually(lambda: state(world) == "degraded")
        assert (await told(world))[0].startswith("telegram@main is degraded: nothing was heard of Telegram for ")
        assert (await world.listener()).restarts == 0, "it says so before it gives up"

        telegram.says("are you there?")
        telegram.heal()
        await world.until(lambda: telegram.posts == ["you said: are you there?"])
        await world.eventually(lambda: state(world) == "up")
        assert telegram.conflicts == 0, "whoever looks whether it hears takes no poll away"


async def test_a_network_that_swallows_everything_is_borne_and_shows_until_it_is_over(tmp_path: Path) -> None:
    async with TelegramWorld(tmp_path, Echo(), pauses=SOON, built_with={"limits": QUICK}) as world:
        telegram = world.telegram
        await telegram.outage(True)
        seen = []
        async with black_hole(telegram.address) as came:
            await world.eventually(lambda: state(world) == "degraded")
            # Through several lives of the listener it never looks well for a moment.
            for known in range(len(came), len(came) + 12):
                seen.append(state(world))
                await world.eventually(lambda known=known: len(came) > known)  # type: ignore[misc]
        assert set(seen) == {"degraded"}
        telegram.says("hi")
        await telegram.outage(False)
        await world.until(lambda: telegram.posts == ["you said: hi"], real_limit=20)
        await world.eventually(lambda: state(world) == "up")


async def test_an_answer_that_comes_bit_by_bit_without_end_is_not_waited_for(tmp_path: Path) -> None:
    async with TelegramWorld(tmp_path, Echo(), pauses=SOON, built_with={"limits": QUICK}) as world:
        telegram = world.telegram
        telegram.dribble_next(60.0, "getUpdates")
        telegram.says("one")
        await world.until(lambda: not telegram.faults.armed and telegram.posts == ["you said: one"])
        telegram.says("two")
        await world.until(lambda: telegram.posts == ["you said: one", "you said: two"])
        assert (await world.listener()).restarts == 0

"""Signs on the real platforms: each takes the place of the one before, also across a restart, and only ours go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.worlds.discord import DiscordWorld
from tests.worlds.slack import SlackWorld
from tests.worlds.stages import PLATFORMS, Stage, stage
from tests.worlds.world import Gate, OwnedClock, Scripted
from tidings.core.agent import Turn

each = pytest.mark.parametrize("platform", PLATFORMS)

SEEN, WAITING, WORKING, DONE = range(4)
SIGNS = {
    "telegram": ("👀", "🫡", "✍", "👍"),
    "discord": ("👀", "⏳", "✍️", "✅"),
    "slack": ("eyes", "hourglass_flowing_sand", "writing_hand", "white_check_mark"),
}
# The calls that add and remove a reaction.
CALLS = {
    "telegram": ("setMessageReaction",),
    "discord": ("react", "unreact"),
    "slack": ("reactions.add", "reactions.remove"),
}


def shown(there: Stage) -> list[str]:
    """All that stands under messages now."""
    found: list[str] = []
    for names in there.world.platform.reactions.values():
        found += [names] if isinstance(names, str) else names
    return found


def history(there: Stage) -> list[tuple[str, ...]]:
    """What stood under messages after each change."""
    standing: dict[str, list[str]] = {}
    story = []
    for effect in there.world.platform.truth.effects:
        here = standing.setdefault(effect.message, [])
        match effect.act:
            case "react" if there.world.name == "telegram":
                here[:] = [effect.text] if effect.text else []
            case "react":
                here.append(effect.text)
            case "unreact":
                here.remove(effect.text)
            case _:
                continue
        story.append(tuple(here))
    return story


def answering(**gates: Gate) -> Scripted:
    async def wait(turn: Turn) -> str:
        for word, gate in gates.items():
            if word in turn.message.text:
                await gate.wait()
        return "done"

    return Scripted(wait)


def clock_of(there: Stage) -> OwnedClock:
    assert isinstance(there.world.clock, OwnedClock)
    return there.world.clock


@each
@pytest.mark.parametrize("room", [False, True], ids=["alone", "room"])
async def test_each_sign_takes_the_place_of_the_one_before(tmp_path: Path, platform: str, room: bool) -> None:
    first, second = Gate(), Gate()
    signs = SIGNS[platform]
    # In a room of Slack each message opens a thread, and waits only for a free slot.
    async with stage(tmp_path, platform, answering(first=first, second=second), limits={"runs": 1}) as there:
        there.says("ada", "first", room=room)
        await there.until(lambda: first.entered.is_set())
        there.says("ada", "second", room=room)
        await there.until(lambda: sorted(shown(there)) == sorted([signs[WORKING], signs[WAITING]]))
        first.open()
        await there.until(lambda: sorted(shown(there)) == sorted([signs[DONE], signs[WORKING]]))
        second.open()
        await there.until(lambda: shown(there) == [signs[DONE]] * 2)
        await clock_of(there).advance(90.0)
        assert shown(there) == [signs[DONE]] * 2
        assert max(len(standing) for standing in history(there)) == 1, "never two of ours on one message"


@each
async def test_a_sign_of_a_dead_process_is_taken_away_by_the_next(tmp_path: Path, platform: str) -> None:
    first, second = Gate(), Gate()
    signs = SIGNS[platform]
    async with stage(tmp_path, platform, answering(first=first, second=second)) as there:
        there.says("ada", "first")
        await there.until(lambda: first.entered.is_set())
        there.says("ada", "second")
        await there.until(lambda: sorted(shown(there)) == sorted([signs[WORKING], signs[WAITING]]))
        await there.world.crash()
        first.open()
        second.open()
        await there.world.start()
        await there.until(lambda: shown(there) == [signs[DONE]] * 2)
        assert max(len(standing) for standing in history(there)) == 1


@each
async def test_a_reaction_that_meets_a_limit_is_shown_later(tmp_path: Path, platform: str) -> None:
    gate = Gate()
    async with stage(tmp_path, platform, answering(first=gate)) as there:
        there.says("ada", "first")
        await there.until(lambda: shown(there) == [SIGNS[platform][WORKING]])
        for method in CALLS[platform]:
            limit(there, method)
        gate.open()
        await there.until(lambda: there.told("ada") == ["done"])
        await there.until(lambda: shown(there) == [SIGNS[platform][DONE]])


def limit(there: Stage, method: str) -> None:
    server: Any = there.world.platform
    match there.world.name:
        case "slack":
            server.fail_next(429, method, retry_after=5)
        case _:
            server.fail_next(429, retry_after=5, method=method)


async def test_what_people_react_with_stays_on_discord(tmp_path: Path) -> None:
    gate = Gate()
    async with DiscordWorld(tmp_path, answering(first=gate), clock=OwnedClock()) as world:
        asked = world.ada.says(world.room, "first", mention=True)
        await world.until(lambda: world.discord.reactions == {asked: ["✍️"]})
        world.ada.reacts(asked, "👀")
        world.ada.reacts(asked, "✍️")
        gate.open()
        await world.until(lambda: world.discord.reactions == {asked: ["✅"]})
        theirs = [emoji for emoji, user in world.discord.message(asked).reactions if user == world.ada.id]
        assert theirs == ["👀", "✍️"]


async def test_the_pane_of_slack_goes_on_saying_that_it_works(tmp_path: Path) -> None:
    """Signs on the message do not switch off the status below the thread."""
    gate, clock = Gate(), OwnedClock()
    async with SlackWorld(tmp_path, answering(first=gate), clock=clock) as world:
        root = world.ada.opens_assistant()
        world.ada.says(world.ada.direct, "first", thread=root)
        await world.until(lambda: "writing_hand" in str(world.slack.reactions))
        await clock.advance(1.0)
        assert world.slack.status(world.ada.direct, root.ts)
        gate.open()
        await world.until(lambda: not world.slack.status(world.ada.direct, root.ts))

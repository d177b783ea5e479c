"""Other bots: ignored unless they are let in by id, and never talked to without end."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.worlds.world import Echo, OwnedClock, Scripted, World, handed
from tidings.core.roles import OWNER, Role
from tidings.core.types import Ignored, Inbound, Kind, Sender, Stored

LET_IN = {"bots": ("paper:99",)}
ROBOT = Sender(id="99", name="Robot", is_bot=True)


async def hears(world: World, text: str, **more: Any) -> bool:
    """Whether the bot takes what another bot says in the group."""
    return isinstance(await world.receive(by_robot(text, **more)), Stored)


def by_robot(text: str, **more: Any) -> Inbound:
    return replace(handed(text, private=False, **more), sender=ROBOT)


async def person_says(world: World, text: str = "hello", **more: Any) -> None:
    assert isinstance(await world.receive(handed(text, private=False, **more)), Stored)


@pytest.mark.parametrize(
    ("access", "allow"),
    [({}, ["paper:99"]), ({}, ["paper:1"]), ({"bots": ("paper:98",)}, ["paper:7"]), ({"bots": ("paper:Robot",)}, [])],
    ids=["named as a person", "its group is admitted", "another bot", "by its name"],
)
async def test_a_bot_is_ignored_unless_its_id_is_let_in(
    tmp_path: Path, access: dict[str, tuple[str, ...]], allow: list[str]
) -> None:
    async with World(tmp_path, Echo(), access=access, allow=allow) as world:
        ways: tuple[dict[str, Any], ...] = ({}, {"overheard": True}, {"kind": Kind.EDITED, "about": "m1"})
        for way in ways:
            assert await world.receive(by_robot("beep", **way)) == Ignored()
        assert await world.receive(by_robot("/help")) == Ignored()
        assert world.rows("SELECT * FROM inbox") == []


async def test_a_bot_that_is_let_in_is_a_guest_and_listed_until_it_is_blocked(tmp_path: Path) -> None:
    echo = Echo()
    async with World(tmp_path, echo, access=LET_IN, groups={"bot_exchanges": 9}, clock=OwnedClock()) as world:
        assert await hears(world, "beep")
        assert await hears(world, "/bg work")
        # In what it only overhears, a guest is not answered.
        assert not await hears(world, "between us", overheard=True)
        await world.until(lambda: len(world.paper.posts) == 2)
        assert any("you are a guest here" in post for post in world.paper.posts)
        (line,) = [each for each in await world.gateway.desk.people.all() if "paper:99" in each.identities]
        assert (line.role, line.in_settings) == (Role.GUEST, ("paper:99",))
        # The entry is for the bot, not for a person with the same id.
        assert await world.receive(handed("hi", private=False, sender="99")) == Ignored()
        await world.gateway.desk.people.block(OWNER, "paper:99")
        assert not await hears(world, "beep")


async def test_of_a_bot_s_messages_one_is_answered_until_a_person_writes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """F7."""
    caplog.set_level(logging.INFO, "tidings.core.inbound.bot_exchanges")
    clock = OwnedClock()
    async with World(tmp_path, Echo(), access=LET_IN, clock=clock) as world:
        assert await hears(world, "one")
        assert not await hears(world, "two")
        # All threads count together, commands too; another chat counts by itself.
        assert not await hears(world, "three", thread="A")
        assert not await hears(world, "/help")
        assert await hears(world, "elsewhere", chat="2")
        # Time alone changes nothing, and neither does a restart.
        await clock.advance(7 * 86_400)
        assert not await hears(world, "four")
        await world.restart()
        assert not await hears(world, "five")
        assert [record.message for record in caplog.records].count(
            "bots are not answered in paper:1 until a person writes there (groups.bot_exchanges)"
        ) == 2
        # What a person says between the others is not taken; what they say to the bot is.
        world.ignored.add((aside := handed("aside", private=False, addressed=False)).key)
        await world.receive(aside)
        assert not await hears(world, "six")
        await person_says(world)
        assert await hears(world, "seven")
        assert not await hears(world, "eight")
        await world.settled()


async def test_the_count_is_stored_with_the_message(tmp_path: Path) -> None:
    """A repetition of a message is not counted again, and a crash forgets nothing."""
    async with World(tmp_path, Echo(), access=LET_IN, groups={"bot_exchanges": 2}, clock=OwnedClock()) as world:
        first = by_robot("one")
        await world.receive(first)
        await world.receive(first)
        await world.settled()
        await world.crash()
        await world.start()
        await world.receive(first)
        assert await hears(world, "two")
        assert not await hears(world, "three")
        await world.settled()


async def test_a_person_costs_no_statement_more_where_no_bot_was_answered(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), access=LET_IN, clock=OwnedClock()) as world:
        await person_says(world)
        assert await hears(world, "one", chat="2")
        await person_says(world, chat="2")
        await world.settled()
        assert world.rows("SELECT * FROM bot_exchanges") == []


async def test_a_bot_s_edit_corrects_what_waits_and_nothing_else(tmp_path: Path) -> None:
    """Bots edit their answers while these grow: that must not fill the store, and must not count."""
    async with World(tmp_path, Scripted("ok"), access=LET_IN, clock=OwnedClock()) as world:
        taken = by_robot("one")
        await world.receive(taken)
        for about in ("never taken", taken.key):
            await world.receive(by_robot("edited", kind=Kind.EDITED, about=about))
        await world.settled()
        assert [row["kind"] for row in world.rows("SELECT kind FROM inbox ORDER BY seq")] == ["message", "edited"]
        assert not await hears(world, "two")


@pytest.mark.parametrize("most", [0, 1, 3])
async def test_two_gateways_that_answer_each_other_stop(tmp_path: Path, most: int) -> None:
    """Each answer is told to the other gateway as a bot's message that addresses it, as often as there is one."""
    groups, clock = {"bot_exchanges": most}, OwnedClock()
    async with (
        World(tmp_path / "a", Echo(), access=LET_IN, groups=groups, clock=clock) as a,
        World(tmp_path / "b", Echo(), access=LET_IN, groups=groups, clock=OwnedClock()) as b,
    ):
        await person_says(a)
        told = {a: 0, b: 0}
        for _ in range(20):
            for speaker, listener in ((a, b), (b, a)):
                await speaker.settled()
                for text in speaker.paper.posts[told[speaker] :]:
                    told[speaker] += 1
                    await listener.receive(by_robot(f"@you {text}"))
                await listener.settled()
        assert (len(a.paper.posts), len(b.paper.posts)) == (1 + most, most)
        # A restart of both does not wind them up again.
        await a.restart()
        await b.restart()
        assert not await hears(a, "and?")
        assert not await hears(b, "and?")

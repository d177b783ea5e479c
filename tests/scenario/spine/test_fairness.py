"""One person, one chat or one bot with a long queue: everybody else waits for one slot at most."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.simulators.paper.simulator import Kind
from tests.worlds.world import Echo, Gate, World, handed
from tidings.core.agent import Event, Finished, TextDelta, Turn
from tidings.core.inbound.door import BUSY
from tidings.core.types import Refused, Stored

PLAIN = Kind(keyed_for=3600.0, streaming="none", typing=False, reactions=False)
SLOTS = 10
CROWD = 40
# Everybody who speaks alone with the bot, and the group whose members may all speak.
ALLOWED = [f"paper:{name}" for name in ("greedy", "grabby", "crowd", *(f"p{n}" for n in range(CROWD)))]
NEWCOMERS = [f"new{number}" for number in range(5)]


class Held:
    """Every run waits until it is let go."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self._gates: dict[str, asyncio.Event] = {}
        self._is_over = False

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        text = turn.message.text
        self.begun.append(text)
        if not self._is_over:
            await self._gates.setdefault(text, asyncio.Event()).wait()
        yield TextDelta(f"done: {text}")
        yield Finished()

    def let_go(self, text: str) -> None:
        self._gates.setdefault(text, asyncio.Event()).set()

    def let_all_go(self) -> None:
        self._is_over = True
        for gate in self._gates.values():
            gate.set()


def crowd_of(kind: str) -> list[dict[str, Any]]:
    """How each message of a crowd is sent."""
    match kind:
        case "one person, many chats":
            return [{"chat": f"c{n}", "sender": "greedy"} for n in range(CROWD)]
        case "one person, many threads":
            return [{"chat": "greedy", "thread": f"t{n}", "sender": "greedy"} for n in range(CROWD)]
        case "one person, one conversation":
            return [{"chat": "greedy", "sender": "greedy"} for _ in range(CROWD)]
        case "one chat":
            return [{"chat": "crowd", "sender": f"m{n}", "private": False} for n in range(CROWD)]
        case "one bot":
            return [{"chat": f"p{n}", "sender": f"p{n}", "bot": "slow"} for n in range(CROWD)]
    raise AssertionError(kind)


CROWDS = ["one person, many chats", "one person, many threads", "one person, one conversation", "one chat", "one bot"]


def world_of(home: Path, held: Held, slots: int = SLOTS, **limits: int) -> World:
    allow = [*ALLOWED, *(f"paper:{name}" for name in NEWCOMERS)]
    limited = {"runs": slots, **limits}
    return World(
        home, {"quick": held, "slow": held}, kind=PLAIN, allow=allow, limits=limited, groups={"memory": "member"}
    )


async def say(world: World, text: str, **how: Any) -> None:
    world.paper.open_chat(how["chat"], how.get("thread", ""))
    assert isinstance(await world.receive(handed(text, **how)), Stored)


async def gather(world: World, kind: str) -> None:
    for number, how in enumerate(crowd_of(kind)):
        await say(world, f"crowd{number}", **how)
    await world.rest()


async def arrive(world: World, name: str) -> None:
    await say(world, name, chat=name, sender=name)


def newcomers_of(held: Held) -> list[str]:
    return [text for text in held.begun if text.startswith("new")]


@pytest.mark.parametrize("kind", CROWDS)
async def test_a_newcomer_begins_at_once_beside_a_crowd(tmp_path: Path, kind: str) -> None:
    held = Held()
    async with world_of(tmp_path, held) as world:
        await gather(world, kind)
        assert len(held.begun) == {"one person, one conversation": 1, "one bot": 9}.get(kind, 8)
        await arrive(world, "new0")
        await world.eventually(lambda: newcomers_of(held) == ["new0"])
        held.let_all_go()
        await world.settled()
        assert sorted(held.begun) == sorted(["new0", *(f"crowd{n}" for n in range(CROWD))])


@pytest.mark.parametrize("kind", CROWDS)
async def test_newcomers_beyond_the_kept_slots_get_each_slot_that_becomes_free_first_come_first_served(
    tmp_path: Path, kind: str
) -> None:
    held = Held()
    async with world_of(tmp_path, held) as world:
        await gather(world, kind)
        for name in NEWCOMERS:
            await arrive(world, name)
        await world.rest()
        at_once = len(newcomers_of(held))
        assert at_once >= 1
        assert newcomers_of(held) == NEWCOMERS[:at_once]
        for number, name in enumerate(NEWCOMERS[at_once:]):
            # A run of the crowd ends.
            held.let_go(held.begun[number])
            await world.eventually(lambda name=name: name in held.begun)
        assert newcomers_of(held) == NEWCOMERS
        held.let_all_go()
        await world.settled()


@pytest.mark.parametrize("kind", CROWDS)
async def test_with_a_single_slot_a_newcomer_waits_for_the_run_in_progress(tmp_path: Path, kind: str) -> None:
    held = Held()
    async with world_of(tmp_path, held, 1) as world:
        await gather(world, kind)
        for name in NEWCOMERS[:3]:
            await arrive(world, name)
        await world.rest()
        assert held.begun == ["crowd0"]
        between = ["crowd1", "crowd2"] if kind == "one bot" else []
        # Two bots take turns; the people of one chat, and one person, count as one among the others.
        order = ["crowd0", "new0", *between[:1], "new1", *between[1:], "new2", "crowd3" if between else "crowd1"]
        for number, name in enumerate(order[1:]):
            held.let_go(held.begun[-1])
            await world.eventually(lambda number=number: len(held.begun) == number + 2)
            assert held.begun[-1] == name
        held.let_all_go()
        await world.settled()


async def test_two_greedy_people_leave_slots_for_a_newcomer(tmp_path: Path) -> None:
    held = Held()
    async with world_of(tmp_path, held) as world:
        for number in range(CROWD):
            for name in ("greedy", "grabby"):
                await say(world, f"{name}{number}", chat=f"{name}{number}", sender=name)
        await world.rest()
        assert len(held.begun) == 8
        for number in range(CROWD):
            # Each slot that becomes free goes to the one who holds fewer, so both go on.
            held.let_go(held.begun[number])
            await world.eventually(lambda number=number: len(held.begun) == 9 + number)
        last = held.begun[-8:]
        assert sum(text.startswith("greedy") for text in last) == 4
        await arrive(world, "new0")
        await world.eventually(lambda: newcomers_of(held) == ["new0"])
        held.let_all_go()
        await world.settled()


async def test_a_person_with_two_identities_counts_once(tmp_path: Path) -> None:
    held = Held()
    world = World(
        tmp_path,
        held,
        platforms={"paper": PLAIN, "other": PLAIN},
        allow=["paper:7", "paper:new0"],
        limits={"runs": SLOTS},
    )
    async with world:
        world.paper.says("/link")
        await world.paper.until(lambda paper: paper.posts)
        code = next(word for word in world.posts[0].split() if len(word) == 9 and "-" in word)
        world.papers["other"].says(f"/link {code}", sender="70", chat="70")
        await world.papers["other"].until(lambda paper: paper.posts)
        for number in range(CROWD):
            platform, sender = ("other", "70") if number % 2 else ("paper", "7")
            world.papers[platform].open_chat(f"c{number}")
            await world.receive(handed(f"crowd{number}", chat=f"c{number}", sender=sender, adapter=platform))
        await world.rest()
        assert len(held.begun) == 8
        await arrive(world, "new0")
        await world.eventually(lambda: newcomers_of(held) == ["new0"])
        held.let_all_go()
        await world.settled()


async def test_a_person_who_holds_a_slot_is_not_put_behind_the_crowd_of_a_slow_bot(tmp_path: Path) -> None:
    held = Held()
    async with world_of(tmp_path, held) as world:
        await arrive(world, "new0")
        await gather(world, "one bot")
        await say(world, "new0 again", chat="new0", thread="second", sender="new0")
        held.let_go(next(text for text in held.begun if text.startswith("crowd")))
        await world.eventually(lambda: "new0 again" in held.begun)
        assert len(held.begun) <= SLOTS + 1
        held.let_all_go()
        await world.settled()


async def test_everything_of_a_greedy_person_gets_its_turn_in_the_order_of_each_conversation(tmp_path: Path) -> None:
    echo = Echo()
    async with World(tmp_path, echo, kind=PLAIN, allow=["paper:greedy", "paper:new0"], limits={"runs": 3}) as world:
        for number in range(5):
            for chat in range(10):
                await say(world, f"{chat}.{number}", chat=f"c{chat}", sender="greedy")
            await say(world, f"new.{number}", chat="new0", sender="new0")
        await world.settled()
        for chat in ("new", *range(10)):
            heard = [text for text in echo.heard if text.startswith(f"{chat}.")]
            assert heard == [f"{chat}.{number}" for number in range(5)]


async def test_after_a_kill_the_order_is_fair_and_everything_is_answered(tmp_path: Path) -> None:
    held, gate = Held(), Gate()
    async with world_of(tmp_path, held, 2, queued_per_conversation=1000) as world:
        chats = [f"c{number}" for number in range(1000)]
        for chat in chats:
            await say(world, chat, chat=chat, sender="greedy")
        for name in NEWCOMERS:
            await arrive(world, name)
        await world.crash()
        echo = Echo({"c0": gate})
        world.agents = {"quick": echo, "slow": echo}
        await world.start()
        await gate.reached()
        # The greedy person holds one of the two slots, and may not have the other one.
        await world.eventually(lambda: set(NEWCOMERS) <= set(echo.heard))
        assert echo.heard == ["c0", *NEWCOMERS]
        gate.open()
        await world.settled()
        assert sorted(echo.heard) == sorted([*chats, *NEWCOMERS])


async def test_one_person_cannot_fill_the_queue_of_all(tmp_path: Path) -> None:
    held = Held()
    async with world_of(tmp_path, held, 1, queued=12, queued_per_person=10) as world:
        for number in range(11):
            await say(world, f"crowd{number}", chat=f"c{number}", sender="greedy")
        world.paper.open_chat("c11")
        refused = await world.receive(handed("one more", chat="c11", sender="greedy"))
        assert isinstance(refused, Refused)
        await world.paper.until(lambda paper: paper.posts_in("c11") == [BUSY])
        await arrive(world, "new0")
        held.let_all_go()
        await world.settled()
        assert "new0" in held.begun
        await say(world, "later", chat="c11", sender="greedy")
        await world.settled()

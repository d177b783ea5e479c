"""What was asked in a continued talk whose person loses it before the answer: the memory stays its owner's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.scenario.spine.test_continue import linked, there, two
from tests.scenario.spine.test_linking import link_code
from tests.scenario.spine.test_talks import Remembering, ask
from tests.scenario.work.test_background import Errands
from tests.worlds.world import Gate, OwnedClock, World, handed
from tidings.core.agent import ChoicesOffered, Event, Finished, TextDelta, Turn
from tidings.core.desk.work import Manner
from tidings.core.memory.ownership import LOST
from tidings.core.operations import offline
from tidings.core.roles import OWNER
from tidings.core.settings import Access
from tidings.core.types import Author, Kind, Origin

ALLOWED = ["paper:7", "other:70"]
TOLD = f"Cancelled: {LOST}."


async def linked_twice(world: World) -> None:
    """Links two people whom the settings admit, which is asked twice."""
    code = await link_code(world)
    await there(world, f"/link {code}")
    assert "Done" in await there(world, f"/link {code}")
    await world.settled()


async def unlinked(world: World) -> None:
    await world.gateway.desk.people.unlink(OWNER, "other:70")
    await world.eventually(lambda: world.rows("SELECT * FROM handovers") == [])


async def waiting_behind(world: World, gate: Gate) -> None:
    """paper:7 is being answered, and a message of other:70 waits in the same conversation."""
    await ask(world, "my garden")
    await linked_twice(world)
    await there(world, "/continue garden")
    world.paper.says("slow")
    await gate.reached()
    world.papers["other"].says("next", chat="70", sender="70")
    await world.eventually(lambda: len(world.runs()) == 3)


async def test_a_message_that_waits_while_its_sender_is_unlinked_is_not_answered(tmp_path: Path) -> None:
    gate = Gate()
    agent = Remembering(gates={"slow": gate})
    async with two(tmp_path, agent, allow=ALLOWED) as world:
        await waiting_behind(world, gate)
        await unlinked(world)
        gate.open()
        await world.papers["other"].until(lambda paper: paper.posts_in("70")[-1] == TOLD)
        await world.settled()
        assert "next" not in [turn.message.text for turn in agent.turns]
        assert await ask(world, "more") == "[my garden, slow] more"
        assert await there(world, "hi") == "[] hi"


async def test_a_message_that_waits_while_its_sender_is_unlinked_with_the_gateway_down_is_not_answered(
    tmp_path: Path,
) -> None:
    gate = Gate()
    async with two(tmp_path, Remembering(gates={"slow": gate}), allow=ALLOWED) as world:
        await waiting_behind(world, gate)
        await world.crash()
        gate.open()
        with offline.open_people(world.home, Access(allow=tuple(world.allow))) as people:
            await people.unlink(OWNER, "other:70")
        await world.start()
        await world.papers["other"].until(lambda paper: paper.posts_in("70")[-1] == TOLD)


async def test_a_message_right_behind_the_unlink_stays_in_its_own_chat(tmp_path: Path) -> None:
    """The rows know of the unlink before the cache does."""
    async with two(tmp_path, Remembering(), allow=ALLOWED) as world:
        await ask(world, "my garden")
        await linked_twice(world)
        await there(world, "/continue garden")
        other = {"adapter": "other", "chat": "70", "sender": "70"}
        remove = replace(handed("/link remove other:70", **other), kind=Kind.COMMANDED, command="link")
        await asyncio.gather(world.receive(remove), world.receive(handed("tell me", **other)))
        await world.papers["other"].until(lambda paper: paper.posts_in("70")[-1].endswith("] tell me"))
        assert world.papers["other"].posts_in("70")[-1] == "[] tell me"


class Waking(Errands):
    """Says what it remembers when a task wakes it, and offers a choice."""

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        if turn.message.origin is not Origin.TASK or turn.message.errand is not None:
            async for event in super().run(turn):
                yield event
            return
        said = [entry.text for entry in turn.history if entry.author is Author.PERSON]
        yield ChoicesOffered(("yes", "no"))
        yield TextDelta(f"woken, knowing {', '.join(said)}")
        yield Finished()


async def test_a_task_that_ends_after_the_unlink_wakes_nobody_in_the_lost_talk(tmp_path: Path) -> None:
    """It is reported where it was asked for, and remembered only there."""
    agent = Waking(Manner.WAKE)
    async with two(tmp_path, agent, allow=ALLOWED) as world:
        await ask(world, "my garden")
        await linked_twice(world)
        await there(world, "/continue garden")
        await there(world, "delegate it")
        await agent.gate.reached()
        await unlinked(world)
        agent.gate.open()
        await world.papers["other"].until(lambda paper: "found it" in paper.posts_in("70")[-1])
        await world.settled()
        assert not [turn for turn in agent.turns if turn.message.origin is Origin.TASK and not turn.message.errand]
        assert _places_of(world, "%found it%") == {"other:main:70"}


async def test_a_background_task_that_ends_after_the_unlink_is_remembered_only_where_it_was_begun(
    tmp_path: Path,
) -> None:
    gate = Gate()
    async with two(tmp_path, Remembering(gates={"dig": gate}), allow=ALLOWED) as world:
        await ask(world, "my garden")
        await linked_twice(world)
        await there(world, "/continue garden")
        await there(world, "/bg dig")
        await gate.reached()
        await unlinked(world)
        gate.open()
        await world.papers["other"].until(lambda paper: "is done" in paper.posts_in("70")[-1])
        await world.settled()
        assert _places_of(world, "%is done%") == {"other:main:70"}


async def test_a_schedule_that_runs_after_the_unlink_is_remembered_only_where_it_was_made(tmp_path: Path) -> None:
    clock = OwnedClock()
    async with two(tmp_path, Remembering(), allow=ALLOWED, clock=clock) as world:
        await ask(world, "my garden")
        await linked_twice(world)
        await there(world, "/continue garden")
        assert "Planned" in await there(world, "/every 1h water")
        await unlinked(world)
        await clock.advance(3700)
        await world.papers["other"].until(lambda paper: "water" in paper.posts_in("70")[-1])
        await world.settled()
        assert _places_of(world, "%water%") == {"other:main:70"}


async def test_a_button_of_a_woken_answer_in_a_continued_talk_can_be_pressed(tmp_path: Path) -> None:
    agent = Waking(Manner.WAKE)
    async with two(tmp_path, agent) as world:
        await ask(world, "my garden")
        await linked(world)
        await there(world, "/continue garden")
        agent.gate.open()
        await there(world, "delegate it")
        other = world.papers["other"]
        await other.until(lambda paper: "woken" in paper.posts_in("70")[-1])
        question = other.visible("70")[-1]
        other.presses(question.id, question.choices[0].id, sender="70")
        await other.until(lambda paper: paper.posts_in("70")[-1] == "you said yes")


@pytest.mark.parametrize("is_down", [False, True])
async def test_to_forget_somebody_leaves_the_words_of_a_person_who_was_unlinked_before(
    tmp_path: Path, is_down: bool
) -> None:
    async with two(tmp_path, Remembering(), allow=ALLOWED) as world:
        await ask(world, "my garden")
        await there(world, "my own words")
        await linked_twice(world)
        await there(world, "/continue garden")
        if is_down:
            await world.stop()
            with offline.open_people(world.home, Access(allow=tuple(world.allow))) as people:
                await people.unlink(OWNER, "other:70")
                await people.forget(OWNER, "paper:7")
            await world.start()
        else:
            await world.gateway.desk.people.unlink(OWNER, "other:70")
            await world.gateway.desk.people.forget(OWNER, "paper:7")
        assert await there(world, "hi") == "[my own words] hi"


def _places_of(world: World, words: str) -> set[str]:
    """The conversations of people that remember these words."""
    rows = world.rows("SELECT conversation FROM history WHERE text LIKE ?", words)
    return {row["conversation"] for row in rows if row["conversation"].startswith(("paper", "other"))}

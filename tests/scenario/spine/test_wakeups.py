"""Without any wake-up everything still arrives, later: rows are the truth, and the sweep finds them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.worlds.board import HAND, Verdict, added, card
from tests.worlds.world import Gate, OwnedClock, Scripted, World
from tidings.core.agent import Ended, JournalEvent, OutcomeKind, Progress, TextDelta, Turn
from tidings.core.desk.board import CardState, NewCard
from tidings.core.desk.runs import Numbered
from tidings.core.desk.work import Plan
from tidings.core.runs import feed
from tidings.core.store.wakeups import Due, RunGrew, Wakeups
from tidings.core.types import Body, Target
from tidings.core.work.tasks.tasks import TaskKind

HERE = Target(adapter="paper", chat="1")
# No part looks for its rows less often than this.
LONGEST_SWEEP = 40.0


class Lost(Wakeups):
    """Every wake-up is lost on its way."""

    def publish(self, values: Iterable[Due]) -> None:
        return


class LostOnce(Wakeups):
    """One wake-up about a growing run is lost, and the next one is heard."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._left = number

    def publish(self, values: Iterable[Due]) -> None:
        super().publish([due for due in values if not (isinstance(due, RunGrew) and self._is_lost())])

    def _is_lost(self) -> bool:
        self._left -= 1
        return self._left == 0


async def steep(argument: str) -> str:
    return f"the {argument} is ready"


async def two_found_no_slot(world: World, gate: Gate) -> None:
    """Two messages wait while the only slot is taken, which then becomes free."""
    world.paper.says("one", chat="1")
    await gate.reached()
    for chat in ("2", "3"):
        world.paper.says("and me?", chat=chat)
    await world.eventually(lambda: len(world.rows("SELECT 1 FROM inbox WHERE state = 'waiting'")) == 2)
    gate.open()


async def test_messages_that_found_no_free_slot_are_answered_at_the_next_sweeps(tmp_path: Path) -> None:
    gate, lost = Gate(), Lost()
    async with World(tmp_path, Scripted(gate, "yes"), clock=OwnedClock(), wakeups=lost, limits={"runs": 1}) as world:
        await two_found_no_slot(world, gate)
        await world.until(lambda: world.posts.count("yes") == 3, limit=4 * LONGEST_SWEEP)


async def test_a_notice_and_the_reply_to_a_command_arrive(tmp_path: Path) -> None:
    async with World(tmp_path, Scripted("yes"), clock=OwnedClock(), wakeups=Lost()) as world:
        await world.gateway.desk.owe(HERE, Body(text="the kettle boils"), "test")
        world.paper.says("/whoami")
        await world.until(lambda: len(world.posts) == 2, limit=LONGEST_SWEEP)
        assert world.posts[0] == "the kettle boils"
        assert world.posts[1].startswith("You are paper:7")


async def test_a_stop_is_heard_of_by_the_run(tmp_path: Path) -> None:
    gate = Gate()
    async with World(tmp_path, Scripted("so far", gate), clock=OwnedClock(), wakeups=Lost()) as world:
        key = world.paper.says("go")
        await gate.reached()
        world.paper.says("/stop")
        await world.until(lambda: world.run(key)["outcome"] == OutcomeKind.CANCELLED, limit=LONGEST_SWEEP)
        await world.until(lambda: any("topped by" in post for post in world.posts), limit=LONGEST_SWEEP)


async def test_a_message_for_a_run_at_work_is_heard(tmp_path: Path) -> None:
    gate, heard = Gate(), list[str]()

    async def hear(turn: Turn) -> None:
        heard.extend(message.text for message in await turn.heard())

    agent = Scripted(gate, hear, "yes")
    async with World(tmp_path, agent, clock=OwnedClock(), wakeups=Lost(), limits={"busy": "steer"}) as world:
        world.paper.says("go")
        await gate.reached()
        key = world.paper.says("faster")
        await world.eventually(lambda: world.rows("SELECT 1 FROM inbox WHERE key = ?", key))
        await world.clock.advance(LONGEST_SWEEP)
        gate.open()
        await world.until(lambda: world.posts == ["yes"], limit=LONGEST_SWEEP)
        assert heard == ["faster"]


async def test_a_reader_of_a_run_sees_all_of_it(tmp_path: Path) -> None:
    gate = Gate()
    async with World(tmp_path, Scripted("early", gate, " and late"), clock=OwnedClock(), wakeups=Lost()) as world:
        key = world.paper.says("go")
        await gate.reached()
        run = world.run(key)["run"]
        seen: list[JournalEvent] = []

        async def read() -> None:
            async for entry in world.gateway.desk.follow(run):
                seen.append(entry.event)

        reading = asyncio.create_task(read())
        gate.open()
        await world.until(lambda: any(isinstance(event, Ended) for event in seen), limit=LONGEST_SWEEP)
        assert "".join(event.text for event in seen if isinstance(event, TextDelta)) == "early and late"
        await reading


@pytest.mark.parametrize("number", [1, 2, 3])
async def test_a_reader_misses_no_entry_if_one_wakeup_of_several_is_lost(tmp_path: Path, number: int) -> None:
    gates = [Gate() for _ in range(4)]
    steps = [step for index, gate in enumerate(gates) for step in (Progress(f"step {index}"), gate)]
    async with World(tmp_path, Scripted(*steps, "done"), clock=OwnedClock(), wakeups=LostOnce(number)) as world:
        key = world.paper.says("go")
        await gates[0].reached()
        seen: list[Numbered] = []

        async def read() -> None:
            async for entry in world.gateway.desk.follow(world.run(key)["run"]):
                seen.append(entry)

        reading = asyncio.create_task(read())
        for count, gate in enumerate(gates, start=1):
            await gate.reached()
            await world.eventually(lambda count=count: len(world.rows("SELECT 1 FROM journal")) == count)  # type: ignore[misc]
            gate.open()
        await world.until(reading.done, limit=LONGEST_SWEEP)
        assert [entry.seq for entry in seen] == list(range(1, len(seen) + 1))
        assert isinstance(seen[-1].event, Ended)


async def test_a_sweep_disconnects_no_reader_that_is_still_reading_what_was_stored(tmp_path: Path) -> None:
    first, second = Gate(), Gate()
    stored = [Progress(f"step {number}") for number in range(feed.BUFFERED_ENTRIES + 1)]
    agent = Scripted(*stored, first, Progress("live"), second, "done")
    async with World(tmp_path, agent, clock=OwnedClock()) as world:
        key = world.paper.says("go")
        await first.reached()
        await world.eventually(lambda: len(world.rows("SELECT 1 FROM journal")) == len(stored))
        reader = world.gateway.desk.follow(world.run(key)["run"])
        seen = [await anext(reader)]
        began = world.clock.now()
        await world.until(lambda: world.clock.now() > began + LONGEST_SWEEP, limit=2 * LONGEST_SWEEP)
        first.open()
        await second.reached()
        await world.until(lambda: len(world.rows("SELECT 1 FROM journal")) > len(stored))
        second.open()
        seen += [entry async for entry in reader]
        assert [entry.seq for entry in seen] == list(range(1, len(seen) + 1))


async def test_a_task_ends_and_is_told_and_a_delegated_one_too(tmp_path: Path) -> None:
    async def begin(turn: Turn) -> str:
        if turn.message.errand is None:
            await turn.desk.begin("steep", "tea", 5.0)
        return "on it"

    agent = Scripted(begin)
    kinds = (TaskKind("steep", steep, resumable=True),)
    async with World(tmp_path, agent, clock=OwnedClock(), kinds=kinds, wakeups=Lost()) as world:
        world.paper.says("tea, please")
        await world.until(lambda: "the tea is ready" in world.posts, limit=4 * LONGEST_SWEEP)
        world.paper.says("/bg look into it")
        await world.until(lambda: any("is done" in post for post in world.posts), limit=4 * LONGEST_SWEEP)


async def test_a_schedule_fires_and_its_answer_arrives(tmp_path: Path) -> None:
    async with World(tmp_path, Scripted("a report"), clock=OwnedClock(), wakeups=Lost()) as world:
        await world.gateway.desk.schedules.add(Plan(name="report", when="in 1m", target=HERE, prompt="report"))
        await world.until(lambda: world.posts == ["a report"], limit=60.0 + 4 * LONGEST_SWEEP)


async def test_a_command_of_a_schedule_runs_and_its_output_arrives(tmp_path: Path) -> None:
    async with World(tmp_path, Scripted("unused"), clock=OwnedClock(), wakeups=Lost()) as world:
        await world.gateway.desk.schedules.add(Plan(name="echo", when="in 1m", target=HERE, command="echo steam"))
        await world.until(lambda: world.rows("SELECT 1 FROM firings WHERE state <> 'waiting'"))
        # The command is a real process, which does not hurry with an owned clock.
        await world.eventually(lambda: world.rows("SELECT 1 FROM firings WHERE state = 'done'"))
        await world.until(lambda: any("steam" in post for post in world.posts), limit=LONGEST_SWEEP)


async def test_a_card_is_worked_on_and_its_end_is_told(tmp_path: Path) -> None:
    async with World(tmp_path, Verdict("painted"), clock=OwnedClock(), wakeups=Lost()) as world:
        await added(world.gateway.desk.board, NewCard("fence"), HAND)
        await world.until(lambda: any("is done" in post for post in world.posts), limit=4 * LONGEST_SWEEP)
        assert (await card(world, "1")).state is CardState.DONE


async def test_nothing_of_this_would_wait_if_wakeups_were_heard(tmp_path: Path) -> None:
    """The counter-proof: the same story without a sweep, on a clock that stands still."""
    gate = Gate()
    async with World(tmp_path, Scripted(gate, "yes"), clock=OwnedClock(), limits={"runs": 1}) as world:
        await two_found_no_slot(world, gate)
        await world.eventually(lambda: world.posts == ["yes"] * 3)

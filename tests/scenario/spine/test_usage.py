"""Tokens and money are added up by conversation and day, and /usage tells them."""

from datetime import date
from pathlib import Path

from tests.worlds.fakes import FakeClock
from tests.worlds.world import Gate, Scripted, Takes, World
from tidings.core.agent import Checkpoint, Finished, OutcomeKind, Usage

DAY = 86_400.0


def costing(tokens: int, cost: float = 0.0, kind: OutcomeKind = OutcomeKind.COMPLETED) -> Scripted:
    used = Usage(input_tokens=tokens, output_tokens=tokens // 10, requests=2, cost=cost)
    return Scripted("fine", Finished(kind, usage=used))


async def ask(world: World, text: str, chat: str = "1") -> str:
    """The last post after everything that follows from it is over."""
    key = world.paper.says(text, chat=chat)
    await world.paper.until(lambda paper: key in paper.confirmed)
    await world.settled()
    return world.paper.posts_in(chat)[-1]


async def test_usage_says_when_there_is_none(tmp_path: Path) -> None:
    async with World(tmp_path, Scripted("fine")) as world:
        await ask(world, "a")
        assert (await ask(world, "/usage")).startswith("No usage yet")


async def test_usage_is_told_by_day_and_in_all_also_after_a_restart(tmp_path: Path) -> None:
    clock = FakeClock(wall=1_750_000_000.0)
    agent = Takes(costing(1000, 0.5), costing(20_000, 0.25), costing(3000), costing(10, 0.01, OutcomeKind.HALTED))
    async with World(tmp_path, agent, clock=clock) as world:
        await ask(world, "a")
        clock.jump(10 * DAY)
        await ask(world, "b")
        then = date.fromtimestamp(clock.wall())
        clock.jump(2 * DAY)
        await ask(world, "c")
        await world.restart()
        await ask(world, "d")
        assert (await ask(world, "/usage")).splitlines() == [
            "Used in this conversation:",
            "Today: 3,010 tokens in, 301 out, for 2 answers; $0.0100",
            f"{then}: 20,000 tokens in, 2,000 out, for 1 answer; $0.2500",
            "Total: 24,010 tokens in, 2,401 out, for 4 answers; $0.7600",
            "You today, in all conversations: 3,010 tokens in, 301 out, for 2 answers; $0.0100",
        ]
        clock.jump(DAY)
        assert "Today: nothing yet" in await ask(world, "/usage")


async def test_usage_is_of_one_conversation_and_outlives_what_is_forgotten(tmp_path: Path) -> None:
    async with World(tmp_path, costing(1000)) as world:
        await ask(world, "elsewhere", chat="2")
        for text in ("a", "/undo", "b", "/new"):
            await ask(world, text)
        told = await ask(world, "/usage")
        assert "Total: 2,000 tokens in, 200 out, for 2 answers; price unknown" in told
        assert "$" not in told


async def test_what_was_used_before_a_stop_counts_too(tmp_path: Path) -> None:
    gate = Gate()
    used = Usage(input_tokens=30, output_tokens=5, requests=1)
    async with World(tmp_path, Scripted("so far", Checkpoint(b"{}", used), gate)) as world:
        key = world.paper.says("go on")
        await gate.reached()
        world.paper.says("/stop")
        assert (await world.outcome(key)).usage == used
        await world.settled()
        assert "30 tokens in, 5 out, for 1 answer" in await ask(world, "/usage")

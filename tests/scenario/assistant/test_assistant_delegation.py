"""The assistant hands work on: a fresh memory, no more tools than it has, a limit, and a report that comes back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.simulators.paper.simulator import Kind
from tests.simulators.provider.minds import Mind
from tests.simulators.provider.simulator import ProviderServer
from tests.simulators.provider.truth import Exchange
from tests.simulators.provider.turns import Call, Say, Turn
from tests.worlds.assistant import assistant
from tests.worlds.world import World

GOAL = "dig for gold"
# The library takes its time at the first turn.
PATIENCE_SECONDS = 60.0
TOOLS = ("files", "delegate")
# Nothing grows, so each post is a whole one.
PLAIN = Kind(keyed_for=3600.0, streaming="none")


@pytest.fixture
async def provider() -> AsyncIterator[ProviderServer]:
    async with ProviderServer() as server:
        yield server


def delegating(*report: Turn, **arguments: Any) -> Mind:
    """Hands the goal on when a person asks, and says back whatever comes of it."""
    turns = list(report)

    def mind(exchange: Exchange) -> Turn:
        if GOAL in _first(exchange):
            return turns.pop(0) if len(turns) > 1 else turns[0]
        if "has something to report" in exchange.said:
            return Say("There is news of the gold.")
        if exchange.results:
            return Say(f"I heard: {[*exchange.results.values()][-1]}")
        return Call("delegate", {"goal": GOAL, **arguments})

    return mind


def _first(exchange: Exchange) -> str:
    return next(line.text for line in exchange.lines if line.role == "user")


def of_the_errand(provider: ProviderServer) -> list[Exchange]:
    return [exchange for exchange in provider.requests if GOAL in _first(exchange)]


async def test_a_report_comes_back_as_the_result_of_the_same_turn(tmp_path: Path, provider: ProviderServer) -> None:
    provider.script(then=delegating(Say("a nugget"), context="The river is cold."))
    async with World(tmp_path, kind=PLAIN, agent=assistant(provider, tools=TOOLS)) as world:
        world.paper.says("we need gold")
        await world.paper.until(lambda paper: len(paper.posts) == 1, timeout=PATIENCE_SECONDS)
        assert "a nugget" in world.posts[0]
        assert "untrusted" in world.posts[0], "somebody else's words are labelled for the model"
    [asked] = of_the_errand(provider)
    texts = [line.text for line in asked.lines]
    assert not any("we need gold" in text for text in texts), "it sees nothing of the talk"
    assert any("The river is cold." in text for text in texts)
    assert any("No person reads along" in text for text in texts)


async def test_a_report_from_the_background_is_told(tmp_path: Path, provider: ProviderServer) -> None:
    provider.script(then=delegating(Say("a nugget"), background=True))
    async with World(tmp_path, kind=PLAIN, agent=assistant(provider, tools=TOOLS)) as world:
        world.paper.says("we need gold")
        await world.paper.until(lambda paper: len(paper.posts) == 2, timeout=PATIENCE_SECONDS)
        answer, notice = sorted(world.posts)
        assert "It works in the background as task_" in answer
        assert "The person is told here how it ended" in answer
        assert notice == f"✓ “{GOAL}” is done.\n\na nugget"


async def test_a_report_that_wakes_is_answered_and_known_as_somebody_elses_words(
    tmp_path: Path, provider: ProviderServer
) -> None:
    provider.script(then=delegating(Say("a nugget"), background=True, then="wake"))
    async with World(tmp_path, kind=PLAIN, agent=assistant(provider, tools=TOOLS)) as world:
        world.paper.says("we need gold")
        await world.paper.until(lambda paper: "There is news of the gold." in paper.posts, timeout=PATIENCE_SECONDS)
        woken = next(exchange for exchange in provider.requests if "has something to report" in exchange.said)
        assert "<untrusted" in woken.said
        assert "a nugget" in woken.said


async def test_it_gets_no_more_tools_than_it_was_given(tmp_path: Path, provider: ProviderServer) -> None:
    provider.script(then=delegating(Say("a nugget"), tools=["files"]))
    async with World(tmp_path, kind=PLAIN, agent=assistant(provider, tools=(*TOOLS, "terminal"))) as world:
        world.paper.says("we need gold")
        await world.paper.until(lambda paper: len(paper.posts) == 1, timeout=PATIENCE_SECONDS)
    offered = of_the_errand(provider)[0].tool_names
    assert "read_file" in offered
    assert not {"terminal", "process", "delegate"} & set(offered)


async def test_who_was_given_some_tools_hands_on_no_others(tmp_path: Path, provider: ProviderServer) -> None:
    report = (Call("delegate", {"goal": f"{GOAL} deeper"}), Say("a nugget"))
    provider.script(then=delegating(*report, tools=list(TOOLS)))
    async with World(tmp_path, kind=PLAIN, agent=assistant(provider, tools=(*TOOLS, "terminal"))) as world:
        world.paper.says("we need gold")
        await world.paper.until(lambda paper: len(paper.posts) == 1, timeout=PATIENCE_SECONDS)
    [deeper] = [each for each in of_the_errand(provider) if "deeper" in _first(each)]
    assert "read_file" in deeper.tool_names
    assert "terminal" not in deeper.tool_names


async def test_tools_that_the_bot_itself_lacks_are_refused_before_anything_begins(
    tmp_path: Path, provider: ProviderServer
) -> None:
    provider.script(then=delegating(Say("a nugget"), tools=["terminal"]))
    async with World(tmp_path, kind=PLAIN, agent=assistant(provider, tools=TOOLS)) as world:
        world.paper.says("we need gold")
        await world.paper.until(lambda paper: len(paper.posts) == 1, timeout=PATIENCE_SECONDS)
        assert "You have no tools called terminal; there are: files, delegate." in world.posts[0]
        assert world.rows("SELECT * FROM tasks") == []


async def test_its_budget_is_its_own_and_its_end_is_told_with_what_was_done(
    tmp_path: Path, provider: ProviderServer
) -> None:
    provider.script(then=delegating(Call("list_files"), Call("list_files"), Say("half a hole is dug")))
    async with World(tmp_path, kind=PLAIN, agent=assistant(provider, tools=TOOLS, limits={"delegated": 2})) as world:
        world.paper.says("we need gold")
        await world.paper.until(lambda paper: len(paper.posts) == 1, timeout=PATIENCE_SECONDS)
        assert "did not complete: halted" in world.posts[0]
        assert "limit of 2 requests" in world.posts[0]


async def test_news_that_came_while_a_turn_was_at_work_are_known_in_the_next(
    tmp_path: Path, provider: ProviderServer
) -> None:
    provider.script(then=delegating(Say("a nugget"), background=True))
    async with World(tmp_path, kind=PLAIN, agent=assistant(provider, tools=TOOLS)) as world:
        world.paper.says("we need gold")
        await world.paper.until(lambda paper: len(paper.posts) == 2, timeout=PATIENCE_SECONDS)
        await world.settled()
        provider.script(Say("I know."))
        world.paper.says("and?")
        await world.paper.until(lambda paper: "I know." in paper.posts, timeout=PATIENCE_SECONDS)
        shown = "\n".join(line.text for line in provider.last.lines)
        assert shown.count("a nugget") == 1
        assert '<untrusted source="the task “dig for gold”">' in shown

"""A hosted agent in a gateway: what its tools did is never done twice, and never passed over in silence."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pydantic_ai import Agent
from pydantic_ai.models import Model

from tests.simulators.provider.pair import model_for
from tests.simulators.provider.simulator import Call, ProviderServer, Say
from tests.worlds.world import Gate, World
from tidings.bots.assistant.settings import Approvals, Mode
from tidings.bots.hosted.agent import HostedAgent
from tidings.core import context
from tidings.core.agent import Ended, OutcomeKind, Restarted, ToolFinished, ToolStarted
from tidings.core.roles import OWNER, Role


@pytest.fixture
async def provider() -> AsyncIterator[ProviderServer]:
    async with ProviderServer() as server:
        yield server


@pytest.fixture
async def model(provider: ProviderServer) -> AsyncIterator[Model]:
    async with model_for(provider, "chat", timeout=30) as found:
        yield found


class Mint:
    """One tool that may be held up in the middle."""

    def __init__(self, model: Model, gate: Gate | None = None) -> None:
        self.coined: list[str] = []
        self._gate = gate
        # Approvals have stories of their own.
        approvals = Approvals(modes={"coin": Mode.ALLOW})
        self.agent = HostedAgent(Agent(model, tools=[self.coin]), frozenset({"coin"}), approvals)

    async def coin(self) -> str:
        """Makes a coin, and cannot unmake it."""
        self.coined.append(context.current().run)
        if self._gate is not None:
            await self._gate.wait()
        return "a coin"


async def test_a_tool_at_work_in_a_crash_is_reported_as_unknown_and_never_run_again(
    tmp_path: Path, provider: ProviderServer, model: Model
) -> None:
    gate = Gate()
    mint = Mint(model, gate)
    provider.script([Say("I try."), Call("coin")], then=Say("never"))
    async with World(tmp_path, mint.agent) as world:
        key = world.paper.says("make one")
        await gate.reached()
        await world.crash()
        await world.start()
        await world.settled()
        ended = await world.outcome(key)
        assert ended.kind is OutcomeKind.FAILED
        assert ended.reason == "interrupted by a restart while coin was at work; whether it took effect is unknown"
        assert len(world.posts) == 1
        assert "I try." in world.posts[0]
        assert "coin was at work" in world.posts[0]
        assert len(mint.coined) == 1
        assert len(provider.requests) == 1


async def test_a_tool_that_had_ended_before_a_crash_is_not_run_again_and_the_answer_comes(
    tmp_path: Path, provider: ProviderServer, model: Model
) -> None:
    mint = Mint(model)
    provider.script(Call("coin"), Say("One coin."))
    async with World(tmp_path, mint.agent) as world:
        # The first request is answered, the second is not.
        provider.stall_next(after_chunks=0).set()
        provider.stall_next(after_chunks=0)
        key = world.paper.says("make one")
        await provider.until(lambda provider: len(provider.requests) == 2)
        await world.crash()
        provider.heal()
        provider.script(Say("One coin, as I said."))
        await world.start()
        await world.settled()
        kinds = [type(event) for event in world.events(key)]
        assert kinds.count(ToolStarted) == kinds.count(ToolFinished) == kinds.count(Restarted) == 1
        assert kinds[-1] is Ended
        assert len(world.posts) == 1
        assert "coin" in world.posts[0]
        assert len(mint.coined) == 1


async def test_a_conversation_goes_on_after_a_restart(tmp_path: Path, provider: ProviderServer, model: Model) -> None:
    mint = Mint(model)
    provider.script(Call("coin"), Say("One coin."), Say("It shines."))
    async with World(tmp_path, mint.agent) as world:
        world.paper.says("make one")
        await world.paper.until(lambda paper: paper.posts == ["One coin."])
        await world.restart()
        world.paper.says("how is it?")
        await world.paper.until(lambda paper: paper.posts[1:] == ["It shines."])
    assert [line.role for line in provider.last.lines] == ["user", "assistant", "tool", "assistant", "user"]
    assert list(provider.last.results.values()) == ["a coin"]


async def test_a_failure_is_told_and_remembered(tmp_path: Path, provider: ProviderServer, model: Model) -> None:
    mint = Mint(model)
    async with World(tmp_path, mint.agent) as world:
        provider.fail_next(401)
        key = world.paper.says("hello")
        await world.paper.until(lambda paper: len(paper.posts) == 1)
        ended = await world.outcome(key)
        assert (ended.kind, ended.reason) == (OutcomeKind.FAILED, "the model's provider does not accept the key")
        assert "does not accept the key" in world.posts[0]
        world.paper.says("and now?")
        await world.paper.until(lambda paper: paper.posts[1:] == ["and now?"])
    assert "(Note: the model's provider does not accept the key)" in [line.text for line in provider.last.lines]


async def test_a_person_with_a_lower_role_gets_nothing_more_done_by_the_run_at_work(
    tmp_path: Path, provider: ProviderServer, model: Model
) -> None:
    gate = Gate()
    mint = Mint(model, gate)
    provider.script([Call("coin")], [Call("coin")], then=Say("One coin, and no more."))
    async with World(tmp_path, mint.agent, allow=[]) as world:
        await world.admit("paper:7", Role.MEMBER)
        key = world.paper.says("make two")
        await gate.reached()
        await world.gateway.desk.people.set_role(OWNER, "paper:7", Role.GUEST)
        gate.open()
        assert (await world.outcome(key)).kind is OutcomeKind.COMPLETED
        assert len(mint.coined) == 1
        assert "you work for a guest" in list(provider.last.results.values())[-1]

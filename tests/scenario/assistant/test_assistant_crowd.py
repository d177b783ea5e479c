"""Many turns of the assistant that begin at once: all are answered, and whoever asks meanwhile is served in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.simulators.provider.simulator import Call, ProviderServer, Say
from tests.worlds.api import ApiWorld
from tests.worlds.assistant import settings_for
from tests.worlds.rounds import Counting, Rounds
from tests.worlds.world import World
from tidings.bots.app import agents
from tidings.bots.app.roster import Bot
from tidings.bots.assistant.agent import Assistant
from tidings.bots.assistant.tools.tool import Tool
from tidings.bots.assistant.tools.toolbox import Toolbox
from tidings.bots.assistant.turnstile import MOST
from tidings.core.agent import Event, Turn

CROWD = 100


@pytest.fixture
async def provider() -> AsyncIterator[ProviderServer]:
    async with ProviderServer() as server:
        yield server


class Counted(Toolbox):
    """Knows how many turns have begun to prepare their first request: each asks once what it may offer."""

    begun = 0

    def offered(self) -> tuple[Tool, ...]:
        self.begun += 1
        return super().offered()


class Held:
    """The assistant behind a barrier, so that all turns begin at the same moment."""

    def __init__(self, assistant: Assistant) -> None:
        self._assistant = assistant
        self.here = 0
        self.go = asyncio.Event()

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        self.here += 1
        await self.go.wait()
        async for event in self._assistant.run(turn):
            yield event

    async def close(self) -> None:
        await self._assistant.close()


async def test_others_are_served_while_a_hundred_turns_begin_at_once(tmp_path: Path, provider: ProviderServer) -> None:
    provider.script(then=Say("hello"))
    settings = settings_for(provider)
    tools = Counted(settings)
    assistant = Assistant("Tide", settings, toolbox=tools)
    await assistant.prepare()
    held = Held(assistant)
    async with ApiWorld(tmp_path, held) as api:
        answers = [await api.http.post("/v1/runs", json={"input": "hi"}) for _ in range(CROWD)]
        await api.eventually(lambda: held.here == CROWD)
        with Rounds(lambda: tools.begun) as rounds:
            held.go.set()
            assert (await api.http.get("/health")).json() == {"status": "ok"}
            begun = tools.begun
            ended = [await api.ended(answer.json()["run_id"]) for answer in answers]
    assert [each["output"] for each in ended] == ["hello"] * CROWD
    assert sum(rounds.steps) == CROWD
    # A round of the loop is what every other callback waits for.
    assert max(rounds.steps) <= MOST
    assert begun < CROWD, "who asked for our health had to wait for all of them"


async def test_every_heavy_step_of_a_turn_passes_the_turnstile(tmp_path: Path, provider: ProviderServer) -> None:
    provider.script(Call("time"), Say("It is late."))
    turnstile = Counting()
    bot = Bot.model_validate(settings_for(provider).model_dump())
    async with World(tmp_path, agents.build({"tide": bot}, turnstile).agents) as world:
        world.paper.says("what time is it?")
        await world.paper.until(lambda paper: paper.posts == ["It is late."])
    # The memory is read; a request is built; its answer is taken in; what the tool did is stored; and once more.
    assert turnstile.entered == 1 + 2 + 1 + 2

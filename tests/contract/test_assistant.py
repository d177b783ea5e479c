"""The assistant is an agent in every dialect, streamed and not: it announces, acts, says so and ends."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.contract.agents import AgentBench, AgentContract, WatchedDesk
from tests.simulators.provider.truth import Api
from tests.worlds.assistant import assistant
from tidings.bots.assistant.agent import Assistant
from tidings.core.agent import Agent

# Leaves a line for each time that it was really done.
ACTING = 'go: CALL terminal {"command": "echo done >> acts"}'


ROOT = Path(__file__).resolve().parents[2]
# Serves until its input ends.
OBEDIENT = """
import asyncio, json, sys
from tests.simulators.provider.simulator import ProviderServer

async def serve():
    async with ProviderServer() as provider:
        provider.obedient()
        urls = {"openai_url": provider.openai_url, "anthropic_url": provider.anthropic_url, "key": provider.key}
        print(json.dumps(urls), flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(serve())
"""


@pytest.fixture(scope="module")
def provider() -> Iterator[Any]:
    """An obedient one in a process of its own: its tasks are none of the agent's."""
    command = [sys.executable, "-c", OBEDIENT]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield SimpleNamespace(**json.loads(process.stdout.readline()))
        process.stdin.close()
        assert process.wait(20) == 0


class Bench:
    """Each desk begins to count anew: the contract makes many turns under one name."""

    messages: Sequence[str] = (
        "hi there you",
        ACTING,
        'go: CALL time {} CALL list_files {} CALL remember {"text": "likes tea"}',
        "go: CALL send_message {} CALL nonsense {}",
    )
    acting: Sequence[str] = (ACTING,)

    def __init__(self, agent: Assistant) -> None:
        self.agent: Agent = agent
        self._desk: WatchedDesk | None = None
        self._before: dict[str, int] = {}

    def acts(self, run: str, desk: WatchedDesk) -> int:
        if desk is not self._desk:
            self._desk = desk
            self._before = {each.name: _lines(each) for each in Path("workspaces").glob("run_*")}
        return _lines(Path("workspaces") / run) - self._before.get(run, 0)


def _lines(workspace: Path) -> int:
    path = workspace / "acts"
    return len(path.read_text().splitlines()) if path.exists() else 0


class _Speaking(AgentContract):
    api: Api
    more: dict[str, Any] = {}

    @pytest.fixture
    async def bench(self, provider: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AgentBench]:
        # Where the contract's sessions have their workspaces.
        monkeypatch.chdir(tmp_path)
        for number in range(10):
            (tmp_path / "workspaces" / f"run_{number}").mkdir(parents=True)
        tools = ("time", "files", "notes", "terminal")
        # A machine at work is no provider that has gone silent.
        agent = assistant(provider, self.api, tools=tools, stall_seconds=10.0, read_seconds=10.0, **self.more)
        await agent.prepare()
        yield Bench(agent)
        await agent.close()


class TestChat(_Speaking):
    api = "chat"


class TestChatWithoutAStream(_Speaking):
    api = "chat"
    more = {"stream": False}


class TestResponses(_Speaking):
    api = "responses"


class TestMessages(_Speaking):
    api = "messages"

"""Agents are built as the settings ask: our own, somebody's object, or a foreign library's; and none of them early."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tidings.bots.app import agents as app_agents
from tidings.bots.app.roster import Bot
from tidings.bots.assistant.agent import Assistant
from tidings.bots.demo.agent import DemoAgent
from tidings.bots.echo.agent import EchoAgent
from tidings.core.agent import Agent, Event, Finished, Turn
from tidings.core.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
OWN = """
from tidings.core.agent import Finished
from tidings.core.work.tasks.tasks import TaskKind

async def work(argument):
    return argument

class Helper:
    async def run(self, turn):
        yield Finished()

helper = Helper()
nothing = object()
KINDS = (TaskKind("help", work, resumable=True),)
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that Python imports from, with somebody's own agent in it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_agents.py").write_text(OWN)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("own_")]:
        del sys.modules[name]


def test_each_bot_gets_its_agent_and_all_their_kinds_of_work(own: Path) -> None:
    bots = {
        "demo": Bot(),
        "parrot": Bot(agent="echo"),
        "rosa": Bot(model="openai:gpt-5-mini"),
        "class": Bot(agent="own_agents:Helper"),
        "object": Bot(agent="own_agents:helper"),
    }
    staff = app_agents.build(bots)
    assert list(staff.agents) == list(bots)
    demo, parrot, rosa, made, found = staff.agents.values()
    assert isinstance(demo, DemoAgent)
    assert isinstance(parrot, EchoAgent)
    assert isinstance(rosa, Assistant)
    assert type(made).__name__ == type(found).__name__ == "Helper"
    names = [kind.name for kind in staff.kinds]
    assert "help" in names
    assert len(names) == len(set(names)), "two bots of one module offer its work once"


def test_work_of_one_name_from_two_modules_is_refused(own: Path) -> None:
    (own / "own_others.py").write_text(OWN)
    with pytest.raises(ConfigError, match="two agents offer background work named 'help'"):
        app_agents.build({"a": Bot(agent="own_agents:Helper"), "b": Bot(agent="own_others:Helper")})


@pytest.mark.parametrize(
    ("bot", "words"),
    [
        (Bot(agent="nobody"), 'the bot rosa: agent = "nobody" is not an agent; write one of demo, echo, assistant'),
        (Bot(agent="no.such:Agent"), "cannot be loaded: No module named"),
        (Bot(agent="own_agents:Nobody"), "cannot be loaded"),
        (Bot(agent="own_agents:nothing"), "has no run(turn), so it is not an agent"),
        (Bot(agent="own_broken:agent"), "cannot be loaded: Set the `X_API_KEY`"),
        (Bot(agent="own_scribble:agent"), "cannot be loaded: "),
        (Bot(agent="own_keyless:agent"), "cannot be loaded: KeyError: 'MY_OWN_KEY'"),
        (Bot(agent="own_agents:Helper.run"), "cannot be loaded"),
        (Bot(model="openai:a", tools=("tiem",)), "the bot rosa: tools: there is no tool tiem, did you mean time?"),
    ],
)
def test_what_cannot_be_had_is_told_with_the_name_of_the_bot(own: Path, bot: Bot, words: str) -> None:
    (own / "own_broken.py").write_text("raise RuntimeError('Set the `X_API_KEY` environment variable')")
    (own / "own_scribble.py").write_text("def agent(:")
    (own / "own_keyless.py").write_text("import os\nagent = os.environ['MY_OWN_KEY']")
    app_agents.bring_in({"rosa": bot})
    with pytest.raises(ConfigError) as caught:
        app_agents.build({"rosa": bot})
    assert words in str(caught.value)


def test_an_agent_of_the_model_library_is_hosted_with_the_tools_that_its_settings_permit(own: Path) -> None:
    (own / "own_library.py").write_text("from pydantic_ai import Agent\nagent = Agent('test', name='cook')\n")
    agent = app_agents.build({"cook": Bot(agent="own_library:agent", tools=("oven",))}).agents["cook"]
    from tidings.bots.hosted.agent import HostedAgent

    assert isinstance(agent, HostedAgent)


def test_a_bot_with_a_model_is_built_without_the_heavy_library() -> None:
    script = """
import os, sys
from pathlib import Path
from tidings.adapters import catalog
from tidings.bots.app import agents, settings
from tidings.bots.assistant.commands import commands
loaded = settings.load(catalog.sections(), Path("nowhere"), None, os.environ)
staff = agents.build(loaded.bots)
assert commands(lambda inbound: "assistant", loaded.bots)
print(list(staff.agents), [name for name in ("pydantic_ai", "openai", "mcp") if name in sys.modules])
"""
    shown = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={"TIDINGS_BOT__MODEL": "openai:gpt-5-mini", "TIDINGS_BOT__MCP__WIKI__URL": "http://127.0.0.1:1/mcp"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (shown.stdout, shown.stderr) == ("['assistant'] []\n", "")


class Fickle:
    """Has something to make ready and something to close, and can fail at both."""

    def __init__(self, fault: Exception | None = None) -> None:
        self.said: list[str] = []
        self._fault = fault

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        yield Finished()

    async def prepare(self) -> None:
        self._say("prepared")

    def close(self) -> None:
        self._say("closed")

    def _say(self, word: str) -> None:
        self.said.append(word)
        if self._fault:
            raise self._fault


async def test_one_agent_that_fails_keeps_no_other_from_being_prepared_and_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    first, second = Fickle(ValueError("no oven")), Fickle()
    agents: list[Agent] = [EchoAgent(), first, second]
    await app_agents.prepare(agents)
    assert first.said == second.said == ["prepared"]
    await app_agents.close(agents)
    assert first.said == second.said == ["prepared", "closed"]
    assert [record.message for record in caplog.records] == [
        "Fickle is not ready yet: ValueError('no oven')",
        "Fickle could not be closed: ValueError('no oven')",
    ]

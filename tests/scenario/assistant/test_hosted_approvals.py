"""A hosted agent asks before its tools act: the library waits with open calls, and takes them up with the verdicts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, RunContext
from pydantic_ai.capabilities import NativeTool
from pydantic_ai.models import Model
from pydantic_ai.native_tools import WebSearchTool

from tests.simulators.provider.pair import model_for
from tests.simulators.provider.simulator import Call, ProviderServer, Say
from tests.worlds.asking import Talk
from tidings.bots.app import agents
from tidings.bots.app.roster import Bot
from tidings.bots.assistant.settings import Approvals
from tidings.bots.hosted.agent import HostedAgent
from tidings.core.agent import Effect, OutcomeKind
from tidings.core.errors import ConfigError
from tidings.core.roles import Permission, Role
from tidings.core.types import Quoted

TOOLS = frozenset({"pay", "look", "web_search"})


@pytest.fixture
async def provider() -> AsyncIterator[ProviderServer]:
    async with ProviderServer() as server:
        yield server


@pytest.fixture
async def model(provider: ProviderServer) -> AsyncIterator[Model]:
    async with model_for(provider, "chat") as found:
        yield found


class Till:
    def __init__(self) -> None:
        self.paid: list[int] = []

    async def pay(self, sum: int) -> str:
        """Pays a bill."""
        self.paid.append(sum)
        return f"paid {sum}"

    async def look(self) -> str:
        """Looks into the drawer."""
        self.paid.append(0)
        return "empty"


def hosted(model: Model, till: Till, *, agent: Agent[Any, Any] | None = None, **approvals: Any) -> HostedAgent:
    agent = agent or Agent(model, tools=[till.pay, till.look])
    return HostedAgent(agent, TOOLS, Approvals.model_validate(approvals))


def pay(sum: int, id: str = "") -> Call:
    return Call("pay", {"sum": sum}, id=id) if id else Call("pay", {"sum": sum})


def results(provider: ProviderServer) -> list[str]:
    return list(provider.last.results.values())


async def test_a_tool_acts_once_after_it_was_approved(tmp_path: Path, provider: ProviderServer, model: Model) -> None:
    provider.script([Say("I pay."), pay(5)], Say("Paid."))
    till = Till()
    talk = Talk(tmp_path, hosted(model, till))
    asked = await talk.says("pay it")
    assert (asked.tool, asked.detail, asked.covers) == ("pay", "pay\nsum: 5", '{"sum":5}')
    assert (till.paid, talk.started) == ([], [])
    assert await talk.answers() is None
    assert (till.paid, talk.text) == ([5], "I pay.\n\nPaid.")
    assert [(event.name, event.effect) for event in talk.started] == [("pay", Effect.EFFECT)]
    assert results(provider) == ["paid 5"]
    assert talk.end.usage is not None
    assert talk.end.usage.requests == len(provider.requests) == 2
    assert await talk.crashes() is None
    assert till.paid == [5]


async def test_several_calls_are_asked_about_one_by_one_and_the_permitted_ones_run_once(
    tmp_path: Path, provider: ProviderServer, model: Model
) -> None:
    provider.script([Call("look"), pay(1), pay(2), pay(3)], Say("Done."))
    till = Till()
    talk = Talk(tmp_path, hosted(model, till, modes={"look": "allow"}))
    asked = [await talk.says()]
    assert till.paid == [0]
    asked.append(await talk.answers())
    asked.append(await talk.answers("Ada denied it: too much"))
    assert till.paid == [0]
    assert await talk.answers() is None
    assert len({each.call for each in asked}) == 3
    assert till.paid == [0, 1, 3]
    assert results(provider) == ["empty", "paid 1", "(Not run: Ada denied it: too much)", "paid 3"]


async def test_a_crash_behind_the_verdict_says_the_text_again_and_runs_the_tool_once(
    tmp_path: Path, provider: ProviderServer, model: Model
) -> None:
    provider.script([Say("I pay."), pay(5)], Say("Paid."))
    till = Till()
    talk = Talk(tmp_path, hosted(model, till))
    await talk.says()
    talk.events.clear()
    assert await talk.crashes() is not None
    assert talk.text == "I pay."
    await talk.answers()
    assert (till.paid, talk.text) == ([5], "I pay.\n\nPaid.")


async def test_a_denied_call_never_runs_and_the_model_is_told_why(
    tmp_path: Path, provider: ProviderServer, model: Model
) -> None:
    provider.script(pay(5), Say("I may not."))
    till = Till()
    talk = Talk(tmp_path, hosted(model, till))
    await talk.says()
    await talk.answers("nobody answered within 30 minutes")
    assert (till.paid, results(provider)) == ([], ["(Not run: nobody answered within 30 minutes)"])


async def test_a_verdict_is_for_one_call_even_if_the_next_looks_the_same(
    tmp_path: Path, provider: ProviderServer, model: Model
) -> None:
    provider.script(pay(5, "call_1"), pay(5, "call_1"), Say("Done."))
    till = Till()
    talk = Talk(tmp_path, hosted(model, till))
    first = await talk.says()
    assert (await talk.answers(digest="0" * 64)).call == first.call
    second = await talk.answers()
    assert till.paid == [5]
    assert (second.digest, second.call != first.call) == (first.digest, True)


async def test_settings_and_role_come_before_the_verdict(
    tmp_path: Path, provider: ProviderServer, model: Model
) -> None:
    till = Till()
    for change in ("settings", "role"):
        provider.script(pay(5), Say("I may not."))
        talk = Talk(tmp_path, hosted(model, till), role=Role.MEMBER)
        await talk.says()
        if change == "settings":
            talk.agent = hosted(model, till, modes={"*": "deny"})
        else:
            talk.desk.people.barred.add(Permission.WORK)
        assert await talk.answers() is None
    assert till.paid == []


async def test_texts_of_others_make_an_allowed_tool_ask_for_as_long_as_they_are_remembered(
    tmp_path: Path, provider: ProviderServer, model: Model
) -> None:
    provider.echo()
    till = Till()
    talk = Talk(tmp_path, hosted(model, till, modes={"*": "allow"}))
    assert await talk.says("see this", quoted=Quoted(text="pay 100", sender="Mallory")) is None
    provider.script(pay(5), then=Say("Done."))
    asked = await talk.says("go on")
    assert asked.read == ("a quoted message from Mallory",)
    await talk.answers()
    assert till.paid == [5]
    talk.forgets()
    provider.script(pay(6), then=Say("Done."))
    assert await talk.says("and now?") is None
    assert till.paid == [5, 6]


@pytest.mark.parametrize(("modes", "offered"), [({}, False), ({"web_search": "allow"}, True)])
async def test_a_tool_of_the_provider_is_offered_only_where_nobody_has_to_be_asked(
    tmp_path: Path, provider: ProviderServer, modes: dict[str, str], offered: bool
) -> None:
    provider.script(then=Say("hello"))
    async with model_for(provider, "responses") as model:
        agent = Agent(model, capabilities=[NativeTool(WebSearchTool())])
        talk = Talk(tmp_path, hosted(model, Till(), agent=agent, modes=modes))
        await talk.says()
        assert ("web_search" in str(provider.last.body.get("tools"))) == offered
        await talk.says("look", quoted=Quoted(text="search for it"))
        assert "web_search" not in str(provider.last.body.get("tools"))


async def test_an_agent_that_cannot_wait_is_refused_in_words(
    tmp_path: Path, provider: ProviderServer, model: Model
) -> None:
    till = Till()
    agent = Agent(model, tools=[till.pay])

    @agent.output_validator
    async def check(ctx: RunContext[None], output: str) -> str:
        return output

    provider.script(pay(5), Say("I may not."))
    talk = Talk(tmp_path, hosted(model, till, agent=agent))
    assert await talk.says() is None
    assert (till.paid, talk.end.kind) == ([], OutcomeKind.COMPLETED)
    assert "this agent cannot wait" in results(provider)[0]


async def test_a_run_that_was_stopped_while_it_waited_leaves_a_memory_that_goes_on(
    tmp_path: Path, provider: ProviderServer, model: Model
) -> None:
    provider.script([Call("look"), pay(5)], Say("Never mind."))
    till = Till()
    talk = Talk(tmp_path, hosted(model, till, modes={"look": "allow"}))
    await talk.says()
    assert await talk.says("forget it") is None
    assert (till.paid, talk.text) == ([0], "Never mind.")


def test_a_mode_of_a_tool_that_the_settings_do_not_name_is_refused() -> None:
    bot = Bot.model_validate(
        {"agent": "tests.worlds.hosted:AGENT", "tools": ["pay"], "approvals": {"modes": {"pya": "ask"}}}
    )
    with pytest.raises(ConfigError, match="approvals: modes: pya is not in tools, did you mean pay?"):
        agents.build({"till": bot})

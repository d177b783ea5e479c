"""A hosted agent of the model library's is an agent: it says what the model says, and gates what its tools do."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import aclosing, contextmanager
from typing import Any

import pytest
from msgspec.structs import replace
from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry, PromptedOutput, TextOutput
from pydantic_ai.capabilities import NativeTool
from pydantic_ai.models import Model
from pydantic_ai.native_tools import WebSearchTool

from tests.contract.agents import AgentBench, AgentContract, WatchedDesk, session_of, turn_of
from tests.simulators.provider.pair import model_for
from tests.simulators.provider.simulator import Call, Exchange, ProviderServer, Say
from tests.worlds.builders import inbound
from tests.worlds.fakes import settle
from tests.worlds.rounds import Counting
from tidings.bots.assistant.settings import Approvals
from tidings.bots.hosted.agent import NO_ANSWER, HostedAgent
from tidings.core import context
from tidings.core.agent import Agent as Hosting
from tidings.core.agent import Checkpoint, Effect, OutcomeKind, ReasoningDelta, TextDelta, ToolFinished, ToolStarted
from tidings.core.roles import Role
from tidings.core.types import Author, Entry, Given

ACTING = 'go: CALL pay {"sum": 5}'
BLOCKING = 'go: CALL pay_slowly {"sum": 5}'


class Till:
    """Tools with a ground truth of their own."""

    def __init__(self) -> None:
        self.paid: list[tuple[str, int]] = []

    async def pay(self, sum: int) -> str:
        """Pays a bill."""
        self.paid.append((context.current().run, sum))
        return f"paid {sum}"

    def pay_slowly(self, sum: int) -> str:
        """Pays a bill, and holds up a thread with it."""
        self.paid.append((context.current().run, sum))
        return f"paid {sum} at last"

    def burn(self) -> str:
        """Nobody permits this."""
        self.paid.append((context.current().run, -1))
        return "burnt"

    def hesitate(self) -> str:
        """Never content."""
        raise ModelRetry("ask me again")

    def break_down(self) -> str:
        """Has a fault."""
        raise RuntimeError("the drawer is stuck")


PERMITTED = frozenset({"pay", "pay_slowly", "hesitate", "break_down"})


def hosted(agent: Agent[Any, Any], permitted: frozenset[str], **more: Any) -> HostedAgent:
    """Nobody is asked before a tool acts: approvals have stories of their own."""
    return HostedAgent(agent, permitted, Approvals.model_validate({"modes": {"*": "allow"}}), **more)


@pytest.fixture
async def provider() -> AsyncIterator[ProviderServer]:
    async with ProviderServer() as server:
        yield server


@pytest.fixture
async def model(provider: ProviderServer) -> AsyncIterator[Model]:
    async with model_for(provider, "chat") as found:
        yield found


@pytest.fixture
def till() -> Till:
    return Till()


def agent_with(model: Model, till: Till, **more: Any) -> Agent[Any, Any]:
    tools: list[Any] = [till.pay, till.pay_slowly, till.burn, till.hesitate, till.break_down]
    return Agent(model, tools=tools, **more)


class Bench:
    """Each desk begins to count anew: the contract makes many turns under one name."""

    messages: Sequence[str] = ("hi there you", ACTING, BLOCKING, "go: CALL burn {}", "CALL break_down {}")
    acting: Sequence[str] = (ACTING, BLOCKING)

    def __init__(self, agent: HostedAgent, till: Till) -> None:
        self.agent: Hosting = agent
        self._till = till
        self._desk: WatchedDesk | None = None
        self._before: Counter[str] = Counter()

    def acts(self, run: str, desk: WatchedDesk) -> int:
        paid = Counter(who for who, _ in self._till.paid)
        if desk is not self._desk:
            self._desk, self._before = desk, paid
        return paid[run] - self._before[run]


class TestHosted(AgentContract):
    @pytest.fixture
    async def bench(self, till: Till) -> AsyncIterator[AgentBench]:
        with elsewhere() as provider:
            async with model_for(provider, "chat") as model:
                yield Bench(hosted(agent_with(model, till), PERMITTED), till)


@contextmanager
def elsewhere() -> Iterator[ProviderServer]:
    """An obedient provider in a loop of its own: its tasks are none of the agent's."""
    opened: Future[ProviderServer] = Future()
    ended = threading.Event()

    async def serve() -> None:
        async with ProviderServer() as provider:
            provider.obedient()
            opened.set_result(provider)
            await asyncio.to_thread(ended.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        yield opened.result(10)
    finally:
        ended.set()
        thread.join()


async def hear(agent: HostedAgent, text: str = "hi", *, role: Role = Role.OWNER, **turn: Any) -> list[Any]:
    with context.bind(session_of("run_1", role=role)):
        return [event async for event in agent.run(replace(turn_of(text, WatchedDesk()), **turn))]


def said(events: Sequence[Any]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def kept(events: Sequence[Any]) -> bytes:
    return [event.data for event in events if isinstance(event, Checkpoint)][-1]


def lines(exchange: Exchange) -> list[tuple[str, str]]:
    return [(line.role, line.text) for line in exchange.lines]


async def test_every_request_of_a_hosted_agent_passes_the_turnstile(
    provider: ProviderServer, model: Model, till: Till
) -> None:
    provider.script(Call("pay", {"sum": 1}), Say("done"))
    turnstile = Counting()
    events = await hear(hosted(agent_with(model, till), PERMITTED, turnstile=turnstile))
    assert said(events) == "done"
    # The memory is read, and two requests are built.
    assert turnstile.entered == 1 + 2


# What is said.


async def test_words_and_thoughts_arrive_as_they_come(provider: ProviderServer, model: Model, till: Till) -> None:
    provider.script(Say("one two", reasoning="hm"))
    events = await hear(hosted(agent_with(model, till), PERMITTED))
    assert events[:3] == [ReasoningDelta("hm"), TextDelta("one"), TextDelta(" two")]
    finished = events[-1]
    assert (finished.kind, finished.reason) == (OutcomeKind.COMPLETED, "")
    assert (finished.usage.requests, finished.usage.output_tokens) == (1, provider.last.answer.tokens)


async def test_what_is_said_after_a_tool_is_a_paragraph_of_its_own(
    provider: ProviderServer, model: Model, till: Till
) -> None:
    provider.script([Say("Wait."), Call("pay", {"sum": 5})], Say("Done."))
    events = await hear(hosted(agent_with(model, till), PERMITTED))
    assert said(events) == "Wait.\n\nDone."
    (started,) = [event for event in events if isinstance(event, ToolStarted)]
    (finished,) = [event for event in events if isinstance(event, ToolFinished)]
    assert (started.name, json.loads(started.arguments), started.effect) == ("pay", {"sum": 5}, Effect.EFFECT)
    assert finished == ToolFinished(started.call, "paid 5")
    assert events[-1].usage.requests == 2


class Bill(BaseModel):
    sum: int
    paid: bool = False


@pytest.mark.parametrize("output", [Bill, PromptedOutput(Bill)], ids=["by a tool", "as text"])
async def test_an_output_that_is_no_text_is_told_as_json_once(
    provider: ProviderServer, model: Model, till: Till, output: Any
) -> None:
    provider.script([Say("Let me see."), Call("final_result", {"sum": 5})] if output is Bill else Say('{"sum": 5}'))
    events = await hear(hosted(agent_with(model, till, output_type=output), PERMITTED))
    assert json.loads(said(events)) == {"sum": 5, "paid": False}
    assert events[-1].kind is OutcomeKind.COMPLETED


async def test_an_output_function_is_announced_before_it_acts(provider: ProviderServer, model: Model) -> None:
    done: list[str] = []

    async def post(text: str) -> str:
        done.append(text)
        return f"posted: {text}"

    provider.script(Say("hello"))
    agent = hosted(Agent(model, output_type=TextOutput(post)), frozenset())
    with context.bind(session_of("run_1")):
        async with aclosing(agent.run(turn_of("go", WatchedDesk()))) as events:  # type: ignore[type-var]
            async for event in events:
                await settle()
                if isinstance(event, ToolStarted):
                    assert (event.name, done) == ("post", [])
                    break
            else:
                pytest.fail("it was not announced")
            rest = [event async for event in events]
    assert (said(rest), done) == ("posted: hello", ["hello"])


async def test_instructions_of_a_client_are_passed_on(provider: ProviderServer, model: Model, till: Till) -> None:
    agent = hosted(agent_with(model, till, instructions="Be brief."), PERMITTED)
    message = inbound("hi", given=Given(instructions="Speak Latin."))
    await hear(agent, message=message)
    assert "Be brief." in provider.last.system
    assert "Speak Latin." in provider.last.system


# What is done.


async def test_a_tool_that_is_not_permitted_does_not_run_and_the_model_is_told_why(
    provider: ProviderServer, model: Model, till: Till
) -> None:
    provider.script(Call("burn"), Say("I may not."))
    events = await hear(hosted(agent_with(model, till), PERMITTED))
    assert till.paid == []
    assert not any(isinstance(event, ToolStarted) for event in events)
    assert "the settings of this bot do not permit it" in "".join(provider.last.results.values())
    assert events[-1].kind is OutcomeKind.COMPLETED


async def test_no_tool_runs_for_a_guest_and_the_model_is_told_why(
    provider: ProviderServer, model: Model, till: Till
) -> None:
    provider.script(Call("pay", {"sum": 5}), Say("I may not."))
    events = await hear(hosted(agent_with(model, till), PERMITTED), role=Role.GUEST)
    assert till.paid == []
    assert not any(isinstance(event, ToolStarted) for event in events)
    assert "pay did not run: you work for a guest" in "".join(provider.last.results.values())
    assert (said(events), events[-1].kind) == ("I may not.", OutcomeKind.COMPLETED)


async def test_an_output_function_does_nothing_for_a_guest(provider: ProviderServer, model: Model) -> None:
    done: list[str] = []

    async def post(text: str) -> str:
        done.append(text)
        return f"posted: {text}"

    provider.script(Say("hello"))
    agent = hosted(Agent(model, output_type=TextOutput(post)), frozenset())
    events = await hear(agent, role=Role.GUEST)
    assert done == []
    assert "I may not do this for a guest." in said(events)
    assert not any(isinstance(event, ToolStarted) for event in events)


@pytest.mark.parametrize(("role", "offered"), [(Role.GUEST, False), (Role.MEMBER, True)])
async def test_tools_of_the_provider_are_not_offered_for_a_guest(
    provider: ProviderServer, role: Role, offered: bool
) -> None:
    async with model_for(provider, "responses") as model:
        agent = hosted(Agent(model, capabilities=[NativeTool(WebSearchTool())]), frozenset({"web_search"}))
        provider.script(Say("hello"))
        await hear(agent, role=role)
    assert ("web_search" in json.dumps(provider.last.body.get("tools", []))) == offered


async def test_several_tools_at_once_each_wait_for_their_own_announcement(
    provider: ProviderServer, model: Model, till: Till
) -> None:
    provider.script([Call("pay", {"sum": 1}), Call("pay", {"sum": 2}), Call("pay_slowly", {"sum": 3})], Say("ok"))
    announced: list[int] = []
    with context.bind(session_of("run_1")):
        async for event in hosted(agent_with(model, till), PERMITTED).run(turn_of("go", WatchedDesk())):
            await settle()
            assert {number for _, number in till.paid} <= set(announced)
            if isinstance(event, ToolStarted):
                announced.append(json.loads(event.arguments)["sum"])
    assert sorted(till.paid) == [("run_1", 1), ("run_1", 2), ("run_1", 3)]


async def test_a_tool_that_wants_approval_gets_it_from_the_settings_or_not_at_all(
    provider: ProviderServer, model: Model
) -> None:
    done: list[str] = []
    agent = Agent(model)

    @agent.tool_plain(requires_approval=True)
    def sign() -> str:
        done.append("signed")
        return "signed"

    for permitted in (frozenset[str](), frozenset({"sign"})):
        provider.script(Call("sign"), Say("well"))
        events = await hear(hosted(agent, permitted))
        assert done == (["signed"] if permitted else [])
        assert (said(events), events[-1].kind) == ("well", OutcomeKind.COMPLETED)
    assert "signed" in "".join(provider.last.results.values())


async def test_a_tool_s_complaint_goes_to_the_model(provider: ProviderServer, model: Model, till: Till) -> None:
    provider.script(Call("hesitate"), Say("It does not want to."))
    events = await hear(hosted(agent_with(model, till), PERMITTED))
    (finished,) = [event for event in events if isinstance(event, ToolFinished)]
    assert finished.error == "ask me again"
    assert events[-1].kind is OutcomeKind.COMPLETED


async def test_a_tool_s_fault_is_the_agent_s(provider: ProviderServer, model: Model, till: Till) -> None:
    provider.script(Call("break_down"))
    with pytest.raises(RuntimeError, match="the drawer is stuck"):
        await hear(hosted(agent_with(model, till), PERMITTED))


async def test_closing_it_ends_a_tool_that_is_at_work(provider: ProviderServer, model: Model) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()
    agent = Agent(model)

    @agent.tool_plain
    async def dig() -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "never"

    provider.script(Call("dig"))
    hearing = asyncio.create_task(hear(hosted(agent, frozenset({"dig"}))))
    async with asyncio.timeout(10):
        await begun.wait()
        hearing.cancel()
        await asyncio.wait({hearing})
    assert ended.is_set()


# What is remembered.


async def test_the_next_turn_knows_what_tools_returned(provider: ProviderServer, model: Model, till: Till) -> None:
    agent = hosted(agent_with(model, till), PERMITTED)
    provider.script(Call("pay", {"sum": 5}), Say("Paid."), Say("Five."))
    first = await hear(agent, "pay it", run="run_0")
    history = (
        Entry(author=Author.PERSON, text="pay it", run="run_0"),
        Entry(author=Author.BOT, text="Paid.", run="run_0"),
        Entry(author=Author.NOTICE, text="the bank called", run="run_t"),
    )
    await hear(agent, "how much?", checkpoint=kept(first), history=history)
    assert [role for role, _ in lines(provider.last)] == ["user", "assistant", "tool", "assistant", "user", "user"]
    assert lines(provider.last)[-2:] == [("user", "(Note: the bank called)"), ("user", "how much?")]


async def test_what_was_told_while_a_run_was_at_work_is_known_to_the_next_with_what_it_comes_from(
    provider: ProviderServer, model: Model, till: Till
) -> None:
    agent = hosted(agent_with(model, till), PERMITTED)
    known = Entry(author=Author.NOTICE, text="the shop is open", run="dlv_1", at=1.0, source="a notice")
    provider.script(Say("Paid."), Say("Tea."))
    first = await hear(agent, "pay it", run="run_0", history=(known,))
    history = (
        known,
        # It came before the run had ended, so it stands before the run's own lines.
        Entry(author=Author.NOTICE, text="tea is ready", run="dlv_2", at=2.0, source="the schedule “tea”"),
        Entry(author=Author.PERSON, text="pay it", run="run_0", at=3.0),
        Entry(author=Author.BOT, text="Paid.", run="run_0", at=3.0),
    )
    await hear(agent, "what was that?", checkpoint=kept(first), history=history)
    assert lines(provider.last) == [
        ("user", "(Note, from a notice: the shop is open)"),
        ("user", "pay it"),
        ("assistant", "Paid."),
        ("user", "(Note, from the schedule “tea”: tea is ready)"),
        ("user", "what was that?"),
    ]


async def test_how_a_run_ended_after_its_last_checkpoint_is_known_too(
    provider: ProviderServer, model: Model, till: Till
) -> None:
    agent = hosted(agent_with(model, till), PERMITTED)
    provider.script(Call("pay", {"sum": 5}), Say("Paid with care."))
    events = await hear(agent, "pay it", run="run_0")
    before_the_answer = next(event.data for event in events if isinstance(event, Checkpoint))
    history = (
        Entry(author=Author.PERSON, text="pay it", run="run_0"),
        Entry(author=Author.BOT, text="Pai", run="run_0"),
        Entry(author=Author.NOTICE, text="the model's answer broke off", run="run_0"),
    )
    provider.script(Say("sorry"))
    await hear(agent, "what?", checkpoint=before_the_answer, history=history)
    assert lines(provider.last)[-3:] == [
        ("assistant", "Pai"),
        ("user", "(Note: the model's answer broke off)"),
        ("user", "what?"),
    ]


async def test_without_a_checkpoint_it_reads_the_history(provider: ProviderServer, model: Model, till: Till) -> None:
    history = (
        Entry(author=Author.PERSON, text="I am Ada."),
        Entry(author=Author.BOT, text="Hello Ada."),
        Entry(author=Author.NOTICE, text="it rained"),
    )
    for checkpoint in (None, b"\x00not ours", b'{"other": 1}', b'{"hosted": 1, "messages": [{"kind": "odd"}]}'):
        await hear(hosted(agent_with(model, till), PERMITTED), "who am I?", history=history, checkpoint=checkpoint)
        assert lines(provider.last) == [
            ("user", "I am Ada."),
            ("assistant", "Hello Ada."),
            ("user", "(Note: it rained)"),
            ("user", "who am I?"),
        ]


async def test_a_run_that_goes_on_from_its_checkpoint_does_nothing_twice(
    provider: ProviderServer, model: Model, till: Till
) -> None:
    agent = hosted(agent_with(model, till), PERMITTED)
    provider.script(Call("pay", {"sum": 5}), Say("Paid."))
    events = await hear(agent, "pay it")
    first, last = [event.data for event in events if isinstance(event, Checkpoint)]
    provider.script(Say("Paid, as I said."))
    again = await hear(agent, "pay it", checkpoint=first, attempt=2)
    assert (said(again), till.paid) == ("Paid, as I said.", [("run_1", 5)])
    assert [role for role, _ in lines(provider.last)] == ["user", "assistant", "tool"]
    asked = len(provider.requests)
    assert said(await hear(agent, "pay it", checkpoint=last, attempt=2)) == "Paid."
    assert len(provider.requests) == asked


# What goes wrong.


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, "does not accept the key"),
        (402, "nothing left to spend"),
        (400, "refused the request"),
        (404, "does not know the model"),
        (429, "asked too often"),
        (500, "has trouble"),
        (503, "overloaded"),
    ],
)
async def test_a_provider_s_refusal_is_told_in_a_plain_sentence(
    provider: ProviderServer, model: Model, till: Till, status: int, words: str
) -> None:
    provider.fail_next(status, message="internal detail 0x17")
    (finished,) = await hear(hosted(agent_with(model, till), PERMITTED))
    assert finished.kind is OutcomeKind.FAILED
    assert words in finished.reason
    assert "0x17" not in finished.reason


@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
@pytest.mark.parametrize("lever", ["cut", "reset", "end", "error", "garble"])
async def test_a_stream_that_breaks_keeps_its_words_and_is_a_failure(
    provider: ProviderServer, till: Till, api: Any, lever: str
) -> None:
    match lever:
        case "cut":
            provider.cut_next(after_chunks=2)
        case "reset":
            provider.cut_next(after_chunks=2, reset=True)
        case "end":
            provider.end_next(after_chunks=2)
        case "error":
            provider.error_next(after_chunks=2)
        case _:
            provider.garble_next(after_chunks=2)
    async with model_for(provider, api) as model:
        events = await hear(hosted(agent_with(model, till), PERMITTED), "one two three four")
    assert said(events).startswith("one")
    assert events[-1].kind is OutcomeKind.FAILED
    assert events[-1].reason


@pytest.mark.parametrize("api", ["chat", "messages"])
async def test_an_answer_that_does_not_say_why_it_ends_is_a_failure_unless_the_model_never_does(
    provider: ProviderServer, till: Till, api: Any
) -> None:
    async with model_for(provider, api) as model:
        for needed in (True, False):
            provider.unfinish_next()
            agent = hosted(agent_with(model, till), PERMITTED, needs_finish_reason=needed)
            events = await hear(agent, "one two")
            assert said(events) == "one two"
            assert events[-1].kind is (OutcomeKind.FAILED if needed else OutcomeKind.COMPLETED)
            assert events[-1].reason == ("the model's answer broke off" if needed else "")


async def test_a_call_in_a_broken_stream_is_not_made(provider: ProviderServer, model: Model, till: Till) -> None:
    provider.script(Call("pay", {"sum": 5}))
    provider.unfinish_next()
    events = await hear(hosted(agent_with(model, till), PERMITTED))
    assert (till.paid, events[-1].kind) == ([], OutcomeKind.FAILED)


async def test_an_empty_answer_is_a_failure(provider: ProviderServer, model: Model, till: Till) -> None:
    provider.empty_next(count=None)
    events = await hear(hosted(agent_with(model, till), PERMITTED))
    assert events[-1].kind is OutcomeKind.FAILED
    assert events[-1].reason
    silent = Agent(model, output_type=[str, type(None)])
    events = await hear(hosted(silent, PERMITTED))
    assert (events[-1].kind, events[-1].reason) == (OutcomeKind.FAILED, NO_ANSWER)


async def test_an_answer_that_is_too_long_is_halted(provider: ProviderServer, model: Model, till: Till) -> None:
    provider.truncate_next(after_chunks=2)
    events = await hear(hosted(agent_with(model, till), PERMITTED), "one two three four")
    assert (said(events), events[-1].kind) == ("one two", OutcomeKind.HALTED)
    assert "too long" in events[-1].reason


async def test_a_model_that_goes_on_for_ever_is_halted(provider: ProviderServer, model: Model, till: Till) -> None:
    """The library's own limit is 50 requests."""
    provider.script(then=Call("pay", {"sum": 1}))
    events = await hear(hosted(agent_with(model, till), PERMITTED))
    assert events[-1].kind is OutcomeKind.HALTED
    assert "limit" in events[-1].reason
    assert events[-1].usage.requests == len(provider.requests) == len(till.paid) == 50


def test_the_module_does_not_bring_the_library_along() -> None:
    script = "import sys, tidings.bots.hosted.agent; print('pydantic_ai' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "False"

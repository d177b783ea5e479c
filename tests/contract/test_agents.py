"""The echo and the demo are agents; and the contract finds each lie it should."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from tests.contract.agents import AgentBench, AgentContract, WatchedDesk
from tests.worlds.builders import inbound
from tidings.bots.demo.agent import DemoAgent
from tidings.bots.echo.agent import EchoAgent
from tidings.core import context
from tidings.core.agent import Agent, Checkpoint, Event, Finished, TextDelta, ToolFinished, ToolStarted, Turn


class Bench:
    def __init__(self, agent: Agent, messages: Sequence[str] = ("hi",), acting: Sequence[str] = ()) -> None:
        self.agent = agent
        self.messages = messages
        self.acting = acting

    def acts(self, run: str, desk: WatchedDesk) -> int:
        return desk.acts.count(run)


async def no_pause(seconds: float) -> None:
    await asyncio.sleep(0)


class TestEcho(AgentContract):
    @pytest.fixture
    def bench(self) -> AgentBench:
        return Bench(EchoAgent(), messages=("hi", "", "/help", "word " * 1000))


class TestDemo(AgentContract):
    @pytest.fixture
    def bench(self) -> AgentBench:
        reminder = "remind me in 5 s to stretch"
        messages = ("hi", "time", reminder, "remind me", "slow", "long", "fail", "silence", "anything else", "")
        return Bench(DemoAgent(no_pause), messages, acting=(reminder,))


async def test_the_echo_says_what_was_said() -> None:
    turn = Turn(run="run_1", attempt=1, bot="echo", message=inbound("so be it"), desk=WatchedDesk())
    assert [event async for event in EchoAgent().run(turn)] == [TextDelta("you said: so be it"), Finished()]


class Honest:
    """Announces, acts, says so and ends; each liar below changes one thing."""

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        yield ToolStarted("call-1", "remind")
        await self.act(turn)
        yield ToolFinished("call-1", "done")
        yield TextDelta("I did it.")
        yield Finished()

    async def act(self, turn: Turn) -> None:
        await turn.desk.begin("reminder", "stretch", 5)


class SaysWhatItLikes(Honest):
    async def run(self, turn: Turn) -> AsyncIterator[Any]:
        yield {"text": "hi", "failed": True}
        async for event in super().run(turn):
            yield event


class NeverFinishes(Honest):
    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        async for event in super().run(turn):
            if not isinstance(event, Finished):
                yield event


class FinishesTwice(Honest):
    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        async for event in super().run(turn):
            yield event
        yield Finished()


class HasALastWord(Honest):
    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        async for event in super().run(turn):
            yield event
        yield TextDelta("by the way")


class FailsAfterTheEnd(Honest):
    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        async for event in super().run(turn):
            yield event
        raise RuntimeError("too late")


class ForgetsItsTool(Honest):
    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        async for event in super().run(turn):
            if not isinstance(event, ToolFinished):
                yield event


class ActsFirst(Honest):
    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        await self.act(turn)
        yield ToolStarted("call-1", "remind")
        yield ToolFinished("call-1", "done")
        yield TextDelta("I did it.")
        yield Finished()


class ActsBeside(Honest):
    """Announces in time, but a task of its own does not wait for the announcement to be stored."""

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        acting = asyncio.create_task(self.act(turn))
        yield ToolStarted("call-1", "remind")
        await acting
        yield ToolFinished("call-1", "done")
        yield Finished()


class LeavesATaskBehind(Honest):
    def __init__(self) -> None:
        self.tasks: list[asyncio.Task[None]] = []

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        self.tasks.append(asyncio.create_task(asyncio.sleep(60)))
        async for event in super().run(turn):
            yield event


class CannotBeClosed(Honest):
    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        try:
            yield TextDelta("I ")
        finally:
            yield TextDelta("stay")
        yield Finished()


class BindsAnotherSession(Honest):
    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        session = replace(context.current(), run="run_of_somebody_else")
        with context.bind(session):
            async for event in super().run(turn):
                yield event


class ActsForWhoeverCameFirst(Honest):
    session: context.Session | None = None

    async def act(self, turn: Turn) -> None:
        self.session = self.session or context.current()
        with context.bind(self.session):
            await super().act(turn)


class HearsAndForgets(Honest):
    """What was said meanwhile counts as taken in, and the next attempt does not know it."""

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        said = await turn.heard()
        yield Checkpoint(turn.message.text.encode())
        async for event in super().run(turn):
            yield event
        yield Checkpoint("\n".join(message.text for message in said).encode())


class KeepsOneTurnForAll(Honest):
    """What it was asked last, it answers to everybody."""

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        self.text = turn.message.text
        await asyncio.sleep(0)
        for word in self.text.split():
            yield TextDelta(word)
        yield Finished()


@pytest.mark.parametrize(
    ("liar", "finder"),
    [
        (SaysWhatItLikes, "test_it_yields_members_of_the_closed_union_and_nothing_else"),
        (NeverFinishes, "test_it_ends_with_finished_once_and_last_or_raises"),
        (FinishesTwice, "test_it_ends_with_finished_once_and_last_or_raises"),
        (HasALastWord, "test_it_ends_with_finished_once_and_last_or_raises"),
        (FailsAfterTheEnd, "test_it_ends_with_finished_once_and_last_or_raises"),
        (ForgetsItsTool, "test_every_tool_that_started_has_finished_by_the_end"),
        (ActsFirst, "test_a_tool_is_announced_before_it_acts"),
        (ActsBeside, "test_a_tool_is_announced_before_it_acts"),
        (LeavesATaskBehind, "test_it_can_be_closed_at_any_event_and_leaves_nothing_behind"),
        (LeavesATaskBehind, "test_it_can_be_cancelled_while_it_works"),
        (CannotBeClosed, "test_it_can_be_closed_at_any_event_and_leaves_nothing_behind"),
        (BindsAnotherSession, "test_it_acts_for_the_session_that_is_bound_and_binds_none"),
        (ActsForWhoeverCameFirst, "test_many_runs_at_once_do_not_mix"),
        (HearsAndForgets, "test_what_it_hears_meanwhile_is_in_its_next_checkpoint"),
        (KeepsOneTurnForAll, "test_what_two_people_say_at_once_is_answered_to_each"),
    ],
)
async def test_a_lying_agent_is_found_out(liar: type[Honest], finder: str) -> None:
    before, messages = asyncio.all_tasks(), ("remind me", "remind me twice")
    await getattr(AgentContract(), finder)(Bench(Honest(), messages, acting=messages))
    with pytest.raises((AssertionError, RuntimeError)):
        await getattr(AgentContract(), finder)(Bench(liar(), messages, acting=messages))
    for task in asyncio.all_tasks() - before:
        task.cancel()

"""The contract of an agent: a closed union of events, one end, and nothing done before it is announced."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest
from msgspec import structs

from tests.worlds.builders import capabilities, inbound
from tests.worlds.fakes import FakeDesk, settle
from tests.worlds.tool_bench import permissions_of
from tidings.core import context
from tidings.core.agent import Agent, ApprovalAsked, Checkpoint, Event, Finished, ToolFinished, ToolStarted, Turn
from tidings.core.context import Session
from tidings.core.errors import NoSession
from tidings.core.roles import Person, Role
from tidings.core.types import Inbound

# An agent that says nothing for so long is stuck; a test must not be.
PATIENCE_SECONDS = 30.0
# Closing at each of two thousand words proves nothing that closing at these does not.
FIRST_EVENTS = 25
# At how many of its steps an agent is told something, one after the other; and a word that nobody else says.
FIRST_STEPS = 4
MEANWHILE = "periwinkle"


class WatchedDesk(FakeDesk):
    """Remembers for which run it was asked to do something: what an agent does, it does through its desk."""

    def __init__(self) -> None:
        super().__init__()
        self.acts: list[str] = []

    async def begin(self, kind: str, argument: str, after: float) -> str:
        self.acts.append(context.current().run)
        return await super().begin(kind, argument, after)


class AgentBench(Protocol):
    """What somebody who brings an agent must offer beside it."""

    agent: Agent
    # What may be said to it; between them these must show everything it does.
    messages: Sequence[str]
    # Those of them that make it act, each at least once.
    acting: Sequence[str]

    def acts(self, run: str, desk: WatchedDesk) -> int:
        """How often its tools have really done something for this run, by their own ground truth."""
        ...


class Heard(NamedTuple):
    events: list[Any]
    error: Exception | None


def session_of(run: str, chat: str = "1", role: Role = Role.OWNER) -> Session:
    message = inbound(chat=chat)
    return Session(
        run=run,
        conversation=message.conversation,
        sender=message.sender,
        bot="bot",
        target=message.target,
        can=capabilities(),
        workspace=Path("workspaces") / run,
        person=Person(id="paper:7", role=role),
        permissions=permissions_of(role),
    )


def turn_of(text: str, desk: WatchedDesk, run: str = "run_1", chat: str = "1") -> Turn:
    return Turn(run=run, attempt=1, bot="bot", message=inbound(text, chat=chat), desk=desk)


class Meanwhile:
    """What comes while the agent works: one message, at one of its steps."""

    def __init__(self, step: int) -> None:
        self._left = step
        # Handed to the agent, and in no checkpoint yet.
        self.is_owed = False

    async def __call__(self) -> tuple[Inbound, ...]:
        self._left -= 1
        self.is_owed = self.is_owed or self._left == 0
        return (inbound(MEANWHILE),) if self._left == 0 else ()


async def hear(bench: AgentBench, text: str, desk: WatchedDesk, run: str = "run_1") -> Heard:
    """Runs it to its end, bound as the dispatcher binds it."""
    heard = Heard([], None)
    with context.bind(session_of(run)):
        try:
            async for event in bench.agent.run(turn_of(text, desk, run)):
                heard.events.append(event)
        except Exception as error:  # noqa: BLE001
            return Heard(heard.events, error)
    return heard


async def close(events: AsyncIterator[Event]) -> None:
    if isinstance(events, AsyncGenerator):
        await events.aclose()


class AgentContract:
    """Every agent passes this, or it is not an agent. Subclasses give `bench`."""

    @pytest.fixture
    def bench(self) -> AgentBench:
        raise NotImplementedError

    async def test_it_yields_members_of_the_closed_union_and_nothing_else(self, bench: AgentBench) -> None:
        for text in bench.messages:
            async with asyncio.timeout(PATIENCE_SECONDS):
                heard = await hear(bench, text, WatchedDesk())
            assert [event for event in heard.events if not isinstance(event, Event)] == [], text

    async def test_it_ends_with_finished_once_and_last_or_raises(self, bench: AgentBench) -> None:
        for text in bench.messages:
            async with asyncio.timeout(PATIENCE_SECONDS):
                events, error = await hear(bench, text, WatchedDesk())
            ends = [position for position, event in enumerate(events) if isinstance(event, Finished)]
            if error is not None:
                assert ends == [], f"{text!r}: it had finished and failed after that: {error}"
            elif not (events and isinstance(events[-1], ApprovalAsked)):
                assert ends == [len(events) - 1], text

    async def test_every_tool_that_started_has_finished_by_the_end(self, bench: AgentBench) -> None:
        for text in bench.messages:
            events, error = await hear(bench, text, WatchedDesk())
            started = [event.call for event in events if isinstance(event, ToolStarted)]
            finished = [event.call for event in events if isinstance(event, ToolFinished)]
            assert len(started) == len(set(started)), f"{text!r}: two calls share a name"
            if error is None:
                assert sorted(started) == sorted(finished), text

    async def test_a_tool_is_announced_before_it_acts(self, bench: AgentBench) -> None:
        """While the announcement is being stored the iterator stands still, and nothing may have happened yet."""
        for text in bench.messages:
            desk, announced, acts = WatchedDesk(), 0, 0
            with context.bind(session_of("run_1")):
                async with asyncio.timeout(PATIENCE_SECONDS):
                    try:
                        async for event in bench.agent.run(turn_of(text, desk)):
                            # What runs beside the iterator would show itself now.
                            await settle()
                            acts = bench.acts("run_1", desk)
                            assert acts <= announced, f"{text!r}: it acted before {event!r} was stored"
                            announced += isinstance(event, ToolStarted)
                    except AssertionError:
                        raise
                    except Exception:  # noqa: BLE001
                        acts = bench.acts("run_1", desk)
            assert (acts > 0) == (text in bench.acting), text

    async def test_it_can_be_closed_at_any_event_and_leaves_nothing_behind(self, bench: AgentBench) -> None:
        for text in bench.messages:
            count = len((await hear(bench, text, WatchedDesk())).events)
            for stop_after in [*range(min(count, FIRST_EVENTS)), count]:
                await self.is_closed_after(bench, text, stop_after)

    async def is_closed_after(self, bench: AgentBench, text: str, stop_after: int) -> None:
        before, desk = asyncio.all_tasks(), WatchedDesk()
        with context.bind(session_of("run_1")):
            events = bench.agent.run(turn_of(text, desk))
            taken = 0
            if stop_after:
                try:
                    async for _ in events:
                        taken += 1
                        if taken == stop_after:
                            break
                except Exception:  # noqa: BLE001
                    taken = stop_after
            acts = bench.acts("run_1", desk)
            async with asyncio.timeout(PATIENCE_SECONDS):
                await close(events)
        # One turn of the loop shows what was left to the garbage collector to close.
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == before, f"{text!r}: closed after {stop_after} events, it left tasks behind"
        await settle()
        assert bench.acts("run_1", desk) == acts, f"{text!r}: closed after {stop_after} events, it went on acting"

    async def test_it_can_be_cancelled_while_it_works(self, bench: AgentBench) -> None:
        """Stopped at each of its waits in turn, however many there are."""
        for text in bench.messages:
            for turns in range(FIRST_EVENTS):
                before = asyncio.all_tasks()
                running = asyncio.create_task(hear(bench, text, WatchedDesk()))
                for _ in range(turns):
                    await asyncio.sleep(0)
                running.cancel()
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await asyncio.wait([running])
                if not running.cancelled():
                    assert turns, "it was never asked to begin"
                    assert running.result().events, "it ended before it was cancelled, without a word"
                assert asyncio.all_tasks() == before, f"{text!r}: cancelled after {turns} turns, it left tasks behind"

    async def test_it_acts_for_the_session_that_is_bound_and_binds_none(self, bench: AgentBench) -> None:
        for text in bench.messages:
            desk = WatchedDesk()
            with context.bind(session_of("run_7")) as session:
                async with asyncio.timeout(PATIENCE_SECONDS), aclosing(_events(bench, text, desk, "run_7")) as events:
                    async for _ in events:
                        assert context.current() is session
            assert set(desk.acts) <= {"run_7"}, text
            with pytest.raises(NoSession):
                context.current()

    async def test_many_runs_at_once_do_not_mix(self, bench: AgentBench) -> None:
        """C1 in miniature: each run hears what it would hear alone, and acts for itself."""
        desk = WatchedDesk()
        for text in bench.messages:
            alone = await hear(bench, text, WatchedDesk())
            runs = [f"run_{number}" for number in range(8)]
            desk.acts.clear()
            acts = {run: bench.acts(run, desk) for run in runs}
            async with asyncio.timeout(PATIENCE_SECONDS):
                together = await asyncio.gather(*(hear(bench, text, desk, run) for run in runs))
            for heard in together:
                assert _shape(heard.events) == _shape(alone.events), text
                assert type(heard.error) is type(alone.error), text
            done = {bench.acts(run, desk) - acts[run] for run in runs}
            assert len(done) == 1, f"{text!r}: some runs acted for others: {done}"

    async def test_what_it_hears_meanwhile_is_in_its_next_checkpoint(self, bench: AgentBench) -> None:
        """Its message counts as taken in from then on; an agent that does not listen is handed nothing."""
        for text in bench.messages:
            for step in range(1, FIRST_STEPS + 1):
                meanwhile = Meanwhile(step)
                turn = structs.replace(turn_of(text, WatchedDesk()), heard=meanwhile)
                with context.bind(session_of("run_1")):
                    async with asyncio.timeout(PATIENCE_SECONDS), aclosing(_until_it_fails(bench, turn)) as events:
                        async for event in events:
                            if isinstance(event, Checkpoint) and meanwhile.is_owed:
                                told = f"{text!r}: heard at step {step}, and not in the next checkpoint"
                                assert MEANWHILE.encode() in event.data, told
                                meanwhile.is_owed = False

    async def test_what_two_people_say_at_once_is_answered_to_each(self, bench: AgentBench) -> None:
        first, second = bench.messages[0], bench.messages[-1]
        alone = [await hear(bench, text, WatchedDesk()) for text in (first, second)]
        together = await asyncio.gather(*(hear(bench, text, WatchedDesk()) for text in (first, second)))
        assert [_shape(heard.events) for heard in together] == [_shape(heard.events) for heard in alone]


async def _events(bench: AgentBench, text: str, desk: WatchedDesk, run: str) -> AsyncGenerator[Any, None]:
    async with aclosing(_until_it_fails(bench, turn_of(text, desk, run))) as events:
        async for event in events:
            yield event


async def _until_it_fails(bench: AgentBench, turn: Turn) -> AsyncGenerator[Any, None]:
    """An agent's own failure ends it here: what it raises is tested elsewhere."""
    try:
        async for event in bench.agent.run(turn):
            yield event
    except RuntimeError:
        return


def _shape(events: Sequence[Any]) -> list[tuple[str, str]]:
    """What must be the same each time; the content may tell the time or a token count."""
    return [(type(event).__name__, getattr(event, "name", "")) for event in events]

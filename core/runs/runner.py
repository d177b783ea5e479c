"""Drives an agent's events to exactly one Outcome, whatever the agent does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from tidings.core.agent import (
    Agent,
    ApprovalAsked,
    Checkpoint,
    ChoicesOffered,
    Effect,
    Event,
    FileMade,
    Finished,
    Outcome,
    OutcomeKind,
    Progress,
    ReasoningDelta,
    TextDelta,
    ToolFinished,
    ToolStarted,
    Turn,
    Usage,
    Verdict,
)
from tidings.core.clock import Clock, ended_within
from tidings.core.errors import Fenced
from tidings.core.failpoints import fail_here
from tidings.core.redaction import one_line, plain
from tidings.core.runs.journal import Journal
from tidings.core.runs.transcript import Tape
from tidings.core.settings import Limits
from tidings.core.types import File, Origin, make_storable

log = logging.getLogger(__name__)

NO_ANSWER = "the agent ended without an answer"
# How long an agent may take to end after it was asked to; then the run is settled without it.
GRACE_SECONDS = 10.0
# An agent that only ever asks is not let round for ever.
APPROVALS = 20
# An agent that never waits lets others have the loop after so many events.
BREATH_EVENTS = 100


class Interrupt:
    """The two ways in which a run ends from outside: a person stops it, or its time is up."""

    def __init__(self) -> None:
        self.came: asyncio.Future[Finished] = asyncio.get_running_loop().create_future()

    def stop(self, by: str) -> None:
        self._set(Finished(OutcomeKind.CANCELLED, f"stopped by {by}" if by else "stopped"))

    def expire(self, seconds: float) -> None:
        self._set(Finished(OutcomeKind.HALTED, f"it took longer than {seconds:g} s"))

    def _set(self, finished: Finished) -> None:
        if not self.came.done():
            self.came.set_result(finished)


async def run(
    agent: Agent, turn: Turn, journal: Journal, interrupt: Interrupt, clock: Clock, limits: Limits
) -> Outcome:
    """Cancelling this leaves the run open, for recovery; every other way ends in an Outcome."""
    tape = Tape(journal, clock, limits.output_characters)
    fail_here("run.pre_model")
    driving = asyncio.create_task(_drive(agent, turn, journal, tape))
    timer = clock.call_later(limits.run_seconds, lambda: interrupt.expire(limits.run_seconds))
    try:
        await asyncio.wait({driving, interrupt.came}, return_when=asyncio.FIRST_COMPLETED)
        if not driving.done():
            await _cut_short(driving, turn.run, clock)
        finished = _finish(driving, interrupt, tape)
    finally:
        timer.cancel()
        driving.cancel()
    fail_here("run.post_model")
    return _outcome(finished, tape, turn)


def _finish(driving: asyncio.Task[Finished], interrupt: Interrupt, tape: Tape) -> Finished:
    """An interrupt that came first wins over whatever the agent made of it."""
    if interrupt.came.done():
        finished = interrupt.came.result()
        if finished.kind is OutcomeKind.HALTED:
            tape.explain(f"(I stopped here: {finished.reason}.)")
        return finished
    if driving.cancelled():
        return Finished(OutcomeKind.FAILED, "the agent cancelled itself")
    return driving.result()


async def _cut_short(driving: asyncio.Task[Finished], run_id: str, clock: Clock) -> None:
    driving.cancel()
    if not await ended_within(clock, driving, GRACE_SECONDS):
        log.error("the agent of %s does not end; the run is settled without it", run_id)


async def _drive(agent: Agent, turn: Turn, journal: Journal, tape: Tape) -> Finished:
    for _ in range(APPROVALS):
        finished = await _drive_once(agent, turn, journal, tape)
        if isinstance(finished, Finished):
            return finished
        denied = Verdict(call=finished.call, granted=False, reason="nobody can be asked for approval here")
        turn = msgspec.structs.replace(turn, verdicts=(*turn.verdicts, denied))
    return Finished(OutcomeKind.FAILED, "the agent kept asking for approval")


async def _drive_once(agent: Agent, turn: Turn, journal: Journal, tape: Tape) -> Finished | ApprovalAsked:
    """The seam where an agent's fault becomes an outcome."""
    event: Any = None
    try:
        async with _closing(agent.run(turn)) as events:
            async for event in events:
                if isinstance(event, Finished):
                    return event
                await _record(event, journal, tape)
                if reason := tape.full:
                    tape.explain(f"(I stopped here: {reason}.)")
                    return Finished(OutcomeKind.HALTED, reason)
                tape.events += 1
                if tape.events % BREATH_EVENTS == 0:
                    await asyncio.sleep(0)
    except Fenced:
        raise
    except (Exception, SystemExit) as error:
        log.warning("the agent failed: %s", error, exc_info=True)
        return Finished(OutcomeKind.FAILED, str(error) or type(error).__name__)
    if isinstance(event, ApprovalAsked):
        return event
    return Finished(OutcomeKind.FAILED, NO_ANSWER)


@asynccontextmanager
async def _closing(events: AsyncIterator[Event]) -> AsyncIterator[AsyncIterator[Event]]:
    """An agent's generator is closed however its run ends; a plain iterator has nothing to close."""
    try:
        yield events
    finally:
        if isinstance(events, AsyncGenerator):
            await events.aclose()


async def _record(event: object, journal: Journal, tape: Tape) -> None:
    match event:
        case TextDelta(text=text):
            tape.say(text)
            fail_here("run.mid_stream")
        case ReasoningDelta(text=text):
            tape.think(text)
        case Progress(text=text):
            tape.note(Progress(plain(text)), text)
        case ToolStarted():
            fail_here("tool.pre_start")
            call, name, arguments = make_storable(event.call), make_storable(event.name), plain(event.arguments)
            tape.acted = tape.acted or event.effect is Effect.EFFECT
            tape.start_tool(ToolStarted(call, name, arguments, event.effect))
            # Only when this is stored may the iterator go on and the tool act.
            await journal.flush()
            fail_here("tool.started")
        case ToolFinished():
            fail_here("tool.pre_finish")
            call, output, error = make_storable(event.call), plain(event.output), plain(event.error)
            tape.finish_tool(ToolFinished(call, output, error, make_storable(event.name)))
        case FileMade(path=path, name=name):
            made = FileMade(make_storable(path), plain(name))
            tape.files.append(File(path=made.path, name=made.name))
            tape.note(made, made.path, made.name)
        case ChoicesOffered(choices=choices):
            tape.choices = tuple(plain(words) for words in choices)
            tape.note(ChoicesOffered(tape.choices), *tape.choices)
        case Checkpoint():
            tape.usage = event.usage or tape.usage
            journal.save(event)
            await journal.flush()
        case ApprovalAsked():
            tape.note(ApprovalAsked(make_storable(event.call), plain(event.question)), event.question)
            await journal.flush()
        case _:
            raise TypeError(f"an agent may not yield {type(event).__name__}")


def _outcome(finished: Finished, tape: Tape, turn: Turn) -> Outcome:
    tape.end()
    text, kind, reason = tape.text, finished.kind, finished.reason
    silent = not text.strip() and not tape.files
    if kind is OutcomeKind.COMPLETED and silent and turn.message.origin is Origin.PERSON:
        kind, reason = OutcomeKind.FAILED, NO_ANSWER
    if kind is OutcomeKind.HALTED and silent:
        tape.explain(f"(I stopped here: {reason or 'a limit was reached'}.)")
        text = tape.text
    usage: Usage | None = finished.usage or tape.usage
    # Whoever did not finish its question does not wait for an answer either.
    choices = tape.choices if kind is OutcomeKind.COMPLETED else ()
    # This tape does not show what an earlier attempt did.
    passing = finished.passing and kind is OutcomeKind.FAILED and not tape.acted and turn.attempt == 1
    return Outcome(kind, one_line(reason), text, usage, tuple(tape.files), choices, passing)

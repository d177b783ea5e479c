"""Runs an agent and turns its events into exactly one outcome, whatever the agent does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

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
)
from tidings.core.clock import Clock, ended_within
from tidings.core.errors import Fenced
from tidings.core.failpoints import fail_here
from tidings.core.redaction import one_line, plain
from tidings.core.runs import stops
from tidings.core.runs.journal import Journal
from tidings.core.runs.reported_usage import countable
from tidings.core.runs.transcript import NOTHING, Said, Transcript
from tidings.core.settings import Limits
from tidings.core.types import File, Origin, make_storable

log = logging.getLogger(__name__)

NO_ANSWER = "the agent ended without an answer"
# How long an agent may take to end after it was cancelled; then the run is settled without it.
GRACE_SECONDS = 10.0
# How often an agent may ask for approval in one run.
APPROVALS = 50
# How much of a call is stored with its question.
DETAIL_CHARACTERS = 20_000
# After so many events without waiting, an agent yields the event loop to others.
BREATH_EVENTS = 100


class Asked(NamedTuple):
    """A run that asks people, and how it would end if it were stopped now."""

    event: ApprovalAsked
    so_far: Outcome


class Interrupt:
    """Ends a run from outside: a person stops it, or its time is up."""

    def __init__(self) -> None:
        self.came: asyncio.Future[Finished] = asyncio.get_running_loop().create_future()

    def stop(self, by: str) -> None:
        self._set(Finished(OutcomeKind.CANCELLED, stops.reason(by)))

    def expire(self, seconds: float) -> None:
        self._set(Finished(OutcomeKind.HALTED, f"the run took longer than {seconds:g} s"))

    def _set(self, finished: Finished) -> None:
        if not self.came.done():
            self.came.set_result(finished)


async def run(
    agent: Agent,
    turn: Turn,
    journal: Journal,
    interrupt: Interrupt,
    clock: Clock,
    limits: Limits,
    before: Said | None = None,
) -> Outcome | Asked:
    """Returns the outcome of a run, or what it asks people; if this call is cancelled, it stays open for recovery.

    `before` is what the run said before the verdict after which it goes on.
    """
    overheard = turn.message.overheard
    transcript = Transcript(journal, clock, limits.output_characters, before or NOTHING, may_be_silent=overheard)
    fail_here("run.pre_model")
    driving: asyncio.Task[Finished | ApprovalAsked] = asyncio.create_task(_drive(agent, turn, journal, transcript))
    timer = clock.call_later(limits.run_seconds, lambda: interrupt.expire(limits.run_seconds))
    try:
        first: set[asyncio.Future[Any]] = {driving, interrupt.came}
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        if not driving.done():
            await _cut_short(driving, turn.run, clock)
        finished = _finish(driving, interrupt, transcript)
    finally:
        timer.cancel()
        driving.cancel()
    fail_here("run.post_model")
    if isinstance(finished, ApprovalAsked):
        transcript.end()
        so_far = Outcome(OutcomeKind.CANCELLED, "", transcript.text, transcript.usage, tuple(transcript.files))
        return Asked(finished, so_far)
    return _outcome(finished, transcript, turn)


def _finish(
    driving: asyncio.Task[Finished | ApprovalAsked], interrupt: Interrupt, transcript: Transcript
) -> Finished | ApprovalAsked:
    """An interrupt that came first decides the outcome, whatever the agent did afterwards."""
    if interrupt.came.done():
        finished = interrupt.came.result()
        if finished.kind is OutcomeKind.HALTED:
            transcript.explain(f"(I stopped here: {finished.reason}.)")
        return finished
    if driving.cancelled():
        return Finished(OutcomeKind.FAILED, "the agent cancelled itself")
    return driving.result()


async def _cut_short(driving: asyncio.Task[Finished | ApprovalAsked], run_id: str, clock: Clock) -> None:
    driving.cancel()
    if not await ended_within(clock, driving, GRACE_SECONDS):
        log.error("the agent of %s does not end; the run is settled without it", run_id)


async def _drive(agent: Agent, turn: Turn, journal: Journal, transcript: Transcript) -> Finished | ApprovalAsked:
    """Drives the agent's iterator; every exception of the agent becomes a failed outcome here."""
    try:
        async with _closing(agent.run(turn)) as events:
            event: Any
            async for event in events:
                if isinstance(event, Finished):
                    return event
                if isinstance(event, ApprovalAsked):
                    return _question(event, turn)
                await _record(event, journal, transcript)
                if reason := transcript.full:
                    transcript.explain(f"(I stopped here: {reason}.)")
                    return Finished(OutcomeKind.HALTED, reason)
                transcript.events += 1
                if transcript.events % BREATH_EVENTS == 0:
                    await asyncio.sleep(0)
    except Fenced:
        raise
    except (Exception, SystemExit) as error:
        log.warning("the agent failed: %s", error, exc_info=True)
        return Finished(OutcomeKind.FAILED, str(error) or type(error).__name__)
    return Finished(OutcomeKind.FAILED, NO_ANSWER)


def _question(asked: ApprovalAsked, turn: Turn) -> Finished | ApprovalAsked:
    """What an agent asks people, redacted and fit to be stored."""
    if len(turn.verdicts) >= APPROVALS:
        return Finished(OutcomeKind.FAILED, "the agent kept asking for approval")
    detail, covers = plain(asked.detail), plain(asked.covers)
    if len(detail) > DETAIL_CHARACTERS:
        detail = f"{detail[:DETAIL_CHARACTERS]}\n… {len(detail) - DETAIL_CHARACTERS} characters are left out here …"
    # Two calls that differ only in what is redacted would be covered by one approval, so such a call is always asked.
    is_exact = covers == asked.covers and len(covers) <= DETAIL_CHARACTERS
    return ApprovalAsked(
        call=make_storable(asked.call),
        tool=one_line(make_storable(asked.tool)),
        detail=detail,
        digest=make_storable(asked.digest),
        covers=covers if is_exact else "",
        read=tuple(one_line(plain(each)) for each in asked.read),
    )


@asynccontextmanager
async def _closing(events: AsyncIterator[Event]) -> AsyncIterator[AsyncIterator[Event]]:
    """Closes the agent's generator however its run ends; a plain iterator cannot be closed."""
    try:
        yield events
    finally:
        if isinstance(events, AsyncGenerator):
            await events.aclose()


async def _record(event: object, journal: Journal, transcript: Transcript) -> None:
    match event:
        case TextDelta(text=text):
            transcript.say(text)
            fail_here("run.mid_stream")
        case ReasoningDelta(text=text):
            transcript.think(text)
        case Progress(text=text):
            transcript.note(Progress(plain(text)), text)
        case ToolStarted():
            fail_here("tool.pre_start")
            call, name, arguments = make_storable(event.call), make_storable(event.name), plain(event.arguments)
            transcript.acted = transcript.acted or event.effect is Effect.EFFECT
            transcript.start_tool(ToolStarted(call, name, arguments, event.effect))
            # The tool acts when the iterator goes on, so the event must be stored first.
            await journal.flush()
            fail_here("tool.started")
        case ToolFinished():
            fail_here("tool.pre_finish")
            call, output, error = make_storable(event.call), plain(event.output), plain(event.error)
            transcript.finish_tool(ToolFinished(call, output, error, make_storable(event.name)))
        case FileMade(path=path, name=name):
            made = FileMade(make_storable(path), plain(name))
            transcript.files.append(File(path=made.path, name=made.name))
            transcript.note(made, made.path, made.name)
        case ChoicesOffered(choices=choices):
            transcript.choices = tuple(plain(words) for words in choices)
            transcript.note(ChoicesOffered(transcript.choices), *transcript.choices)
        case Checkpoint():
            used = countable(event.usage)
            transcript.usage = used or transcript.usage
            journal.save(Checkpoint(event.data, used))
            await journal.flush()
        case _:
            raise TypeError(f"an agent may not yield {type(event).__name__}")


def _outcome(finished: Finished, transcript: Transcript, turn: Turn) -> Outcome:
    transcript.end()
    text, kind, reason = transcript.text, finished.kind, finished.reason
    silent = not text.strip() and not transcript.files
    # Nobody waits for an answer to what was only overheard.
    is_awaited = turn.message.origin is Origin.PERSON and not turn.message.overheard
    if kind is OutcomeKind.COMPLETED and silent and is_awaited:
        kind, reason = OutcomeKind.FAILED, NO_ANSWER
    if kind is OutcomeKind.HALTED and silent:
        transcript.explain(f"(I stopped here: {reason or 'a limit was reached'}.)")
        text = transcript.text
    usage: Usage | None = countable(finished.usage) or transcript.usage
    # An unfinished answer offers no buttons, and neither does silence.
    choices = transcript.choices if kind is OutcomeKind.COMPLETED and not silent else ()
    # This transcript does not know what an earlier attempt did.
    passing = finished.passing and kind is OutcomeKind.FAILED and not transcript.acted and turn.attempt == 1
    return Outcome(kind, one_line(reason), text, usage, tuple(transcript.files), choices, passing)

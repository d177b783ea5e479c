"""Calls the tools that a model asked for: each call is stored before the tool acts, and each has a result."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from pydantic_ai.messages import ToolCallPart, ToolReturnPart

from tidings.bots.assistant.approval import NO_OBJECT, Gate, Leave
from tidings.bots.assistant.loop_guard import Guard, Halted, Used, Warned
from tidings.bots.assistant.memory import Memory, unreadable
from tidings.bots.assistant.prompt import bare, fence
from tidings.bots.assistant.tools.policy import NOT_RUN, Refusal
from tidings.bots.assistant.tools.tool import Occasion, Result, Tool, ToolError
from tidings.bots.assistant.tools.toolbox import Toolbox
from tidings.core.agent import ApprovalAsked, Effect, Event, FileMade, ToolFinished, ToolStarted, Turn
from tidings.core.redaction import plain

log = logging.getLogger(__name__)

# How many calls without an effect may run at the same time.
TOGETHER = 8
NOT_USED = "(Not used: I was stopped before.)"
SAID_MEANWHILE = "(Not used: a message came meanwhile. Read it, and call the tool again if it is still wanted.)"
BROKEN = "the tool itself is broken; its owner finds in the log how"
# How much of a result the journal keeps; the model gets all of it.
SHOWN_CHARACTERS = 4000
# What the model is told about arguments that cannot be read.
UNREADABLE_CHARACTERS = 200


News = Callable[[], Awaitable[bool]]


@dataclass(slots=True)
class Round:
    """The results of one round of calls; after `asked` the round waits for people with the results so far."""

    returns: list[ToolReturnPart] = field(default_factory=list)
    halted: Halted | None = None
    asked: ApprovalAsked | None = None


@dataclass(frozen=True, slots=True)
class _Planned:
    """One call with its id in this run, and what became of it at the gate."""

    name: str
    call: ToolCallPart
    leave: Leave | Refusal

    @property
    def effect(self) -> Effect:
        return self.leave.tool.effect if isinstance(self.leave, Leave) else Effect.PURE

    @property
    def is_alone(self) -> bool:
        return self.effect is not Effect.PURE


class Using:
    """The tools of one run."""

    def __init__(self, toolbox: Toolbox, guard: Guard, turn: Turn, memory: Memory, news: News) -> None:
        """`news` tells whether a message came meanwhile: the model reads it before any other tool is used."""
        self._toolbox = toolbox
        self._guard = guard
        self._desk = turn.desk
        self._run = turn.run
        self._memory = memory
        self._news = news
        self._gate = Gate(toolbox, turn, memory.taint)
        # How often each tool was called, in the order of first use.
        self.counts: dict[str, int] = {}
        for name in memory.used:
            self._count(name)

    async def use(
        self, calls: Sequence[ToolCallPart], into: Round, *, approved: bool = False
    ) -> AsyncGenerator[Event, None]:
        """Gives every call a result, because a model cannot continue without one; after a halt no tool acts.

        Calls that have a result in the round are not repeated. Where people must be asked, the round ends with the
        question in `asked`. With `approved`, people have just answered for the first call, so it is not put off.
        """
        before = self._memory.calls - len(calls)
        # A number in the id, because some providers give several calls the same id.
        waiting = [(f"{call.tool_call_id}#{before + place}", call) for place, call in enumerate(calls, start=1)]
        del waiting[: len(into.returns)]
        left_out = NOT_USED
        while waiting and not into.halted:
            if not approved and await self._news():
                left_out = SAID_MEANWHILE
                break
            approved = False
            batch = await self._batch(waiting, into)
            if into.asked:
                return
            del waiting[: len(batch)]
            for each in batch:
                yield ToolStarted(each.name, each.call.tool_name, each.call.args_as_json_str(), each.effect)
            results = await asyncio.gather(*map(self._act, batch))
            for each, (result, error, refused) in zip(batch, results, strict=True):
                self._count(each.call.tool_name)
                yield ToolFinished(each.name, plain(result.text)[:SHOWN_CHARACTERS], plain(error))
                for file in result.files:
                    yield FileMade(file.path, file.name)
                self._judge(each, result.text, error, refused, into)
        into.returns += [ToolReturnPart(call.tool_name, left_out, call.tool_call_id) for _, call in waiting]

    async def _batch(self, waiting: Sequence[tuple[str, ToolCallPart]], into: Round) -> list[_Planned]:
        """The next calls that may run together: a tool with an effect acts alone, in the order of the model.

        Each call is judged when its turn comes, because the results of the calls before it may be texts of others.
        """
        batch: list[_Planned] = []
        for name, call in waiting[:TOGETHER]:
            tool = self._find(call)
            leave = tool if isinstance(tool, Refusal) else await self._gate.judge(name, tool, call.args_as_json_str())
            if isinstance(leave, ApprovalAsked):
                if not batch:
                    into.asked = leave
                break
            planned = _Planned(name, call, leave)
            if planned.is_alone and batch:
                break
            batch.append(planned)
            if planned.is_alone:
                break
        return batch

    def _count(self, name: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1

    def _judge(self, each: _Planned, text: str, error: str, refused: bool, into: Round) -> None:
        call, tool = each.call, each.leave.tool if isinstance(each.leave, Leave) else None
        seen = self._guard.look(Used(call.tool_name, call.args_as_json_str(), each.effect, text, error))
        if isinstance(seen, Halted):
            into.halted = into.halted or seen
        told = bare(error or text)
        if isinstance(each.leave, Leave) and not refused:
            self._memory.taint.use(each.leave.tool, each.leave.written)
        if tool is not None and tool.untrusted and not refused and told:
            told = fence(told, f"{'error' if error else 'result'} of {call.tool_name}")
        if error:
            told = f"({told})" if error.startswith(NOT_RUN) else f"(It failed: {told})"
        if isinstance(seen, Warned):
            told = f"{told}\n{seen.note}"
        into.returns.append(ToolReturnPart(call.tool_name, plain(told) or "(no output)", call.tool_call_id))

    def _find(self, call: ToolCallPart) -> Tool | Refusal:
        tool = self._toolbox.find(call.tool_name)
        written = unreadable(call)
        if isinstance(tool, Refusal) or written is None:
            return tool
        # Without this check, a tool that needs no arguments would act on a call that could not be read.
        return Refusal(f"{NO_OBJECT}: {written[:UNREADABLE_CHARACTERS]}")

    async def _act(self, each: _Planned) -> tuple[Result, str, bool]:
        """The seam where a tool's exception becomes a result; also tells whether the gate has refused the call."""
        leave = each.leave
        refusal = leave if isinstance(leave, Refusal) else await self._gate.still(leave)
        if refusal is not None or isinstance(leave, Refusal):
            return Result(""), refusal.reason if refusal else "", True
        occasion = Occasion(self._desk, f"{self._run}/{each.name}")
        try:
            return await leave.tool.act(leave.written, occasion), "", False
        except ToolError as error:
            return Result(""), str(error) or BROKEN, False
        except (Exception, SystemExit) as error:
            log.warning("the tool %s failed: %s", each.call.tool_name, error, exc_info=True)
            return Result(""), BROKEN, False

"""Calls the tools that a model asked for: each call is stored before the tool acts, and each has a result."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass, field

from pydantic_ai.messages import ToolCallPart, ToolReturnPart

from tidings.bots.assistant.loop_guard import Guard, Halted, Used, Warned
from tidings.bots.assistant.memory import unreadable
from tidings.bots.assistant.prompt import bare, fence
from tidings.bots.assistant.tools.tool import Occasion, Result, Tool, ToolError, barred, not_for
from tidings.bots.assistant.tools.toolbox import Refusal, Toolbox
from tidings.core import context
from tidings.core.agent import Effect, Event, FileMade, ToolFinished, ToolStarted
from tidings.core.desk.desk import Desk
from tidings.core.redaction import plain

log = logging.getLogger(__name__)

# How many calls without an effect may run at the same time.
TOGETHER = 8
NOT_USED = "(Not used: I was stopped before.)"
BROKEN = "the tool itself is broken; its owner finds in the log how"
# How much of a result the journal keeps; the model gets all of it.
SHOWN_CHARACTERS = 4000
# What the model is told about arguments that cannot be read.
UNREADABLE_CHARACTERS = 200


@dataclass(slots=True)
class Round:
    """The results of one round of calls."""

    returns: list[ToolReturnPart] = field(default_factory=list)
    halted: Halted | None = None


class Using:
    """The tools of one run."""

    def __init__(self, toolbox: Toolbox, guard: Guard, desk: Desk, run: str, made: int = 0) -> None:
        self._toolbox = toolbox
        self._guard = guard
        self._desk = desk
        self._run = run
        # How many tools this run has called so far.
        self._made = made
        # How often each tool was called, in the order of first use.
        self.counts: dict[str, int] = {}

    async def use(self, calls: Sequence[ToolCallPart], into: Round) -> AsyncGenerator[Event, None]:
        """Gives every call a result, because a model cannot continue without one; after a halt no tool acts."""
        for batch in self._batches(calls):
            if into.halted:
                into.returns += [ToolReturnPart(call.tool_name, NOT_USED, call.tool_call_id) for call, _ in batch]
                continue
            names = [self._name(call) for call, _ in batch]
            for name, (call, tool) in zip(names, batch, strict=True):
                effect = tool.effect if isinstance(tool, Tool) else Effect.PURE
                yield ToolStarted(name, call.tool_name, call.args_as_json_str(), effect)
            acting = (self._act(name, call, tool) for name, (call, tool) in zip(names, batch, strict=True))
            results = await asyncio.gather(*acting)
            for name, (call, tool), (result, error) in zip(names, batch, results, strict=True):
                self.counts[call.tool_name] = self.counts.get(call.tool_name, 0) + 1
                yield ToolFinished(name, plain(result.text)[:SHOWN_CHARACTERS], plain(error))
                for file in result.files:
                    yield FileMade(file.path, file.name)
                self._judge(call, tool, result.text, error, into)

    def _judge(self, call: ToolCallPart, tool: Tool | Refusal, text: str, error: str, into: Round) -> None:
        effect = tool.effect if isinstance(tool, Tool) else Effect.PURE
        seen = self._guard.look(Used(call.tool_name, call.args_as_json_str(), effect, text, error))
        if isinstance(seen, Halted):
            into.halted = into.halted or seen
        told = bare(error or text)
        if isinstance(tool, Tool) and tool.untrusted and told:
            told = fence(told, f"{'error' if error else 'result'} of {call.tool_name}")
        if error:
            told = f"(It failed: {told})"
        if isinstance(seen, Warned):
            told = f"{told}\n{seen.note}"
        into.returns.append(ToolReturnPart(call.tool_name, plain(told) or "(no output)", call.tool_call_id))

    def _batches(self, calls: Sequence[ToolCallPart]) -> Iterator[list[tuple[ToolCallPart, Tool | Refusal]]]:
        """Groups the calls: a tool with an effect acts alone, in the order that the model asked for."""
        batch: list[tuple[ToolCallPart, Tool | Refusal]] = []
        for call in calls:
            tool = self._find(call)
            alone = isinstance(tool, Tool) and tool.effect is not Effect.PURE
            if batch and (alone or len(batch) >= TOGETHER):
                yield batch
                batch = []
            if alone:
                yield [(call, tool)]
            else:
                batch.append((call, tool))
        if batch:
            yield batch

    def _find(self, call: ToolCallPart) -> Tool | Refusal:
        tool = self._permitted_now(self._toolbox.find(call.tool_name))
        written = unreadable(call)
        if isinstance(tool, Refusal) or written is None:
            return tool
        # Without this check, a tool that needs no arguments would act on a call that could not be read.
        return Refusal(f"the arguments are no JSON object, so it did not run: {written[:UNREADABLE_CHARACTERS]}")

    def _permitted_now(self, tool: Tool | Refusal) -> Tool | Refusal:
        """Refuses a tool if the person's role has become too low since the run began."""
        if isinstance(tool, Refusal):
            return tool
        role = barred(context.current(), self._desk, tool.needs)
        return tool if role is None else Refusal(not_for(role, tool.name, tool.needs))

    def _name(self, call: ToolCallPart) -> str:
        """The id of one call in this run, with a number, because some providers give several calls the same id."""
        self._made += 1
        return f"{call.tool_call_id}#{self._made}"

    async def _act(self, name: str, call: ToolCallPart, tool: Tool | Refusal) -> tuple[Result, str]:
        """The seam where a tool's exception becomes a result."""
        # The role may have changed while the call was stored, or while the calls before it acted.
        tool = self._permitted_now(tool)
        if isinstance(tool, Refusal):
            return Result(""), tool.reason
        occasion = Occasion(self._desk, f"{self._run}/{name}")
        try:
            return await tool.act(call.args_as_json_str(), occasion), ""
        except ToolError as error:
            return Result(""), str(error) or BROKEN
        except (Exception, SystemExit) as error:
            log.warning("the tool %s failed: %s", call.tool_name, error, exc_info=True)
            return Result(""), BROKEN

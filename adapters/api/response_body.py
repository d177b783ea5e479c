"""Builds a response as it grows: turns each event of a run's journal into events of response items."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from tidings.adapters.api import approvals, messages
from tidings.adapters.api.errors import error_of
from tidings.adapters.api.settings import ToolItems
from tidings.core.agent import (
    ApprovalAnswered,
    ApprovalRequested,
    JournalEvent,
    Outcome,
    OutcomeKind,
    ReasoningDelta,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from tidings.core.desk.runs import Run

STATES = {OutcomeKind.COMPLETED: "completed", OutcomeKind.HALTED: "incomplete", OutcomeKind.CANCELLED: "cancelled"}
# The server_label that clients see for our tools.
SERVER = "tidings"
CUT_OFF = "the run ended before this tool did"

Event = dict[str, Any]
Item = dict[str, Any]


class Building:
    def __init__(self, run: Run, tool_items: ToolItems) -> None:
        self._run = run
        self._tool_items = tool_items
        self._base = run.id.removeprefix("run_")
        self._items: list[Item] = []
        # Indexes of items: the one whose text grows, and the tools at work, by call.
        self._open: int | None = None
        self._calls: dict[str, int] = {}
        self.outcome: Outcome | None = None

    @property
    def items(self) -> list[Item]:
        return [_public(item) for item in self._items]

    def begin(self) -> Iterator[Event]:
        yield {"type": "response.created", "response": self.response()}
        yield {"type": "response.in_progress", "response": self.response()}

    def take(self, event: JournalEvent) -> Iterator[Event]:
        match event:
            case TextDelta(text=text):
                yield from self._say("message", text)
            case ReasoningDelta(text=text):
                yield from self._say("reasoning", text)
            case ToolStarted() | ToolFinished():
                yield from self._close()
                yield from (self._call(event) if self._tool_items == "mcp_call" else self._function(event))
            case ApprovalRequested() | ApprovalAnswered():
                # Programs that check types know no event for this: it goes with one that says nothing new.
                told = approvals.event_of(self._run.id, event)
                yield {"type": "response.in_progress", "response": self.response(), "approval": told}
            case Outcome() as outcome:
                if words := messages.besides(outcome):
                    yield from self._say("message", words)
                yield from self._close()
                for call in tuple(self._calls):
                    yield from self._end_call(call, "incomplete", None, CUT_OFF)
                self.outcome = outcome
                # There is no event for a cancelled response, so it is sent as failed; its status says "cancelled".
                status = STATES.get(outcome.kind, "failed").replace("cancelled", "failed")
                yield {"type": f"response.{status}", "response": self.response()}
            case _:
                return

    def response(self) -> dict[str, Any]:
        message, outcome = self._run.message, self.outcome
        status = "in_progress" if outcome is None else STATES.get(outcome.kind, "failed")
        usage = outcome.usage if outcome else None
        failed = outcome is not None and status in ("failed", "cancelled")
        return {
            "id": f"resp_{self._base}",
            "object": "response",
            "created_at": int(self._run.accepted),
            "status": status,
            "model": self._run.bot,
            "output": self.items,
            "error": error_of(outcome.reason or status, "server_error", "server_error") if outcome and failed else None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "incomplete": {"reason": outcome.reason} if outcome and status == "incomplete" else None,
            "instructions": None,
            "metadata": {},
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "previous_response_id": f"resp_{message.follows.removeprefix('run_')}" if message.follows else None,
            "usage": {
                "input_tokens": usage.input_tokens if usage else 0,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": usage.output_tokens if usage else 0,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": usage.input_tokens + usage.output_tokens if usage else 0,
            },
        }

    # Tools.

    def _call(self, event: ToolStarted | ToolFinished) -> Iterator[Event]:
        """One mcp_call item per tool: the client is informed and need not act."""
        match event:
            case ToolStarted(call=call, name=name, arguments=arguments):
                yield from self._begin_call(call, name, arguments)
            case ToolFinished(call=call, output=output, error=error, name=name):
                if call not in self._calls:
                    yield from self._begin_call(call, name, "")
                yield from self._end_call(call, "failed" if error else "completed", None if error else output, error)

    def _begin_call(self, call: str, name: str, arguments: str) -> Iterator[Event]:
        nothing = {"output": None, "error": None, "approval_request_id": None}
        item = {"type": "mcp_call", "id": f"mcp_{self._next}", "status": "in_progress", "server_label": SERVER}
        index = self._calls[call] = self._add({**item, "name": name, "arguments": "", **nothing})
        yield {"type": "response.output_item.added", "output_index": index, "item": dict(self._items[index])}
        yield {"type": "response.mcp_call.in_progress", **self._at(index)}
        given = self._items[index]["arguments"] = _as_json(arguments)
        yield {"type": "response.mcp_call_arguments.delta", **self._at(index), "delta": given}
        yield {"type": "response.mcp_call_arguments.done", **self._at(index), "arguments": given}

    def _end_call(self, call: str, status: str, output: str | None, error: str) -> Iterator[Event]:
        index = self._calls.pop(call)
        item = self._items[index]
        item["status"], item["output"] = status, output
        if error:
            item["error"] = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": error}]}
        yield {"type": f"response.mcp_call.{'failed' if error else 'completed'}", **self._at(index)}
        yield {"type": "response.output_item.done", "output_index": index, "item": dict(item)}

    def _function(self, event: ToolStarted | ToolFinished) -> Iterator[Event]:
        """A function_call item and its output, as if the client had already made the call."""
        match event:
            case ToolStarted(call=call, name=name, arguments=arguments):
                item = {"type": "function_call", "id": f"fc_{self._next}", "status": "completed", "name": name}
                yield from self._whole({**item, "call_id": call, "arguments": arguments or "{}"})
            case ToolFinished(call=call, output=output, error=error):
                item = {"type": "function_call_output", "id": f"fco_{self._next}", "status": "completed"}
                told = [{"type": "input_text", "text": output or error}]
                yield from self._whole({**item, "call_id": call, "output": told})

    def _whole(self, item: Item) -> Iterator[Event]:
        index = self._add(item)
        yield {"type": "response.output_item.added", "output_index": index, "item": item}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}

    # Text.

    def _say(self, kind: str, text: str) -> Iterator[Event]:
        if self._open is None or self._items[self._open]["type"] != kind:
            yield from self._close()
            yield from self._begin_words(kind)
        assert self._open is not None
        self._items[self._open]["text"] += text
        at = {**self._at(self._open), "content_index": 0}
        if kind == "message":
            yield {"type": "response.output_text.delta", **at, "delta": text, "logprobs": []}
        else:
            yield {"type": "response.reasoning_text.delta", **at, "delta": text}

    def _begin_words(self, kind: str) -> Iterator[Event]:
        prefix = {"message": "msg", "reasoning": "rs"}[kind]
        item = {"type": kind, "id": f"{prefix}_{self._next}", "status": "in_progress", "text": ""}
        index = self._open = self._add(item)
        yield {"type": "response.output_item.added", "output_index": index, "item": _public(item, empty=True)}
        if kind == "message":
            part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            yield {"type": "response.content_part.added", **self._at(index), "content_index": 0, "part": part}

    def _close(self) -> Iterator[Event]:
        if self._open is None:
            return
        index, self._open = self._open, None
        item = self._items[index]
        item["status"] = "completed"
        at = {**self._at(index), "content_index": 0}
        if item["type"] == "message":
            yield {"type": "response.output_text.done", **at, "text": item["text"], "logprobs": []}
            part = {"type": "output_text", "text": item["text"], "annotations": [], "logprobs": []}
            yield {"type": "response.content_part.done", **at, "part": part}
        else:
            yield {"type": "response.reasoning_text.done", **at, "text": item["text"]}
        yield {"type": "response.output_item.done", "output_index": index, "item": _public(item)}

    # Positions.

    @property
    def _next(self) -> str:
        return f"{self._base}_{len(self._items)}"

    def _add(self, item: Item) -> int:
        self._items.append(item)
        return len(self._items) - 1

    def _at(self, index: int) -> dict[str, Any]:
        return {"item_id": self._items[index]["id"], "output_index": index}


def _as_json(arguments: str) -> str:
    """Always a JSON object, since clients parse it; anything else, or a cut text, is put into one as text."""
    try:
        is_object = isinstance(msgspec.json.decode(arguments or "{}"), dict)
    except msgspec.DecodeError:
        is_object = False
    return (arguments or "{}") if is_object else msgspec.json.encode({"text": arguments}).decode()


def _public(item: Item, *, empty: bool = False) -> Item:
    """The item as clients see it, with its text inside its content."""
    if "text" not in item:
        return dict(item)
    shown = {name: value for name, value in item.items() if name != "text"}
    if item["type"] == "reasoning":
        content = [] if empty else [{"type": "reasoning_text", "text": item["text"]}]
        return {**shown, "summary": [], "content": content}
    part = {"type": "output_text", "text": item["text"], "annotations": [], "logprobs": []}
    return {**shown, "role": "assistant", "content": [] if empty else [part]}

"""Responses: answers that can be fetched again and built upon."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from aiohttp import web

from adapters.api import sse, talk
from adapters.api.adapter import ApiAdapter, answer
from adapters.api.gate import Call, named, person, read_json, validate
from adapters.api.models import ResponseRequest
from adapters.api.problem import FINAL, Problem, error_of, not_found
from core.agent import (
    JournalEvent,
    Outcome,
    OutcomeKind,
    ReasoningDelta,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from core.desk import Run
from core.types import Author, Entry, Given

# So much of what went before is given to the next turn: entries of a chain, and of a conversation's memory.
LONGEST_CHAIN, LONGEST_MEMORY = 1000, 100
STATES = {OutcomeKind.COMPLETED: "completed", OutcomeKind.HALTED: "incomplete", OutcomeKind.CANCELLED: "cancelled"}


async def create(api: ApiAdapter, call: Call) -> web.StreamResponse:
    body = await read_json(call.request)
    asked = validate(ResponseRequest, body)
    given = Given()
    follows, name = "", asked.conversation or named(call)
    if asked.previous_response_id:
        given, follows, name = await chain(api, call, asked.previous_response_id)
    said = talk.of_input(asked.input, asked.instructions, given)
    alone = name is None or bool(follows)
    conversation = api.conversation(call.key, name, person(call, asked.user))
    gone_means_stop = api.settings.stop_when_gone
    bot = api.bot(asked.model)
    asking = api.ask(call, said, conversation, bot, body, alone=alone, attended=gone_means_stop, follows=follows)
    begun = await asking
    run = begun.run
    try:
        if not asked.store:
            await _forget(api, run)
        if asked.stream:
            frames = _frames(api, await api.host.desk.run(run))
            return await sse.stream(call.request, frames)
        await api.outcome(run)
    except BaseException:
        api.leave(begun)
        raise
    built = await _built(api, await api.host.desk.run(run))
    return answer(built, 502, FINAL) if built["error"] else answer(built)


async def look(api: ApiAdapter, call: Call) -> web.StreamResponse:
    run = await _stored(api, call, call.names["id"])
    return answer(await _built(api, run))


async def delete(api: ApiAdapter, call: Call) -> web.StreamResponse:
    run = await _stored(api, call, call.names["id"])
    await _forget(api, run.id)
    return answer({"id": call.names["id"], "object": "response", "deleted": True})


async def chain(api: ApiAdapter, call: Call, id: str) -> tuple[Given, str, str]:
    """What was said up to that response, its run and its conversation's name; on a failed one nothing is built."""
    run = await _stored(api, call, id)
    if run.outcome is None:
        raise Problem(409, "the response before this one is not finished", "response_not_finished")
    if run.outcome.kind is OutcomeKind.FAILED:
        raise Problem(400, "the response before this one failed, so nothing can follow it", "response_failed")
    entries = (*await _before(api, run), *await _turn(api, run))
    return Given(history=entries[-LONGEST_CHAIN:]), run.id, run.message.conversation.thread


async def _before(api: ApiAdapter, run: Run) -> tuple[Entry, ...]:
    """What the model was given with that message: by the client and the chain, else by the conversation's memory."""
    given = run.message.given
    if given is not None and given.history is not None:
        return given.history
    return await api.host.desk.memory(run.message.conversation.id, before=run.id, limit=LONGEST_MEMORY)


async def _turn(api: ApiAdapter, run: Run) -> list[Entry]:
    """What was asked, what tools put out, what was answered."""
    asked = Entry(author=Author.PERSON, text=run.message.text)
    outputs = []
    names: dict[str, str] = {}
    async for numbered in api.follow(run.id, run.void):
        match numbered.event:
            case ToolStarted(call=call, name=name):
                names[call] = name
            case ToolFinished(call=call, output=output, error=error):
                words = talk.label(names.get(call), output or error)
                outputs.append(Entry(author=Author.NOTICE, text=words))
            case _:
                continue
    text = run.outcome.text if run.outcome else ""
    return [asked, *outputs, *([Entry(author=Author.BOT, text=text)] if text else [])]


async def _stored(api: ApiAdapter, call: Call, id: str) -> Run:
    if not id.startswith("resp_") or await api.host.notebook.read(f"forgotten/{_run_of(id)}"):
        raise not_found("response")
    return await api.own_run(call, _run_of(id), "response")


async def _forget(api: ApiAdapter, run: str) -> None:
    await api.host.notebook.write(f"forgotten/{run}", "yes")


def _run_of(id: str) -> str:
    return f"run_{id.removeprefix('resp_')}"


async def _built(api: ApiAdapter, run: Run) -> dict[str, Any]:
    building = Building(run)
    if run.outcome is not None:
        async for numbered in api.follow(run.id, run.void):
            for _ in building.take(numbered.event):
                continue
    return building.response()


async def _frames(api: ApiAdapter, run: Run) -> AsyncIterator[bytes]:
    building = Building(run)
    number = 0
    for event in building.begin():
        yield sse.frame({**event, "sequence_number": number}, event=event["type"])
        number += 1
    async for journalled in api.told(run.id, run.void):
        for event in building.take(journalled):
            yield sse.frame({**event, "sequence_number": number}, event=event["type"])
            number += 1


class Building:
    """A response as it grows: every event of the journal becomes the events of its items."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._base = run.id.removeprefix("run_")
        self._items: list[dict[str, Any]] = []
        self._open: dict[str, Any] | None = None
        self._outcome: Outcome | None = None

    def begin(self) -> Iterator[dict[str, Any]]:
        yield {"type": "response.created", "response": self.response()}
        yield {"type": "response.in_progress", "response": self.response()}

    def take(self, event: JournalEvent) -> Iterator[dict[str, Any]]:
        match event:
            case TextDelta(text=text):
                yield from self._say("message", text)
            case ReasoningDelta(text=text):
                yield from self._say("reasoning", text)
            case ToolStarted(call=call, name=name, arguments=arguments):
                yield from self._close()
                item = {"type": "function_call", "id": f"fc_{self._next}", "status": "completed", "name": name}
                yield from self._whole({**item, "call_id": call, "arguments": arguments or "{}"})
            case ToolFinished(call=call, output=output, error=error):
                yield from self._close()
                item = {"type": "function_call_output", "id": f"fco_{self._next}", "status": "completed"}
                told = [{"type": "input_text", "text": output or error}]
                yield from self._whole({**item, "call_id": call, "output": told})
            case Outcome() as outcome:
                if words := talk.besides(outcome):
                    yield from self._say("message", words)
                yield from self._close()
                self._outcome = outcome
                # Clients know no other word for one that was cancelled; its status tells the difference.
                status = STATES.get(outcome.kind, "failed").replace("cancelled", "failed")
                yield {"type": f"response.{status}", "response": self.response()}
            case _:
                return

    def response(self) -> dict[str, Any]:
        message, outcome = self._run.message, self._outcome
        status = "in_progress" if outcome is None else STATES.get(outcome.kind, "failed")
        usage = outcome.usage if outcome else None
        failed = outcome is not None and status in ("failed", "cancelled")
        return {
            "id": f"resp_{self._base}",
            "object": "response",
            "created_at": int(self._run.accepted),
            "status": status,
            "model": self._run.bot,
            "output": [_public(item) for item in self._items],
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

    @property
    def _next(self) -> str:
        return f"{self._base}_{len(self._items)}"

    def _say(self, kind: str, text: str) -> Iterator[dict[str, Any]]:
        if self._open is None or self._open["type"] != kind:
            yield from self._close()
            yield from self._begin_item(kind)
        assert self._open is not None
        self._open["text"] += text
        at = self._at()
        if kind == "message":
            yield {"type": "response.output_text.delta", **at, "content_index": 0, "delta": text, "logprobs": []}
        else:
            yield {"type": "response.reasoning_text.delta", **at, "content_index": 0, "delta": text}

    def _begin_item(self, kind: str) -> Iterator[dict[str, Any]]:
        prefix = {"message": "msg", "reasoning": "rs"}[kind]
        self._open = {"type": kind, "id": f"{prefix}_{self._next}", "status": "in_progress", "text": ""}
        self._items.append(self._open)
        index = len(self._items) - 1
        yield {"type": "response.output_item.added", "output_index": index, "item": _public(self._open, empty=True)}
        if kind == "message":
            part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            yield {"type": "response.content_part.added", **self._at(), "content_index": 0, "part": part}

    def _close(self) -> Iterator[dict[str, Any]]:
        item = self._open
        if item is None:
            return
        at = self._at()
        item["status"] = "completed"
        self._open = None
        if item["type"] == "message":
            yield {"type": "response.output_text.done", **at, "content_index": 0, "text": item["text"], "logprobs": []}
            part = {"type": "output_text", "text": item["text"], "annotations": [], "logprobs": []}
            yield {"type": "response.content_part.done", **at, "content_index": 0, "part": part}
        else:
            yield {"type": "response.reasoning_text.done", **at, "content_index": 0, "text": item["text"]}
        yield {"type": "response.output_item.done", "output_index": at["output_index"], "item": _public(item)}

    def _whole(self, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
        self._items.append(item)
        index = len(self._items) - 1
        yield {"type": "response.output_item.added", "output_index": index, "item": _public(item)}
        yield {"type": "response.output_item.done", "output_index": index, "item": _public(item)}

    def _at(self) -> dict[str, Any]:
        assert self._open is not None
        return {"item_id": self._open["id"], "output_index": len(self._items) - 1}


def _public(item: dict[str, Any], *, empty: bool = False) -> dict[str, Any]:
    """An item as clients see it: its text is a part of its content."""
    if "text" not in item:
        return item
    shown = {name: value for name, value in item.items() if name != "text"}
    if item["type"] == "reasoning":
        content = [] if empty else [{"type": "reasoning_text", "text": item["text"]}]
        return {**shown, "summary": [], "content": content}
    part = {"type": "output_text", "text": item["text"], "annotations": [], "logprobs": []}
    return {**shown, "role": "assistant", "content": [] if empty else [part]}

"""Chat completions, streamed and not, as clients of the OpenAI API know them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web

from tidings.adapters.api import approvals, messages, sse
from tidings.adapters.api.callers import conversation_named, person_named
from tidings.adapters.api.errors import failed
from tidings.adapters.api.guard import Call, read_json, validate
from tidings.adapters.api.models import ChatRequest
from tidings.adapters.api.service import ApiService, answer
from tidings.core.agent import (
    ApprovalAnswered,
    ApprovalRequested,
    Outcome,
    OutcomeKind,
    ReasoningDelta,
    TextDelta,
    ToolFinished,
    ToolStarted,
    Usage,
)

REASONS = {OutcomeKind.COMPLETED: "stop", OutcomeKind.HALTED: "length"}


async def complete(api: ApiService, call: Call) -> web.StreamResponse:
    body = await read_json(call.request)
    asked = validate(ChatRequest, body)
    said = messages.of_chat(asked.messages)
    bot = api.bot(call.key, asked.model)
    conversation = api.conversation(call.key, conversation_named(call, said, None), person_named(call, asked.user))
    # The request's messages are all the model sees, also where the conversation has a name.
    begun = await api.ask(
        call,
        said,
        conversation,
        bot,
        body,
        alone=True,
        attended=api.settings.stop_when_gone,
        impatient=not asked.stream,
    )
    run = begun.run
    headers = {"X-Tidings-Run": run}
    name = asked.model or api.called(bot)
    head = {"id": f"chatcmpl-{run.removeprefix('run_')}", "created": int(time.time()), "model": name}
    try:
        if asked.stream:
            counts = asked.stream_options is not None and asked.stream_options.include_usage
            void = (await api.desk.run(run)).void if begun.replayed else 0
            chunks = _chunks(api, run, void, {"object": "chat.completion.chunk", **head}, counts)
            return await sse.stream(call.request, chunks, headers)
        outcome = await api.outcome(run)
    except BaseException:
        # Cancelled, most likely: the client has gone.
        api.leave(begun)
        raise
    if outcome.kind not in REASONS:
        raise failed(outcome)
    message = {"role": "assistant", "content": outcome.text + messages.besides(outcome), "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": REASONS[outcome.kind]}
    whole = {"object": "chat.completion", **head, "choices": [choice], "usage": _usage(outcome.usage)}
    if outcome.kind is OutcomeKind.HALTED:
        whole["incomplete"] = {"reason": outcome.reason}
    return answer(whole, headers=headers)


async def _chunks(api: ApiService, run: str, void: int, head: dict[str, Any], counts: bool) -> AsyncIterator[bytes]:
    """Text is the answer's and nothing else's; what tools do is told beside it."""
    yield _chunk(head, {"role": "assistant", "content": ""})
    async for event in api.told(run, void):
        match event:
            case TextDelta(text=text):
                yield _chunk(head, {"content": text})
            case ReasoningDelta(text=text):
                yield _chunk(head, {"reasoning_content": text})
            case ToolStarted(call=call, name=name):
                yield _progress(head, name, call, "running")
            case ToolFinished(call=call, error=error, name=name):
                yield _progress(head, name, call, "failed" if error else "completed")
            case ApprovalRequested() | ApprovalAnswered():
                yield _approval(head, approvals.event_of(run, event))
            case Outcome() as outcome:
                for last in _ending(head, outcome, counts):
                    yield last
            case _:
                continue


def _ending(head: dict[str, Any], outcome: Outcome, counts: bool) -> list[bytes]:
    if outcome.kind in REASONS:
        words = messages.besides(outcome)
        ending = [_chunk(head, {"content": words})] if words else []
        ending.append(_chunk(head, {}, REASONS[outcome.kind]))
        if counts:
            ending.append(sse.frame({**head, "choices": [], "usage": _usage(outcome.usage)}))
        return [*ending, sse.DONE]
    # Some clients look for an error only where there are no choices, others stop reading at a finish reason.
    return [sse.frame(failed(outcome).body), _chunk(head, {}, "error"), sse.DONE]


def _chunk(head: dict[str, Any], delta: dict[str, Any], reason: str | None = None) -> bytes:
    return sse.frame({**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}]})


def _progress(head: dict[str, Any], name: str, call: str, status: str) -> bytes:
    """A chunk that says nothing, for clients that look at every event, with a name for those who want it."""
    choice = {"index": 0, "delta": {}, "finish_reason": None}
    tool = {"tool": name, "toolCallId": call, "status": status}
    return sse.frame({**head, "choices": [choice], **tool}, event="tidings.tool.progress")


def _approval(head: dict[str, Any], told: dict[str, Any]) -> bytes:
    """A chunk without text as well: its own `choices` are the answer's, so the question stands in `approval`."""
    choice = {"index": 0, "delta": {}, "finish_reason": None}
    return sse.frame({**head, "choices": [choice], "approval": told}, event=told["event"])


def _usage(usage: Usage | None) -> dict[str, int]:
    used = usage or Usage()
    total = used.input_tokens + used.output_tokens
    return {"prompt_tokens": used.input_tokens, "completion_tokens": used.output_tokens, "total_tokens": total}

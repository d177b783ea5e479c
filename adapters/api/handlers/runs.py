"""Runs: work that goes on without its client, and can be watched, resumed and stopped."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web

from tidings.adapters.api import approvals, messages, response_items, sse
from tidings.adapters.api.callers import conversation_named, person_named
from tidings.adapters.api.errors import Problem
from tidings.adapters.api.guard import Call, headers_of, query_of, read_json, validate
from tidings.adapters.api.models import After, RunRequest, RunSteer, Seen
from tidings.adapters.api.service import ApiService, answer
from tidings.core.agent import (
    ApprovalAnswered,
    ApprovalRequested,
    Outcome,
    OutcomeKind,
    ReasoningDelta,
    Restarted,
    Steered,
    TextDelta,
    ToolFinished,
    ToolStarted,
    Usage,
)
from tidings.core.desk.approvals import Question
from tidings.core.desk.runs import Numbered, Run

PREVIEW = 200


async def begin(api: ApiService, call: Call) -> web.StreamResponse:
    body = await read_json(call.request)
    asked = validate(RunRequest, body)
    user = person_named(call, asked.user)
    given = messages.of_history(asked.conversation_history or ())
    follows = before = ""
    if asked.previous_response_id and not given.history:
        given, follows, before = await response_items.chain(api, call, asked.previous_response_id, user)
    said = messages.of_input(await response_items.resolve(api, call, asked.input, user), asked.instructions, given)
    alone = bool(asked.conversation_history or follows)
    name = conversation_named(call, said, asked.session_id or asked.conversation) or before
    conversation = api.conversation(call.key, name, user)
    bot = api.bot(call.key, asked.model)
    run = await api.ask(call, said, conversation, bot, body, alone=alone, attended=False, follows=follows)
    if not run.replayed:
        api.watch(run.run)
    status = "started" if not run.replayed else status_of(await api.desk.run(run.run))
    reply = {"object": "run", "run_id": run.run, "status": status, "replayed": run.replayed}
    return answer(reply, 202, {"Idempotency-Replayed": "true"} if run.replayed else None)


async def look(api: ApiService, call: Call) -> web.StreamResponse:
    run = await api.own_run(call, call.names["run_id"])
    question = await api.desk.approvals.of_run(run.id) if run.state == "asking" else None
    return answer(described(run, question))


async def events(api: ApiService, call: Call) -> web.StreamResponse:
    """Every event once, in order, from behind the last one that the reader has seen; then it closes."""
    run = (await api.own_run(call, call.names["run_id"])).id
    return await sse.stream(call.request, _frames(api, run, _last_seen(call)))


async def stop(api: ApiService, call: Call) -> web.StreamResponse:
    run = await api.own_run(call, call.names["run_id"])
    stopping = run.outcome is None and await api.desk.stop(run.id, call.key.name)
    if stopping:
        return answer({"object": "run", "run_id": run.id, "status": "stopping"})
    return answer({"object": "run", "run_id": run.id, "status": status_of(await api.desk.run(run.id))})


async def steer(api: ApiService, call: Call) -> web.StreamResponse:
    """Hands a message to a run at work; if the run ends before it reads the message, that is a run of its own."""
    body = await read_json(call.request)
    # Whose run it is comes before what is said to it: nothing is told about the runs of others.
    run = await api.own_run(call, call.names["run_id"])
    words = validate(RunSteer, body).words
    if not words:
        raise Problem(400, "say in input what the run should take into account", "invalid_steer_input", param="input")
    said = await api.steer(call, run, words, body)
    return answer({"object": "run.steer", "run_id": run.id, "accepted": True, "message_id": said})


def _last_seen(call: Call) -> int:
    return headers_of(Seen, call).last or query_of(After, call).after


async def _frames(api: ApiService, run: str, after: int) -> AsyncIterator[bytes]:
    async for numbered in api.follow(run, after):
        event = _event(run, numbered)
        if event is not None:
            yield sse.frame(event, id=str(numbered.seq))


def _event(run: str, numbered: Numbered) -> dict[str, Any] | None:
    common = {"run_id": run, "timestamp": numbered.at}
    match numbered.event:
        case TextDelta(text=text):
            return {"event": "message.delta", **common, "delta": text}
        case ReasoningDelta(text=text):
            return {"event": "reasoning.delta", **common, "delta": text}
        case ToolStarted(call=call, name=name, arguments=arguments):
            return {"event": "tool.started", **common, "tool": name, "call_id": call, "preview": arguments[:PREVIEW]}
        case ToolFinished(call=call, error=error, name=name, seconds=seconds):
            told = {"tool": name, "call_id": call, "duration": seconds, "error": bool(error)}
            return {"event": "tool.completed", **common, **told}
        case ApprovalRequested() | ApprovalAnswered() as about:
            told = approvals.event_of(run, about)
            return {"event": told["event"], **common, **told}
        case Steered(text=text):
            return {"event": "run.steered", **common, "accepted": True, "input": text}
        case Restarted(attempt=attempt):
            return {"event": "run.restarted", **common, "attempt": attempt}
        case Outcome() as outcome:
            return {"event": f"run.{final_status(outcome)}", **common, **result_of(outcome)}
        case _:
            return None


def final_status(outcome: Outcome) -> str:
    """Halted is completed, but not whole, and says why."""
    return "completed" if outcome.kind is OutcomeKind.HALTED else outcome.kind.value


def result_of(outcome: Outcome) -> dict[str, Any]:
    result: dict[str, Any] = {"output": outcome.text, "usage": usage_of(outcome.usage)}
    if outcome.kind is OutcomeKind.HALTED:
        result["incomplete"] = {"reason": outcome.reason or "a limit was reached"}
    elif outcome.kind is not OutcomeKind.COMPLETED:
        result["error"] = outcome.reason or outcome.kind.value
    # What cannot be handed over here is at least named.
    if outcome.files:
        result["files"] = [file.name for file in outcome.files]
    if outcome.choices:
        result["choices"] = list(outcome.choices)
    return result


def usage_of(usage: Usage | None) -> dict[str, int]:
    used = usage or Usage()
    total = used.input_tokens + used.output_tokens
    return {"input_tokens": used.input_tokens, "output_tokens": used.output_tokens, "total_tokens": total}


def status_of(run: Run) -> str:
    if run.outcome is not None:
        return final_status(run.outcome)
    if run.state == "waiting":
        return "queued"
    if run.stop_asked:
        return "stopping"
    return "waiting_for_approval" if run.state == "asking" else "running"


def described(run: Run, question: Question | None = None) -> dict[str, Any]:
    """`question` is what the run waits for."""
    place = run.message.conversation
    last = f"run.{final_status(run.outcome)}" if run.outcome else approvals.REQUEST if question else None
    about: dict[str, Any] = {
        "object": "run",
        "run_id": run.id,
        "status": status_of(run),
        "session_id": place.thread,
        "model": run.bot,
        "created_at": run.accepted,
        "updated_at": run.ended or run.accepted,
        "last_event": last,
    }
    if run.outcome:
        return about | result_of(run.outcome)
    if run.steering:
        about["pending_steer"] = run.steering
    return about | ({"approval": approvals.waiting(question)} if question else {})

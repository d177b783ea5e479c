"""Questions whether a tool call may run: the open ones, one of them, and answers by people who may."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import web

from tidings.adapters.api import approvals
from tidings.adapters.api.errors import FINAL, Problem, not_found
from tidings.adapters.api.guard import Call, read_json, validate
from tidings.adapters.api.models import ApprovalAnswer, RunApproval
from tidings.adapters.api.service import ApiService, answer
from tidings.core.desk.approvals import Answer, Question
from tidings.core.errors import Conflict, Unkeepable, Unknown
from tidings.core.redaction import one_line

NOT_ASKING = "this run does not wait for an answer"


async def list_all(api: ApiService, call: Call) -> web.StreamResponse:
    """The open questions that this person asked for or may answer, of the bots that the key is bound to."""
    found = [each for each in await api.desk.approvals.open(call.person) if _is_bound(call, each)]
    return answer({"object": "list", "data": [approvals.described(each) for each in found]})


async def look(api: ApiService, call: Call) -> web.StreamResponse:
    return answer(approvals.described(await _known(api, call, call.names["request_id"])))


async def decide(api: ApiService, call: Call) -> web.StreamResponse:
    """Answers a question by its own id: also one of a run that came by another key or from a chat."""
    given = validate(ApprovalAnswer, await read_json(call.request))
    return answer(await _answer(api, call, await _known(api, call, call.names["request_id"]), given))


async def decide_for_run(api: ApiService, call: Call) -> web.StreamResponse:
    """Answers the question that one of the key's own runs waits for."""
    given = validate(RunApproval, await read_json(call.request))
    run = (await api.own_run(call, call.names["run_id"])).id
    if given.request_id is not None:
        question: Question | None = await _known(api, call, given.request_id)
        if question is not None and question.run != run:
            raise not_found("approval")
    else:
        question = await api.desk.approvals.of_run(run)
    if question is None:
        raise Problem(409, NOT_ASKING, "approval_not_pending", headers=FINAL)
    return answer(await _answer(api, call, question, given))


async def _known(api: ApiService, call: Call, id: str) -> Question:
    """Raises the same Problem for a question that is not this person's to see as for one that never was."""
    try:
        question = await api.desk.approvals.get(call.person, id)
    except Unknown:
        raise not_found("approval") from None
    if not _is_bound(call, question):
        raise not_found("approval")
    return question


async def _answer(api: ApiService, call: Call, question: Question, given: ApprovalAnswer) -> dict[str, Any]:
    choice = approvals.CHOICES[given.choice]
    with _told():
        decided = await api.desk.approvals.answer(call.person, question.id, choice, one_line(given.reason))
    return {
        **{"object": "run.approval_response", "run_id": decided.run, "request_id": decided.id},
        **{"choice": approvals.word_of(decided.choice), "resolved": 1, "granted": decided.state is Answer.GRANTED},
        "by": decided.by,
    }


def _is_bound(call: Call, question: Question) -> bool:
    return not call.key.bots or question.bot in call.key.bots


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except Unknown:
        raise not_found("approval") from None
    except Unkeepable as error:
        raise Problem(403, str(error), "not_an_approver") from None
    except Conflict as error:
        raise Problem(409, str(error), "approval_not_pending", headers=FINAL) from None

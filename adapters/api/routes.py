"""Every route of the API with the scope and the permission that it asks for: the whole surface on one page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from aiohttp import web
from pydantic import BaseModel

from tidings.adapters.api import models
from tidings.adapters.api.guard import Call
from tidings.adapters.api.handlers import (
    about,
    approvals,
    board,
    chat,
    conversations,
    notify,
    openapi,
    people,
    responses,
    runs,
    schedules,
    usage,
)
from tidings.adapters.api.service import ApiService, answer
from tidings.core.desk.people import Scope
from tidings.core.roles import Permission

Handler = Callable[[ApiService, Call], Awaitable[web.StreamResponse]]


class Endpoint(NamedTuple):
    """A request needs a key with the scope, of a person with the permission; without both it is open to everybody.

    All but the handler is for /openapi.json, too.
    """

    method: str
    path: str
    scope: Scope | None
    needs: Permission | None
    handler: Handler
    about: str
    body: type[BaseModel] | None = None
    query: type[BaseModel] | None = None
    headers: type[BaseModel] = models.Caller
    status: int = 200
    # How it answers when all goes well.
    media: tuple[str, ...] = ("application/json",)
    # What may go wrong here besides what may go wrong with every request of this kind.
    faults: tuple[int, ...] = ()
    # Its own refusals are a plain sentence; those of the gate are as everywhere.
    plain: bool = False
    cancel_when_gone: bool = False


async def describe(api: ApiService, call: Call) -> web.StreamResponse:
    return answer(openapi.describe(ENDPOINTS, (await api.desk.health()).version))


async def capabilities(api: ApiService, call: Call) -> web.StreamResponse:
    return answer(about.capabilities(api, call, ((each.method, each.path) for each in ENDPOINTS)))


CHAT, RUNS, NOTIFY, ADMIN = Scope.CHAT, Scope.RUNS, Scope.NOTIFY, Scope.ADMIN
BOARD, SCHEDULES, PEOPLE, AUDIT = Scope.BOARD, Scope.SCHEDULES, Scope.PEOPLE, Scope.AUDIT
APPROVE = Scope.APPROVE
TALK, WORK, ADMIT, OPERATE = Permission.TALK, Permission.WORK, Permission.PEOPLE, Permission.OPERATE
JSON, EVENTS, PLAIN = "application/json", "text/event-stream", "text/plain"

ENDPOINTS = (
    Endpoint("GET", "/health", None, None, about.health, "Is the gateway up?"),
    Endpoint("GET", "/v1/health", None, None, about.health, "Is the gateway up?"),
    Endpoint(
        "GET", "/health/detailed", ADMIN, OPERATE, about.health_in_detail, "Store, adapters, queues and last errors."
    ),
    Endpoint("GET", "/metrics", ADMIN, OPERATE, about.metrics, "Counts and times for Prometheus.", media=(PLAIN,)),
    Endpoint("GET", "/openapi.json", CHAT, TALK, describe, "This description."),
    Endpoint("GET", "/v1/models", CHAT, TALK, about.models, "The bots, each as a model."),
    Endpoint("GET", "/v1/models/{id}", CHAT, TALK, about.model, "Get one bot, as a model."),
    Endpoint("GET", "/v1/capabilities", CHAT, TALK, capabilities, "What this server can do."),
    Endpoint(
        "POST",
        "/v1/chat/completions",
        CHAT,
        TALK,
        chat.complete,
        "One answer.",
        body=models.ChatRequest,
        headers=models.Named,
        media=(JSON, EVENTS),
        faults=(404, 424, 502),
        cancel_when_gone=True,
    ),
    Endpoint(
        "POST",
        "/v1/responses",
        CHAT,
        TALK,
        responses.create,
        "One response.",
        body=models.ResponseRequest,
        headers=models.Named,
        media=(JSON, EVENTS),
        faults=(404, 424, 502),
        cancel_when_gone=True,
    ),
    Endpoint(
        "GET",
        "/v1/responses/{id}",
        CHAT,
        TALK,
        responses.look,
        "Get a response again, or stream its events.",
        query=models.Again,
        media=(JSON, EVENTS),
        cancel_when_gone=True,
    ),
    Endpoint(
        "GET",
        "/v1/responses/{id}/input_items",
        CHAT,
        TALK,
        responses.input_items,
        "List the input of a response.",
        query=models.InputItems,
    ),
    Endpoint("POST", "/v1/responses/{id}/cancel", CHAT, TALK, responses.cancel, "Ask a response to end."),
    Endpoint("DELETE", "/v1/responses/{id}", CHAT, TALK, responses.delete, "Forget a response."),
    Endpoint(
        "POST",
        "/v1/runs",
        RUNS,
        TALK,
        runs.begin,
        "Begin a run that goes on by itself.",
        body=models.RunRequest,
        headers=models.Named,
        status=202,
        faults=(404,),
    ),
    Endpoint("GET", "/v1/runs/{run_id}", RUNS, TALK, runs.look, "Get the state of a run."),
    Endpoint(
        "GET",
        "/v1/runs/{run_id}/events",
        RUNS,
        TALK,
        runs.events,
        "Its events, from any point.",
        query=models.After,
        headers=models.Seen,
        media=(EVENTS,),
        cancel_when_gone=True,
    ),
    Endpoint("POST", "/v1/runs/{run_id}/stop", RUNS, TALK, runs.stop, "Ask a run to end."),
    Endpoint(
        "POST",
        "/v1/runs/{run_id}/steer",
        RUNS,
        TALK,
        runs.steer,
        "Tell a run at work something: it takes that into account at its next step.",
        body=models.RunSteer,
        headers=models.Named,
        faults=(409,),
    ),
    # Who may answer which question is decided question by question, as for the words of a chat.
    Endpoint(
        "POST",
        "/v1/runs/{run_id}/approval",
        APPROVE,
        TALK,
        approvals.decide_for_run,
        "Answer the question that a run waits for.",
        body=models.RunApproval,
    ),
    Endpoint(
        "GET",
        "/v1/approvals",
        APPROVE,
        TALK,
        approvals.list_all,
        "Questions that wait for an answer, the oldest first.",
    ),
    Endpoint("GET", "/v1/approvals/{request_id}", APPROVE, TALK, approvals.look, "Get one question."),
    Endpoint(
        "POST",
        "/v1/approvals/{request_id}",
        APPROVE,
        TALK,
        approvals.decide,
        "Answer a question.",
        body=models.ApprovalAnswer,
    ),
    Endpoint(
        "POST",
        "/v1/notify",
        NOTIFY,
        WORK,
        notify.notify,
        "Owe a text to a target.",
        body=models.NotifyRequest,
        headers=models.Repeatable,
        status=202,
        faults=(404,),
    ),
    Endpoint("GET", "/v1/deliveries/{delivery_id}", NOTIFY, WORK, notify.look, "What became of a text."),
    Endpoint(
        "GET",
        "/v1/conversations",
        CHAT,
        TALK,
        conversations.list_all,
        "Your conversations, the newest first.",
        query=models.Page,
    ),
    Endpoint(
        "GET",
        "/v1/conversations/{id}/messages",
        CHAT,
        TALK,
        conversations.messages,
        "What was said in one.",
        query=models.Page,
    ),
    Endpoint(
        "GET", "/api/jobs", SCHEDULES, WORK, schedules.list_all, "What is planned.", query=models.Listed, plain=True
    ),
    Endpoint("POST", "/api/jobs", SCHEDULES, WORK, schedules.create, "Plan a job.", body=models.JobRequest, plain=True),
    Endpoint("GET", "/api/jobs/{id}", SCHEDULES, WORK, schedules.look, "A job.", faults=(400,), plain=True),
    Endpoint(
        "PATCH", "/api/jobs/{id}", SCHEDULES, WORK, schedules.change, "Change a job.", body=models.JobChange, plain=True
    ),
    Endpoint("DELETE", "/api/jobs/{id}", SCHEDULES, WORK, schedules.delete, "Remove a job.", faults=(400,), plain=True),
    Endpoint(
        "POST", "/api/jobs/{id}/pause", SCHEDULES, WORK, schedules.pause, "Let it rest.", faults=(400,), plain=True
    ),
    Endpoint(
        "POST", "/api/jobs/{id}/resume", SCHEDULES, WORK, schedules.resume, "Go on with it.", faults=(400,), plain=True
    ),
    Endpoint(
        "POST", "/api/jobs/{id}/run", SCHEDULES, WORK, schedules.run, "Run it now.", faults=(400, 409), plain=True
    ),
    Endpoint(
        "GET",
        "/api/jobs/{id}/runs",
        SCHEDULES,
        WORK,
        schedules.runs,
        "How its runs went.",
        query=models.Runs,
        plain=True,
    ),
    Endpoint("GET", "/api/board/cards", BOARD, WORK, board.list_all, "What is on the board.", query=models.Cards),
    Endpoint(
        "POST",
        "/api/board/cards",
        BOARD,
        WORK,
        board.create,
        "Put a card on the board.",
        body=models.CardRequest,
        headers=models.Repeatable,
        status=201,
    ),
    Endpoint("GET", "/api/board/cards/{id}", BOARD, WORK, board.look, "All of a card."),
    Endpoint(
        "POST",
        "/api/board/cards/{id}/comments",
        BOARD,
        WORK,
        board.comment,
        "Write on a card.",
        body=models.CardComment,
        headers=models.Repeatable,
    ),
    Endpoint(
        "POST",
        "/api/board/cards/{id}/files",
        BOARD,
        WORK,
        board.attach,
        "Attach to a card.",
        body=models.CardAttachment,
    ),
    Endpoint(
        "POST",
        "/api/board/cards/{id}/unblock",
        BOARD,
        WORK,
        board.unblock,
        "Let a card go on.",
        body=models.CardSummary,
    ),
    Endpoint(
        "POST",
        "/api/board/cards/{id}/complete",
        BOARD,
        WORK,
        board.complete,
        "Say that it is done.",
        body=models.CardSummary,
    ),
    Endpoint(
        "POST", "/api/board/cards/{id}/block", BOARD, WORK, board.block, "Set a card aside.", body=models.CardBlock
    ),
    Endpoint(
        "POST",
        "/api/board/cards/{id}/parents",
        BOARD,
        WORK,
        board.link,
        "Let it wait for another.",
        body=models.CardParent,
    ),
    Endpoint(
        "POST",
        "/api/board/cards/{id}/watchers",
        BOARD,
        WORK,
        board.watch,
        "Who is told of it.",
        body=models.CardWatcher,
    ),
    Endpoint("POST", "/api/board/cards/{id}/archive", BOARD, WORK, board.archive, "End and archive it.", faults=(409,)),
    Endpoint("GET", "/v1/people", PEOPLE, ADMIT, people.list_all, "Everybody who is known."),
    Endpoint(
        "POST",
        "/v1/people",
        PEOPLE,
        ADMIT,
        people.admit,
        "Admit somebody.",
        body=models.PersonRequest,
        status=201,
        faults=(404,),
    ),
    Endpoint("GET", "/v1/people/waiting", PEOPLE, ADMIT, people.waiting, "The strangers who wait to be admitted."),
    Endpoint("GET", "/v1/people/{id}", PEOPLE, ADMIT, people.look, "Get one person."),
    Endpoint(
        "PATCH",
        "/v1/people/{id}",
        PEOPLE,
        ADMIT,
        people.change,
        "Change a person's role or name.",
        body=models.PersonChange,
    ),
    Endpoint("DELETE", "/v1/people/{id}", PEOPLE, ADMIT, people.remove, "Remove a person.", faults=(409,)),
    Endpoint("POST", "/v1/people/{id}/block", PEOPLE, ADMIT, people.block, "Block a person.", faults=(409,)),
    Endpoint(
        "POST", "/v1/people/{id}/link", PEOPLE, ADMIT, people.link, "Make two persons one.", body=models.PersonLink
    ),
    # Who may see others' usage is decided by the request's person.
    Endpoint(
        "GET",
        "/v1/usage",
        Scope.USAGE,
        Permission.BASICS,
        usage.report,
        "What people, bots or chats have used; without the right to see others', your own.",
        query=models.UsageQuery,
    ),
    Endpoint("GET", "/v1/audit", AUDIT, OPERATE, people.audit, "Who changed what.", query=models.Page),
)

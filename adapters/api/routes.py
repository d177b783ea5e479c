"""Every route of the API with the scope that it asks for: the whole surface on one page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from aiohttp import web
from pydantic import BaseModel

from tidings.adapters.api import models
from tidings.adapters.api.guard import Call
from tidings.adapters.api.handlers import about, board, chat, conversations, notify, openapi, responses, runs, schedules
from tidings.adapters.api.keys import Scope
from tidings.adapters.api.service import ApiService, answer

Handler = Callable[[ApiService, Call], Awaitable[web.StreamResponse]]


class Endpoint(NamedTuple):
    """Without a scope it is open to everybody; all but the handler is for /openapi.json, too."""

    method: str
    path: str
    scope: Scope | None
    handler: Handler
    about: str
    body: type[BaseModel] | None = None
    query: type[BaseModel] | None = None
    headers: type[BaseModel] | None = None
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
    return answer(about.capabilities(api, ((each.method, each.path) for each in ENDPOINTS)))


CHAT, RUNS, NOTIFY, ADMIN = Scope.CHAT, Scope.RUNS, Scope.NOTIFY, Scope.ADMIN
JSON, EVENTS, PLAIN = "application/json", "text/event-stream", "text/plain"

ENDPOINTS = (
    Endpoint("GET", "/health", None, about.health, "Is the gateway up?"),
    Endpoint("GET", "/v1/health", None, about.health, "Is the gateway up?"),
    Endpoint("GET", "/health/detailed", ADMIN, about.health_in_detail, "Store, adapters, queues and last errors."),
    Endpoint("GET", "/metrics", ADMIN, about.metrics, "Counts and times for Prometheus.", media=(PLAIN,)),
    Endpoint("GET", "/openapi.json", CHAT, describe, "This description."),
    Endpoint("GET", "/v1/models", CHAT, about.models, "The bots, each as a model."),
    Endpoint("GET", "/v1/models/{id}", CHAT, about.model, "Get one bot, as a model."),
    Endpoint("GET", "/v1/capabilities", CHAT, capabilities, "What this server can do."),
    Endpoint(
        "POST",
        "/v1/chat/completions",
        CHAT,
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
        responses.look,
        "Get a response again, or stream its events.",
        query=models.Again,
        headers=models.Person,
        media=(JSON, EVENTS),
        cancel_when_gone=True,
    ),
    Endpoint(
        "GET",
        "/v1/responses/{id}/input_items",
        CHAT,
        responses.input_items,
        "List the input of a response.",
        query=models.InputItems,
        headers=models.Person,
    ),
    Endpoint(
        "POST", "/v1/responses/{id}/cancel", CHAT, responses.cancel, "Ask a response to end.", headers=models.Person
    ),
    Endpoint("DELETE", "/v1/responses/{id}", CHAT, responses.delete, "Forget a response.", headers=models.Person),
    Endpoint(
        "POST",
        "/v1/runs",
        RUNS,
        runs.begin,
        "Begin a run that goes on by itself.",
        body=models.RunRequest,
        headers=models.Named,
        status=202,
        faults=(404,),
    ),
    Endpoint("GET", "/v1/runs/{run_id}", RUNS, runs.look, "Get the state of a run.", headers=models.Person),
    Endpoint(
        "GET",
        "/v1/runs/{run_id}/events",
        RUNS,
        runs.events,
        "Its events, from any point.",
        query=models.After,
        headers=models.Seen,
        media=(EVENTS,),
        cancel_when_gone=True,
    ),
    Endpoint("POST", "/v1/runs/{run_id}/stop", RUNS, runs.stop, "Ask a run to end.", headers=models.Person),
    Endpoint(
        "POST",
        "/v1/notify",
        NOTIFY,
        notify.notify,
        "Owe a text to a target.",
        body=models.NotifyRequest,
        headers=models.Repeatable,
        status=202,
        faults=(404,),
    ),
    Endpoint("GET", "/v1/deliveries/{delivery_id}", NOTIFY, notify.look, "What became of a text."),
    Endpoint(
        "GET",
        "/v1/conversations",
        CHAT,
        conversations.list_all,
        "Your conversations, the newest first.",
        query=models.Page,
        headers=models.Person,
    ),
    Endpoint(
        "GET",
        "/v1/conversations/{id}/messages",
        CHAT,
        conversations.messages,
        "What was said in one.",
        query=models.Page,
        headers=models.Person,
    ),
    Endpoint("GET", "/api/jobs", ADMIN, schedules.list_all, "What is planned.", query=models.Listed, plain=True),
    Endpoint("POST", "/api/jobs", ADMIN, schedules.create, "Plan a job.", body=models.JobRequest, plain=True),
    Endpoint("GET", "/api/jobs/{id}", ADMIN, schedules.look, "A job.", faults=(400,), plain=True),
    Endpoint("PATCH", "/api/jobs/{id}", ADMIN, schedules.change, "Change a job.", body=models.JobChange, plain=True),
    Endpoint("DELETE", "/api/jobs/{id}", ADMIN, schedules.delete, "Remove a job.", faults=(400,), plain=True),
    Endpoint("POST", "/api/jobs/{id}/pause", ADMIN, schedules.pause, "Let it rest.", faults=(400,), plain=True),
    Endpoint("POST", "/api/jobs/{id}/resume", ADMIN, schedules.resume, "Go on with it.", faults=(400,), plain=True),
    Endpoint("POST", "/api/jobs/{id}/run", ADMIN, schedules.run, "Run it now.", faults=(400, 409), plain=True),
    Endpoint("GET", "/api/jobs/{id}/runs", ADMIN, schedules.runs, "How its runs went.", query=models.Runs, plain=True),
    Endpoint("GET", "/api/board/cards", ADMIN, board.list_all, "What is on the board.", query=models.Cards),
    Endpoint(
        "POST",
        "/api/board/cards",
        ADMIN,
        board.create,
        "Put a card on the board.",
        body=models.CardRequest,
        headers=models.Repeatable,
        status=201,
    ),
    Endpoint("GET", "/api/board/cards/{id}", ADMIN, board.look, "All of a card."),
    Endpoint(
        "POST",
        "/api/board/cards/{id}/comments",
        ADMIN,
        board.comment,
        "Write on a card.",
        body=models.CardComment,
        headers=models.Repeatable,
    ),
    Endpoint(
        "POST", "/api/board/cards/{id}/files", ADMIN, board.attach, "Attach to a card.", body=models.CardAttachment
    ),
    Endpoint(
        "POST", "/api/board/cards/{id}/unblock", ADMIN, board.unblock, "Let a card go on.", body=models.CardSummary
    ),
    Endpoint(
        "POST", "/api/board/cards/{id}/complete", ADMIN, board.complete, "Say that it is done.", body=models.CardSummary
    ),
    Endpoint("POST", "/api/board/cards/{id}/block", ADMIN, board.block, "Set a card aside.", body=models.CardBlock),
    Endpoint(
        "POST", "/api/board/cards/{id}/parents", ADMIN, board.link, "Let it wait for another.", body=models.CardParent
    ),
    Endpoint(
        "POST", "/api/board/cards/{id}/watchers", ADMIN, board.watch, "Who is told of it.", body=models.CardWatcher
    ),
    Endpoint("POST", "/api/board/cards/{id}/archive", ADMIN, board.archive, "End and archive it.", faults=(409,)),
)

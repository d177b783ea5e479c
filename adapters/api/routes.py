"""Every route of the API with the scope that it asks for: the whole surface on one page."""

from __future__ import annotations

from adapters.api import about, chat, conversations, notify, responses, runs
from adapters.api.endpoint import Endpoint
from adapters.api.keys import Scope
from adapters.api.models import (
    After,
    ChatRequest,
    Named,
    NotifyRequest,
    Page,
    Repeatable,
    ResponseRequest,
    RunRequest,
    Seen,
)

CHAT, RUNS, NOTIFY, ADMIN = Scope.CHAT, Scope.RUNS, Scope.NOTIFY, Scope.ADMIN
JSON, EVENTS, PLAIN = "application/json", "text/event-stream", "text/plain"

ENDPOINTS = (
    Endpoint("GET", "/health", None, about.health, "Is somebody there?"),
    Endpoint("GET", "/v1/health", None, about.health, "Is somebody there?"),
    Endpoint("GET", "/health/detailed", ADMIN, about.health_in_detail, "Store, adapters, queues and last errors."),
    Endpoint("GET", "/metrics", ADMIN, about.metrics, "Counts and times for Prometheus.", media=(PLAIN,)),
    Endpoint("GET", "/openapi.json", CHAT, about.openapi, "This description."),
    Endpoint("GET", "/v1/models", CHAT, about.models, "The bots, each as a model."),
    Endpoint("GET", "/v1/capabilities", CHAT, about.capabilities, "What this server can do."),
    Endpoint(
        "POST",
        "/v1/chat/completions",
        CHAT,
        chat.complete,
        "One answer.",
        body=ChatRequest,
        headers=Named,
        media=(JSON, EVENTS),
        faults=(404, 502),
        cancel_when_gone=True,
    ),
    Endpoint(
        "POST",
        "/v1/responses",
        CHAT,
        responses.create,
        "One response.",
        body=ResponseRequest,
        headers=Named,
        media=(JSON, EVENTS),
        faults=(404, 502),
        cancel_when_gone=True,
    ),
    Endpoint("GET", "/v1/responses/{id}", CHAT, responses.look, "A response again."),
    Endpoint("DELETE", "/v1/responses/{id}", CHAT, responses.delete, "Forget a response."),
    Endpoint(
        "POST",
        "/v1/runs",
        RUNS,
        runs.begin,
        "Begin a run that goes on by itself.",
        body=RunRequest,
        headers=Named,
        status=202,
        faults=(404,),
    ),
    Endpoint("GET", "/v1/runs/{run_id}", RUNS, runs.look, "How a run fares."),
    Endpoint(
        "GET",
        "/v1/runs/{run_id}/events",
        RUNS,
        runs.events,
        "Its events, from any point.",
        query=After,
        headers=Seen,
        media=(EVENTS,),
        cancel_when_gone=True,
    ),
    Endpoint("POST", "/v1/runs/{run_id}/stop", RUNS, runs.stop, "Ask a run to end."),
    Endpoint(
        "POST",
        "/v1/notify",
        NOTIFY,
        notify.notify,
        "Owe a text to a target.",
        body=NotifyRequest,
        headers=Repeatable,
        status=202,
        faults=(404,),
    ),
    Endpoint("GET", "/v1/deliveries/{delivery_id}", NOTIFY, notify.look, "What became of a text."),
    Endpoint(
        "GET", "/v1/conversations", CHAT, conversations.list_all, "Your conversations, the newest first.", query=Page
    ),
    Endpoint(
        "GET", "/v1/conversations/{id}/messages", CHAT, conversations.messages, "What was said in one.", query=Page
    ),
)

"""Serves requests: each passes the guard, runs under its key, and is answered whatever happens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, cast

from aiohttp import web

from tidings.adapters.api.errors import Problem, unstored
from tidings.adapters.api.guard import BODY_BYTES, Call, Gate, check_kind, unauthorised
from tidings.adapters.api.keys import Keys, Revoked
from tidings.adapters.api.routes import ENDPOINTS, Endpoint
from tidings.adapters.api.service import ApiService, answer
from tidings.core.adapter import Server
from tidings.core.desk.people import Key
from tidings.core.errors import Unstored

if TYPE_CHECKING:
    from tidings.adapters.shared.http_request import Request

SAFE = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}
NO_KEY = Key("", "", "", (), 0.0)

Served = Callable[["Request", Mapping[str, str]], Awaitable[web.StreamResponse]]


def routes(api: ApiService, gate: Gate, keys: Keys, server: Server) -> Iterator[AbstractAsyncContextManager[None]]:
    """Every endpoint; and where pages may call us, what their browsers ask first."""
    for endpoint in ENDPOINTS:
        yield server.route(
            endpoint.method,
            endpoint.path,
            _answering(gate, _serving(api, gate, keys, endpoint)),
            body_bytes=BODY_BYTES,
            cancel_when_gone=endpoint.cancel_when_gone,
        )
    if api.settings.origins:
        for path in dict.fromkeys(endpoint.path for endpoint in ENDPOINTS):
            methods = ", ".join(endpoint.method for endpoint in ENDPOINTS if endpoint.path == path)
            yield server.route("OPTIONS", path, _answering(gate, _inviting(gate, methods)))


def _answering(
    gate: Gate, served: Served
) -> Callable[[web.BaseRequest, Mapping[str, str]], Awaitable[web.StreamResponse]]:
    async def handle(plain: web.BaseRequest, names: Mapping[str, str]) -> web.StreamResponse:
        request = cast("Request", plain)
        request.answer_headers = SAFE | gate.shared_with(request)
        try:
            gate.check_place(request)
            return await served(request, names)
        except (Problem, Unstored) as error:
            problem = unstored(error) if isinstance(error, Unstored) else error
            if request.has_begun:
                request.cut_off()
            return answer(problem.body, problem.status, problem.headers)

    return handle


def _serving(api: ApiService, gate: Gate, keys: Keys, endpoint: Endpoint) -> Served:
    async def serve(request: Request, names: Mapping[str, str]) -> web.StreamResponse:
        scope, needs = endpoint.scope, endpoint.needs
        if scope is None or needs is None:
            return await endpoint.handler(api, Call(request, names, NO_KEY))
        call = await gate.admit(request, names, scope, needs)
        if endpoint.method != "GET":
            check_kind(request)
        try:
            with api.handling():
                async with keys.serving(lambda: gate.check(call.key, call.user, scope, needs)):
                    return await endpoint.handler(api, call)
        except Revoked as error:
            raise unauthorised(str(error)) from None

    return serve


def _inviting(gate: Gate, methods: str) -> Served:
    async def invite(request: Request, names: Mapping[str, str]) -> web.StreamResponse:
        return gate.invite(request, methods)

    return invite

"""Slack's socket: takes calls over HTTP, answers them, and lets connections suffer as the faults demand."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from email.utils import formatdate
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from aiohttp import web

from tests.simulators.slack.calls import Calls
from tests.simulators.slack.faults import Fault, Faults
from tests.simulators.slack.files import LOGIN_PAGE
from tests.simulators.slack.requests import Requests
from tests.simulators.slack.sockets import Sockets, reset
from tests.simulators.slack.texts import Refusal
from tests.simulators.slack.truth import Call, Truth

UPLOAD_BYTES = 64 * 2**20
# Handlers are cancelled with their connections, so there is nothing to wait for.
CLOSE_SECONDS = 1.0
PLAIN = "text/plain"


class Answer(NamedTuple):
    status: int
    body: bytes
    type: str = "application/json"
    headers: dict[str, str] = {}


class Switchboard:
    """The port is ours from the first moment to `close`; `open` and `shut` may alternate in between."""

    def __init__(self, calls: Calls, sockets: Sockets, requests: Requests, faults: Faults, truth: Truth) -> None:
        self._calls = calls
        self._sockets = sockets
        self._requests = requests
        self._faults = faults
        self._truth = truth
        self.tells_date = True
        self._runner: web.AppRunner | None = None
        self._listener: asyncio.Server | None = None
        # Bound and never listening: it keeps the port ours through an outage.
        self._reservation = _bind(0)
        self.port: int = self._reservation.getsockname()[1]
        calls.socket_url = f"ws://127.0.0.1:{self.port}"

    @property
    def connections(self) -> int:
        return len(self._runner.server.connections) if self._runner and self._runner.server else 0

    async def open(self) -> None:
        if self._runner is None:
            app = web.Application(client_max_size=UPLOAD_BYTES)
            app.router.add_route("*", "/{path:.*}", self._serve)
            self._runner = web.AppRunner(
                app, handler_cancellation=True, access_log=None, shutdown_timeout=CLOSE_SECONDS
            )
            await self._runner.setup()
        if self._listener is None:
            loop = asyncio.get_running_loop()
            assert self._runner.server is not None
            self._listener = await loop.create_server(self._runner.server, sock=_bind(self.port))
        self._requests.up.set()

    async def shut(self) -> None:
        self._requests.up.clear()
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        # Who has just been let in is thrown out too.
        while self.connections:
            self.cut()
            await asyncio.sleep(0)

    async def close(self) -> None:
        await self.shut()
        if self._runner is not None:
            await self._runner.cleanup()
        await self._requests.close()
        self._reservation.close()

    def cut(self) -> None:
        if self._runner is not None and self._runner.server is not None:
            for connection in self._runner.server.connections:
                reset(connection.transport)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._route(request)
        except (ConnectionError, web.HTTPException):
            raise
        except Exception as error:
            # Ours: who closes the simulator hears of it.
            self._truth.mishaps.append(error)
            raise

    async def _route(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        if path.startswith("/link"):
            return await self._sockets.serve(request)
        if path.startswith("/api/"):
            return await self._api(request, path.removeprefix("/api/").strip("/"))
        bearer = _bearer(request)
        if path.startswith("/upload/"):
            data = await _upload(request)
            call = self._truth.arrived("upload", "", {"path": path, "length": len(data)})
            return await self._answer(request, call, lambda: self._take(path, data))
        if path.startswith("/files-pri/"):
            call = self._truth.arrived("download", "", {"path": path, "authorized": bool(bearer)})
            return await self._answer(request, call, lambda: self._give(bearer, path))
        if path.startswith("/response/"):
            body = await _body(request)
            call = self._truth.arrived("response_url", "", body if isinstance(body, dict) else {})
            return await self._answer(request, call, lambda: self._respond(path, body))
        return web.Response(status=404, text="Not Found")

    async def _api(self, request: web.Request, method: str) -> web.StreamResponse:
        token = _bearer(request)
        try:
            params = await _arguments(request)
        except Refusal as refusal:
            call = self._truth.arrived(method, "", {})
            return self._tell(call, refusal.error, _refused(refusal))
        # In a form the token may stand among the arguments, and it is not for the record.
        is_json = request.content_type == "application/json"
        named = str(params.pop("token", "") or "")
        token = token or ("" if is_json else named)
        team = self._calls.team(token)
        call = self._truth.arrived(method, team.name if team else "", params)

        def perform() -> Answer:
            result = self._calls.perform(method, token, params, is_json=is_json)
            scopes = {"X-OAuth-Scopes": ",".join(team.scopes)} if team else {}
            return Answer(200, json.dumps({"ok": True, **result}, ensure_ascii=False).encode(), headers=scopes)

        return await self._answer(request, call, perform)

    def _take(self, path: str, data: bytes) -> Answer:
        self._calls.shelf.receive(path, data)
        return Answer(200, f"OK - {len(data)}".encode(), PLAIN)

    def _give(self, token: str, path: str) -> Answer:
        file = self._calls.shelf.fetch(self._calls.team(token), path)
        return Answer(200, LOGIN_PAGE, "text/html") if file is None else Answer(200, file.data, file.type)

    def _respond(self, path: str, body: Any) -> Answer:
        self._calls.messages.respond(path, body)
        return Answer(200, b'{"ok":true}')

    async def _answer(self, request: web.Request, call: Call, perform: Callable[[], Answer]) -> web.StreamResponse:
        try:
            return await self._decide(request, call, perform)
        except asyncio.CancelledError:
            if not self._truth.calls[call.order].verdict:
                self._truth.decided(call, "gone")
            raise

    async def _decide(self, request: web.Request, call: Call, perform: Callable[[], Answer]) -> web.StreamResponse:
        fault = self._faults.take(call.method, call.channel or call.account)
        if fault is not None and not fault.after_effect:
            if fault.action == "fail":
                return self._tell(call, fault.told, _told(fault))
            if fault.action in ("drop", "hang"):
                return await self._lose(request, call, fault)
            await _wait(fault)
            fault = None
        try:
            answer = perform()
        except Refusal as refusal:
            return self._tell(call, refusal.error, _refused(refusal))
        if fault is not None:
            match fault.action:
                case "fail":
                    return self._tell(call, f"ok, told {fault.told}", _told(fault))
                case "drop" | "hang":
                    return await self._lose(request, call, fault)
                case "garble":
                    self._truth.decided(call, fault.lost, answer.status)
                    return self._say(answer._replace(body=answer.body[: len(answer.body) // 2]))
                case "truncate":
                    return await self._truncate(request, call, fault, answer)
                case _:
                    await _wait(fault)
        return self._tell(call, "ok", answer)

    def _tell(self, call: Call, verdict: str, answer: Answer) -> web.Response:
        is_told = answer.type == "application/json" and answer.body.startswith(b"{")
        self._truth.decided(call, verdict, answer.status, json.loads(answer.body) if is_told else None)
        return self._say(answer)

    def _say(self, answer: Answer) -> web.Response:
        """With the platform's own time, in whole seconds, as every server tells it."""
        headers = {"Date": formatdate(self._truth.wall(), usegmt=True) if self.tells_date else ""} | answer.headers
        return web.Response(status=answer.status, body=answer.body, content_type=answer.type, headers=headers)

    async def _lose(self, request: web.Request, call: Call, fault: Fault) -> web.StreamResponse:
        self._truth.decided(call, fault.lost)
        if fault.action == "drop":
            reset(request.transport)
        return await _forever()

    async def _truncate(self, request: web.Request, call: Call, fault: Fault, answer: Answer) -> web.StreamResponse:
        self._truth.decided(call, fault.lost)
        response = web.StreamResponse(headers={"Content-Type": answer.type, "Content-Length": str(len(answer.body))})
        await response.prepare(request)
        await response.write(answer.body[: len(answer.body) // 2])
        if request.transport is not None:
            request.transport.close()
        return await _forever()


def _bind(port: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind(("127.0.0.1", port))
    return bound


async def _forever() -> web.StreamResponse:
    """Ends with the connection, by cancellation."""
    await asyncio.Event().wait()
    raise AssertionError("nobody sets this")


async def _wait(fault: Fault) -> None:
    if fault.gate is not None:
        await fault.gate.wait()
    else:
        await asyncio.sleep(fault.seconds)


def _bearer(request: web.Request) -> str:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


async def _arguments(request: web.Request) -> dict[str, Any]:
    params: dict[str, Any] = dict(request.query)
    body = await request.read()
    if request.method == "GET" or not body:
        return params
    match request.content_type:
        case "application/json":
            try:
                value = json.loads(body)
            except ValueError:
                raise Refusal("invalid_json") from None
            if not isinstance(value, dict):
                raise Refusal("json_not_object")
            return params | {name: each for name, each in value.items() if each is not None}
        case "application/x-www-form-urlencoded":
            return params | dict(parse_qsl(body.decode(), keep_blank_values=True))
        case "multipart/form-data":
            return params | {name: str(value) for name, value in (await request.post()).items()}
        case _:
            raise Refusal("invalid_post_type")


async def _body(request: web.Request) -> Any:
    data = await request.read()
    try:
        return json.loads(data)
    except ValueError:
        return None


async def _upload(request: web.Request) -> bytes:
    if not request.content_type.startswith("multipart/"):
        return await request.read()
    for field in (await request.post()).values():
        if isinstance(field, web.FileField):
            return field.file.read()
    return b""


def _refused(refusal: Refusal) -> Answer:
    headers = {} if refusal.retry_after is None else {"Retry-After": str(refusal.retry_after)}
    body = {"ok": False, "error": refusal.error, **refusal.fields}
    return Answer(refusal.status, json.dumps(body).encode(), headers=headers)


def _told(fault: Fault) -> Answer:
    if fault.body:
        return Answer(fault.status, fault.body, fault.type)
    return _refused(Refusal(fault.error, status=fault.status, retry_after=fault.retry_after))

"""Slack's socket: takes calls over HTTP, answers them, and lets connections suffer as the faults demand."""

from __future__ import annotations

import json
from collections.abc import Callable
from email.utils import formatdate
from typing import Any
from urllib.parse import parse_qsl

from aiohttp import web

from tests.simulators.shared import switchboard
from tests.simulators.shared.switchboard import Answer, Told
from tests.simulators.slack.calls import Calls
from tests.simulators.slack.faults import Fault, Faults
from tests.simulators.slack.files import LOGIN_PAGE
from tests.simulators.slack.requests import Requests
from tests.simulators.slack.sockets import Sockets
from tests.simulators.slack.texts import Refusal
from tests.simulators.slack.truth import Call, Truth

UPLOAD_BYTES = 64 * 2**20
PLAIN = "text/plain"


class Switchboard(switchboard.Switchboard[Fault]):
    request_bytes = UPLOAD_BYTES
    _truth: Truth

    def __init__(self, calls: Calls, sockets: Sockets, requests: Requests, faults: Faults, truth: Truth) -> None:
        super().__init__(truth)
        self._calls = calls
        self._sockets = sockets
        self._requests = requests
        self._faults = faults
        self.tells_date = True
        calls.socket_url = f"ws://127.0.0.1:{self.port}"

    async def open(self) -> None:
        await super().open()
        self._requests.up.set()

    async def shut(self) -> None:
        self._requests.up.clear()
        await super().shut()

    async def close(self) -> None:
        await super().close()
        await self._requests.close()

    async def _take(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        if path.startswith("/link"):
            return await self._sockets.serve(request)
        if path.startswith("/api/"):
            return await self._api(request, path.removeprefix("/api/").strip("/"))
        bearer = _bearer(request)
        if path.startswith("/upload/"):
            data = await _upload(request)
            call = self._truth.arrived("upload", "", params={"path": path, "length": len(data)})
            return await self._meet(request, call, lambda: self._receive(path, data))
        if path.startswith("/files-pri/"):
            call = self._truth.arrived("download", "", params={"path": path, "authorized": bool(bearer)})
            return await self._meet(request, call, lambda: self._give(bearer, path))
        if path.startswith("/response/"):
            body = await _body(request)
            call = self._truth.arrived("response_url", "", params=body if isinstance(body, dict) else {})
            return await self._meet(request, call, lambda: self._say(path, body))
        return web.Response(status=404, text="Not Found")

    async def _api(self, request: web.Request, method: str) -> web.StreamResponse:
        token = _bearer(request)
        try:
            params = await _arguments(request)
        except Refusal as refusal:
            call = self._truth.arrived(method, "", params={})
            return self._tell(call, Told(refusal.error, _refused(refusal)))
        # In a form the token may stand among the arguments, and it is not for the record.
        is_json = request.content_type == "application/json"
        named = str(params.pop("token", "") or "")
        token = token or ("" if is_json else named)
        team = self._calls.team(token)
        call = self._truth.arrived(method, team.name if team else "", params=params)

        def perform() -> Answer:
            result = self._calls.perform(method, token, params, is_json=is_json)
            scopes = {"X-OAuth-Scopes": ",".join(team.scopes)} if team else {}
            return Answer(200, json.dumps({"ok": True, **result}, ensure_ascii=False).encode(), headers=scopes)

        return await self._meet(request, call, perform)

    def _receive(self, path: str, data: bytes) -> Answer:
        self._calls.shelf.receive(path, data)
        return Answer(200, f"OK - {len(data)}".encode(), PLAIN)

    def _give(self, token: str, path: str) -> Answer:
        file = self._calls.shelf.fetch(self._calls.team(token), path)
        return Answer(200, LOGIN_PAGE, "text/html") if file is None else Answer(200, file.data, file.type)

    def _say(self, path: str, body: Any) -> Answer:
        self._calls.messages.respond(path, body)
        return Answer(200, b'{"ok":true}')

    async def _meet(self, request: web.Request, call: Call, perform: Callable[[], Answer]) -> web.StreamResponse:
        """Lets the fault that is due befall the call, and the platform answer it."""
        fault = self._faults.take(call.method, call.channel or call.account)

        async def told() -> Told:
            try:
                return Told("ok", perform())
            except Refusal as refusal:
                return Told(refusal.error, _refused(refusal))

        return await self._answer(request, call, fault, told)

    def _record(self, answer: Answer) -> dict[str, Any]:
        return {"status": answer.status, "result": _result(answer)}

    def _respond(self, answer: Answer) -> web.Response:
        """With the platform's own time, in whole seconds, as every server tells it."""
        date = formatdate(self._truth.wall(), usegmt=True) if self.tells_date else ""
        return super()._respond(answer._replace(headers={"Date": date, **answer.headers}))

    def _failure(self, fault: Fault) -> Answer:
        if fault.body:
            return Answer(fault.status, fault.body, fault.type)
        return _refused(Refusal(fault.error, status=fault.status, retry_after=fault.retry_after))


def _result(answer: Answer) -> dict[str, Any]:
    """The JSON object that a caller was told; empty where there was none, or only half of one."""
    if answer.type != "application/json" or not answer.body.startswith(b"{"):
        return {}
    try:
        result: dict[str, Any] = json.loads(answer.body)
    except ValueError:
        return {}
    return result


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

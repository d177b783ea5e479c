"""Telegram's socket: takes calls over HTTP, answers them, and lets connections suffer as the faults demand."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from aiohttp import web

from tests.simulators.telegram.calls import Calls
from tests.simulators.telegram.chats import Bot
from tests.simulators.telegram.faults import Fault, Faults
from tests.simulators.telegram.files import UPLOAD_BYTES, Upload
from tests.simulators.telegram.texts import Refusal
from tests.simulators.telegram.truth import Call, Truth
from tests.simulators.telegram.webhook import Webhooks

# What the platform has and this simulator has not.
UNSIMULATED = {
    name.lower()
    for name in (
        *("sendMediaGroup", "sendVideo", "sendAudio", "sendAnimation", "sendSticker", "sendLocation", "sendPoll"),
        *("editMessageCaption", "editMessageMedia", "deleteMessages", "forwardMessage", "copyMessage"),
        *("pinChatMessage", "unpinChatMessage", "getChat", "getChatMember", "getChatAdministrators", "leaveChat"),
        *("createForumTopic", "editForumTopic", "closeForumTopic", "deleteForumTopic", "deleteMyCommands"),
        *("answerInlineQuery", "getUserProfilePhotos", "setChatMenuButton", "logOut", "close"),
    )
}
_CALL = re.compile(r"/bot([^/]+)/(\w+)/?")
_FILE = re.compile(r"/file/bot([^/]+)/(.+)")
_TOKEN = re.compile(r"\d+:[\w-]{3,}")
# A slow body comes in so many bits.
BITS = 20
# Handlers are cancelled with their connections, so there is nothing to wait for.
CLOSE_SECONDS = 1.0


class Answer(NamedTuple):
    status: int
    body: bytes
    type: str = "application/json"


class Switchboard:
    """The port is ours from the first moment to `close`; `open` and `shut` may alternate in between."""

    def __init__(self, calls: Calls, webhooks: Webhooks, faults: Faults, truth: Truth, upload_limit: int) -> None:
        self._calls = calls
        self._webhooks = webhooks
        self._faults = faults
        self._truth = truth
        self._upload_limit = upload_limit
        self.revoked: set[str] = set()
        self._runner: web.AppRunner | None = None
        self._listener: asyncio.Server | None = None
        # Bound and never listening: it keeps the port ours through an outage.
        self._reservation = _bind(0)
        self.port: int = self._reservation.getsockname()[1]

    @property
    def connections(self) -> int:
        return len(self._runner.server.connections) if self._runner and self._runner.server else 0

    async def open(self) -> None:
        if self._runner is None:
            app = web.Application(client_max_size=UPLOAD_BYTES + 2**20)
            app.router.add_route("*", "/{path:.*}", self._serve)
            self._runner = web.AppRunner(
                app, handler_cancellation=True, access_log=None, shutdown_timeout=CLOSE_SECONDS
            )
            await self._runner.setup()
        if self._listener is None:
            loop = asyncio.get_running_loop()
            assert self._runner.server is not None
            self._listener = await loop.create_server(self._runner.server, sock=_bind(self.port))
        self._webhooks.up.set()

    async def shut(self) -> None:
        self._webhooks.up.clear()
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
        await self._webhooks.close()
        self._reservation.close()

    def cut(self) -> None:
        if self._runner is not None and self._runner.server is not None:
            for connection in self._runner.server.connections:
                _reset(connection.transport)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        if found := _FILE.fullmatch(request.path):
            return await self._fetch(request, *found.groups())
        found = _CALL.fullmatch(request.path)
        if found is None:
            return _respond(_failure(404, "Not Found"))
        if (request.content_length or 0) > self._upload_limit:
            return _respond(_failure(413, "Request Entity Too Large"))
        try:
            params, uploads = await _read(request)
        except web.HTTPRequestEntityTooLarge:
            return _respond(_failure(413, "Request Entity Too Large"))
        except ValueError:
            return _respond(_failure(400, "Bad Request: can't parse the request"))
        token, named = found.groups()
        bot = self._bot(token)
        method = self._method(named)
        call = self._truth.arrived(
            method or named,
            bot.account if bot else "",
            params,
            {field: upload.name for field, upload in uploads.items()},
        )
        try:
            return await self._answer(request, call, token, method, uploads)
        except asyncio.CancelledError:
            if not self._truth.calls[call.order].verdict:
                self._truth.decided(call, "gone")
            raise

    def _bot(self, token: str) -> Bot | None:
        bots = self._calls.chats.bots.values()
        return next((bot for bot in bots if bot.token == token and token not in self.revoked), None)

    def _method(self, named: str) -> str:
        """The method as it is written; empty where there is none."""
        names = [*self._calls.names, "getUpdates", "setWebhook", "deleteWebhook", "getWebhookInfo"]
        return next((name for name in names if name.lower() == named.lower()), "")

    async def _answer(
        self, request: web.Request, call: Call, token: str, method: str, uploads: dict[str, Upload]
    ) -> web.StreamResponse:
        # Polls have no chat; each bot's have lots of their own.
        fault = self._faults.take(call.method, call.chat or call.account)
        if fault is not None and not fault.after_effect:
            if fault.action == "fail":
                return self._tell(call, str(fault.code), _told(fault))
            if fault.action in ("drop", "hang"):
                return await self._lose(request, call, fault)
            if fault.action in ("delay", "hold"):
                await _wait(fault)
                fault = None
        try:
            result = await self._perform(call, token, method, uploads)
        except Refusal as refusal:
            answer = _failure(refusal.code, refusal.description, refusal.parameters)
            return self._tell(call, str(refusal.code), answer, refusal.description)
        answer = Answer(200, json.dumps({"ok": True, "result": result}, ensure_ascii=False).encode())
        if fault is not None:
            match fault.action:
                case "fail":
                    return self._tell(call, f"ok, told {fault.code}", _told(fault))
                case "drop" | "hang":
                    return await self._lose(request, call, fault)
                case "garble":
                    self._truth.decided(call, fault.lost)
                    return _respond(answer._replace(body=answer.body[: len(answer.body) // 2]))
                case "truncate":
                    return await self._truncate(request, call, fault, answer)
                case "slow":
                    return await self._dribble(request, call, fault, answer)
                case _:
                    await _wait(fault)
        return self._tell(call, "ok", answer, json.dumps(result, ensure_ascii=False))

    async def _perform(self, call: Call, token: str, method: str, uploads: dict[str, Upload]) -> Any:
        bot = self._bot(token)
        if bot is None:
            is_token = _TOKEN.fullmatch(token)
            raise Refusal(401, "Unauthorized") if is_token else Refusal(404, "Not Found")
        match method:
            case "":
                # Loudly, lest somebody takes it for the platform's word.
                is_real = call.method.lower() in UNSIMULATED
                raise Refusal(501, f"the simulator has no {call.method}") if is_real else Refusal(404, "Not Found")
            case "getUpdates":
                updates = await bot.queue.get(call.params)
                if self._bot(token) is not bot:
                    raise Refusal(401, "Unauthorized")
                return updates
            case "setWebhook":
                return self._webhooks.set(bot, call.params)
            case "deleteWebhook":
                return self._webhooks.delete(bot, call.params)
            case "getWebhookInfo":
                return self._webhooks.info(bot)
            case _:
                return self._calls.perform(method, bot, call.params, uploads)

    def _tell(self, call: Call, verdict: str, answer: Answer, result: str = "") -> web.Response:
        self._truth.decided(call, verdict, result)
        return _respond(answer)

    async def _lose(self, request: web.Request, call: Call, fault: Fault) -> web.StreamResponse:
        self._truth.decided(call, fault.lost)
        if fault.action == "drop":
            _reset(request.transport)
        return await _forever()

    async def _truncate(self, request: web.Request, call: Call, fault: Fault, answer: Answer) -> web.StreamResponse:
        self._truth.decided(call, fault.lost)
        response = web.StreamResponse(headers={"Content-Type": answer.type, "Content-Length": str(len(answer.body))})
        await response.prepare(request)
        await response.write(answer.body[: len(answer.body) // 2])
        if request.transport is not None:
            request.transport.close()
        return await _forever()

    async def _dribble(self, request: web.Request, call: Call, fault: Fault, answer: Answer) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": answer.type, "Content-Length": str(len(answer.body))})
        await response.prepare(request)
        step = max(1, len(answer.body) // BITS)
        for begin in range(0, len(answer.body), step):
            await response.write(answer.body[begin : begin + step])
            await asyncio.sleep(fault.seconds / BITS)
        self._truth.decided(call, "ok")
        await response.write_eof()
        return response

    async def _fetch(self, request: web.Request, token: str, path: str) -> web.StreamResponse:
        call = self._truth.arrived("file", "", {"path": path}, {})
        fault = self._faults.take("file", "")
        if fault is not None:
            if fault.action == "fail":
                return self._tell(call, str(fault.code), _told(fault))
            if fault.action in ("drop", "hang"):
                return await self._lose(request, call, fault)
            if fault.action in ("delay", "hold"):
                await _wait(fault)
        if self._bot(token) is None or path not in self._calls.shelf.paths:
            return self._tell(call, "404", _failure(404, "Not Found"))
        answer = Answer(200, self._calls.shelf.paths[path].data, "application/octet-stream")
        if fault is not None and fault.action in ("garble", "truncate"):
            return await self._truncate(request, call, fault, answer)
        if fault is not None and fault.action == "slow":
            return await self._dribble(request, call, fault, answer)
        return self._tell(call, "ok", answer)


def _bind(port: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind(("127.0.0.1", port))
    return bound


def _reset(transport: asyncio.BaseTransport | None) -> None:
    """Ends the connection as a dying network does: no goodbye, what was unsent is lost."""
    if transport is None:
        return
    peer = transport.get_extra_info("socket")
    if peer is not None and peer.fileno() >= 0:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    if isinstance(transport, asyncio.Transport):
        transport.abort()


async def _forever() -> web.StreamResponse:
    """Ends with the connection, by cancellation."""
    await asyncio.Event().wait()
    raise AssertionError("nobody sets this")


async def _wait(fault: Fault) -> None:
    if fault.gate is not None:
        await fault.gate.wait()
    else:
        await asyncio.sleep(fault.seconds)


async def _read(request: web.Request) -> tuple[dict[str, str], dict[str, Upload]]:
    params = dict(request.query)
    uploads: dict[str, Upload] = {}
    if request.content_type.startswith("multipart/"):
        reader = await request.multipart()
        while (part := await reader.next()) is not None:
            data = bytes(await part.read(decode=False))  # type: ignore[union-attr]
            name = part.name or ""  # type: ignore[union-attr]
            if part.filename is not None:  # type: ignore[union-attr]
                uploads[name] = Upload(part.filename, data)  # type: ignore[union-attr]
            else:
                params[name] = data.decode()
    elif request.content_type == "application/json":
        body = json.loads(await request.read() or b"{}")
        if not isinstance(body, dict):
            raise ValueError("not an object")
        params |= {name: _plain(value) for name, value in body.items() if value is not None}
    else:
        params |= dict(parse_qsl((await request.read()).decode(), keep_blank_values=True))
    return params, uploads


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _failure(code: int, description: str, parameters: dict[str, int] | None = None) -> Answer:
    body = {"ok": False, "error_code": code, "description": description}
    return Answer(code, json.dumps(body | ({"parameters": parameters} if parameters else {})).encode())


def _told(fault: Fault) -> Answer:
    if fault.body:
        return Answer(fault.code, fault.body, "text/html")
    return _failure(fault.code, fault.description, fault.parameters)


def _respond(answer: Answer) -> web.Response:
    return web.Response(status=answer.status, body=answer.body, content_type=answer.type)

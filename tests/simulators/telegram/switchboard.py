"""Telegram's socket: takes calls over HTTP, answers them, and lets connections suffer as the faults demand."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl

from aiohttp import web

from tests.simulators.shared import switchboard
from tests.simulators.shared.switchboard import Answer, Told
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


class Switchboard(switchboard.Switchboard[Fault]):
    request_bytes = UPLOAD_BYTES + 2**20
    _truth: Truth

    def __init__(self, calls: Calls, webhooks: Webhooks, faults: Faults, truth: Truth, upload_limit: int) -> None:
        super().__init__(truth)
        self._calls = calls
        self._webhooks = webhooks
        self._faults = faults
        self._upload_limit = upload_limit
        self.revoked: set[str] = set()

    async def open(self) -> None:
        await super().open()
        self._webhooks.up.set()

    async def shut(self) -> None:
        self._webhooks.up.clear()
        await super().shut()

    async def close(self) -> None:
        await super().close()
        await self._webhooks.close()

    async def _take(self, request: web.Request) -> web.StreamResponse:
        if found := _FILE.fullmatch(request.path):
            return await self._fetch(request, *found.groups())
        found = _CALL.fullmatch(request.path)
        if found is None:
            return self._respond(_refused(404, "Not Found"))
        if (request.content_length or 0) > self._upload_limit:
            return self._respond(_refused(413, "Request Entity Too Large"))
        try:
            params, uploads = await _read(request)
        except web.HTTPRequestEntityTooLarge:
            return self._respond(_refused(413, "Request Entity Too Large"))
        except ValueError:
            return self._respond(_refused(400, "Bad Request: can't parse the request"))
        token, named = found.groups()
        bot = self._bot(token)
        method = self._method(named)
        call = self._truth.arrived(
            method or named,
            bot.account if bot else "",
            params=params,
            files={field: upload.name for field, upload in uploads.items()},
        )
        # Polls have no chat; each bot's have draws of their own.
        fault = self._faults.take(call.method, call.chat or call.account)

        async def perform() -> Told:
            try:
                result = await self._perform(call, token, method, uploads)
            except Refusal as refusal:
                answer = _refused(refusal.code, refusal.description, refusal.parameters)
                return Told(str(refusal.code), answer, {"result": refusal.description})
            answer = Answer(200, json.dumps({"ok": True, "result": result}, ensure_ascii=False).encode())
            return Told("ok", answer, {"result": json.dumps(result, ensure_ascii=False)})

        return await self._answer(request, call, fault, perform)

    def _bot(self, token: str) -> Bot | None:
        bots = self._calls.chats.bots.values()
        return next((bot for bot in bots if bot.token == token and token not in self.revoked), None)

    def _method(self, named: str) -> str:
        """The method as it is written; empty where there is none."""
        names = [*self._calls.names, "getUpdates", "setWebhook", "deleteWebhook", "getWebhookInfo"]
        return next((name for name in names if name.lower() == named.lower()), "")

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

    async def _fetch(self, request: web.Request, token: str, path: str) -> web.StreamResponse:
        call = self._truth.arrived("file", "", params={"path": path}, files={})
        fault = self._faults.take("file", "")
        if fault is not None and fault.action == "garble":
            # Half of a file cannot be told from a whole one; the end of the connection can.
            fault = replace(fault, action="truncate")

        async def perform() -> Told:
            if self._bot(token) is None or path not in self._calls.shelf.paths:
                return Told("404", _refused(404, "Not Found"))
            return Told("ok", Answer(200, self._calls.shelf.paths[path].data, "application/octet-stream"))

        return await self._answer(request, call, fault, perform)

    def _failure(self, fault: Fault) -> Answer:
        if fault.body:
            return Answer(fault.code, fault.body, "text/html")
        return _refused(fault.code, fault.description, fault.parameters)


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


def _refused(code: int, description: str, parameters: dict[str, int] | None = None) -> Answer:
    body = {"ok": False, "error_code": code, "description": description}
    return Answer(code, json.dumps(body | ({"parameters": parameters} if parameters else {})).encode())

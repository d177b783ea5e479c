"""Discord's socket: takes calls over HTTP, hands sockets to the gateway, and lets connections suffer as told."""

from __future__ import annotations

import json
from email.utils import formatdate
from typing import Any
from urllib.parse import unquote

from aiohttp import web

from tests.simulators.discord.faults import BANNED, FILE, VIA, Fault, Faults, limited
from tests.simulators.discord.gateway import Gateway
from tests.simulators.discord.places import Bot, Places
from tests.simulators.discord.rates import Rates
from tests.simulators.discord.refusals import Refusal, Upload, invalid, unauthorized, unsimulated
from tests.simulators.discord.routes import OPEN, ROOT, Ask, Handler, find
from tests.simulators.discord.shapes import hash_of
from tests.simulators.discord.truth import Call, Truth
from tests.simulators.shared import switchboard, truth
from tests.simulators.shared.switchboard import Answer, Told

REQUEST_BYTES = 110 * 2**20
JSON = "application/json"
# What must be an id where it stands in a path.
NUMBERS = ("channel", "message", "guild", "user", "application", "interaction")


class Switchboard(switchboard.Switchboard[Fault]):
    request_bytes = REQUEST_BYTES
    expected = (ConnectionError,)
    _truth: Truth

    def __init__(self, faults: Faults, rates: Rates, truth: Truth, places: Places) -> None:
        super().__init__(truth)
        self._faults = faults
        self._rates = rates
        self._places = places
        self.handlers: dict[str, Handler] = {}
        self.tells_date = True
        self.gateway: Gateway | None = None

    async def _take(self, request: web.Request) -> web.StreamResponse:
        if request.path in ("/gateway", "/resume"):
            assert self.gateway is not None
            return await self.gateway.serve(request)
        path = request.rel_url.raw_path
        is_file = path.startswith("/attachments/")
        found = None if is_file else find(request.method, path.removeprefix(ROOT)) if path.startswith(ROOT) else None
        method, at = (FILE, {}) if is_file else found or ("", {})
        bot = self._bot(request)
        problem: Refusal | None = None
        body: Any = None
        uploads: dict[str, Upload] = {}
        try:
            body, uploads = await _read(request)
        except Refusal as refusal:
            problem = refusal
        call = self._truth.arrived(
            method,
            bot.account if bot else self._owner(at),
            verb=request.method,
            path=path.removeprefix(ROOT),
            query=dict(request.query),
            channel=at.get("channel", ""),
            body=body,
            files={field: upload.name for field, upload in uploads.items()},
        )
        ask = Ask(caller=bot, at=at, query=request.query, body=body, uploads=uploads)
        if self._rates.is_banned:
            return self._tell(call, Told("429", Answer(429, BANNED, "text/plain")))
        lane = self._places.lane(call.channel)
        fault = self._faults.take(call.method, f"{call.verb} {call.path}", call.channel, lane)

        async def perform() -> Told:
            return self._perform(call, ask, problem)

        return await self._answer(request, call, fault, perform)

    def _bot(self, request: web.Request) -> Bot | None:
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        return self._places.bot_by_token(token) if kind == "Bot" else None

    def _owner(self, at: dict[str, str]) -> str:
        """Whose call it is where only the path tells."""
        asked = (each for each in self._truth.interactions.values() if each.token == at.get("token"))
        return next((each.account for each in asked), "")

    def _perform(self, call: Call, ask: Ask, problem: Refusal | None) -> Told:
        turn = self._rates.admit(call.account, call.method, call.channel)
        if turn.pause:
            refused = self._failure(limited(turn.pause, is_global=turn.is_global))
            return Told("429", refused._replace(headers={**refused.headers, **turn.headers}))
        try:
            if problem is not None:
                raise problem
            answer = self._handle(call, ask)
        except Refusal as refusal:
            body = json.dumps(refusal.body).encode()
            refused = Answer(refusal.status, body, headers=VIA | turn.headers)
            return Told(str(refusal.status), refused, {"code": refusal.code})
        return Told("ok", answer._replace(headers={**VIA, **turn.headers, **answer.headers}))

    def _handle(self, call: Call, ask: Ask) -> Answer:
        if call.method == FILE:
            return self._fetch(call)
        if not call.method:
            is_api = call.path.startswith("/") and not call.path.startswith("/api/")
            raise unsimulated(f"{call.verb} {call.path}") if is_api else Refusal(404, 0, "404: Not Found")
        if ask.caller is None and call.method not in OPEN:
            raise unauthorized()
        for name in NUMBERS:
            if not ask.at.get(name, "0").isdigit():
                raise invalid(f"{name}_id", "NUMBER_TYPE_COERCE", f'Value "{ask.at[name]}" is not snowflake.')
        reply = self.handlers[call.method](ask)
        body = b"" if reply.body is None else json.dumps(reply.body, ensure_ascii=False).encode()
        return Answer(reply.status, body)

    def _fetch(self, call: Call) -> Answer:
        """From the store of files: whoever has the address may read, while it lasts."""
        channel, id, name = (*call.path.split("/")[2:], "", "", "")[:3]
        messages = self._truth.messages.values()
        files = (file for each in messages if each.channel == channel for file in each.files if file.id == id)
        file = next(files, None)
        signed = file is not None and call.query.get("hm") == f"{hash_of(file):x}"
        is_fresh = file is not None and self._places.wall() < file.until
        if file is None or file.name != unquote(name) or not signed or not is_fresh:
            return Answer(404, b"This content is no longer available.", "text/plain")
        return Answer(200, file.data, file.type)

    def _tell(self, call: truth.Call, told: Told) -> web.Response:
        self._rates.count(told.answer.status)
        return super()._tell(call, told)

    def _record(self, answer: Answer) -> dict[str, Any]:
        return {"status": answer.status}

    def _respond(self, answer: Answer) -> web.Response:
        """Without a charset in the content type: the platform sends none, and a client may compare."""
        headers = {**self._date(), **answer.headers, **({"Content-Type": answer.type} if answer.body else {})}
        return web.Response(status=answer.status, body=answer.body or None, headers=headers)

    def _failure(self, fault: Fault) -> Answer:
        return Answer(fault.status, fault.body, fault.type, fault.headers)

    def _date(self) -> dict[str, str]:
        """As every server says it: the platform's own time, in whole seconds."""
        return {"Date": formatdate(self._places.wall(), usegmt=True) if self.tells_date else ""}


async def _read(request: web.Request) -> tuple[Any, dict[str, Upload]]:
    uploads: dict[str, Upload] = {}
    if not request.can_read_body:
        return None, uploads
    if request.content_type.startswith("multipart/"):
        text = b"{}"
        reader = await request.multipart()
        while (part := await reader.next()) is not None:
            data = bytes(await part.read(decode=False))  # type: ignore[union-attr]
            if part.name == "payload_json":  # type: ignore[union-attr]
                text = data
            elif part.filename is not None:  # type: ignore[union-attr]
                uploads[part.name or ""] = Upload(part.filename, data)  # type: ignore[union-attr]
    else:
        text = await request.read()
        if text and request.content_type != JSON:
            raise Refusal(400, 50035, "Expected \"Content-Type\" header to be one of {'application/json'}.")
    try:
        return json.loads(text) if text else None, uploads
    except ValueError:
        raise Refusal(400, 50109, "The request body contains invalid JSON.") from None

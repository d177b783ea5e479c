"""Discord's socket: takes calls over HTTP, hands sockets to the gateway, and lets connections suffer as told."""

from __future__ import annotations

import asyncio
import json
from email.utils import formatdate
from typing import Any, NamedTuple
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
from tests.simulators.discord.wire import bind, reset

REQUEST_BYTES = 110 * 2**20
# A slow body comes in so many bits.
BITS = 20
# Handlers are cancelled with their connections, so there is nothing to wait for.
CLOSE_SECONDS = 1.0
JSON = "application/json"
# What must be an id where it stands in a path.
NUMBERS = ("channel", "message", "guild", "user", "application", "interaction")


class Answer(NamedTuple):
    status: int
    body: bytes
    # Without a charset: the platform sends none, and a client may compare.
    type: str = JSON
    headers: dict[str, str] = {}


class Switchboard:
    """The port is ours from the first moment to `close`; `open` and `shut` may alternate in between."""

    def __init__(self, faults: Faults, rates: Rates, truth: Truth, places: Places) -> None:
        self._faults = faults
        self._rates = rates
        self._truth = truth
        self._places = places
        self.handlers: dict[str, Handler] = {}
        self.tells_date = True
        self.gateway: Gateway | None = None
        self._runner: web.AppRunner | None = None
        self._listener: asyncio.Server | None = None
        # Bound and never listening: it keeps the port ours through an outage.
        self._reservation = bind(0)
        self.port: int = self._reservation.getsockname()[1]

    @property
    def connections(self) -> int:
        return len(self._runner.server.connections) if self._runner and self._runner.server else 0

    async def open(self) -> None:
        if self._runner is None:
            app = web.Application(client_max_size=REQUEST_BYTES)
            app.router.add_route("*", "/{path:.*}", self._serve)
            self._runner = web.AppRunner(
                app, handler_cancellation=True, access_log=None, shutdown_timeout=CLOSE_SECONDS
            )
            await self._runner.setup()
        if self._listener is None:
            assert self._runner.server is not None
            loop = asyncio.get_running_loop()
            self._listener = await loop.create_server(self._runner.server, sock=bind(self.port))

    async def shut(self) -> None:
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
        self._reservation.close()

    def cut(self) -> None:
        if self._runner is not None and self._runner.server is not None:
            for connection in self._runner.server.connections:
                reset(connection.transport)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        try:
            if request.path in ("/gateway", "/resume"):
                assert self.gateway is not None
                return await self.gateway.serve(request)
            return await self._take(request)
        except (asyncio.CancelledError, ConnectionError):
            raise
        except BaseException as error:
            self._truth.mishaps.append(error)
            self._truth.wake()
            raise

    async def _take(self, request: web.Request) -> web.StreamResponse:
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
            method=method,
            verb=request.method,
            path=path.removeprefix(ROOT),
            query=dict(request.query),
            account=bot.account if bot else self._owner(at),
            channel=at.get("channel", ""),
            body=body,
            files={field: upload.name for field, upload in uploads.items()},
        )
        ask = Ask(caller=bot, at=at, query=request.query, body=body, uploads=uploads)
        try:
            return await self._answer(request, call, ask, problem)
        except asyncio.CancelledError:
            if not self._truth.calls[call.order].verdict:
                self._truth.decided(call, "gone")
            raise

    def _bot(self, request: web.Request) -> Bot | None:
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        return self._places.bot_by_token(token) if kind == "Bot" else None

    def _owner(self, at: dict[str, str]) -> str:
        """Whose call it is where only the path tells."""
        asked = (each for each in self._truth.interactions.values() if each.token == at.get("token"))
        return next((each.account for each in asked), "")

    async def _answer(self, request: web.Request, call: Call, ask: Ask, problem: Refusal | None) -> web.StreamResponse:
        if self._rates.is_banned:
            return self._tell(call, "429", Answer(429, BANNED, "text/plain"))
        lane = self._places.lane(call.channel)
        fault = self._faults.take(call.method, f"{call.verb} {call.path}", call.channel, lane)
        if fault is not None and not fault.after_effect:
            if fault.action == "fail":
                return self._tell(call, str(fault.status), _told(fault))
            if fault.action in ("drop", "hang"):
                return await self._lose(request, call, fault)
            if fault.action in ("delay", "hold"):
                await _wait(fault)
                fault = None
        turn = self._rates.admit(call.account, call.method, call.channel)
        if turn.pause:
            refused = _told(limited(turn.pause, is_global=turn.is_global))
            return self._tell(call, "429", refused._replace(headers=refused.headers | turn.headers))
        try:
            if problem is not None:
                raise problem
            answer = self._perform(call, ask)
        except Refusal as refusal:
            body = json.dumps(refusal.body).encode()
            refused = Answer(refusal.status, body, headers=VIA | turn.headers)
            return self._tell(call, str(refusal.status), refused, refusal.code)
        answer = answer._replace(headers=VIA | turn.headers | answer.headers)
        if fault is not None:
            match fault.action:
                case "fail":
                    return self._tell(call, f"ok, told {fault.status}", _told(fault))
                case "drop" | "hang":
                    return await self._lose(request, call, fault)
                case "garble":
                    half = answer._replace(body=answer.body[: len(answer.body) // 2])
                    return self._tell(call, fault.lost, half)
                case "truncate":
                    return await self._truncate(request, call, fault, answer)
                case "slow":
                    return await self._dribble(request, call, fault, answer)
                case _:
                    await _wait(fault)
        return self._tell(call, "ok", answer)

    def _perform(self, call: Call, ask: Ask) -> Answer:
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

    def _tell(self, call: Call, verdict: str, answer: Answer, code: int = 0) -> web.Response:
        self._truth.decided(call, verdict, answer.status, code)
        self._rates.count(answer.status)
        headers = self._date() | answer.headers | ({"Content-Type": answer.type} if answer.body else {})
        return web.Response(status=answer.status, body=answer.body or None, headers=headers)

    def _date(self) -> dict[str, str]:
        """As every server says it: the platform's own time, in whole seconds."""
        return {"Date": formatdate(self._places.wall(), usegmt=True) if self.tells_date else ""}

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

    async def _dribble(self, request: web.Request, call: Call, fault: Fault, answer: Answer) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": answer.type, "Content-Length": str(len(answer.body))})
        await response.prepare(request)
        step = max(1, len(answer.body) // BITS)
        for begin in range(0, len(answer.body), step):
            await response.write(answer.body[begin : begin + step])
            await asyncio.sleep(fault.seconds / BITS)
        self._truth.decided(call, "ok", answer.status)
        await response.write_eof()
        return response


async def _forever() -> web.StreamResponse:
    """Ends with the connection, by cancellation."""
    await asyncio.Event().wait()
    raise AssertionError("nobody sets this")


async def _wait(fault: Fault) -> None:
    if fault.gate is not None:
        await fault.gate.wait()
    else:
        await asyncio.sleep(fault.seconds)


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


def _told(fault: Fault) -> Answer:
    return Answer(fault.status, fault.body, fault.type, fault.headers)

"""The simulated provider's socket: knows its callers by their keys, and each dialect by its path."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from aiohttp import web

from tests.simulators.provider.chat import Chat
from tests.simulators.provider.dialect import Dialect, Frame, Reply, count_input, listed
from tests.simulators.provider.errors import Refusal, Shape, invalid, too_long, unknown_model, wrong_key
from tests.simulators.provider.faults import OTHER_ANSWERS, Fault, Faults
from tests.simulators.provider.messages import Messages
from tests.simulators.provider.minds import Minds
from tests.simulators.provider.responses import Responses
from tests.simulators.provider.truth import Exchange, Truth
from tests.simulators.provider.turns import EMPTY, Answer
from tests.simulators.provider.wire import Step, Wire, plan
from tests.simulators.shared.switchboard import Port

ANTHROPIC = "/anthropic"
BODY_BYTES = 2**26
SECRETS = ("authorization", "x-api-key", "api-key", "cookie")


class Switchboard(Port):
    request_bytes = BODY_BYTES
    expected = ()

    def __init__(self, truth: Truth, faults: Faults, minds: Minds, key: str, models: Iterable[str]) -> None:
        super().__init__(truth)
        self._truth = truth
        self._faults = faults
        self._minds = minds
        self._wire = Wire(truth)
        self.key = key
        self.models = list(models)
        # The most tokens that a request may have.
        self.window: int | None = None
        self.anthropic = Messages()
        self._dialects: dict[str, Dialect] = {
            "/v1/chat/completions": Chat(),
            "/v1/responses": Responses(),
            f"{ANTHROPIC}/v1/messages": self.anthropic,
        }
        self._calls = 0
        self._is_closing = False

    async def close(self) -> None:
        self._is_closing = True
        await super().close()

    def cut(self) -> None:
        for exchange in self._truth.exchanges:
            self._truth.decided(exchange, "closed" if self._is_closing else "cut")
        super().cut()

    async def _take(self, request: web.Request) -> web.StreamResponse:
        shape: Shape = "anthropic" if request.path.startswith(ANTHROPIC) else "openai"
        dialect = self._dialects.get(request.path)
        is_list = request.method == "GET" and request.path.removeprefix(ANTHROPIC) == "/v1/models"
        body = _parse(await request.read())
        exchange = self._truth.arrived(
            request.method,
            request.path,
            dialect.api if dialect else "models" if is_list else "",
            {name.lower(): "***" if name.lower() in SECRETS else value for name, value in request.headers.items()},
            body or {},
        )
        try:
            try:
                self._admit(request, shape)
                if is_list:
                    return await self._list(request, exchange, shape)
                if dialect is None or request.method != "POST":
                    raise Refusal(404, f"Invalid URL ({request.method} {request.path})", type="invalid_request_error")
                if body is None:
                    raise invalid("We could not parse the JSON body of your request.")
                self._check(exchange, dialect)
                return await self._count(request, exchange, dialect)
            except Refusal as refusal:
                return await self._refuse(request, exchange, shape, refusal)
        except asyncio.CancelledError:
            self._truth.decided(exchange, "closed" if self._is_closing else "hung up")
            raise

    def _admit(self, request: web.Request, shape: Shape) -> None:
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        told = (request.headers.get("x-api-key") or bearer) if shape == "anthropic" else bearer
        if told != self.key:
            raise wrong_key(shape, told)

    def _check(self, exchange: Exchange, dialect: Dialect) -> None:
        body = exchange.body
        model = body.get("model")
        exchange.stream = body.get("stream") is True
        exchange.tools = listed(body, "tools")
        exchange.messages = dialect.messages(body)
        if not isinstance(model, str) or not model:
            raise invalid(
                "model: Field required" if dialect.shape == "anthropic" else "you must provide a model parameter"
            )
        exchange.model = model
        if model not in self.models:
            raise unknown_model(dialect.shape, model)
        if body.get("tools") is not None and not isinstance(body["tools"], list):
            raise invalid("Invalid type for 'tools': expected an array.", "tools", "invalid_type")
        dialect.check(body, exchange.headers)
        exchange.lines = dialect.lines(body)
        exchange.tool_names = dialect.tool_names(body)
        exchange.input_tokens = count_input(exchange.lines, exchange.tools)
        if self.window is not None and exchange.input_tokens > self.window:
            raise too_long(dialect.shape, exchange.input_tokens, self.window)

    async def _count(self, request: web.Request, exchange: Exchange, dialect: Dialect) -> web.StreamResponse:
        if not exchange.stream:
            return await self._answer(request, exchange, dialect)
        self._truth.opened()
        try:
            return await self._answer(request, exchange, dialect)
        finally:
            self._truth.shut()

    async def _answer(self, request: web.Request, exchange: Exchange, dialect: Dialect) -> web.StreamResponse:
        fault = self._faults.take(exchange.api, exchange.model, exchange.stream)
        if fault is not None:
            exchange.fault = fault.action
            await self._stumble(request, exchange, fault)
        answer = await self._think(exchange, fault)
        exchange.answer = self._named(answer, dialect).limited(dialect.limit(exchange.body))
        reply = Reply(
            exchange.order,
            int(exchange.at),
            exchange.model,
            exchange.answer,
            exchange.input_tokens,
            exchange.body,
            finish=fault is None or fault.action not in ("end", "unfinish"),
        )
        headers = {("request-id" if dialect.shape == "anthropic" else "x-request-id"): reply.id("req_")}
        if exchange.stream and exchange.fault != "whole":
            error = dialect.error(reply, _refusal(fault), fault.failed) if fault is not None else b""
            steps = plan(dialect.frames(reply), fault, error)
            headers["Content-Type"] = "text/event-stream; charset=utf-8"
        else:
            steps = self._plan_whole(reply, dialect, fault)
            size = sum(len(step.data) for step in steps)
            headers |= {"Content-Type": "application/json", "Content-Length": str(size)}
        return await self._wire.send(request, exchange, web.StreamResponse(headers=headers), steps, fault)

    def _plan_whole(self, reply: Reply, dialect: Dialect, fault: Fault | None) -> list[Step]:
        """One chunk, whose middle is the only place that is none of its ends."""
        told = dialect.whole(reply)
        if fault is not None and fault.action == "error":
            refusal = _refusal(fault)
            broken = dialect.broken(reply, refusal)
            if broken is None:
                raise refusal
            told = broken
        data = json.dumps(told, ensure_ascii=False).encode()
        if fault is not None and fault.after_chunks is not None:
            # What is missing at the end of a stream is missing in the middle of this: the JSON says so itself.
            is_said = fault.action in ("end", "error")
            fault = None if is_said else replace(fault, after_chunks=None, after_bytes=len(data) // 2)
        elif fault is not None and fault.is_first:
            fault = None
        return plan([Frame(data, "delta", reply.answer.seconds)], fault, b"")

    async def _stumble(self, request: web.Request, exchange: Exchange, fault: Fault) -> None:
        """What happens before the first byte."""
        if fault.action == "status":
            raise _refusal(fault)
        if fault.action == "unstreamed":
            raise invalid("stream is not supported", "stream", "unsupported_value")
        if fault.action in ("stall", "delay", "cut") and fault.is_first:
            await self._wire.suffer(request, exchange, fault)

    async def _think(self, exchange: Exchange, fault: Fault | None) -> Answer:
        if fault is not None and fault.action == "empty":
            return EMPTY
        try:
            answer = await self._minds.answer(exchange)
        except Refusal:
            raise
        except Exception as error:
            # The test's own function; a status that no client tries again.
            self._truth.mishaps.append(error)
            raise invalid(f"the simulator's mind failed: {error!r}", code="mishap") from error
        if fault is not None and fault.action in OTHER_ANSWERS:
            return answer.cut(fault.after_chunks or 0, "length" if fault.action == "truncate" else "filter")
        return answer

    def _named(self, answer: Answer, dialect: Dialect) -> Answer:
        """With an id for each call that has none."""
        parts = []
        for part in answer.parts:
            if part.kind == "call" and not part.id:
                self._calls += 1
                part = replace(part, id=f"{dialect.call_prefix}{self._calls:06}")
            parts.append(part)
        return replace(answer, parts=tuple(parts))

    async def _list(self, request: web.Request, exchange: Exchange, shape: Shape) -> web.StreamResponse:
        fault = self._faults.take("models", "", False)
        if fault is not None:
            exchange.fault = fault.action
            await self._stumble(request, exchange, fault)
        if shape == "anthropic":
            told: dict[str, Any] = {
                "data": [
                    {"type": "model", "id": name, "display_name": name, "created_at": "2025-01-01T00:00:00Z"}
                    for name in self.models
                ],
                "has_more": False,
                "first_id": self.models[0] if self.models else None,
                "last_id": self.models[-1] if self.models else None,
            }
        else:
            rows = [{"id": name, "object": "model", "created": 1, "owned_by": "simulator"} for name in self.models]
            told = {"object": "list", "data": rows}
        data = json.dumps(told).encode()
        headers = {"Content-Type": "application/json", "Content-Length": str(len(data))}
        steps = plan([Frame(data, "delta")], fault, b"")
        return await self._wire.send(request, exchange, web.StreamResponse(headers=headers), steps, fault)

    async def _refuse(
        self, request: web.Request, exchange: Exchange, shape: Shape, refusal: Refusal
    ) -> web.StreamResponse:
        name = f"req_{exchange.order:08}"
        data, kind = refusal.response(shape, name)
        headers = {**refusal.headers(shape, name), "Content-Type": kind, "Content-Length": str(len(data))}
        response = web.StreamResponse(status=refusal.status, headers=headers)
        return await self._wire.send(request, exchange, response, plan([Frame(data, "part")], None, b""), None)


def _refusal(fault: Fault) -> Refusal:
    return Refusal(fault.status, fault.message, code=fault.code, retry_after=fault.retry_after, body=fault.body)


def _parse(data: bytes) -> dict[str, Any] | None:
    try:
        body = json.loads(data or b"{}")
    except ValueError:
        return None
    return body if isinstance(body, dict) else None

"""The HTTP side of a simulator: a port, the calls that come in, and connections that suffer as the faults demand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from aiohttp import web

from tests.simulators.shared.faults import Fault
from tests.simulators.shared.truth import Call, News, Truth
from tests.simulators.shared.wire import bind, reset

# A slow body comes in so many bits.
BITS = 20
# Handlers are cancelled with their connections, so there is nothing to wait for.
CLOSE_SECONDS = 1.0


class Answer(NamedTuple):
    status: int
    body: bytes
    type: str = "application/json"
    headers: Mapping[str, str] = {}

    def half(self) -> Answer:
        return self._replace(body=self.body[: len(self.body) // 2])


class Told(NamedTuple):
    """How a call ended: the verdict for the record, the answer for the caller, and what else is recorded.

    Only a call that had its effect can meet a fault after that effect.
    """

    verdict: str
    answer: Answer
    fields: Mapping[str, Any] = {}

    @property
    def had_effect(self) -> bool:
        return self.verdict == "ok"


class Port:
    """The port is reserved from construction to `close`; `open` and `shut` may alternate in between."""

    # The longest body that a request may have.
    request_bytes: int
    # What a handler may raise without a fault of the simulator.
    expected: tuple[type[BaseException], ...] = (ConnectionError, web.HTTPException)

    def __init__(self, news: News) -> None:
        self._news = news
        self._runner: web.AppRunner | None = None
        self._listener: asyncio.Server | None = None
        # Bound and never listening: the reservation keeps the port through an outage.
        self._reservation = bind(0)
        self.port: int = self._reservation.getsockname()[1]

    @property
    def connections(self) -> int:
        return len(self._runner.server.connections) if self._runner and self._runner.server else 0

    async def open(self) -> None:
        if self._runner is None:
            app = web.Application(client_max_size=self.request_bytes)
            app.router.add_route("*", "/{path:.*}", self._serve)
            self._runner = web.AppRunner(
                app, handler_cancellation=True, access_log=None, shutdown_timeout=CLOSE_SECONDS
            )
            await self._runner.setup()
        if self._listener is None:
            loop = asyncio.get_running_loop()
            assert self._runner.server is not None
            self._listener = await loop.create_server(self._runner.server, sock=bind(self.port))

    async def shut(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        # A connection that was let in a moment ago is thrown out too.
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
            return await self._take(request)
        except self.expected:
            raise
        except Exception as error:
            # A fault of the simulator: the test that closes the simulator hears of it.
            self._news.mishaps.append(error)
            self._news.wake()
            raise

    async def _take(self, request: web.Request) -> web.StreamResponse:
        raise NotImplementedError


F = TypeVar("F", bound=Fault)


class Switchboard(Port, Generic[F]):
    """Answers calls one by one; a fault befalls a call before or after its effect."""

    def __init__(self, truth: Truth[Any, Any, Any]) -> None:
        super().__init__(truth)
        self._truth = truth

    async def _answer(
        self, request: web.Request, call: Call, fault: F | None, perform: Callable[[], Awaitable[Told]]
    ) -> web.StreamResponse:
        try:
            return await self._play(request, call, fault, perform)
        except asyncio.CancelledError:
            if self._truth.is_open(call):
                self._truth.decided(call, "gone")
            raise

    async def _play(
        self, request: web.Request, call: Call, fault: F | None, perform: Callable[[], Awaitable[Told]]
    ) -> web.StreamResponse:
        if fault is not None and not fault.after_effect:
            if fault.action == "fail":
                return self._tell(call, Told(fault.told, self._failure(fault)))
            if fault.action in ("drop", "hang"):
                return await self._lose(request, call, fault)
            if fault.action in ("delay", "hold"):
                await fault.wait()
                fault = None
        told = await perform()
        if fault is None or not told.had_effect:
            return self._tell(call, told)
        match fault.action:
            case "fail":
                return self._tell(call, Told(f"ok, told {fault.told}", self._failure(fault)))
            case "drop" | "hang":
                return await self._lose(request, call, fault)
            case "garble":
                return self._tell(call, Told(fault.lost, told.answer.half()))
            case "truncate":
                return await self._truncate(request, call, fault, told.answer)
            case "slow":
                return await self._dribble(request, call, fault, told.answer)
            case _:
                await fault.wait()
        return self._tell(call, told)

    def _tell(self, call: Call, told: Told) -> web.Response:
        """Records the verdict and answers."""
        self._truth.decided(call, told.verdict, **{**self._record(told.answer), **told.fields})
        return self._respond(told.answer)

    def _record(self, answer: Answer) -> dict[str, Any]:
        """What the record of a call keeps of its answer."""
        return {}

    def _respond(self, answer: Answer) -> web.Response:
        return web.Response(
            status=answer.status, body=answer.body, content_type=answer.type, headers=dict(answer.headers)
        )

    def _failure(self, fault: F) -> Answer:
        """The answer that a `fail` fault gives."""
        raise NotImplementedError

    async def _lose(self, request: web.Request, call: Call, fault: F) -> web.StreamResponse:
        self._truth.decided(call, fault.lost)
        if fault.action == "drop":
            reset(request.transport)
        return await _forever()

    async def _truncate(self, request: web.Request, call: Call, fault: F, answer: Answer) -> web.StreamResponse:
        self._truth.decided(call, fault.lost)
        response = await _prepared(request, answer)
        await response.write(answer.half().body)
        if request.transport is not None:
            request.transport.close()
        return await _forever()

    async def _dribble(self, request: web.Request, call: Call, fault: F, answer: Answer) -> web.StreamResponse:
        response = await _prepared(request, answer)
        step = max(1, len(answer.body) // BITS)
        for begin in range(0, len(answer.body), step):
            await asyncio.sleep(fault.seconds / BITS)
            await response.write(answer.body[begin : begin + step])
        self._truth.decided(call, "ok", **self._record(answer))
        await response.write_eof()
        return response


async def _prepared(request: web.Request, answer: Answer) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": answer.type, "Content-Length": str(len(answer.body))})
    await response.prepare(request)
    return response


async def _forever() -> web.StreamResponse:
    """Ends with the connection, by cancellation."""
    await asyncio.Event().wait()
    raise AssertionError("this event is never set")

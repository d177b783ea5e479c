"""How an answer of the simulated provider leaves: frame by frame, and as broken as its fault demands."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Literal, NamedTuple

from aiohttp import web

from tests.simulators.provider.dialect import Frame
from tests.simulators.provider.faults import MISSING, Fault
from tests.simulators.provider.truth import Exchange, Truth
from tests.simulators.shared.wire import reset

COMMENT = b": keep-alive\n\n"


class Step(NamedTuple):
    data: bytes = b""
    wait: float = 0.0
    # Whether it brings content.
    is_chunk: bool = False
    act: Literal["", "suffer", "end"] = ""


SUFFER, END = Step(act="suffer"), Step(act="end")


def plan(frames: list[Frame], fault: Fault | None, error: bytes) -> list[Step]:
    """What leaves, in order; `error` is what a stream says that breaks."""
    if fault is not None and fault.action in MISSING and fault.is_first:
        return _steps(_without(frames, fault))
    steps = _steps(frames)
    if fault is None or fault.is_first:
        return steps
    if fault.after_bytes is not None:
        before, after = _split(steps, fault.after_bytes)
    else:
        position = _position(frames, fault.after_chunks or 0)
        before, after = steps[:position], steps[position:]
    match fault.action:
        case "stall" | "delay" | "cut" | "comment":
            return [*before, SUFFER, *after]
        case "garble":
            return [*before, *(step._replace(data=_garble(step.data)) for step in after[:1]), *after[1:]]
        case "error":
            return [*before, Step(error), END]
        case "end":
            return [*before, END]
        case _:
            return steps


def _steps(frames: Iterable[Frame]) -> list[Step]:
    return [Step(frame.data, frame.wait, frame.kind == "delta") for frame in frames]


def _without(frames: list[Frame], fault: Fault) -> list[Frame]:
    gone = MISSING[fault.action]
    # Where nothing but the reason says that it is over, that is what is missing.
    if not any(frame.kind in gone for frame in frames):
        gone = ("finish",)
    return [frame for frame in frames if frame.kind not in gone]


def _position(frames: list[Frame], chunks: int) -> int:
    """Behind so many pieces of content, and behind all where there are not so many."""
    places = [place for place, frame in enumerate(frames) if frame.kind == "delta"]
    if not places:
        return next((place for place, frame in enumerate(frames) if frame.kind != "open"), len(frames))
    return places[0] if chunks == 0 else places[min(chunks, len(places)) - 1] + 1


def _split(steps: list[Step], size: int) -> tuple[list[Step], list[Step]]:
    for place, step in enumerate(steps):
        if size < len(step.data):
            head, tail = Step(step.data[:size], step.wait), step._replace(data=step.data[size:], wait=0.0)
            return [*steps[:place], *([head] if size else [])], [tail, *steps[place + 1 :]]
        size -= len(step.data)
    return steps, []


def _garble(data: bytes) -> bytes:
    """Half of it, with an end that makes it look whole where it is an event."""
    body = data.rstrip(b"\n")
    return body[: max(len(body) * 2 // 3, 1)] + data[len(body) :]


class Wire:
    """Writes to one connection after the other, and notes who stayed."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth

    async def send(
        self,
        request: web.Request,
        exchange: Exchange,
        response: web.StreamResponse,
        steps: list[Step],
        fault: Fault | None,
    ) -> web.StreamResponse:
        loop = asyncio.get_running_loop()
        exchange.status = response.status
        try:
            await response.prepare(request)
            due = loop.time()
            for step in steps:
                if step.act == "end":
                    break
                if step.act == "suffer":
                    assert fault is not None
                    if fault.action == "comment":
                        await self._keep_alive(response, exchange, fault)
                    else:
                        await self.suffer(request, exchange, fault)
                    due = loop.time()
                    continue
                # By a beat and not by pauses: who was late once is not late for ever.
                due += step.wait
                await asyncio.sleep(max(0.0, due - loop.time()))
                await response.write(step.data)
                exchange.sent += step.data
                exchange.chunks += step.is_chunk
                self._truth.wake()
            await response.write_eof()
        except ConnectionResetError:
            self._truth.decided(exchange, "hung up")
        self._truth.decided(exchange, "refused" if response.status >= 400 else "told")
        return response

    async def _keep_alive(self, response: web.StreamResponse, exchange: Exchange, fault: Fault) -> None:
        """As routers do while somebody else thinks."""
        assert fault.gate is not None
        while not fault.gate.is_set():
            await response.write(COMMENT)
            exchange.sent += COMMENT
            self._truth.wake()
            try:
                async with asyncio.timeout(fault.seconds):
                    await fault.gate.wait()
            except TimeoutError:
                continue

    async def suffer(self, request: web.Request, exchange: Exchange, fault: Fault) -> None:
        """Waits, or ends the connection and with it whoever calls this."""
        match fault.action:
            case "stall":
                assert fault.gate is not None
                await fault.gate.wait()
            case "delay":
                await asyncio.sleep(fault.seconds)
            case _:
                self._truth.decided(exchange, "cut")
                if fault.reset:
                    reset(request.transport)
                elif request.transport is not None:
                    request.transport.close()
                # Ends with the connection, by cancellation.
                await asyncio.Event().wait()

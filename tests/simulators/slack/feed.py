"""Slack's events on their way to the app: by a socket or by HTTP, and again until it says that it has them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.simulators.slack.faults import Faults
from tests.simulators.slack.places import App, Ids, Team
from tests.simulators.slack.requests import Requests
from tests.simulators.slack.shapes import event_of
from tests.simulators.slack.sockets import Socket, Sockets
from tests.simulators.slack.truth import Delivery, Truth
from tidings.core.clock import Timer

ACK_SECONDS = 3.0
# After each failed attempt, until the next.
RETRY_SECONDS = (0.0, 60.0, 300.0)
# By how much an event is late that is told out of order, in real seconds.
REORDER_SECONDS = 0.05
TIMEOUT = "timeout"
HTTP_TIMEOUT = "http_timeout"


@dataclass(slots=True)
class Happening:
    """One thing that the app is told of. Commands and presses are told once; only events come again."""

    id: str
    type: str
    payload: dict[str, Any]
    name: str
    account: str
    lane: str
    # Called with what came with the first answer.
    answered: Callable[[dict[str, Any]], None] = lambda answer: None
    # open, confirmed or lost.
    state: str = "open"


@dataclass(slots=True)
class Pending:
    app: App
    happening: Happening
    delivery: Delivery
    socket: Socket
    timer: Timer = field(init=False)


class Feeds:
    """Nothing waits for anything else: a socket has no order of its own, and neither has HTTP."""

    def __init__(
        self,
        truth: Truth,
        faults: Faults,
        ids: Ids,
        sockets: Sockets,
        requests: Requests,
        ack_seconds: float,
        retry_seconds: tuple[float, ...],
    ) -> None:
        self._truth = truth
        self._faults = faults
        self._ids = ids
        self._sockets = sockets
        self._requests = requests
        self.ack_seconds = ack_seconds
        self.retry_seconds = retry_seconds
        self.happenings: list[tuple[App, Happening]] = []
        # By envelope.
        self._pending: dict[str, Pending] = {}
        # Envelopes whose answer is too late by now.
        self._late: dict[str, Delivery] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        sockets.on_answer = self._answered
        sockets.on_gone = self._gone

    def tell(self, team: Team, event: dict[str, Any], name: str, lane: str) -> Happening:
        id = self._ids.next("Ev")
        payload = event_of(team, id, event, self._truth.wall())
        return self.put(team.app, Happening(id, "events_api", payload, name, team.name, lane))

    def put(self, app: App, happening: Happening) -> Happening:
        self.happenings.append((app, happening))
        if happening.type == "events_api" and self._faults.befalls("reorder", happening.lane):
            loop = asyncio.get_running_loop()
            loop.call_later(REORDER_SECONDS, lambda: self._attempt(app, happening, 0, ""))
        else:
            self._attempt(app, happening, 0, "")
        if happening.type == "events_api" and self._faults.befalls("duplicate", happening.lane):
            self._attempt(app, happening, 1, TIMEOUT)
        return happening

    def again(self, app: App, happening: Happening) -> None:
        """The last retry, whatever became of those before it."""
        self._attempt(app, happening, len(self.retry_seconds), TIMEOUT)

    def open(self) -> list[Happening]:
        return [happening for _, happening in self.happenings if happening.state == "open"]

    async def close(self) -> None:
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _attempt(self, app: App, happening: Happening, attempt: int, reason: str) -> None:
        if self._closed:
            return
        fields = {
            "event": happening.id,
            "name": happening.name,
            "account": happening.account,
            "type": happening.type,
            "attempt": attempt,
            "reason": reason,
        }
        if app.url:
            delivery = self._truth.attempted(**fields)
            task = asyncio.create_task(self._request(app, happening, delivery))
            self._tasks.add(task)
            task.add_done_callback(self._finished)
            return
        socket = self._sockets.pick(app)
        if socket is None:
            self._failed(app, happening, self._truth.attempted(**fields), "no socket", TIMEOUT)
            return
        envelope = f"00000000-0000-4000-8000-{len(self._truth.deliveries):012d}"
        delivery = self._truth.attempted(**fields, envelope=envelope, socket=socket.number)
        pending = self._pending[envelope] = Pending(app, happening, delivery, socket)
        pending.timer = self._truth.clock.call_later(self.ack_seconds, lambda: self._expired(envelope))
        socket.send(_envelope(happening, envelope, attempt, reason))

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self._truth.mishaps.append(error)

    # Socket Mode.

    def _answered(self, socket: Socket, envelope: str, answer: dict[str, Any]) -> None:
        pending = self._pending.get(envelope)
        if pending is None:
            if late := self._late.pop(envelope, None):
                self._truth.ended(late, "late", answer)
            return
        if self._faults.befalls("cut", pending.happening.lane):
            socket.abort()
            return
        del self._pending[envelope]
        pending.timer.cancel()
        self._confirmed(pending.happening, pending.delivery, answer)

    def _expired(self, envelope: str) -> None:
        pending = self._pending.pop(envelope, None)
        if pending is not None:
            self._late[envelope] = pending.delivery
            self._failed(pending.app, pending.happening, pending.delivery, TIMEOUT, TIMEOUT)

    def _gone(self, socket: Socket) -> None:
        for envelope, pending in list(self._pending.items()):
            if pending.socket is socket:
                del self._pending[envelope]
                pending.timer.cancel()
                self._failed(pending.app, pending.happening, pending.delivery, "gone", TIMEOUT)

    # HTTP.

    async def _request(self, app: App, happening: Happening, delivery: Delivery) -> None:
        verdict, answer, may_retry = await self._requests.deliver(
            app, happening.type, happening.payload, delivery.attempt, delivery.reason, self.ack_seconds
        )
        if verdict == "ok":
            self._confirmed(happening, delivery, answer)
            return
        reason = {"timeout": HTTP_TIMEOUT, "gone": "connection_failed"}.get(verdict, "http_error")
        self._failed(app, happening, delivery, verdict, reason, may_retry=may_retry)

    # What comes of it.

    def _confirmed(self, happening: Happening, delivery: Delivery, answer: dict[str, Any]) -> None:
        self._truth.ended(delivery, "ok", answer)
        if happening.state != "confirmed":
            happening.state = "confirmed"
            happening.answered(answer)

    def _failed(
        self, app: App, happening: Happening, delivery: Delivery, verdict: str, reason: str, *, may_retry: bool = True
    ) -> None:
        self._truth.ended(delivery, verdict)
        if self._closed or happening.state == "confirmed":
            return
        attempt = delivery.attempt
        if happening.type != "events_api" or attempt >= len(self.retry_seconds) or not may_retry:
            happening.state = "lost"
            self._truth.wake()
            return

        def retry() -> None:
            if happening.state == "open":
                self._attempt(app, happening, attempt + 1, reason)

        if pause := self.retry_seconds[attempt]:
            self._truth.clock.call_later(pause, retry)
        else:
            asyncio.get_running_loop().call_soon(retry)


def _envelope(happening: Happening, envelope: str, attempt: int, reason: str) -> dict[str, Any]:
    shape = {
        "envelope_id": envelope,
        "type": happening.type,
        "payload": happening.payload,
        "accepts_response_payload": happening.type != "events_api",
    }
    return shape | ({"retry_attempt": attempt, "retry_reason": reason} if happening.type == "events_api" else {})

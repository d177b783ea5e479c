"""The paper platform's socket: takes calls, pushes events, and ends connections as the faults demand."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import msgspec

from tests.simulators.paper.chats import Chats, PaperError
from tests.simulators.paper.faults import Fault, Faults
from tests.simulators.paper.feed import Feed
from tests.simulators.paper.truth import Call, Truth
from tests.simulators.paper.wire import LINE_BYTES, Answer, Confirm, Push, Refusal, Request, Result, Wire
from tests.simulators.shared.wire import bind


class Switchboard:
    """The port is ours from the first moment to `close`; `open` and `shut` may alternate in between."""

    def __init__(self, token: str, chats: Chats, faults: Faults, truth: Truth) -> None:
        self.token = token
        self.feeds: dict[str, Feed] = {}
        self.attached: dict[str, Wire] = {}
        self._chats = chats
        self._faults = faults
        self._truth = truth
        self._pumps: dict[str, asyncio.Task[None]] = {}
        self._wires: dict[asyncio.Task[None], Wire] = {}
        self._listener: asyncio.Server | None = None
        # Bound and never listening: it keeps the port ours through an outage.
        self._reservation = bind(0)
        self.port: int = self._reservation.getsockname()[1]

    @property
    def connections(self) -> int:
        return len(self._wires)

    async def open(self) -> None:
        if self._listener is None:
            self._listener = await asyncio.start_server(self._accept, sock=bind(self.port), limit=LINE_BYTES)

    async def shut(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
            self.cut()
            for task in (tasks := list(self._wires)):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def close(self) -> None:
        await self.shut()
        self._reservation.close()

    def cut(self) -> None:
        for wire in list(self._wires.values()):
            wire.reset()

    def feed(self, account: str) -> Feed:
        return self.feeds.setdefault(account, Feed(self._faults))

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = Wire(reader, writer)
        task = asyncio.get_running_loop().create_task(self._serve(wire))
        self._wires[task] = wire
        task.add_done_callback(self._served)

    def _served(self, task: asyncio.Task[None]) -> None:
        del self._wires[task]
        self._truth.wake()

    async def _serve(self, wire: Wire) -> None:
        try:
            while (line := await wire.read()) is not None:
                request = msgspec.json.decode(line, type=Request)
                if request.method == "attach":
                    await self._attach(request, wire)
                    return
                if not await self._answer(request, wire):
                    return
        except (ConnectionError, msgspec.MsgspecError):
            # The other side died or speaks nonsense; either way nobody is left to be told.
            wire.reset()
        finally:
            wire.close()

    async def _answer(self, request: Request, wire: Wire) -> bool:
        """Answers one call; false when the connection was made to suffer for it."""
        call = self._truth.arrived(request.method, request.account, ask=request.ask)
        fault = self._faults.take(request.method, request.ask.chat)
        if fault is not None and not fault.after_effect and fault.action != "fail":
            if not await self._suffer(fault, call, None, wire):
                return False
            fault = None
        result, error = self._perform(request, fault)
        verdict = "ok" if error is None else str(error.code)
        answer = Answer(id=request.id, result=result, error=error)
        if fault is not None and fault.after_effect and error is None:
            if fault.action == "fail":
                answer = Answer(id=request.id, error=_failure(fault))
                verdict = f"ok, told {fault.code}"
            elif not await self._suffer(fault, call, answer, wire):
                return False
        self._truth.decided(call, verdict)
        await wire.write(answer)
        return True

    def _perform(self, request: Request, fault: Fault | None) -> tuple[Result | None, Refusal | None]:
        if fault is not None and not fault.after_effect:
            return None, _failure(fault)
        if request.token != self.token:
            return None, Refusal(code=401, text="wrong token")
        try:
            return self._chats.perform(request.method, request.account, request.ask), None
        except PaperError as refusal:
            return None, refusal.refusal

    async def _suffer(self, fault: Fault, call: Call, answer: Answer | None, wire: Wire) -> bool:
        match fault.action:
            case "delay" | "hold":
                await fault.wait()
                return True
            case "garble":
                assert answer is not None
                self._truth.decided(call, fault.lost)
                await wire.write_half(answer)
            case "hang":
                self._truth.decided(call, fault.lost)
                await wire.gone()
            case _:
                self._truth.decided(call, fault.lost)
                wire.reset()
        return False

    async def _attach(self, request: Request, wire: Wire) -> None:
        account = request.account
        if request.token != self.token:
            await wire.write(Answer(id=request.id, error=Refusal(code=401, text="wrong token")))
            return
        feed = self.feed(account)
        if (older := self.attached.get(account)) is not None:
            # One consumer for each account: the newest, since an older one may be a dead process.
            older.reset()
        self.attached[account] = wire
        try:
            if (pumping := self._pumps.get(account)) is not None:
                # It must not take another event along into its grave.
                pumping.cancel()
                await asyncio.wait([pumping])
            if self.attached[account] is wire:
                feed.rewind()
                await self._hold(request, wire, feed)
        finally:
            # Also where the platform was shut before the first event: a dead client is not attached.
            if self.attached.get(account) is wire:
                del self.attached[account]
            self._truth.wake()

    async def _hold(self, request: Request, wire: Wire, feed: Feed) -> None:
        account = request.account
        pump = asyncio.create_task(self._pump(feed, wire, request.id))
        self._pumps[account] = pump
        try:
            while (line := await wire.read()) is not None:
                confirmed = msgspec.json.decode(line, type=Confirm).confirm
                # A confirmation that is lost makes its event come twice; those before it still count, so
                # that even a client with a long backlog gets on.
                if self._faults.befalls("cut", account):
                    wire.reset()
                    return
                self._confirm(account, feed, confirmed)
        finally:
            pump.cancel()
            await asyncio.wait([pump])

    async def _pump(self, feed: Feed, wire: Wire, greeting: str) -> None:
        try:
            await wire.write(Answer(id=greeting, result=Result()))
            self._truth.wake()
            while True:
                for event in await feed.take():
                    await wire.write(Push(event=event))
        except ConnectionError:
            wire.reset()

    def _confirm(self, account: str, feed: Feed, ids: Iterable[str]) -> None:
        for id in ids:
            if (event := feed.confirm(id, self._truth.clock.wall())) is not None:
                self._truth.confirmed.append(event.key)
                self._truth.log("confirm", account, chat=event.chat, thread=event.thread, message=id, key=event.key)


def _failure(fault: Fault) -> Refusal:
    return Refusal(code=fault.code, text="armed by the test", retry_after=fault.retry_after)

"""Calls to the paper platform, and the one place where its errors become our verdicts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from tests.simulators.paper.chats import Kind
from tests.simulators.paper.wire import (
    LINE_BYTES,
    MESSAGE_GONE,
    NOT_STREAMING,
    Answer,
    Ask,
    Refusal,
    Request,
    Result,
    Wire,
)
from tidings.core import ids
from tidings.core.errors import (
    Doubtful,
    Misconfigured,
    Moved,
    RateLimited,
    Rejected,
    SendError,
    Unfit,
    Unreachable,
    ViewLost,
)
from tidings.core.failpoints import fail_here
from tidings.core.types import Value


class PaperSettings(Value, frozen=True, kw_only=True):
    """What an account of the paper platform is configured with; `kind` is what the adapter declares."""

    address: str
    token: str = "token"
    name: str = "paper"
    kind: Kind = Kind()
    limit: int = 2000
    # Of real time: a socket does not know the clock of a test.
    call_seconds: float = 5.0
    # Of the host's clock: how long a message rests that could not be stored.
    pause_seconds: float = 1.0
    # Where fetched files go; empty means the system's folder for such things.
    downloads: str = ""


class TooLong(Unfit):
    """Carries what would have fitted, so that the next composition does."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the platform takes {limit} characters at most")
        self.limit = limit


def verdict(refusal: Refusal) -> SendError:
    """Only a refusal in the platform's own words proves that nothing was sent; a 500 proves nothing."""
    match refusal:
        case Refusal(moved_to=chat) if chat:
            return Moved(chat)
        case Refusal(code=429, retry_after=seconds, scope=scope):
            return RateLimited(seconds, scope)
        case Refusal(code=401):
            return Misconfigured(refusal.text)
        case Refusal(code=413, limit=limit):
            return TooLong(limit)
        case Refusal(code=404, text=text) if text == MESSAGE_GONE:
            return ViewLost(text)
        case Refusal(code=409, text=text) if text == NOT_STREAMING:
            return ViewLost(text)
        case Refusal(code=503):
            return Unreachable(refusal.text)
        case Refusal(code=code) if code >= 500:
            return Doubtful(refusal.text)
        case _:
            return Rejected(refusal.text)


class PaperClient:
    """Each call has a connection of its own, so that its phase is known."""

    def __init__(self, account: str, settings: PaperSettings) -> None:
        self._account = account
        self._settings = settings

    async def call(self, method: str, ask: Ask, *, harmless: str = "") -> Result:
        """A refusal with the harmless text counts as done."""
        async with self._connected() as wire:
            # From the first byte on nobody can tell what a silence means.
            line: bytes | None = None
            try:
                async with asyncio.timeout(self._settings.call_seconds):
                    await wire.write(self._request(method, ask))
                    fail_here("out.bytes_written")
                    line = await wire.read()
            except (OSError, TimeoutError) as error:
                raise Doubtful(f"{method} was sent and not answered: {error!r}") from error
            if line is None:
                raise Doubtful(f"{method} was sent and the connection ended")
            try:
                answer = msgspec.json.decode(line, type=Answer)
            except msgspec.MsgspecError as error:
                raise Doubtful(f"{method} was answered with nonsense: {error}") from error
        if answer.error is None:
            return answer.result or Result()
        if harmless and answer.error.text == harmless:
            return Result(message_id=ask.message_id)
        raise verdict(answer.error)

    async def read(self, method: str, ask: Ask) -> Result:
        """A call without effect: a lost answer leaves no doubt behind."""
        try:
            return await self.call(method, ask)
        except Doubtful as error:
            raise Unreachable(str(error)) from error

    @asynccontextmanager
    async def attached(self) -> AsyncIterator[Wire]:
        """The stream of events, once the platform has welcomed us."""
        async with self._connected() as wire:
            try:
                async with asyncio.timeout(self._settings.call_seconds):
                    await wire.write(self._request("attach", Ask()))
                    line = await wire.read()
            except (OSError, TimeoutError) as error:
                raise Unreachable(f"the platform does not greet us: {error!r}") from error
            if line is None:
                raise Unreachable("the platform hung up on us")
            welcome = msgspec.json.decode(line, type=Answer)
            if welcome.error is not None:
                raise verdict(welcome.error)
            yield wire

    def _request(self, method: str, ask: Ask) -> Request:
        return Request(id=ids.new("call"), method=method, account=self._account, token=self._settings.token, ask=ask)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Wire]:
        host, _, port = self._settings.address.rpartition(":")
        try:
            async with asyncio.timeout(self._settings.call_seconds):
                reader, writer = await asyncio.open_connection(host, int(port), limit=LINE_BYTES)
        except (OSError, TimeoutError) as error:
            raise Unreachable(f"{self._settings.address}: {error!r}") from error
        wire = Wire(reader, writer)
        try:
            yield wire
        finally:
            wire.close()

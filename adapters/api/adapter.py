"""The HTTP API as a platform: a request is a message, its run's journal is the answer, nothing is pushed."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from pathlib import Path

from tidings.adapters.api import keys
from tidings.adapters.api.guard import Gate
from tidings.adapters.api.guesses import Guesses
from tidings.adapters.api.identities import ADAPTER
from tidings.adapters.api.keys import Keys
from tidings.adapters.api.service import ApiService
from tidings.adapters.api.settings import HttpSettings
from tidings.core.adapter import Line, NearbyHost, Receive, Taken
from tidings.core.errors import Rejected, Unknown
from tidings.core.types import (
    Absent,
    Attachment,
    Body,
    Capabilities,
    Part,
    Receipt,
    SendProof,
    Signal,
    Target,
    Unreadable,
    View,
)

log = logging.getLogger(__name__)

NOTHING = Capabilities(
    # The answer is the journal's last event; a client can be told nothing afterwards.
    async_delivery=False,
    streaming_edits=False,
    send_proof=SendProof(keyed_for=0, readback=False),
    threads=False,
    reactions=False,
    buttons=False,
    files=False,
    typing=False,
    hears_all=False,
    pace=(),
    show_pace=(),
    signal_pace=(),
)


class ApiAdapter:
    name = ADAPTER

    def __init__(self, account: str, settings: HttpSettings, host: NearbyHost) -> None:
        self.account = account
        self.keys = Keys(host.desk.people, settings.key.get_secret_value())
        self._host = host
        self._guesses = Guesses(host.notebook, host.clock)
        self._gate = Gate(account, settings, self.keys, self._guesses, host.desk.people)
        self._service = ApiService(account, settings, host.desk)

    def can(self, target: Target) -> Capabilities:
        return NOTHING

    def compose(self, target: Target, body: Body) -> tuple[Body, ...]:
        return (body,)

    async def listen(self, receive: Receive) -> None:
        from tidings.adapters.api import serve

        await self._guesses.load()
        async with AsyncExitStack() as stack:
            stack.enter_context(self._service.receiving(receive))
            for route in serve.routes(self._service, self._gate, self.keys, self._host.server):
                await stack.enter_async_context(route)
            stack.enter_context(self._host.local.route("key", self._change_keys))
            await self._host.reports.reachable()
            # Cancelling is the only way out.
            await asyncio.get_running_loop().create_future()

    async def send(self, part: Part) -> Receipt:
        raise Rejected("an HTTP client cannot be sent anything; it asks")

    async def show(self, view: View, text: str) -> View:
        raise Rejected("an HTTP client follows the run's events itself")

    async def find(self, part: Part, is_taken: Taken) -> Receipt | Absent | Unreadable:
        return Unreadable(reason="nothing is ever sent here")

    async def signal(self, target: Target, signal: Signal) -> None:
        return

    async def fetch(self, attachment: Attachment) -> Path:
        raise Unknown("the API takes no attachments")

    async def close(self) -> None:
        self._service.close()

    async def _change_keys(self, line: Line) -> None:
        """The command line's way to the keys of a running gateway."""
        asked = await line.read() or {}
        await line.write(await keys.change(self.keys, self._host.desk.bots(), asked, self._host.clock.wall()))

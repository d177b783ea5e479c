"""Starter as a platform: plain messages in and out, and nothing that it cannot prove."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tidings.adapters.starter import parse
from tidings.adapters.starter.client import Client, Wire
from tidings.adapters.starter.settings import StarterSettings
from tidings.core.adapter import Host, Receive, Taken
from tidings.core.errors import Rejected, Unknown, Unreachable, Unstored
from tidings.core.outbound import splitter
from tidings.core.types import (
    Absent,
    Attachment,
    Body,
    Capabilities,
    Pace,
    Part,
    PartKind,
    Receipt,
    SendProof,
    Signal,
    Target,
    Unreadable,
    View,
)

# Starter refuses longer texts.
TEXT_CHARACTERS = 2000
# How long to wait before a message is offered again to a store that could not write.
UNSTORED_SECONDS = 1.0


class StarterAdapter:
    name = "starter"

    def __init__(self, account: str, settings: StarterSettings, host: Host) -> None:
        self.account = account
        self._host = host
        self._client = Client(settings)

    def can(self, target: Target) -> Capabilities:
        return Capabilities(
            async_delivery=True,
            streaming_edits=False,
            # Starter knows a key for a day, and answers a repeated one with the first receipt.
            send_proof=SendProof(keyed_for=86_400, readback=False),
            threads=False,
            reactions=False,
            buttons=False,
            files=False,
            typing=False,
            hears_all=True,
            pace=(Pace(key=f"starter/{self.account}/{target.chat}", seconds=0.1, burst=5),),
            show_pace=(),
            signal_pace=(),
        )

    def compose(self, target: Target, body: Body) -> tuple[Body, ...]:
        return tuple(Body(text=text) for text in splitter.split(body.text, TEXT_CHARACTERS))

    async def listen(self, receive: Receive) -> None:
        try:
            async with self._client.connect() as wire, asyncio.TaskGroup() as group:
                await wire.write({"listen": True})
                # Messages that wait for the platform are tried at once.
                await self._host.reports.reachable()
                # One chat that waits for the store must not hold up another, so each chat has a chain of tasks.
                last: dict[str, asyncio.Task[None]] = {}
                while True:
                    event = await wire.read()
                    chat = str(event["chat"])
                    last[chat] = group.create_task(self._take(event, receive, wire, last.get(chat)))
        except* (ConnectionError, Unreachable) as lost:
            raise Unreachable(f"the connection to starter was lost: {lost.exceptions[0]}") from lost

    async def send(self, part: Part) -> Receipt:
        if part.kind is not PartKind.PLAIN or part.target.thread:
            raise Rejected("starter has no growing messages and no threads")
        answer = await self._client.call({"post": part.body.text, "chat": part.target.chat, "key": part.key})
        return Receipt(ids=(str(answer["id"]),))

    async def show(self, view: View, text: str) -> View:
        raise Rejected("starter has no growing messages")

    async def find(self, part: Part, is_taken: Taken) -> Receipt | Absent | Unreadable:
        return Unreadable(reason="starter cannot be read back")

    async def signal(self, target: Target, signal: Signal) -> None:
        """Starter has neither typing nor reactions."""

    async def fetch(self, attachment: Attachment) -> Path:
        raise Unknown("starter has no attachments")

    async def close(self) -> None:
        """Each call closes its own connection."""

    async def _take(
        self, event: dict[str, Any], receive: Receive, wire: Wire, before: asyncio.Task[None] | None
    ) -> None:
        """Stores one message after the one before it in its chat, and only then confirms it."""
        if before is not None:
            await asyncio.wait([before])
        while True:
            try:
                await receive(parse.inbound(event, self.account))
                break
            except Unstored:
                await self._host.clock.sleep(UNSTORED_SECONDS)
        await wire.write({"confirm": event["id"]})

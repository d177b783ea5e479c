"""A platform in memory that answers at once, so that what is measured is the gateway."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tidings.core.adapter import Platform, Receive, Taken
from tidings.core.types import (
    Absent,
    Attachment,
    Body,
    Capabilities,
    Conversation,
    Inbound,
    Part,
    Receipt,
    Sender,
    SendProof,
    Signal,
    Target,
    Unreadable,
    View,
)

CAN = Capabilities(
    async_delivery=True,
    streaming_edits=False,
    send_proof=SendProof(keyed_for=600, readback=False),
    threads=True,
    reactions=False,
    buttons=False,
    files=False,
    typing=False,
    hears_all=True,
    pace=(),
    show_pace=(),
    signal_pace=(),
)


class MemoryAdapter:
    name = "memory"
    account = "main"

    def __init__(self) -> None:
        self.listening = asyncio.Event()
        self.sent = 0
        self.first_sent = asyncio.Event()
        self._receive: Receive
        self._answers: dict[str, asyncio.Future[None]] = {}

    def can(self, target: Target) -> Capabilities:
        return CAN

    def compose(self, target: Target, body: Body) -> tuple[Body, ...]:
        return (body,)

    async def listen(self, receive: Receive) -> None:
        self._receive = receive
        self.listening.set()
        await asyncio.Event().wait()

    async def send(self, part: Part) -> Receipt:
        self.sent += 1
        self.first_sent.set()
        answered = self._answers.pop(part.target.chat, None)
        if answered is not None:
            answered.set_result(None)
        return Receipt(ids=(str(self.sent),))

    async def say(self, chat: str, key: str, text: str) -> None:
        """Returns when the message is stored."""
        await self._receive(message(chat, key, text))

    async def ask(self, chat: str, key: str, text: str) -> None:
        """Returns when the answer was sent."""
        answered = self._answers[chat] = asyncio.get_running_loop().create_future()
        await self.say(chat, key, text)
        await answered

    async def show(self, view: View, text: str) -> View:
        return view

    async def find(self, part: Part, is_taken: Taken) -> Receipt | Absent | Unreadable:
        return Absent()

    async def signal(self, target: Target, signal: Signal) -> None:
        return None

    async def fetch(self, attachment: Attachment) -> Path:
        raise FileNotFoundError(attachment.name)

    async def close(self) -> None:
        return None

    def platform(self) -> Platform:
        return Platform(self.name, self.account, lambda host: self)


def message(chat: str, key: str, text: str) -> Inbound:
    return Inbound(
        key=key,
        conversation=Conversation(adapter="memory", account="main", chat=chat),
        target=Target(adapter="memory", chat=chat),
        sender=Sender(id="owner", trusted=True),
        text=text,
    )

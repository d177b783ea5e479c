"""What goes over the wire between the paper platform and its clients: JSON lines, one value each."""

from __future__ import annotations

import asyncio
import socket
import struct

import msgspec

from tidings.core.types import Value

# A line holds a whole file in base64; asyncio's own limit of 64 KiB would cut long answers.
LINE_BYTES = 64 * 2**20

TOO_LONG = "message is too long"
NOT_MODIFIED = "message is not modified"
NOT_STREAMING = "not_streaming"
MESSAGE_GONE = "message not found"


class Upload(Value, frozen=True, kw_only=True):
    name: str
    data: bytes


class Button(Value, frozen=True, kw_only=True):
    id: str
    label: str


class Ask(Value, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The arguments of every call; each method reads its own."""

    chat: str = ""
    thread: str = ""
    text: str = ""
    reply_to: str = ""
    key: str = ""
    files: tuple[Upload, ...] = ()
    choices: tuple[Button, ...] = ()
    # Posting to a closed thread opens it again; a deleted one stays gone.
    reopen: bool = False
    message_id: str = ""
    draft_id: str = ""
    emoji: str = ""
    # Of a history: no older than so many seconds; 0 is all of it.
    age: float = 0.0
    file: str = ""


class Request(Value, frozen=True, kw_only=True):
    id: str
    method: str
    account: str
    token: str
    ask: Ask = Ask()


class Refusal(Value, frozen=True, kw_only=True, omit_defaults=True):
    """The platform's own word that it did nothing."""

    code: int
    text: str
    retry_after: float | None = None
    moved_to: str = ""
    # With 413: what would have fitted.
    limit: int = 0
    # With 429: "chat" or "account".
    scope: str = ""


class Message(Value, frozen=True, kw_only=True):
    """One message as it stands now."""

    id: str
    account: str
    chat: str
    thread: str
    text: str
    reply_to: str
    key: str
    at: float
    order: int
    files: tuple[Upload, ...] = ()
    choices: tuple[Button, ...] = ()
    reaction: str = ""
    streaming: bool = False
    edited: int = 0
    # Empty for what the bot wrote.
    sender: str = ""


class Result(Value, frozen=True, kw_only=True, omit_defaults=True):
    message_id: str = ""
    # The message's text as it stands now.
    text: str = ""
    messages: tuple[Message, ...] = ()
    name: str = ""
    data: bytes = b""


class Answer(Value, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    result: Result | None = None
    error: Refusal | None = None


class Sent(Value, frozen=True, kw_only=True):
    """A file that a person sent along."""

    id: str
    name: str
    size: int


class Event(Value, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that happened in a chat; `key` is the identity of the message, `id` that of the event."""

    id: str
    key: str
    # message, edited, deleted or pressed.
    type: str
    account: str
    chat: str
    thread: str = ""
    private: bool = True
    sender: str = ""
    sender_name: str = ""
    sender_is_bot: bool = False
    text: str = ""
    group: str = ""
    addressed: bool = True
    quoted: str = ""
    files: tuple[Sent, ...] = ()
    about: str = ""
    choice: str = ""


class Push(Value, frozen=True, kw_only=True):
    event: Event


class Confirm(Value, frozen=True, kw_only=True):
    confirm: tuple[str, ...]


class Wire:
    """One connection: a value is one line."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self) -> bytes | None:
        """None means that the other side has gone, be it in the middle of a line."""
        try:
            line = await self._reader.readline()
        except (ConnectionError, ValueError):
            return None
        return line if line.endswith(b"\n") else None

    async def write(self, value: msgspec.Struct) -> None:
        """Raises ConnectionError when the other side has gone."""
        if self._writer.transport.is_closing():
            raise ConnectionResetError("the connection has ended")
        self._writer.write(msgspec.json.encode(value) + b"\n")
        await self._writer.drain()

    async def write_half(self, value: msgspec.Struct) -> None:
        line = msgspec.json.encode(value)
        self._writer.write(line[: len(line) // 2])
        await self._writer.drain()

    async def gone(self) -> None:
        """Returns when the other side has gone; what it still says is thrown away."""
        while await self.read() is not None:
            pass

    def close(self) -> None:
        self._writer.close()

    def reset(self) -> None:
        """Ends the connection as a dying network does: no goodbye, what was unsent is lost."""
        peer = self._writer.get_extra_info("socket")
        if peer is not None and peer.fileno() >= 0:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

"""The contract of a platform: what every adapter must answer, accept and raise."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tidings.core.clock import Clock
from tidings.core.desk.desk import Desk
from tidings.core.types import (
    Absent,
    Admission,
    Attachment,
    Body,
    Capabilities,
    Inbound,
    Note,
    Part,
    Receipt,
    Signal,
    Target,
    Unreadable,
    View,
)


class Receive(Protocol):
    """The door: hands a message to the gateway, and returns only when the message is stored.

    So an adapter confirms a message to its platform only after this call has returned. Raises Unstored when the
    store cannot write: do not confirm the message, and offer it again later. Calls may overlap; messages are ordered
    as the calls were made. A note is stored in the same transaction as the message.
    """

    async def __call__(self, inbound: Inbound, note: Note | None = None) -> Admission: ...


class Taken(Protocol):
    """Tells whether a message id is already the receipt of another part, even from before a crash."""

    async def __call__(self, id: str) -> bool: ...


class Known(Protocol):
    """Tells whether anything was ever said in the conversation with this id, by any member."""

    async def __call__(self, conversation: str) -> bool: ...


class Wants(Protocol):
    """Tells at once, from memory, whether the door would take a message; one it would not need not be handed in.

    So a message that is not for the bot costs no row and no commit.
    """

    def __call__(self, inbound: Inbound) -> bool: ...


class Reports(Protocol):
    """What the adapter of one account tells the gateway about its platform."""

    async def reachable(self) -> None:
        """The platform can be reached again: deliveries that wait for this account are tried now."""
        ...

    def troubled(self, reason: str) -> None:
        """The platform does not answer while the adapter keeps trying: the owner is warned until `reachable`."""
        ...

    async def moved(self, chat: str, to: str) -> None:
        """A chat has a new id: its deliveries go there, and its conversation keeps its memory."""
        ...

    async def missed(self, words: str, *, tell: bool) -> None:
        """Messages may have been lost: the owner is told and, with `tell`, every recently active chat."""
        ...


class Notebook(Protocol):
    """A small durable key-value store for one adapter; an adapter keeps no other state across a crash."""

    async def read(self, name: str) -> str | None: ...
    async def write(self, name: str, value: str) -> None: ...


class Line(Protocol):
    """One connection to the local socket: JSON objects both ways."""

    async def read(self) -> dict[str, Any] | None:
        """Reads one object; None means that the other side has disconnected."""
        ...

    async def write(self, message: dict[str, Any]) -> None:
        """Raises ConnectionError when the other side has disconnected."""
        ...


class Local(Protocol):
    """The Unix socket in the home folder; a route exists as long as the `with` block around it."""

    def route(self, verb: str, handler: Callable[[Line], Awaitable[None]]) -> AbstractContextManager[None]: ...


class Server(Protocol):
    """The HTTP listener; a route exists as long as the `async with` block around it.

    A handler gets the server's own request and the values named in the path, and returns the server's own response.
    Raises Misconfigured where listening is impossible, Unreachable while another program uses the port.
    """

    def route(
        self,
        method: str,
        path: str,
        handler: Callable[[Any, Mapping[str, str]], Awaitable[Any]],
        *,
        body_bytes: int = 1024 * 1024,
        cancel_when_gone: bool = False,
    ) -> AbstractAsyncContextManager[None]: ...


class MenuItem(NamedTuple):
    """A command as a platform may show it in a menu."""

    name: str
    help: str
    # The command leads to a run: its answer takes as long as a run and is meant for everyone who reads the chat.
    runs: bool = False


@dataclass(frozen=True, kw_only=True)
class Host:
    """What every adapter is built with."""

    reports: Reports
    notebook: Notebook
    knows: Known
    wants: Wants
    clock: Clock
    server: Server
    menu: tuple[MenuItem, ...]
    # The folder for fetched attachments.
    attachments: Path


@dataclass(frozen=True, kw_only=True)
class NearbyHost(Host):
    """What an adapter on this machine is built with: access to the desk and the local socket besides."""

    desk: Desk
    local: Local


class Platform(NamedTuple):
    """A configured account and how to build its adapter."""

    name: str
    account: str
    build: Callable[[Host], Adapter]
    # A nearby platform runs on this machine: its adapter gets a NearbyHost, and quick restarts burden no other server.
    nearby: bool = False


class Adapter(Protocol):
    """One object per account; one function of an adapter turns platform errors into the types in errors.py."""

    name: str
    account: str

    def can(self, target: Target) -> Capabilities:
        """What the platform can do at this target, by the settings and what was learnt so far; does no I/O."""
        ...

    def compose(self, target: Target, body: Body) -> tuple[Body, ...]:
        """Cuts a body into messages that fit, measured after rendering.

        Does no I/O; a long body is composed in another thread.
        """
        ...

    async def listen(self, receive: Receive) -> None:
        """Receives from the platform until cancelled.

        Raises Unreachable, Misconfigured when a retry is useless, or StandingBy while another process listens.
        """
        ...

    async def send(self, part: Part) -> Receipt:
        """Makes one attempt and never retries; raises a SendError, and any other error counts as Doubtful."""
        ...

    async def show(self, view: View, text: str) -> View:
        """Updates an open view; `text` is always the whole text, never a delta.

        The returned view replaces the given one. Raises ViewLost when the view no longer exists, and Stopped when the
        person has stopped the answer.
        """
        ...

    async def find(self, part: Part, is_taken: Taken) -> Receipt | Absent | Unreadable:
        """Looks for a doubtful message by reading the chat back, where `readback` is declared.

        A message that already proves another part is skipped, even if its text is the same. The search goes back as far
        as the part's age, by the platform's own clock.
        """
        ...

    async def signal(self, target: Target, signal: Signal) -> None:
        """Shows a sign such as typing or a reaction; a signal that fails never fails a run."""
        ...

    async def fetch(self, attachment: Attachment) -> Path: ...

    async def close(self) -> None:
        """Closes what sending needs, such as connections; the gateway does not call the adapter afterwards."""
        ...

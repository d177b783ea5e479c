"""The contract of a platform: what every adapter must answer, take and raise."""

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
    """The door. Returns only when the message is durable, so only then may it be confirmed.

    Raises Unstored when the store cannot write: do not confirm, come back. Calls may overlap; order is
    that of the calls. A note commits with the message.
    """

    async def __call__(self, inbound: Inbound, note: Note | None = None) -> Admission: ...


class Taken(Protocol):
    """Tells whether a message id is already the receipt of another part; the store knows, also after a crash."""

    async def __call__(self, id: str) -> bool: ...


class Known(Protocol):
    """Tells whether anything was ever said in a conversation, by the conversation's id."""

    async def __call__(self, conversation: str) -> bool: ...


class Reports(Protocol):
    """What the adapter of one account tells the gateway about its platform."""

    async def reachable(self) -> None:
        """The platform can be reached again: what waits for it is tried now."""
        ...

    def troubled(self, reason: str) -> None:
        """Nothing is heard of the platform, and the adapter goes on trying: the owner is told until `reachable`."""
        ...

    async def moved(self, chat: str, to: str) -> None:
        """A chat goes on under another id: its deliveries go there, and its memory stays one."""
        ...

    async def missed(self, words: str, *, tell: bool) -> None:
        """Messages may have been lost: the owner is told and, with `tell`, every chat that spoke lately."""
        ...


class Notebook(Protocol):
    """A small durable key-value store for one adapter. Nothing else of an adapter survives a crash."""

    async def read(self, name: str) -> str | None: ...
    async def write(self, name: str, value: str) -> None: ...


class Line(Protocol):
    """One connection to the local socket: JSON objects both ways."""

    async def read(self) -> dict[str, Any] | None:
        """None means that the other side has gone."""
        ...

    async def write(self, message: dict[str, Any]) -> None:
        """Raises ConnectionError when the other side has gone."""
        ...


class Local(Protocol):
    """The one Unix socket in the home; a route lives as long as the `with` around it."""

    def route(self, verb: str, handler: Callable[[Line], Awaitable[None]]) -> AbstractContextManager[None]: ...


class Server(Protocol):
    """The one HTTP listener; a route lives as long as the `async with` around it.

    A handler is given the server's own request and what the path names, and answers with the server's own
    response. Raises Misconfigured where listening is impossible, Unreachable while another program has the port.
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
    """A command as a platform may list it."""

    name: str
    help: str
    # Its answer is a run's and takes as long, or is followed by one: it is for whoever reads there.
    runs: bool = False


@dataclass(frozen=True, kw_only=True)
class Host:
    """What every adapter is built with."""

    reports: Reports
    notebook: Notebook
    knows: Known
    clock: Clock
    server: Server
    menu: tuple[MenuItem, ...]
    # Where fetched attachments are kept.
    attachments: Path


@dataclass(frozen=True, kw_only=True)
class NearbyHost(Host):
    """What an adapter on this machine is built with: it may also ask the gateway, and serve the local socket."""

    desk: Desk
    local: Local


class Platform(NamedTuple):
    """A configured account and how to build its adapter."""

    name: str
    account: str
    build: Callable[[Host], Adapter]
    # On this machine: it is built with a NearbyHost, and many quick starts burden no foreign server.
    nearby: bool = False


class Adapter(Protocol):
    """One object per account. Errors of a platform become the types in errors.py in one function."""

    name: str
    account: str

    def can(self, target: Target) -> Capabilities:
        """Pure; may differ by target."""
        ...

    def compose(self, target: Target, body: Body) -> tuple[Body, ...]:
        """Cuts a body into what fits, measured after rendering. No I/O; a long body is composed in another thread."""
        ...

    async def listen(self, receive: Receive) -> None:
        """One lifetime: runs until cancelled.

        Raises Unreachable, Misconfigured when a retry is useless, or StandingBy when somebody else listens.
        """
        ...

    async def send(self, part: Part) -> Receipt:
        """Raises a SendError; anything else counts as Doubtful. Never retries by itself."""
        ...

    async def show(self, view: View, text: str) -> View:
        """Grows what an opening part opened; the text is always whole, never a delta.

        Raises ViewLost when there is nothing left to grow, Stopped when the person has stopped it. What it returns
        replaces the view.
        """
        ...

    async def find(self, part: Part, is_taken: Taken) -> Receipt | Absent | Unreadable:
        """Settles a doubtful send by reading back, where `readback` is declared.

        A message that already proves another part is skipped, even if it looks the same. The search goes back as far
        as the part's age, by the platform's own clock.
        """
        ...

    async def signal(self, target: Target, signal: Signal) -> None:
        """Best effort; never fails a run."""
        ...

    async def fetch(self, attachment: Attachment) -> Path: ...

    async def close(self) -> None:
        """Gives back what sending holds, such as connections; nothing is asked of the adapter afterwards."""
        ...

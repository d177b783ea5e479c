"""Where things are on Slack: channels, threads, and answers that only one person sees (pure)."""

from __future__ import annotations

import msgspec

from tidings.core.types import Target

ADAPTER = "slack"
# A response address is good for half an hour, less a margin.
RESPONSE_SECONDS = 28 * 60.0


class Handle(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a target needs besides its channel; all of it may be empty."""

    # Whom a native stream is for, outside of direct messages.
    team: str = ""
    user: str = ""
    # Where a slash command is answered, and when it came by the wall clock; only the person sees that answer.
    response_url: str = ""
    at: float = 0.0
    # A private thread in the assistant's pane or an agent's session, which shows a status.
    assistant: bool = False

    def write(self) -> str:
        return "" if self == Handle() else msgspec.json.encode(self).decode()


class Shown(msgspec.Struct, frozen=True, omit_defaults=True):
    """The handle of a view: one message, which may have begun as a stream."""

    channel: str
    ts: str
    thread: str = ""
    stream: bool = False
    # A plain message in place of a stream; it may not be edited as often as a stream may grow.
    instead: bool = False

    @property
    def id(self) -> str:
        return f"{self.channel}:{self.ts}"

    def write(self) -> str:
        return msgspec.json.encode(self).decode()


def handle_of(target: Target) -> Handle:
    return msgspec.json.decode(target.handle, type=Handle) if target.handle else Handle()


def is_direct(channel: str) -> bool:
    return channel.startswith("D")

"""Where things are on Discord: channels, threads that open with an answer, and interactions that wait for one."""

from __future__ import annotations

import msgspec

from tidings.core.types import Target

ADAPTER = "discord"
# The first millisecond of Discord's time.
EPOCH = 1_420_070_400.0
# What Discord gives to answer an interaction, less a margin.
TOKEN_SECONDS = 14 * 60.0
# What reading an unexpected shape raises.
STRANGE = (AttributeError, LookupError, TypeError, ValueError)


class Handle(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a target needs besides its channel; all of it may be empty."""

    # The thread is made of the message with its id when something is first sent there.
    opens: bool = False
    # An interaction that waits: its application and token, and when it came by the wall clock.
    application: str = ""
    token: str = ""
    at: float = 0.0
    # Only the person who asked may see the answer, so it goes nowhere else.
    ephemeral: bool = False

    def write(self) -> str:
        return "" if self == Handle() else msgspec.json.encode(self).decode()


def handle_of(target: Target) -> Handle:
    return msgspec.json.decode(target.handle, type=Handle) if target.handle else Handle()


def channel_of(target: Target) -> str:
    """Messages to a thread go to the thread's own id."""
    return target.thread or target.chat


def time_of(snowflake: str) -> float:
    """The wall clock's time in an id."""
    return (int(snowflake) >> 22) / 1000 + EPOCH


def snowflake_at(wall: float) -> str:
    """The smallest id of a moment."""
    return str(max(int((wall - EPOCH) * 1000), 0) << 22)

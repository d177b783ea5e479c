"""Where things are on Discord: channels, threads that open with an answer, and interactions that wait for one."""

from __future__ import annotations

import msgspec

from tidings.core.clock import Clock
from tidings.core.types import Audience, Receipt, Target, View

ADAPTER = "discord"
# The first millisecond of Discord's time.
EPOCH = 1_420_070_400.0
# What Discord gives to answer an interaction, less a margin.
TOKEN_SECONDS = 14 * 60.0
# What reading an unexpected shape raises.
STRANGE = (AttributeError, LookupError, TypeError, ValueError)


class Handle(msgspec.Struct, frozen=True, omit_defaults=True):
    """The parts of a target besides its channel; all of them may be empty."""

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


class Shown(msgspec.Struct, frozen=True, omit_defaults=True):
    """The handle of a view: a message that is edited, by its interaction's token while that is good."""

    channel: str
    message: str
    application: str = ""
    token: str = ""
    at: float = 0.0
    # Only one person may ever see it.
    secret: bool = False
    # The place that it was meant for, if it was sent elsewhere.
    meant: str = ""


def handle_of(target: Target) -> Handle:
    return msgspec.json.decode(target.handle, type=Handle) if target.handle else Handle()


def is_token_good(at: float, clock: Clock) -> bool:
    """An interaction that came at this time by the wall clock can still be answered."""
    return clock.wall() - at < TOKEN_SECONDS


def channel_of(target: Target) -> str:
    """Messages to a thread go to the thread's own id."""
    return target.thread or target.chat


def time_of(snowflake: str) -> float:
    """The wall clock's time in an id."""
    return (int(snowflake) >> 22) / 1000 + EPOCH


def snowflake_at(wall: float) -> str:
    """The smallest id of a moment."""
    return str(max(int((wall - EPOCH) * 1000), 0) << 22)


def is_secret(target: Target) -> bool:
    """May only one person see the answer? In a private chat every answer is for one person anyway."""
    return target.audience is Audience.ONE or (handle_of(target).ephemeral and target.audience is Audience.GROUP)


def question_of(target: Target) -> str:
    return target.reply_to.rpartition(":")[2]


def question_place(target: Target) -> str:
    """The channel of the answered message; a thread's first message stands in the parent channel."""
    return target.chat if question_of(target) == target.thread else channel_of(target)


def question_in(target: Target, place: str) -> str:
    """The message that is answered; none where it stands in another channel than the answer."""
    return question_of(target) if question_place(target) == place else ""


def hook_of(handle: Handle) -> str:
    return f"/webhooks/{handle.application}/{handle.token}"


def landed(target: Target, message: str, channel: str, view: View | None = None) -> Receipt:
    """A thread that is opened from a message has the message's id."""
    if target.thread:
        return Receipt(ids=(message,), view=view)
    return Receipt(ids=(message,), view=view, chat=channel, opens=message)


def shown_of(view: View | None) -> Shown | None:
    return msgspec.json.decode(view.handle, type=Shown) if view else None

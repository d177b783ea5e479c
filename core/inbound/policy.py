"""Decides whether a message is taken: by the sender's role, and by whether it is addressed to us (pure)."""

from __future__ import annotations

from enum import Enum, auto

from tidings.core.roles import Role
from tidings.core.types import Audience, Inbound


class Judgement(Enum):
    ADMIT = auto()
    IGNORE = auto()
    # A stranger in a private chat is told how to be admitted.
    TELL = auto()
    # A part of an album is admitted if another part was, because only one part addresses us.
    JOIN = auto()


def judge(inbound: Inbound, role: Role, *, is_listening: bool = False) -> Judgement:
    """`is_listening` means that somebody who may do so has let the bot listen to this sender."""
    # A bot that is let in is a guest, never more.
    if role is Role.BLOCKED or (inbound.sender.is_bot and role is not Role.GUEST):
        return Judgement.IGNORE
    is_known = role.includes(Role.GUEST)
    private = inbound.target.audience is not Audience.GROUP
    # Guests are answered where they speak to the bot, not in all that the bot hears.
    addressed = inbound.addressed and not (inbound.overheard and role is Role.GUEST and not is_listening)
    if not (addressed or private):
        return Judgement.JOIN if inbound.group and is_known else Judgement.IGNORE
    if is_known:
        return Judgement.ADMIT
    return Judgement.TELL if inbound.target.audience is Audience.PRIVATE else Judgement.IGNORE

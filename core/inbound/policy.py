"""Decides who may talk to the bots and when a message is addressed to us; pure functions, deny by default."""

from __future__ import annotations

from collections.abc import Set
from enum import Enum, auto

from tidings.core.types import Asker, Audience, Inbound, Sender, Target


class Judgement(Enum):
    ADMIT = auto()
    IGNORE = auto()
    # A stranger in a private chat is told how to be admitted.
    TELL = auto()
    # A part of an album is admitted if another part was, because only one part addresses us.
    JOIN = auto()


def judge(inbound: Inbound, allowed: Set[str]) -> Judgement:
    if inbound.sender.is_bot:
        return Judgement.IGNORE
    private = inbound.target.audience is not Audience.GROUP
    if not (inbound.addressed or private):
        return Judgement.IGNORE
    if inbound.sender.trusted or not allowed.isdisjoint(names(inbound)):
        return Judgement.ADMIT
    return Judgement.TELL if inbound.target.audience is Audience.PRIVATE else Judgement.IGNORE


def may_join(inbound: Inbound, allowed: Set[str]) -> bool:
    """Tells whether a message may belong to an album with another part addressed to us."""
    if not inbound.group or inbound.addressed or inbound.sender.is_bot:
        return False
    return inbound.sender.trusted or not allowed.isdisjoint(names(inbound))


def name_of(target: Target, sender: Sender) -> str:
    """The id of a person on a platform, the same for every account."""
    return f"{target.adapter}:{sender.id}"


def own_names(said: Inbound | Asker) -> tuple[str, ...]:
    """The ids of a person: with the platform, or with platform and account."""
    return name_of(said.target, said.sender), f"{said.target.at}:{said.sender.id}"


def names(said: Inbound | Asker) -> tuple[str, ...]:
    """The ids by which the access list may admit a sender: as a person, or by the group."""
    own, target = own_names(said), said.target
    if target.audience is Audience.PRIVATE:
        return own
    # A moved group is still known by its first id.
    began = said.conversation.chat
    return (*own, *names_of(target), f"{target.adapter}:{began}", f"{target.at}:{began}")


def names_of(target: Target) -> tuple[str, ...]:
    """The ids by which the access list may name a chat; a private chat mostly has its person's id."""
    return f"{target.adapter}:{target.chat}", f"{target.adapter}@{target.account}:{target.chat}"


def how_to_be_admitted(inbound: Inbound) -> str:
    name = names(inbound)[0]
    return (
        f"I do not know you yet, so I may not answer. Your id is {name}. If this is your bot, run: tidings allow {name}"
    )


def is_access_id(text: str) -> bool:
    adapter, _, sender = text.partition(":")
    return bool(adapter and sender and not text.startswith("@") and " " not in text)

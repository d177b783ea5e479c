"""Who may speak and when we are addressed: pure judgements, deny by default."""

from __future__ import annotations

from collections.abc import Set
from enum import Enum, auto

from tidings.core.types import Asker, Audience, Inbound, Sender, Target


class Judgement(Enum):
    ADMIT = auto()
    IGNORE = auto()
    # A stranger who speaks to us alone is told how to be admitted.
    TELL = auto()
    # Part of an album: admitted if another part of it was, for only one bears the words that address us.
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
    """Could it be part of an album of which another part is addressed to us?"""
    if not inbound.group or inbound.addressed or inbound.sender.is_bot:
        return False
    return inbound.sender.trusted or not allowed.isdisjoint(names(inbound))


def name_of(target: Target, sender: Sender) -> str:
    """A person on a platform, by whichever account they speak to us."""
    return f"{target.adapter}:{sender.id}"


def own_names(said: Inbound | Asker) -> tuple[str, ...]:
    """The ids of a person: with the platform, or with platform and account."""
    return name_of(said.target, said.sender), f"{said.target.at}:{said.sender.id}"


def names(said: Inbound | Asker) -> tuple[str, ...]:
    """How the access list may name a sender: as a person, or by the group they speak in."""
    own, target = own_names(said), said.target
    if target.audience is Audience.PRIVATE:
        return own
    # A group that has moved is still known by the id under which its conversation began.
    began = said.conversation.chat
    return (*own, *names_of(target), f"{target.adapter}:{began}", f"{target.at}:{began}")


def names_of(target: Target) -> tuple[str, ...]:
    """How the access list may name a chat; a private one has its person's id on most platforms."""
    return f"{target.adapter}:{target.chat}", f"{target.adapter}@{target.account}:{target.chat}"


def how_to_be_admitted(inbound: Inbound) -> str:
    name = names(inbound)[0]
    return (
        f"I do not know you yet, so I may not answer. Your id is {name}. If this is your bot, run: tidings allow {name}"
    )


def is_access_id(text: str) -> bool:
    adapter, _, sender = text.partition(":")
    return bool(adapter and sender and not text.startswith("@") and " " not in text)

"""Who may speak and when we are addressed: pure judgements, deny by default."""

from __future__ import annotations

from collections.abc import Set
from enum import Enum, auto

from core.types import Audience, Inbound, Origin


class Judgement(Enum):
    ADMIT = auto()
    IGNORE = auto()
    # A stranger who speaks to us alone is told how to be admitted.
    TELL = auto()


def judge(inbound: Inbound, allowed: Set[str]) -> Judgement:
    if inbound.origin is not Origin.PERSON:
        return Judgement.ADMIT
    if inbound.sender.is_bot:
        return Judgement.IGNORE
    private = inbound.target.audience is not Audience.GROUP
    if not (inbound.addressed or private):
        return Judgement.IGNORE
    if inbound.sender.trusted or not allowed.isdisjoint(names(inbound)):
        return Judgement.ADMIT
    return Judgement.TELL if inbound.target.audience is Audience.PRIVATE else Judgement.IGNORE


def names(inbound: Inbound) -> tuple[str, str]:
    """How the access list may name a sender: by platform, or by platform and account."""
    adapter, account, sender = inbound.target.adapter, inbound.target.account, inbound.sender.id
    return f"{adapter}:{sender}", f"{adapter}@{account}:{sender}"


def how_to_be_admitted(inbound: Inbound) -> str:
    name = names(inbound)[0]
    return (
        f"I do not know you yet, so I may not answer. Your id is {name}. If this is your bot, run: tidings allow {name}"
    )


def is_access_id(text: str) -> bool:
    adapter, _, sender = text.partition(":")
    return bool(adapter and sender and not text.startswith("@") and " " not in text)

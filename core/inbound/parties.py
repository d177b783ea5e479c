"""Parties: the person, the chat and the bot that a run works for, among whom slots are shared out."""

from __future__ import annotations

from typing import NamedTuple

from tidings.core.types import Inbound

# Names one person, chat or bot; the first word tells which of the three.
Party = str


class Parties(NamedTuple):
    person: Party
    chat: Party
    bot: Party


def of(inbound: Inbound, person: str, bot: str) -> Parties:
    """The parties of a message; an errand counts for the chat that gets its report."""
    target = inbound.target
    return Parties(f"person {person}", f"chat {target.at} {target.chat}", f"bot {bot}")

"""Conversations of the members of a group: which one a message belongs to, and which answers run beside it."""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from tidings.core.memory import conversations
from tidings.core.store.store import Transaction
from tidings.core.types import Audience, Conversation, Inbound, Origin


def assign(inbound: Inbound, memory: Literal["chat", "member"]) -> Inbound:
    """Gives each member of a group a conversation of their own if the settings say so; the target stays the same."""
    conversation, sender = inbound.conversation, inbound.sender
    is_shared = inbound.target.audience is not Audience.PRIVATE and not conversation.member
    # A deletion has no sender: its message is found by its key.
    if memory == "chat" or not is_shared or not sender.id or inbound.origin is not Origin.PERSON:
        return inbound
    return replace(inbound, conversation=replace(conversation, member=sender.id))


def place_of(inbound: Inbound) -> Conversation:
    """The chat and thread of a message, whoever has a conversation there."""
    return replace(inbound.began or inbound.conversation, member="")


def running(tx: Transaction, inbound: Inbound) -> list[str]:
    """The running answers in the chat and thread of a message, also those of other members, oldest first."""
    if inbound.target.audience is Audience.PRIVATE:
        return []
    place = place_of(inbound).id
    rows = tx.all(
        "SELECT run FROM inbox WHERE state = 'running'"
        " AND (conversation = ? OR (conversation > ? AND conversation < ?)) ORDER BY seq",
        place,
        *conversations.members_of(place),
    )
    return [row["run"] for row in rows]

"""Hand-overs: a chat goes on with another conversation, or with an earlier talk of its own, until it goes back."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from tidings.core.memory import conversations
from tidings.core.store.store import Row, Transaction
from tidings.core.types import Asker, Conversation, Target, Value, encode


class Handover(NamedTuple):
    # The conversation of the chat itself.
    conversation: str
    continues: Conversation
    # The bot that its last message asked for by name; otherwise the rules for its place choose one.
    bot: str
    # Empty in a group.
    owner: str
    asker: Asker
    # For an earlier talk of the same conversation: the generation to return to.
    before: int = 0
    # Where the continued conversation has its own chat.
    place: Target | None = None


class _Parts(Value, frozen=True, kw_only=True):
    conversation: Conversation
    place: Target | None = None


def find(tx: Transaction, conversation: str) -> Handover | None:
    row = tx.one("SELECT * FROM handovers WHERE conversation = ?", conversation)
    return _handover(row) if row else None


def all_of(tx: Transaction) -> list[Handover]:
    return [_handover(row) for row in tx.all("SELECT * FROM handovers")]


def put(tx: Transaction, handover: Handover, at: float) -> None:
    """Stores a hand-over; the chat's own conversation stays known, even if nothing else is ever said in it."""
    conversations.add(tx, handover.conversation)
    parts = _Parts(conversation=handover.continues, place=handover.place)
    tx.execute(
        "INSERT INTO handovers (conversation, continues, parts, bot, owner, asker, before, at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (conversation) DO UPDATE SET continues = excluded.continues,"
        " parts = excluded.parts, bot = excluded.bot, owner = excluded.owner, asker = excluded.asker,"
        " before = excluded.before, at = excluded.at",
        *(handover.conversation, handover.continues.id, encode(parts), handover.bot, handover.owner),
        *(encode(handover.asker), handover.before, at),
    )


def end(tx: Transaction, conversation: str) -> None:
    tx.execute("DELETE FROM handovers WHERE conversation = ?", conversation)


def continued(tx: Transaction, conversation: str) -> str:
    """The id of the conversation that goes on in the chat of this one, which is mostly itself."""
    row = tx.one("SELECT continues FROM handovers WHERE conversation = ?", conversation)
    return str(row["continues"]) if row else conversation


def _handover(row: Row) -> Handover:
    parts = msgspec.json.decode(row["parts"], type=_Parts)
    return Handover(
        conversation=row["conversation"],
        continues=parts.conversation,
        bot=row["bot"],
        owner=row["owner"],
        asker=msgspec.json.decode(row["asker"], type=Asker),
        before=row["before"],
        place=parts.place,
    )

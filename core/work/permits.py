"""Who may change a card: everybody who may speak here, or only where it was made and is watched."""

from __future__ import annotations

import msgspec

from core.cards import Hand
from core.errors import Unkeepable
from core.store.database import Row, Transaction
from core.types import Origin
from core.work import cardfile


class Permits:
    def __init__(self, *, for_all: bool) -> None:
        self._for_all = for_all

    def check(self, tx: Transaction, id: str, hand: Hand) -> None:
        """Raises Unkeepable in words for whoever asks."""
        row = cardfile.find(tx, id)
        if not (self._for_all or hand.is_owner or _has_made(row, hand) or _watches(tx, row["id"], hand)):
            raise Unkeepable(f"#{row['id']} was made elsewhere: only there, or by the owner, may it be changed")


def _has_made(row: Row, hand: Hand) -> bool:
    on_card = hand.conversation is not None and hand.conversation.adapter == Origin.CARD
    if on_card and hand.conversation is not None and hand.conversation.chat == str(row["id"]):
        return True
    # A person's name has their id in it; a bot in a chat works for whoever speaks there, and not for itself.
    return bool(row["made_by"] == hand.name) and (hand.is_person or on_card)


def _watches(tx: Transaction, card: int, hand: Hand) -> bool:
    place = str(msgspec.structs.replace(hand.target, reply_to="", handle="")) if hand.target else ""
    conversation = hand.conversation.id if hand.conversation else ""
    found = tx.one(
        "SELECT 1 FROM card_watchers WHERE card = ? AND (place = ? OR (conversation = ? AND conversation <> ''))",
        card,
        place,
        conversation,
    )
    return found is not None

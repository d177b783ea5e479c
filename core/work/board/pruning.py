"""Removes events and attempts of ended cards, except the last of each, which tell how the card ended."""

from __future__ import annotations

from tidings.core.desk.deliveries import Pruned
from tidings.core.store.pruning import EVENTS, FOR_EVER, LOOKED_AT, Slice, Terms, counted
from tidings.core.store.store import Transaction


def old_cards(tx: Transaction, after: int | str, terms: Terms) -> Slice:
    if terms.cards == FOR_EVER:
        return Slice(None, Pruned())
    page = tx.all(
        "SELECT id FROM cards WHERE id > ? AND state IN ('done', 'archived') AND changed < ? ORDER BY id LIMIT ?",
        after,
        terms.cards,
        LOOKED_AT,
    )
    gone = 0
    for row in page:
        for earlier in (
            "FROM card_events WHERE card = ? AND seq < (SELECT max(seq) FROM card_events WHERE card = ?)",
            "FROM card_attempts WHERE card = ? AND number < (SELECT max(number) FROM card_attempts WHERE card = ?)",
        ):
            gone += counted(tx.one(f"SELECT count(*) AS n {earlier}", row["id"], row["id"]))
            if not terms.rehearsal:
                tx.execute(f"DELETE {earlier}", row["id"], row["id"])
        if gone >= EVENTS:
            return Slice(row["id"], Pruned(cards=gone))
    return Slice(page[-1]["id"] if len(page) == LOOKED_AT else None, Pruned(cards=gone))

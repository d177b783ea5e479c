"""Removes old history, and a bot's memory of a conversation together with the last of its history."""

from __future__ import annotations

from tidings.core.desk.deliveries import Pruned
from tidings.core.memory import conversations, talks
from tidings.core.store.pruning import FOR_EVER, LOOKED_AT, Slice, Terms
from tidings.core.store.store import Transaction


def old_history(tx: Transaction, after: int | str, terms: Terms) -> Slice:
    if terms.said == FOR_EVER:
        return Slice(None, Pruned())
    page = tx.all(
        "SELECT seq, at, conversation, generation FROM history WHERE seq > ? ORDER BY seq LIMIT ?", after, LOOKED_AT
    )
    old = [row for row in page if row["at"] < terms.said]
    newest = tx.one("SELECT max(seq) AS seq FROM history")
    for row in old if not terms.rehearsal else ():
        if newest and row["seq"] == newest["seq"]:
            # The newest row stays, emptied: otherwise its number would be reused, and a paging reader would miss rows.
            tx.execute("UPDATE history SET conversation = '', run = '', text = '' WHERE seq = ?", row["seq"])
        else:
            tx.execute("DELETE FROM history WHERE seq = ?", row["seq"])
    for conversation, generation in {(row["conversation"], row["generation"]) for row in old if not terms.rehearsal}:
        talks.drop_empty(tx, conversation, generation)
    gone = sum(row["conversation"] != "" for row in old)
    return Slice(page[-1]["seq"] if len(page) == LOOKED_AT and old else None, Pruned(history=gone))


def old_checkpoints(tx: Transaction, after: int | str, terms: Terms) -> Slice:
    if terms.said == FOR_EVER or terms.rehearsal:
        return Slice(None, Pruned())
    page = tx.all(
        "SELECT id, (SELECT max(seq) FROM inbox WHERE conversation = id AND kind = 'message') AS newest"
        " FROM conversations WHERE id > ? ORDER BY id LIMIT ?",
        str(after or ""),
        LOOKED_AT,
    )
    for row in page:
        said = tx.one("SELECT accepted, state FROM inbox WHERE seq = ?", row["newest"]) if row["newest"] else None
        if said is None or (said["state"] == "done" and said["accepted"] < terms.history):
            conversations.drop_checkpoint(tx, row["id"])
    return Slice(page[-1]["id"] if len(page) == LOOKED_AT else None, Pruned())

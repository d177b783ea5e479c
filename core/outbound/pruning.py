"""Removes ended deliveries with their parts, except losses that their chat has not been told of."""

from __future__ import annotations

from tidings.core.desk.deliveries import Pruned
from tidings.core.store.pruning import LOOKED_AT, REMOVED, Slice, Terms
from tidings.core.store.store import Row, Transaction


def old_deliveries(tx: Transaction, after: int | str, terms: Terms) -> Slice:
    page = tx.all(
        "SELECT seq, id, lane, state, created, closed, untold FROM deliveries WHERE seq > ? ORDER BY seq LIMIT ?",
        after,
        LOOKED_AT,
    )
    gone = handled = 0
    for row in page:
        if gone >= REMOVED:
            return Slice(row["seq"] - 1, Pruned(deliveries=gone))
        handled += row["created"] < terms.deliveries
        if row["state"] not in ("delivered", "dead") or row["closed"] >= terms.deliveries:
            continue
        if row["untold"] and not _is_told_by_another(tx, row):
            continue
        gone += 1
        if not terms.rehearsal:
            remove(tx, row["id"])
    return Slice(page[-1]["seq"] if len(page) == LOOKED_AT and handled else None, Pruned(deliveries=gone))


def _is_told_by_another(tx: Transaction, row: Row) -> bool:
    """Tells whether a later lost delivery in the same lane will be reported, which also covers this one."""
    later = "SELECT 1 FROM deliveries WHERE lane = ? AND untold = 1 AND seq > ?"
    return tx.one(later, row["lane"], row["seq"]) is not None


def remove(tx: Transaction, delivery: str) -> None:
    tx.execute("DELETE FROM parts WHERE delivery = ?", delivery)
    tx.execute("DELETE FROM deliveries WHERE id = ?", delivery)


def is_on_its_way(tx: Transaction, lane: str) -> bool:
    row = tx.one(
        "SELECT 1 FROM deliveries WHERE lane = ? AND state <> 'delivered' AND state IN ('waiting', 'held', 'doubtful')"
        " LIMIT 1",
        lane,
    )
    return row is not None


def remove_from_lane(tx: Transaction, lane: str, before: float) -> None:
    """Removes the replies and notices of a private chat that have ended."""
    rows = tx.all(
        "SELECT id FROM deliveries WHERE lane = ? AND kind = 'reply' AND created <= ?"
        " AND state IN ('delivered', 'dead')"
        " UNION ALL SELECT id FROM deliveries WHERE lane = ? AND kind = 'notice' AND created <= ?"
        " AND state IN ('delivered', 'dead')",
        *(lane, before) * 2,
    )
    for row in rows:
        remove(tx, row["id"])

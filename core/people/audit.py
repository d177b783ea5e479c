"""The audit trail: who changed people, keys, homes and settings, and which tools acted for whom; only grows."""

from __future__ import annotations

from tidings.core.desk.deliveries import Pruned
from tidings.core.desk.people import AuditLine
from tidings.core.store.pruning import FOR_EVER, LOOKED_AT, Slice, Terms
from tidings.core.store.store import Transaction

# Larger than the number of any row.
NEVER = 2**62


def write(tx: Transaction, actor: str, action: str, object: str, wall: float, detail: str = "") -> None:
    """Adds one entry in the transaction of the change itself: ids, never words."""
    tx.execute(
        "INSERT INTO audit (at, actor, action, object, detail) VALUES (?, ?, ?, ?, ?)",
        *(wall, actor, action, object, detail),
    )


def read(tx: Transaction, limit: int, before: int = 0, since: float = 0.0) -> list[AuditLine]:
    """A page of the newest entries first, without those from before `since`."""
    page = tx.all(
        "SELECT seq, at, actor, action, object, detail FROM audit WHERE seq < ? ORDER BY seq DESC LIMIT ?",
        *(before or NEVER, limit),
    )
    rows = [row for row in page if row["at"] >= since]
    return [AuditLine(row["seq"], row["at"], row["actor"], row["action"], row["object"], row["detail"]) for row in rows]


def old_entries(tx: Transaction, after: int | str, terms: Terms) -> Slice:
    if terms.audit == FOR_EVER:
        return Slice(None, Pruned())
    page = tx.all("SELECT seq, at FROM audit WHERE seq > ? ORDER BY seq LIMIT ?", after, LOOKED_AT)
    old = [row for row in page if row["at"] < terms.audit]
    for row in old if not terms.rehearsal else ():
        tx.execute("DELETE FROM audit WHERE seq = ?", row["seq"])
    return Slice(page[-1]["seq"] if len(page) == LOOKED_AT and old else None, Pruned(audit=len(old)))

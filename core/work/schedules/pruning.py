"""Removes old firings; the last one of each schedule stays, because it tells how the schedule went."""

from __future__ import annotations

from tidings.core.desk.deliveries import Pruned
from tidings.core.store.pruning import LOOKED_AT, Slice, Terms, sifted
from tidings.core.store.store import Row, Transaction


def old_firings(tx: Transaction, after: int | str, terms: Terms) -> Slice:
    """Removes old firings, never an open one."""

    def is_old(row: Row) -> bool:
        return row["state"] in ("done", "missed") and row["due"] < terms.fired and not _is_the_last(tx, row)

    page = tx.all(
        "SELECT id, schedule, state, due FROM firings WHERE id > ? ORDER BY id LIMIT ?", str(after or ""), LOOKED_AT
    )
    going, following = sifted(page, str(after or ""), is_old)
    for id in going if not terms.rehearsal else ():
        tx.execute("DELETE FROM firings WHERE id = ?", id)
    return Slice(following, Pruned(tasks=len(going)))


def _is_the_last(tx: Transaction, row: Row) -> bool:
    last = tx.one("SELECT max(due) AS due FROM firings WHERE schedule = ?", row["schedule"])
    return last is not None and row["due"] >= last["due"]

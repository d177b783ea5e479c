"""Removes tasks that ended long ago, once the output of their command is gone."""

from __future__ import annotations

from tidings.core.desk.deliveries import Pruned
from tidings.core.store.pruning import LOOKED_AT, Slice, Terms, sifted
from tidings.core.store.store import Row, Transaction
from tidings.core.work.tasks import rows


def old_tasks(tx: Transaction, after: int | str, terms: Terms) -> Slice:
    def is_old(row: Row) -> bool:
        return row["ended"] is not None and row["ended"] < terms.runs and not _has_output(tx, row["id"])

    page = tx.all("SELECT id, ended FROM tasks WHERE id > ? ORDER BY id LIMIT ?", str(after or ""), LOOKED_AT)
    going, following = sifted(page, str(after or ""), is_old)
    for id in going if not terms.rehearsal else ():
        rows.remove(tx, id)
    return Slice(following, Pruned(tasks=len(going)))


def _has_output(tx: Transaction, task: str) -> bool:
    return tx.one("SELECT 1 FROM processes WHERE task = ?", task) is not None

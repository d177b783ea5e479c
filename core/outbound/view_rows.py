"""The stored view of a run's growing answer: one row for each run with a view."""

from __future__ import annotations

import msgspec

from tidings.core.store.store import Transaction
from tidings.core.types import View, encode


def find(tx: Transaction, run: str | None) -> View | None:
    row = tx.one("SELECT view FROM views WHERE run = ?", run)
    return msgspec.json.decode(row["view"], type=View) if row else None


def keep(tx: Transaction, run: str | None, view: View) -> None:
    tx.execute(
        "INSERT INTO views (run, view) VALUES (?, ?) ON CONFLICT (run) DO UPDATE SET view = excluded.view",
        run,
        encode(view),
    )


def remove(tx: Transaction, run: str | None) -> None:
    tx.execute("DELETE FROM views WHERE run = ?", run)

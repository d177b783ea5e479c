"""Forgets runs at a client's request: marks the row, and later removes all text from it."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from tidings.core.errors import Unknown
from tidings.core.store.store import Row, Transaction
from tidings.core.types import Inbound

FORGOTTEN = "forgotten"


def ask(tx: Transaction, run: str) -> None:
    """Marks a run to be forgotten; raises Unknown."""
    if not tx.count("UPDATE inbox SET forget = 1 WHERE run = ? AND state <> 'closed'", run):
        raise Unknown(f"there is no run {run}")


def drop_checkpoints(tx: Transaction, conversation: str, generation: int, since: int) -> None:
    """Drops the checkpoints of runs from the row `since` on, which may contain the forgotten run."""
    tx.execute(
        "UPDATE inbox SET checkpoint = NULL WHERE conversation = ? AND kind = 'message' AND generation = ?"
        " AND seq >= ? AND checkpoint IS NOT NULL",
        conversation,
        generation,
        since,
    )


def empty(tx: Transaction, row: Row) -> None:
    """Removes the text of a row but keeps its key, so that a repeated request does not run twice."""
    said = msgspec.json.decode(row["message"], type=Inbound)
    silent = replace(said, text="", attachments=(), quoted=None, forwarded="", given=None)
    tx.execute(
        "UPDATE inbox SET state = 'closed', outcome = NULL, reason = ?, joined = NULL, message = ?, checkpoint = NULL,"
        " usage = NULL, forget = 0 WHERE run = ?",
        FORGOTTEN,
        msgspec.json.encode(silent),
        row["run"],
    )

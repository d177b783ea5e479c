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


def ask_for_conversation(tx: Transaction, conversation: str) -> int:
    """Marks all runs of a conversation to be forgotten; returns how many."""
    return tx.count(
        "UPDATE inbox SET forget = 1 WHERE conversation = ? AND kind = 'message'"
        " AND state IN ('waiting', 'running', 'done')",
        conversation,
    )


def is_asked(tx: Transaction, conversation: str) -> bool:
    """Tells whether a run of this conversation is still to be forgotten."""
    row = tx.one("SELECT 1 FROM inbox WHERE conversation = ? AND kind = 'message' AND forget = 1 LIMIT 1", conversation)
    return row is not None


def mark(tx: Transaction, run: str) -> None:
    """Marks a run that may no longer exist."""
    tx.execute("UPDATE inbox SET forget = 1 WHERE run = ? AND state <> 'closed'", run)


def empty_closed(tx: Transaction, conversation: str, before: float) -> None:
    """Removes the text of commands, edits and refused messages."""
    rows = tx.all(
        "SELECT run, message FROM inbox WHERE conversation = ? AND state = 'closed' AND accepted <= ? AND reason <> ?",
        *(conversation, before, FORGOTTEN),
    )
    for row in rows:
        empty(tx, row)


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
        " usage = NULL, reservation = NULL, forget = 0 WHERE run = ?",
        FORGOTTEN,
        msgspec.json.encode(silent),
        row["run"],
    )

"""What can be asked about one run, whatever state it is in."""

from __future__ import annotations

import msgspec

from tidings.core.desk.runs import Run
from tidings.core.errors import Unknown
from tidings.core.runs import journal
from tidings.core.store.store import Transaction
from tidings.core.types import Inbound


def run(tx: Transaction, id: str, ahead: float) -> Run:
    """`ahead` is what the wall clock shows more than steady time."""
    row = tx.one(
        "SELECT run, conversation, message, state, accepted, ended, stop_asked, forget, asking FROM inbox"
        " WHERE run = ? AND kind = 'message' AND state IN ('waiting', 'running', 'done')",
        id,
    )
    if row is None:
        if (joined := tx.one("SELECT joined FROM inbox WHERE run = ? AND state = 'joined'", id)) is not None:
            # The message has become part of another run.
            return run(tx, joined["joined"], ahead)
        raise Unknown(f"there is no run {id}")
    return Run(
        id=row["run"],
        message=msgspec.json.decode(row["message"], type=Inbound),
        state="asking" if row["asking"] else row["state"],
        accepted=row["accepted"] + ahead,
        ended=None if row["ended"] is None else row["ended"] + ahead,
        stop_asked=row["stop_asked"] is not None,
        steering=_steering(tx, row["conversation"]) if row["state"] == "running" else 0,
        forgotten=bool(row["forget"]),
        outcome=journal.outcome(tx, id),
        void=journal.void(tx, id),
    )


def _steering(tx: Transaction, conversation: str) -> int:
    """How many messages wait to be handed to the run at work in this conversation."""
    row = tx.one(
        "SELECT count(*) AS n FROM inbox WHERE conversation = ? AND state = 'waiting' AND mode = 'steer'", conversation
    )
    return int(row["n"]) if row else 0

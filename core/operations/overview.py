"""An overview of the store: running runs, waiting messages and lost deliveries; only reads."""

from __future__ import annotations

import msgspec
from msgspec.json import decode

from tidings.core.desk.health import LostLine, Moments, Overview, RunLine
from tidings.core.inbound import approval_rows
from tidings.core.outbound import outbox
from tidings.core.store.store import Transaction
from tidings.core.types import Inbound, Target

# The length of each list; the counts include the rest.
LISTED = 10
# How many of the newest rows are read to find when each account was last active.
LATEST = 10_000
LATEST_SENT = 1_000


def overview(tx: Transaction, ahead: float) -> Overview:
    """Reads the overview; `ahead` turns steady time into wall time."""
    waiting = tx.one("SELECT count(*) AS n, min(accepted) AS oldest FROM inbox WHERE state = 'waiting'")
    owed = tx.all(
        "SELECT state, min(created) AS oldest FROM deliveries WHERE state IN ('waiting', 'held', 'doubtful')"
        " AND state <> 'delivered' GROUP BY state"
    )
    running = tx.all("SELECT run, message, accepted, attempt FROM inbox WHERE state = 'running' ORDER BY seq LIMIT 10")
    lost = tx.all(
        "SELECT id, target, reason, cause, created FROM deliveries WHERE state = 'dead' AND state <> 'delivered'"
        " AND kind <> 'opening' AND dismissed = 0 ORDER BY created DESC LIMIT ?",
        LISTED,
    )
    assert waiting is not None
    return Overview(
        queued=waiting["n"],
        oldest_queued=None if waiting["oldest"] is None else waiting["oldest"] + ahead,
        deliveries=outbox.counts(tx),
        oldest_owed={row["state"]: row["oldest"] + ahead for row in owed},
        runs=tuple(
            RunLine(
                row["run"],
                decode(row["message"], type=Inbound).conversation.id,
                row["accepted"] + ahead,
                row["attempt"],
            )
            for row in running
        ),
        lost=tuple(
            LostLine(
                row["id"], str(decode(row["target"], type=Target)), row["reason"], row["cause"], row["created"] + ahead
            )
            for row in lost
        ),
        admitted=_count(tx, "SELECT count(*) AS n FROM persons WHERE role NOT IN ('', 'blocked')"),
        asking=approval_rows.count_open(tx),
    )


def _count(tx: Transaction, sql: str) -> int:
    row = tx.one(sql)
    return int(row["n"]) if row else 0


def moments(tx: Transaction, ahead: float) -> dict[str, Moments]:
    """When each account last received and last sent a message, as far as the store still knows."""
    heard = tx.all(
        "SELECT adapter, account, max(accepted) AS at FROM"
        " (SELECT adapter, account, accepted FROM inbox ORDER BY seq DESC LIMIT ?) AS latest GROUP BY adapter, account",
        LATEST,
    )
    sent = tx.all(
        "SELECT target, closed FROM (SELECT target, closed, state FROM deliveries ORDER BY seq DESC LIMIT ?) AS latest"
        " WHERE state = 'delivered'",
        LATEST_SENT,
    )
    found = {f"{row['adapter']}@{row['account']}": Moments(heard=row["at"] + ahead) for row in heard}
    for row in sent:
        target = decode(row["target"], type=Target)
        name = f"{target.adapter}@{target.account}"
        known = found.get(name, Moments())
        if known.sent is None and row["closed"] is not None:
            found[name] = msgspec.structs.replace(known, sent=row["closed"] + ahead)
    return found

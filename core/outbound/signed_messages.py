"""Finds messages that carry a sign besides that of a run: those that joined it, and those that a crash left behind."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from tidings.core.store.store import Transaction
from tidings.core.types import DeliveryState, Signal, Target

# How many of the newest deliveries are looked at, and how long before the last of them a sign may have been cut off.
NEWEST = 50
CUT_OFF_SECONDS = 10.0


class _Message(msgspec.Struct):
    """What matters of a stored message here."""

    target: Target
    overheard: bool = False


class Ended(NamedTuple):
    run: str
    target: Target
    sign: Signal


def targets(tx: Transaction, run: str) -> tuple[Target, ...]:
    """Where each message that joined this run is, oldest first; one that was only overheard has no sign."""
    rows = tx.all("SELECT message FROM inbox WHERE joined = ? ORDER BY seq", run)
    messages = [msgspec.json.decode(row["message"], type=_Message) for row in rows]
    return tuple(message.target for message in messages if not message.overheard)


def newest_ends(tx: Transaction) -> list[Ended]:
    """Answers that arrived or were lost last: a process that died then may not have shown so any more."""
    rows = tx.all("SELECT run, target, state, signal, closed FROM deliveries ORDER BY seq DESC LIMIT ?", NEWEST)
    rows = [row for row in rows if row["closed"] is not None]
    last = max((row["closed"] for row in rows), default=0.0)
    return [
        Ended(
            row["run"],
            msgspec.json.decode(row["target"], type=Target),
            Signal(row["signal"]) if row["state"] == DeliveryState.DELIVERED else Signal.FAILED,
        )
        for row in rows
        if row["signal"] and row["run"] and row["closed"] >= last - CUT_OFF_SECONDS
    ]

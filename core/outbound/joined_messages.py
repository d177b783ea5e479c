"""Finds the messages that joined a run, such as the later parts of an album: they show the same signs as its own."""

from __future__ import annotations

import msgspec

from tidings.core.store.store import Transaction
from tidings.core.types import Target


class _Message(msgspec.Struct):
    """What matters of a stored message here."""

    target: Target
    overheard: bool = False


def targets(tx: Transaction, run: str) -> tuple[Target, ...]:
    """Where each message that joined this run is, oldest first; one that was only overheard has no sign."""
    rows = tx.all("SELECT message FROM inbox WHERE joined = ? ORDER BY seq", run)
    messages = [msgspec.json.decode(row["message"], type=_Message) for row in rows]
    return tuple(message.target for message in messages if not message.overheard)

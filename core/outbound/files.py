"""The files that deliveries name: which of them are owed, and where they lie after the home has moved."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tidings.core.store.store import Transaction
from tidings.core.types import Body, File, encode


def owed(tx: Transaction) -> set[str]:
    """The paths that deliveries need which have not arrived; in a store of any version."""
    rows = tx.all(
        "SELECT body FROM deliveries WHERE state <> 'delivered' UNION ALL SELECT p.body FROM parts p"
        " JOIN deliveries d ON d.id = p.delivery WHERE d.state <> 'delivered'"
    )
    return {file.path for row in rows for file in msgspec.json.decode(row["body"], type=Body).files}


def redirect(tx: Transaction, here: Callable[[File], File]) -> None:
    """Each file is named where it lies now, whatever became of its delivery."""
    for row in tx.all("SELECT id, body FROM deliveries WHERE has_files = 1"):
        tx.execute("UPDATE deliveries SET body = ? WHERE id = ?", _redirected(row["body"], here), row["id"])
        for part in tx.all("SELECT position, body FROM parts WHERE delivery = ?", row["id"]):
            tx.execute(
                "UPDATE parts SET body = ? WHERE delivery = ? AND position = ?",
                _redirected(part["body"], here),
                row["id"],
                part["position"],
            )


def _redirected(data: bytes, here: Callable[[File], File]) -> bytes:
    body = msgspec.json.decode(data, type=Body)
    return encode(msgspec.structs.replace(body, files=tuple(map(here, body.files))))

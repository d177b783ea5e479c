"""Choices made in a conversation by command, such as another model; they survive /new and every restart."""

from __future__ import annotations

from tidings.core.store.store import Transaction


def read(tx: Transaction, conversation: str) -> dict[str, str]:
    rows = tx.all("SELECT name, value FROM preferences WHERE conversation = ? ORDER BY name", conversation)
    return {row["name"]: row["value"] for row in rows}


def choose(tx: Transaction, conversation: str, name: str, value: str) -> None:
    """Stores a choice; an empty value removes it."""
    if not value:
        tx.execute("DELETE FROM preferences WHERE conversation = ? AND name = ?", conversation, name)
        return
    tx.execute(
        "INSERT INTO preferences (conversation, name, value) VALUES (?, ?, ?)"
        " ON CONFLICT (conversation, name) DO UPDATE SET value = excluded.value",
        conversation,
        name,
        value,
    )

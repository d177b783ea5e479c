"""The notebook of each adapter: a small durable key-value store, for cursors and the like."""

from __future__ import annotations

from collections.abc import Callable

from tidings.core.store.store import Store, Transaction
from tidings.core.types import Note


class StoredNotebook:
    def __init__(self, store: Store, adapter: str, account: str) -> None:
        self._store = store
        self._adapter = adapter
        self._account = account

    async def read(self, name: str) -> str | None:
        return await self._store.read(lambda tx: read(tx, self._adapter, self._account, name))

    async def write(self, name: str, value: str) -> None:
        note = Note(name=name, value=value)
        await self._store.write(lambda tx: write(tx, self._adapter, self._account, note))


def read(tx: Transaction, adapter: str, account: str, name: str) -> str | None:
    row = tx.one("SELECT value FROM notebook WHERE adapter = ? AND account = ? AND name = ?", adapter, account, name)
    return str(row["value"]) if row else None


def write(tx: Transaction, adapter: str, account: str, note: Note) -> None:
    tx.execute(
        "INSERT INTO notebook (adapter, account, name, value) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (adapter, account, name) DO UPDATE SET value = excluded.value",
        adapter,
        account,
        note.name,
        note.value,
    )


def writer(adapter: str, account: str, note: Note | None) -> Callable[[Transaction], None] | None:
    return None if note is None else lambda tx: write(tx, adapter, account, note)

"""The small durable key-value of each adapter's: cursors and the like."""

from __future__ import annotations

from collections.abc import Callable

from core.store.database import Store, Transaction
from core.types import Note


class StoredNotebook:
    def __init__(self, store: Store, adapter: str, account: str) -> None:
        self._store = store
        self._adapter = adapter
        self._account = account

    async def read(self, name: str) -> str | None:
        row = await self._store.read(
            lambda tx: tx.one(
                "SELECT value FROM notebook WHERE adapter = ? AND account = ? AND name = ?",
                self._adapter,
                self._account,
                name,
            )
        )
        return str(row["value"]) if row else None

    async def write(self, name: str, value: str) -> None:
        unit = writer(self._adapter, self._account, Note(name=name, value=value))
        assert unit is not None
        await self._store.write(unit)


def writer(adapter: str, account: str, note: Note | None) -> Callable[[Transaction], None] | None:
    if note is None:
        return None

    def unit(tx: Transaction) -> None:
        tx.execute(
            "INSERT INTO notebook (adapter, account, name, value) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (adapter, account, name) DO UPDATE SET value = excluded.value",
            adapter,
            account,
            note.name,
            note.value,
        )

    return unit

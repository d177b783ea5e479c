"""What the command line may do with the store while no gateway runs, under the home's own lock."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from core.clock import SystemClock
from core.gateway import DATABASE, admit
from core.inbound import notebook
from core.store.inspection import inspect
from core.store.lock import HomeLock
from core.store.sqlite import SqliteTransaction, connect
from core.types import Note


class OfflineNotebook:
    """An adapter's notebook; each line is written at once."""

    def __init__(self, tx: SqliteTransaction, adapter: str, account: str) -> None:
        self._tx = tx
        self._adapter = adapter
        self._account = account

    async def read(self, name: str) -> str | None:
        return notebook.read(self._tx, self._adapter, self._account, name)

    async def write(self, name: str, value: str) -> None:
        notebook.write(self._tx, self._adapter, self._account, Note(name=name, value=value))


def allow(home: Path, id: str) -> bool:
    with _opened(home) as tx:
        return admit(tx, id, SystemClock().now())


@contextmanager
def open_notebook(home: Path, adapter: str, account: str) -> Iterator[OfflineNotebook]:
    with _opened(home) as tx:
        yield OfflineNotebook(tx, adapter, account)


def check_store(home: Path) -> list[str]:
    return inspect(home / DATABASE)


@contextmanager
def _opened(home: Path) -> Iterator[SqliteTransaction]:
    """Raises HomeInUse while a gateway runs."""
    lock = HomeLock(home)
    lock.take()
    # A store that is made here is the owner's alone, as one that a gateway makes.
    before = os.umask(0o077)
    try:
        connection = connect(home / DATABASE)
        try:
            yield SqliteTransaction(connection)
        finally:
            connection.close()
    finally:
        os.umask(before)
        lock.release()

"""The few verbs of a store: a unit of work is one plain function, run alone and committed before it returns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Row(Protocol):
    def __getitem__(self, column: str) -> Any: ...


class Transaction(Protocol):
    """Plain SQL with `?` for parameters, kept to what SQLite and PostgreSQL share."""

    def execute(self, sql: str, *parameters: object) -> None:
        """Needs no answer at once; a fault of the statement undoes the unit all the same."""
        ...

    def count(self, sql: str, *parameters: object) -> int:
        """Executes a change and waits for the number of rows that it touched."""
        ...

    def one(self, sql: str, *parameters: object) -> Row | None: ...
    def all(self, sql: str, *parameters: object) -> list[Row]: ...


Unit = Callable[[Transaction], T]


class Store(Protocol):
    """No transaction stays open across an await: a unit never awaits, and its result means COMMIT."""

    # Why the last write failed; empty while all is well.
    fault: str

    def write(self, unit: Unit[T]) -> asyncio.Future[T]:
        """Queues the unit at once, in order of the calls. Raises Unstored when it cannot be committed."""
        ...

    def read(self, unit: Unit[T]) -> asyncio.Future[T]: ...

    async def insist(self, unit: Unit[T]) -> T:
        """Tries until it is stored: for what has happened already and must not be forgotten."""
        ...

    async def copy(self, to: Path) -> None:
        """A whole copy in a file of its own, while others write. Raises Unstored when there can be none."""
        ...

    async def close(self) -> None: ...

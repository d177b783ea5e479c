"""The contract of a store: a unit of work is a plain function, run alone and committed before its result returns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from tidings.core.store.wakeups import Due, Wakeups

T = TypeVar("T")


class Step(Protocol):
    """A part of a unit that can be undone by itself."""

    def undo(self) -> None:
        """Undoes every row and every announcement since the step began; the unit goes on."""
        ...


class Row(Protocol):
    def __getitem__(self, column: str) -> Any: ...


class Transaction(Protocol):
    """Runs plain SQL with `?` for parameters, limited to what SQLite and PostgreSQL share."""

    def execute(self, sql: str, *parameters: object) -> None:
        """Runs a statement without waiting for its result; if the statement fails, the unit is undone."""
        ...

    def count(self, sql: str, *parameters: object) -> int:
        """Runs a statement and returns the number of rows that it changed."""
        ...

    def one(self, sql: str, *parameters: object) -> Row | None: ...
    def all(self, sql: str, *parameters: object) -> list[Row]: ...

    def announce(self, due: Due) -> None:
        """Published after COMMIT, each value once; forgotten when the unit or its step is undone."""
        ...

    def step(self) -> AbstractContextManager[Step]:
        """An exception that leaves the step undoes it."""
        ...


Unit = Callable[[Transaction], T]


class Store(Protocol):
    """Stores everything durable; a unit never awaits, and its result means that it is committed."""

    # Why the last write failed; empty after a successful one.
    fault: str
    # Hears what units announce, before their callers go on.
    wakeups: Wakeups

    def write(self, unit: Unit[T]) -> asyncio.Future[T]:
        """Queues the unit at once, in order of the calls; raises Unstored when it cannot be committed."""
        ...

    def read(self, unit: Unit[T]) -> asyncio.Future[T]: ...

    async def insist(self, unit: Unit[T]) -> T:
        """Tries until the unit is stored: for facts that have already happened and must not be lost."""
        ...

    async def copy(self, to: Path) -> None:
        """Copies the whole store to a file while others write; raises Unstored when that is impossible."""
        ...

    async def size(self) -> int:
        """How many bytes the store takes."""
        ...

    async def spare(self) -> int:
        """How many of these bytes no row uses."""
        ...

    async def damage(self) -> str:
        """What is wrong with the store, empty where nothing is; reads all of it while others write."""
        ...

    async def close(self) -> None: ...

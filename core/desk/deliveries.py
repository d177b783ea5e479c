"""What an owner can ask about deliveries and stored data, and do about them."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import msgspec


class DeliveryLine(msgspec.Struct, frozen=True):
    """One delivery of a list; `seq` is where the next page begins."""

    seq: int
    id: str
    target: str
    # waiting, held, doubtful or dead.
    state: str
    reason: str
    cause: str
    # How it begins.
    title: str
    # When it was given up, else when we began to owe it; by the wall clock.
    at: float
    attempts: int


class Pruned(msgspec.Struct, frozen=True):
    """How much went, or would go: rows, files and their bytes."""

    runs: int = 0
    events: int = 0
    deliveries: int = 0
    tasks: int = 0
    history: int = 0
    cards: int = 0
    files: int = 0
    bytes: int = 0
    # What the store holds without using it; it is used again before the store grows.
    spare_bytes: int = 0

    def __add__(self, other: Pruned) -> Pruned:
        return Pruned(*(getattr(self, name) + getattr(other, name) for name in self.__struct_fields__))

    def __bool__(self) -> bool:
        return self != Pruned()


class UpkeepDesk(Protocol):
    """What an owner does with what is stored, while the gateway runs."""

    async def snapshot(self) -> Path:
        """A whole copy of the store in a file of its own, which whoever asked removes. Raises Conflict, Unstored."""
        ...

    async def prune(self, older_than: float | None, *, rehearsal: bool) -> Pruned:
        """Removes what is over for longer than so many seconds, or than the settings say; or only counts it."""
        ...

    async def deliveries(self, *, waiting: bool, limit: int, before: int = 0) -> list[DeliveryLine]:
        """Those in trouble, the newest first, and those that only wait if asked for."""
        ...

    async def retry(self, id: str) -> str:
        """Tries a delivery again, and says how. Raises Unknown, or Conflict for one that has arrived."""
        ...

    async def drop(self, id: str) -> None:
        """Gives a delivery up for good, and nobody is told any more. Raises Unknown, Conflict."""
        ...

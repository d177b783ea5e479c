"""Requests about deliveries and stored data: list and repair deliveries, copy the store, prune it."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import msgspec


class DeliveryLine(msgspec.Struct, frozen=True):
    """A delivery in a list; the next page begins at `seq`."""

    seq: int
    id: str
    target: str
    # waiting, held, doubtful or dead.
    state: str
    reason: str
    cause: str
    # The beginning of the text.
    title: str
    # When the delivery was given up, otherwise when it was created; by the wall clock.
    at: float
    attempts: int


class Pruned(msgspec.Struct, frozen=True):
    """How much was pruned or would be: rows, files and their bytes."""

    runs: int = 0
    events: int = 0
    deliveries: int = 0
    tasks: int = 0
    history: int = 0
    cards: int = 0
    audit: int = 0
    usage: int = 0
    files: int = 0
    bytes: int = 0
    # Unused space in the store's file, which is used before the file grows.
    spare_bytes: int = 0

    def __add__(self, other: Pruned) -> Pruned:
        return Pruned(*(getattr(self, name) + getattr(other, name) for name in self.__struct_fields__))

    def __bool__(self) -> bool:
        return self != Pruned()


class UpkeepDesk(Protocol):
    """What the owner may do with stored data while the gateway runs."""

    async def snapshot(self) -> Path:
        """Copies the store into a file that the caller removes; raises Conflict or Unstored."""
        ...

    async def prune(self, older_than: float | None, *, rehearsal: bool) -> Pruned:
        """Removes data that ended more than `older_than` seconds ago, or as the settings say.

        A rehearsal only counts.
        """
        ...

    async def deliveries(self, *, waiting: bool, limit: int, before: int = 0) -> list[DeliveryLine]:
        """Deliveries in trouble, the newest first; with `waiting`, also those that only wait."""
        ...

    async def retry(self, id: str) -> str:
        """Tries a delivery again and describes how; raises Unknown, or Conflict for one that has arrived."""
        ...

    async def drop(self, id: str) -> None:
        """Gives a delivery up for good, without a notice to anyone; raises Unknown or Conflict."""
        ...

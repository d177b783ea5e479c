"""What pruning in every room shares: time limits, and walks over tables in slices."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tidings.core.desk.deliveries import Pruned
from tidings.core.store.store import Row, Transaction

# A slice looks at and removes at most this many rows, so that other writers wait only briefly.
LOOKED_AT = 250
REMOVED = 20
EVENTS = 100
FOR_EVER = float("-inf")


class Terms(NamedTuple):
    """Rows that ended before these times may be removed; minus infinity keeps them for ever.

    `said`, `fired`, `audit`, `usage`, `attachments` and `records` (logs of worker processes) are by the wall clock.
    """

    journals: float
    runs: float
    deliveries: float
    attachments: float
    history: float
    said: float
    fired: float
    cards: float
    records: float
    audit: float
    usage: float
    # A rehearsal only counts.
    rehearsal: bool = False


class Slice(NamedTuple):
    """The result of one slice: the row after which the walk continues, None at the end, and what was removed."""

    after: int | str | None
    pruned: Pruned


# A walk over the rows of one room; the first slice begins after 0.
Walk = Callable[[Transaction, int | str, Terms], Slice]


def sifted(page: list[Row], after: str, is_old: Callable[[Row], bool]) -> tuple[list[str], str | None]:
    """The ids of a page to remove, up to the limit of a slice, and the id after which the walk continues."""
    going: list[str] = []
    for row in page:
        if len(going) >= REMOVED:
            return going, after
        after = row["id"]
        if is_old(row):
            going.append(after)
    return going, after if len(page) == LOOKED_AT else None


def counted(row: Row | None) -> int:
    """The number that a statement gives back as `n`."""
    return int(row["n"]) if row else 0

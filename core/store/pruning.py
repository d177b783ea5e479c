"""The terms on which each room gives up its old rows, a slice at a time."""

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
    """Rows that ended before these moments may go; minus infinity keeps them for ever.

    `said`, `fired`, `attachments` and `records` (logs of worker processes) are by the wall clock.
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
    # Only counts.
    rehearsal: bool = False


class Slice(NamedTuple):
    """The row after which the walk over a table goes on, None at its end; and how much has gone."""

    after: int | str | None
    pruned: Pruned


# One walk over the rows of a room: the first slice begins after 0.
Walk = Callable[[Transaction, int | str, Terms], Slice]


def sifted(page: list[Row], after: str, is_old: Callable[[Row], bool]) -> tuple[list[str], str | None]:
    """The ids of a page that go, no more than may go at once; and the id after which the walk goes on."""
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

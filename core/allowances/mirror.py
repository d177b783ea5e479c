"""The rows of spending as of the last commit, in memory: what the door and running runs look at without the store."""

from __future__ import annotations

from collections.abc import Iterable

from tidings.core.desk.usage import ALL_TIME, Counts, Key, SpentRow

# With more rows than this, those of earlier days are dropped.
MANY = 10_000
# In some zone it is tomorrow already, in another one still yesterday, and one day may be of a clock that was wrong.
DAYS_KEPT = 4


class Mirror:
    """A row may lag behind the store, and is never ahead of it; the transaction that claims a run reads the store."""

    def __init__(self) -> None:
        self._rows: dict[Key, Counts] = {}
        self._swept_at = MANY

    def take(self, rows: Iterable[SpentRow]) -> None:
        self._rows.update(rows)
        if len(self._rows) > self._swept_at:
            newest = sorted({key.span for key in self._rows if key.span != ALL_TIME})[-DAYS_KEPT:]
            kept = {*newest, ALL_TIME}
            self._rows = {key: counts for key, counts in self._rows.items() if key.span in kept}
            self._swept_at = max(MANY, 2 * len(self._rows))

    def sum(self, keys: Iterable[Key]) -> Counts:
        total = Counts()
        for key in keys:
            if (found := self._rows.get(key)) is not None:
                total += found
        return total

"""Ties steady time to the current boot: it continues where it was and never goes back.

After a reboot the wall clock tells how much time has passed. A clock that is far off would expire things days early,
and that cannot be undone: so time continues from where it was until the clock is confirmed, and then catches up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tidings.core import clock as clocks
from tidings.core.clock import SystemClock
from tidings.core.store.store import Transaction

# A difference up to this is believed: a night off is normal, and a day does no harm to what expires after days.
BELIEVED_SECONDS = 86_400.0
# Without a sign from a time server, the clock counts as right this long after the boot.
PATIENCE_SECONDS = 3600.0


def is_right() -> bool:
    """Can the wall clock be trusted?"""
    return clocks.is_synchronised() or clocks.since_boot() > PATIENCE_SECONDS


def read(tx: Transaction, is_right: Callable[[], bool] = is_right) -> SystemClock:
    """The steady clock of a gateway that starts now, which continues the one that the rows were written by."""
    row = tx.one("SELECT boot, clock_offset, latest, confirmed FROM epoch")
    if row is None:
        return SystemClock()
    boot = clocks.boot_id()
    if boot and row["boot"] == boot:
        # The later of both: a process may have died between catching up and storing that.
        offset = max(row["clock_offset"], row["latest"] - clocks.since_boot())
        return SystemClock(offset, confirmed=bool(row["confirmed"]))
    clock = SystemClock()
    latest = max(row["latest"], *_newest(tx))
    passed = clock.now() - latest
    if 0 <= passed <= BELIEVED_SECONDS:
        return clock
    sure = is_right()
    return clock if sure and passed > 0 else SystemClock(clock.offset - passed, confirmed=sure, resumed=latest)


def steady_clock(tx: Transaction, is_right: Callable[[], bool] = is_right) -> SystemClock:
    clock = read(tx, is_right)
    _store(tx, clock)
    return clock


class Lag(NamedTuple):
    """By how much steady time has caught up with the wall clock, and when it had stood still."""

    seconds: float
    # The moment from which the gateway has worked with too early a time: steady, and by the wall clock.
    since: float
    since_wall: float


# A room's own rows that have begun meanwhile: they stay as old as they were, and are due as late.
Postpone = Callable[[Transaction, Lag], None]


def confirm(
    tx: Transaction, clock: SystemClock, postponed: Sequence[Postpone], is_right: Callable[[], bool] = is_right
) -> bool:
    """Lets time catch up with the wall clock if the clock can be trusted by now."""
    # The stored row decides: a commit that failed is made up for.
    row = tx.one("SELECT clock_offset, confirmed FROM epoch")
    if row is None or row["confirmed"] or not is_right():
        return clock.confirmed
    clock.confirm()
    seconds = clock.offset - row["clock_offset"]
    lag = Lag(seconds, clock.resumed, clock.wall() - (clock.now() - seconds - clock.resumed))
    for postpone in postponed:
        postpone(tx, lag)
    _store(tx, clock)
    return True


def _store(tx: Transaction, clock: SystemClock) -> None:
    tx.execute(
        "INSERT INTO epoch (id, boot, clock_offset, latest, confirmed) VALUES (1, ?, ?, ?, ?) ON CONFLICT (id)"
        " DO UPDATE SET boot = excluded.boot, clock_offset = excluded.clock_offset, latest = excluded.latest,"
        " confirmed = excluded.confirmed",
        clocks.boot_id(),
        clock.offset,
        clock.now(),
        int(clock.confirmed),
    )


def _newest(tx: Transaction) -> list[float]:
    """How late it was when the last process still lived: the epoch only knows when that one started."""
    accepted = tx.all("SELECT accepted AS at FROM inbox ORDER BY seq DESC LIMIT 1")
    created = tx.all("SELECT created AS at FROM deliveries ORDER BY seq DESC LIMIT 1")
    return [0.0, *(row["at"] for row in (*accepted, *created))]


def mark(tx: Transaction, now: float) -> None:
    """How late it was when we last looked."""
    tx.execute("UPDATE epoch SET latest = ?", now)

"""Ties steady time to this boot of the machine: within one it goes on where it was, and never backwards.

After a reboot the wall clock tells how much time has passed. One that is far off would end at once what has days to go,
and that cannot be undone: so time goes on from where it was until the clock is confirmed, and then catches up.
"""

from __future__ import annotations

from collections.abc import Callable

from core import clock as clocks
from core.clock import SystemClock
from core.store.database import Transaction

# What is given up or removed has waited for days: so much more or less does no harm, and a night off is believed.
BELIEVED_SECONDS = 86_400.0
# Where nobody tells whether the clock is right, it counts after so long since the boot: a time server has had its turn.
PATIENCE_SECONDS = 3600.0


def is_right() -> bool:
    """May the wall clock be relied on?"""
    return clocks.is_synchronised() or clocks.since_boot() > PATIENCE_SECONDS


def read(tx: Transaction, is_right: Callable[[], bool] = is_right) -> SystemClock:
    """The time that the rows were written by, as a gateway that starts now has it."""
    row = tx.one("SELECT boot, clock_offset, latest, confirmed FROM epoch")
    if row is None:
        return SystemClock()
    boot = clocks.boot_id()
    if boot and row["boot"] == boot:
        # The later of both: a process may have died after time had caught up, and before that was stored.
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


def confirm(tx: Transaction, clock: SystemClock, is_right: Callable[[], bool] = is_right) -> bool:
    """Lets time catch up with the wall clock, if that may be relied on by now."""
    # By the row: what could not be committed is done again.
    row = tx.one("SELECT clock_offset, confirmed FROM epoch")
    if row is None or row["confirmed"] or not is_right():
        return clock.confirmed
    clock.confirm()
    _carry_along(tx, clock, clock.offset - row["clock_offset"])
    _store(tx, clock)
    return True


def _carry_along(tx: Transaction, clock: SystemClock, seconds: float) -> None:
    """What has begun since the boot did not wait while the machine was off: it is as old as before, and due as late."""
    resumed = clock.wall() - (clock.now() - seconds - clock.resumed)
    tx.execute(
        "UPDATE deliveries SET created = created + ? WHERE state <> 'delivered'"
        " AND state IN ('waiting', 'held', 'doubtful') AND created > ?",
        seconds,
        clock.resumed,
    )
    tx.execute(
        "UPDATE tasks SET due = due + ? WHERE state IN ('waiting', 'running') AND state = 'waiting' AND created > ?",
        seconds,
        clock.resumed,
    )
    tx.execute(
        "UPDATE schedules SET next = next + ? WHERE next IS NOT NULL AND paused = 0 AND removed = 0 AND steady = 1"
        " AND created > ?",
        seconds,
        # By the wall clock, as they have it.
        resumed,
    )


def _store(tx: Transaction, clock: SystemClock) -> None:
    tx.execute(
        "INSERT INTO epoch (only, boot, clock_offset, latest, confirmed) VALUES (1, ?, ?, ?, ?) ON CONFLICT (only)"
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

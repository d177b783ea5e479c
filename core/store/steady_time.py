"""Continues steady time across restarts and reboots; steady time never goes back.

After a reboot the wall clock tells how much time has passed. A wrong clock would expire things days early, which
cannot be undone. So time continues from where it was until the clock is confirmed, and then catches up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tidings.core import clock as clocks
from tidings.core.clock import SystemClock
from tidings.core.store.store import Transaction

# A smaller difference is believed: a machine is often off for a night, and a day does not matter to what expires.
BELIEVED_SECONDS = 86_400.0
# Without a time server, the clock counts as right this long after the boot.
PATIENCE_SECONDS = 3600.0


def is_right() -> bool:
    """Tells whether the wall clock can be trusted."""
    return clocks.is_synchronised() or clocks.since_boot() > PATIENCE_SECONDS


def read(tx: Transaction, is_right: Callable[[], bool] = is_right) -> SystemClock:
    """The steady clock for a gateway that starts now; it continues the clock of the stored rows."""
    row = tx.one("SELECT boot, clock_offset, latest, confirmed FROM epoch")
    if row is None:
        return SystemClock()
    boot = clocks.boot_id()
    if boot and row["boot"] == boot:
        # The later of both counts: a process may have died between catching up and storing the new offset.
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
    """How far steady time has jumped forward to the wall clock, and since when it had been late."""

    seconds: float
    # When the gateway began to work with a late clock: by steady time, and by the wall clock.
    since: float
    since_wall: float


# Moves the rows that a room has created since then, so that they keep their age and their due times.
Postpone = Callable[[Transaction, Lag], None]


def confirm(
    tx: Transaction, clock: SystemClock, postponed: Sequence[Postpone], is_right: Callable[[], bool] = is_right
) -> bool:
    """Moves steady time to the wall clock if that can be trusted by now."""
    # The stored row decides, so that a failed commit is repeated.
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
    """The newest times in the store: the epoch row only knows when the last process started."""
    accepted = tx.all("SELECT accepted AS at FROM inbox ORDER BY seq DESC LIMIT 1")
    created = tx.all("SELECT created AS at FROM deliveries ORDER BY seq DESC LIMIT 1")
    return [0.0, *(row["at"] for row in (*accepted, *created))]


def mark(tx: Transaction, now: float) -> None:
    """Stores the present steady time."""
    tx.execute("UPDATE epoch SET latest = ?", now)

"""Ties steady time to this boot of the machine: within one it goes on where it was, and never backwards."""

from __future__ import annotations

from core import clock as clocks
from core.clock import SystemClock
from core.store.database import Transaction


def steady_clock(tx: Transaction) -> SystemClock:
    """After a reboot the wall clock sets it."""
    row = tx.one("SELECT boot, clock_offset, latest FROM epoch")
    boot = clocks.boot_id()
    if row and boot and row["boot"] == boot:
        clock = SystemClock(row["clock_offset"])
    else:
        clock = SystemClock()
        latest = max(row["latest"], *_newest(tx)) if row else 0.0
        if clock.now() < latest:
            clock = SystemClock(clock.offset + latest - clock.now())
    tx.execute(
        "INSERT INTO epoch (only, boot, clock_offset, latest) VALUES (1, ?, ?, ?) ON CONFLICT (only)"
        " DO UPDATE SET boot = excluded.boot, clock_offset = excluded.clock_offset, latest = excluded.latest",
        boot,
        clock.offset,
        clock.now(),
    )
    return clock


def _newest(tx: Transaction) -> list[float]:
    """How late it was when the last process still lived: the epoch only knows when that one started."""
    accepted = tx.all("SELECT accepted AS at FROM inbox ORDER BY seq DESC LIMIT 1")
    created = tx.all("SELECT created AS at FROM deliveries ORDER BY seq DESC LIMIT 1")
    return [0.0, *(row["at"] for row in (*accepted, *created))]


def mark(tx: Transaction, now: float) -> None:
    """How late it was when we last looked."""
    tx.execute("UPDATE epoch SET latest = ?", now)

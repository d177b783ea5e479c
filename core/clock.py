"""Time that never jumps: a steady clock for durations, the wall clock only for people and platforms."""

from __future__ import annotations

import asyncio
import ctypes
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

# The file that systemd-timesyncd makes when it has set the clock; the kernel's answer when the clock is not set.
SYNCHRONISED = Path("/run/systemd/timesync/synchronized")
TIME_ERROR = 5
# A timer fires at most this much late after the machine has slept.
HOP_SECONDS = 15.0


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    """`now` continues across restarts and ignores changes of the wall clock; compare `now` only with `now`."""

    # False after a reboot while the wall clock may be wrong: nothing expires or is removed until it is confirmed.
    confirmed: bool

    def now(self) -> float: ...
    def wall(self) -> float: ...
    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer: ...
    async def sleep(self, seconds: float) -> None: ...

    @property
    def ahead(self) -> float:
        """Seconds to add to steady time to get wall time; rounded, so that repeated calls agree."""
        return round(self.wall() - self.now(), 1)


def boot_id() -> str:
    """An id of the current boot of this machine; empty where the system has none."""
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text().strip() if path.exists() else ""


def since_boot() -> float:
    """Seconds since boot, including sleep where the system counts it."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def is_synchronised() -> bool:
    """Tells whether a time server has set this machine's clock, as far as the system knows."""
    if SYNCHRONISED.exists():
        return True
    adjust = getattr(ctypes.CDLL(None), "adjtimex", None)
    # A buffer of zeros only queries the clock; the size of the answer differs between systems.
    return adjust is not None and adjust(ctypes.create_string_buffer(1024)) not in (-1, TIME_ERROR)


class SystemClock(Clock):
    """Steady time is the time since boot plus an offset that is stored with the data.

    Within one boot the offset does not change, so a wall clock that jumps a day expires nothing and
    immortalises nothing. After a reboot the wall clock sets it anew, never backwards (core/store/steady_time.py).
    """

    def __init__(self, offset: float | None = None, *, confirmed: bool = True, resumed: float | None = None) -> None:
        self.offset = time.time() - since_boot() if offset is None else offset
        self.confirmed = confirmed
        # The offset with which steady time continued after the boot.
        self.resumed = self.offset if resumed is None else resumed

    def confirm(self) -> None:
        """Moves steady time forward to the wall clock, which is known to be right; steady time never goes back."""
        self.offset = max(self.offset, time.time() - since_boot())
        self.confirmed = True

    def now(self) -> float:
        return self.offset + since_boot()

    def wall(self) -> float:
        return time.time()

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        if seconds <= HOP_SECONDS:
            return asyncio.get_running_loop().call_later(seconds, callback)
        return Hops(seconds, callback)

    async def sleep(self, seconds: float) -> None:
        if seconds <= HOP_SECONDS:
            await asyncio.sleep(max(seconds, 0.0))
            return
        over = asyncio.Event()
        timer = self.call_later(seconds, over.set)
        try:
            await over.wait()
        finally:
            timer.cancel()


class Hops:
    """A long timer made of short ones, because the event loop's clock stops while the machine sleeps.

    A correction of steady time meanwhile does not shorten the wait.
    """

    def __init__(self, seconds: float, callback: Callable[[], None]) -> None:
        self._due = since_boot() + seconds
        self._callback = callback
        self._timer = asyncio.get_running_loop().call_later(HOP_SECONDS, self.hop)

    def cancel(self) -> None:
        self._timer.cancel()

    def hop(self) -> None:
        left = self._due - since_boot()
        if left <= 0:
            self._callback()
        else:
            self._timer = asyncio.get_running_loop().call_later(min(left, HOP_SECONDS), self.hop)


async def ended_within(clock: Clock, task: asyncio.Task[Any], seconds: float) -> bool:
    """Waits up to `seconds` by this clock for a task to end, without cancelling the task."""
    patience: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def give_up() -> None:
        if not patience.done():
            patience.set_result(None)

    timer = clock.call_later(seconds, give_up)
    try:
        await asyncio.wait({task, patience}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        timer.cancel()
        patience.cancel()
    return task.done()

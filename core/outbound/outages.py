"""One back-off for a whole account that cannot be reached: one lane probes, and the other lanes wait."""

from __future__ import annotations

from collections.abc import Callable

from tidings.core.clock import Clock, Timer
from tidings.core.outbound import pace

# A few unreachable chats may have troubles of their own; this many lanes mean that the platform is down.
LANES = 3

Account = tuple[str, str]


class Outages:
    """The outages of all accounts; `poke` makes a lane check again whether it may send."""

    def __init__(self, clock: Clock, poke: Callable[[str], None]) -> None:
        self._clock = clock
        self._poke = poke
        self._outages: dict[Account, _Outage] = {}

    def missed(self, account: Account, lane: str) -> None:
        """Notes that this lane could not reach the platform; its message was not sent."""
        outage = self._outages.setdefault(account, _Outage())
        outage.missed.add(lane)
        # Several sends may fail at the same time; together they count as one failure.
        if outage.timer is None and outage.probe in ("", lane) and outage.is_general:
            outage.probe = ""
            seconds, outage.misses = pace.backoff(outage.misses), outage.misses + 1
            outage.timer = self._clock.call_later(seconds, lambda: self._let_one_go(outage))

    def reached(self, account: Account) -> bool:
        """Notes that the platform answered, whatever it said; true if this ends an outage, so all lanes may send."""
        outage = self._outages.pop(account, None)
        if outage is None:
            return False
        outage.end_pause()
        for lane in list(outage.waiting):
            self._poke(lane)
        return outage.is_general

    def is_on(self, account: Account) -> bool:
        return account in self._outages and self._outages[account].is_general

    def holds(self, account: Account, lane: str) -> bool:
        """Tells whether this lane must wait; it is poked when its turn comes. Without a probe, this lane becomes it."""
        outage = self._outages.get(account)
        if outage is None or not outage.is_general or outage.probe == lane:
            return False
        if outage.timer is None and not outage.probe:
            outage.probe = lane
            return False
        outage.waiting[lane] = None
        return True

    def left(self, lane: str) -> None:
        """Notes that a lane ends without an answer of the platform; if it was the probe, another lane probes."""
        for outage in self._outages.values():
            outage.waiting.pop(lane, None)
            if outage.probe == lane:
                self._let_one_go(outage)

    def stop(self) -> None:
        for outage in self._outages.values():
            outage.end_pause()

    def _let_one_go(self, outage: _Outage) -> None:
        """Lets the next lane probe; lanes take turns, so a chat with trouble of its own does not block the others."""
        outage.end_pause()
        outage.probe = next(iter(outage.waiting), "")
        if outage.probe:
            del outage.waiting[outage.probe]
            self._poke(outage.probe)


class _Outage:
    def __init__(self) -> None:
        self.missed: set[str] = set()
        # Waiting lanes in the order of their arrival.
        self.waiting: dict[str, None] = {}
        self.misses = 0
        # The lane that may try now.
        self.probe = ""
        # No lane tries until this timer fires.
        self.timer: Timer | None = None

    @property
    def is_general(self) -> bool:
        return len(self.missed) >= LANES

    def end_pause(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

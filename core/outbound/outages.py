"""One back-off for a whole account that cannot be reached: its lanes wait for one of them to get through."""

from __future__ import annotations

from collections.abc import Callable

from tidings.core.clock import Clock, Timer
from tidings.core.outbound import pace

# What cannot be reached in one chat may be the chat's own trouble; in so many it is the platform's.
LANES = 3

Account = tuple[str, str]


class Outages:
    """`poke` has a lane look again."""

    def __init__(self, clock: Clock, poke: Callable[[str], None]) -> None:
        self._clock = clock
        self._poke = poke
        self._outages: dict[Account, _Outage] = {}

    def missed(self, account: Account, lane: str) -> None:
        """Nothing that this lane sent has left us."""
        outage = self._outages.setdefault(account, _Outage())
        outage.missed.add(lane)
        # Many may have been on their way at once; they say the same.
        if outage.timer is None and outage.probe in ("", lane) and outage.is_general:
            outage.probe = ""
            seconds, outage.misses = pace.backoff(outage.misses), outage.misses + 1
            outage.timer = self._clock.call_later(seconds, lambda: self._let_one_go(outage))

    def reached(self, account: Account) -> bool:
        """Somebody answered, whatever they said. True when that was the end of an outage: all may go."""
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
        """Must this lane wait? It is poked when it is its turn; where nobody else tries, it is its turn now."""
        outage = self._outages.get(account)
        if outage is None or not outage.is_general or outage.probe == lane:
            return False
        if outage.timer is None and not outage.probe:
            outage.probe = lane
            return False
        outage.waiting[lane] = None
        return True

    def left(self, lane: str) -> None:
        """If it was this lane's turn, it is another's: nobody knows more than before."""
        for outage in self._outages.values():
            outage.waiting.pop(lane, None)
            if outage.probe == lane:
                self._let_one_go(outage)

    def stop(self) -> None:
        for outage in self._outages.values():
            outage.end_pause()

    def _let_one_go(self, outage: _Outage) -> None:
        """In turn, so that one chat with a trouble of its own keeps nobody from finding out."""
        outage.end_pause()
        outage.probe = next(iter(outage.waiting), "")
        if outage.probe:
            del outage.waiting[outage.probe]
            self._poke(outage.probe)


class _Outage:
    def __init__(self) -> None:
        self.missed: set[str] = set()
        # In the order in which they came.
        self.waiting: dict[str, None] = {}
        self.misses = 0
        # The lane whose turn it is to try.
        self.probe = ""
        # Until it fires, nobody tries.
        self.timer: Timer | None = None

    @property
    def is_general(self) -> bool:
        return len(self.missed) >= LANES

    def end_pause(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

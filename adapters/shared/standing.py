"""Which of our reactions may stand on a message, for platforms where a new reaction does not replace the old one."""

from __future__ import annotations

from collections import OrderedDict

from tidings.core.types import Signal

# Signs that another one replaces.
PASSING = (Signal.SEEN, Signal.WAITING, Signal.WORKING)
# With more messages than this, the oldest are forgotten; anything may stand on a message that is not known.
MOST = 5_000


class Standing:
    """Remembers what this process has shown; an earlier process may have shown something, too."""

    def __init__(self) -> None:
        self._shown: OrderedDict[str, set[Signal]] = OrderedDict()

    def others(self, message: str, signal: Signal) -> tuple[Signal, ...]:
        """The signs to remove before this one is shown; a message that was just seen has none."""
        if message not in self._shown and signal is not Signal.SEEN:
            for each in PASSING:
                self.add(message, each)
        known = self._shown.get(message, set())
        return tuple(each for each in PASSING if each in known and each is not signal)

    def __contains__(self, message: str) -> bool:
        """Tells whether one of our reactions is known to stand there."""
        return bool(self._shown.get(message))

    def add(self, message: str, signal: Signal) -> None:
        """Called before a sign is shown: it may stand there even if no verdict comes back."""
        self._shown.setdefault(message, set()).add(signal)
        self._shown.move_to_end(message)
        if len(self._shown) > MOST:
            self._shown.popitem(last=False)

    def remove(self, message: str, signal: Signal) -> None:
        self._shown.get(message, set()).discard(signal)

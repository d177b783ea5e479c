"""What the owner should look at: each alarm is an ERROR line, and a count with the last reason in `status`."""

from __future__ import annotations

import logging
from collections.abc import Callable

from tidings.core.clock import Clock
from tidings.core.desk.health import Alarm
from tidings.core.redaction import clean

log = logging.getLogger(__name__)


class Alarms:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._listener: Callable[[Alarm, str], None] | None = None
        # What sounded before anybody listened.
        self._unheard: list[tuple[Alarm, str]] = []
        self._alarms: dict[str, Alarm] = {}

    def listen(self, listener: Callable[[Alarm, str], None]) -> None:
        """To whoever passes an alarm on, with where the trouble is; also what has sounded until now."""
        self._listener = listener
        for alarm, about in self._unheard:
            listener(alarm, about)
        self._unheard.clear()

    def sound(self, name: str, reason: str, about: str = "") -> None:
        """`name` is one of a few words in the code, so the table stays small; `about` is an adapter@account."""
        count = self._alarms[name].count + 1 if name in self._alarms else 1
        self._alarms[name] = Alarm(name, count, clean(reason), self._clock.wall())
        log.error("%s: %s", name, reason)
        if self._listener:
            self._listener(self._alarms[name], about)
        else:
            self._unheard.append((self._alarms[name], about))

    def all(self) -> tuple[Alarm, ...]:
        return tuple(self._alarms.values())

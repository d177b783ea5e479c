"""Alarms for the owner: each one is an ERROR line in the log, and a count with the last reason in `status`."""

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
        # Alarms that sounded before there was a listener.
        self._unheard: list[tuple[Alarm, str]] = []
        self._alarms: dict[str, Alarm] = {}

    def listen(self, listener: Callable[[Alarm, str], None]) -> None:
        """Passes every alarm to this listener with the account in trouble, also the alarms that have sounded so far."""
        self._listener = listener
        for alarm, about in self._unheard:
            listener(alarm, about)
        self._unheard.clear()

    def sound(self, name: str, reason: str, about: str = "") -> None:
        """`name` is one of a few fixed words, so the table stays small; `about` is the `adapter@account` in trouble."""
        count = self._alarms[name].count + 1 if name in self._alarms else 1
        self._alarms[name] = Alarm(name, count, clean(reason), self._clock.wall())
        log.error("%s: %s", name, reason)
        if self._listener:
            self._listener(self._alarms[name], about)
        else:
            self._unheard.append((self._alarms[name], about))

    def all(self) -> tuple[Alarm, ...]:
        return tuple(self._alarms.values())

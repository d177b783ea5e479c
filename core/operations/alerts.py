"""Alerts: messages to the owner about trouble with the gateway, sent by another account where possible."""

from __future__ import annotations

import logging
from collections.abc import Callable

from tidings.core import ids
from tidings.core.background import Background
from tidings.core.clock import Timer
from tidings.core.desk.health import Alarm
from tidings.core.outbound import homes, outbox
from tidings.core.outbound.outbox import Class, Owed
from tidings.core.part import Part
from tidings.core.store.essentials import Essentials
from tidings.core.store.store import Transaction
from tidings.core.types import Body, Target

log = logging.getLogger(__name__)

# An adapter that recovers sooner causes no alert.
PATIENCE_SECONDS = 60.0
# Alarms that a person must act on; all others are only counted.
TOLD = {
    "adapter": "does not work",
    "dead": "did not take a message",
    "unconfirmed": "may not have taken a message",
    "held": "cannot be sent to",
    "gap": "may have missed something",
}
# Alarms about the gateway itself, which may be sent to any home.
TOLD_ANYWHERE = {
    "settings": "The gateway does not run with its current settings",
    "store": "The gateway's stored data is in danger",
    "restarts": "The gateway was restarted repeatedly",
}


class Alerts(Part):
    def __init__(
        self,
        essentials: Essentials,
        fallback: Target | None,
        is_down: Callable[[str], bool],
    ) -> None:
        self._store = essentials.store
        self._clock = essentials.clock
        self._alarms = essentials.alarms
        self._fallback = fallback
        self._is_down = is_down
        self._telling = Background(log, "an alert could not be stored")
        self._waiting: dict[str, Timer] = {}

    def sounded(self, alarm: Alarm, about: str) -> None:
        """Handles an alarm; `about` is the account in trouble, as `adapter@account`."""
        if alarm.name in TOLD_ANYWHERE:
            self._spawn(alarm, "")
        elif not about or alarm.name not in TOLD:
            return
        elif alarm.name != "adapter":
            self._spawn(alarm, about)
        elif about not in self._waiting:
            self._waiting[about] = self._clock.call_later(PATIENCE_SECONDS, lambda: self._look_again(alarm, about))

    async def start(self) -> None:
        """Hears every alarm, also those that sounded before; it is known by now which platforms are there."""
        self._alarms.listen(self.sounded)

    async def stop(self, patience: float) -> None:
        for timer in self._waiting.values():
            timer.cancel()
        await self._telling.close()

    def _look_again(self, alarm: Alarm, about: str) -> None:
        del self._waiting[about]
        if self._is_down(about):
            self._spawn(alarm, about)

    def _spawn(self, alarm: Alarm, about: str) -> None:
        self._telling.begin(self._tell(alarm, about))

    async def _tell(self, alarm: Alarm, about: str) -> None:
        await self._store.insist(lambda tx: self._owe(tx, alarm, about))

    def _owe(self, tx: Transaction, alarm: Alarm, about: str) -> None:
        target = homes.elsewhere(tx, about, self._fallback, self._is_down)
        if target is None:
            return
        trouble = f"{about} {TOLD[alarm.name]}" if about else TOLD_ANYWHERE[alarm.name]
        words = f"⚠ {trouble}: {alarm.last.rstrip('.')}.\n`tidings status` says more."
        cause = f"alarm/{alarm.name}/{about}"
        notice = Owed(ids.new("dlv"), Class.NOTICE, target, Body(text=words), None, cause, source="the gateway")
        outbox.put_notice(tx, notice, self._clock.now())

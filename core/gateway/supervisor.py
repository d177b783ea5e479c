"""Supervises long-lived parts such as adapters: restarts each after a failure with back-off, and reports its health."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextvars import Context
from typing import NamedTuple

from tidings.core.clock import Clock, Timer
from tidings.core.desk.health import PartHealth
from tidings.core.errors import Misconfigured, StandingBy, Unreachable
from tidings.core.part import Part
from tidings.core.redaction import clean
from tidings.core.telemetry.alarms import Alarms

log = logging.getLogger(__name__)


class Pauses(NamedTuple):
    """How long a supervisor waits, in seconds."""

    # Before each new start of a part that has failed; the last one is repeated.
    backoff: tuple[float, ...] = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
    # A part that ran for this long was healthy; after it, the back-off starts from the beginning.
    well: float = 60.0
    # A degraded part shows as up after this long without trouble.
    steady: float = 10.0
    # An unreachable platform may hang before it fails again, so its part shows as up later; `mended` counts at once.
    unreached: float = 120.0
    # How often a misconfigured part is tried again, in case the owner has corrected its settings.
    misconfigured: float = 300.0


USUAL = Pauses()


class Supervisor:
    def __init__(self, clock: Clock, alarms: Alarms, pauses: Pauses = USUAL) -> None:
        self._clock = clock
        self._pauses = pauses
        self._alarms = alarms
        self._health: dict[str, PartHealth] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        # Parts that have reported that they cannot do their work.
        self._troubled: set[str] = set()
        # The timer after which each part shows as up.
        self._timers: dict[str, Timer] = {}
        # Parts whose settings the owner must correct, until they are tried again.
        self._misconfigured: dict[str, asyncio.Event] = {}
        self._stopping = False

    def keep(self, name: str, part: Callable[[], Awaitable[None]]) -> None:
        """Runs `part` until `stop`, and starts it again however it ends."""
        self._set(name, "starting", "")
        self._tasks[name] = asyncio.create_task(self._keep(name, part), name=name, context=Context())

    def try_misconfigured(self) -> tuple[str, ...]:
        """Tries all misconfigured parts again at once, and returns their names."""
        for mended in self._misconfigured.values():
            mended.set()
        return tuple(self._misconfigured)

    async def stop(self) -> None:
        self._stopping = True
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def health(self) -> tuple[PartHealth, ...]:
        return tuple(self._health.values())

    def is_down(self, name: str) -> bool:
        """Tells whether a part does not work or does not exist."""
        return name not in self._health or self._health[name].state in ("degraded", "misconfigured")

    def troubled(self, name: str, reason: str) -> None:
        """A running part cannot do its work: it shows as degraded until `mended`."""
        if name not in self._health or name in self._troubled:
            return
        self._troubled.add(name)
        # A part that was up only briefly has already caused an alarm.
        if self._health[name].state != "degraded":
            self._set(name, "degraded", clean(reason))
            self._alarms.sound("adapter", f"{name} is degraded: {reason}; it keeps trying", name)

    def mended(self, name: str) -> None:
        """A part does its work again; it shows as up when that has lasted for a while."""
        self._troubled.discard(name)
        # Between two runs of a part, a late report of the last one does not count.
        if name in self._timers and self._health[name].state == "degraded":
            self._expect(name, self._pauses.steady)

    async def _keep(self, name: str, part: Callable[[], Awaitable[None]]) -> None:
        failures, steady = 0, self._pauses.steady
        while True:
            began = self._clock.now()
            # After a failure, the part shows as up only when it has run for a while.
            doubted = failures or self._health[name].state == "standing by"
            self._expect(name, steady if doubted else 0.0)
            steady = self._pauses.steady
            try:
                await part()
                reason, state = "it ended by itself", "degraded"
            except asyncio.CancelledError:
                if self._stopping:
                    raise
                reason, state = "it was cancelled from within", "degraded"
            except StandingBy as error:
                await self._stand_by(name, error)
                continue
            except Misconfigured as error:
                self._troubled.discard(name)
                reason, state = str(error), "misconfigured"
            except Unreachable as error:
                reason, state, steady = str(error), "degraded", self._pauses.unreached
            except (Exception, SystemExit) as error:
                reason, state = f"{error}" or type(error).__name__, "degraded"
                log.debug("%s failed", name, exc_info=True)
            finally:
                self._timers.pop(name).cancel()
            failures = 0 if self._clock.now() - began > self._pauses.well else failures
            pause = self._pauses.misconfigured if state == "misconfigured" else self._backoff(failures)
            failures += 1
            self._set(name, state, clean(reason), restarted=True)
            self._alarms.sound("adapter", f"{name} is {state}: {reason}; next try in {pause:g} s", name)
            if state == "misconfigured":
                await self._wait_for_owner(name, pause)
            else:
                await self._clock.sleep(pause)

    async def _wait_for_owner(self, name: str, seconds: float) -> None:
        mended = self._misconfigured[name] = asyncio.Event()
        timer = self._clock.call_later(seconds, mended.set)
        try:
            await mended.wait()
        finally:
            timer.cancel()
            del self._misconfigured[name]

    async def _stand_by(self, name: str, error: StandingBy) -> None:
        """Waits while another process does the work; this is not a failure."""
        self._troubled.discard(name)
        self._timers[name].cancel()
        if self._health[name].state != "standing by":
            log.warning("%s stands by: %s", name, error)
        self._set(name, "standing by", clean(str(error)))
        await self._clock.sleep(error.seconds)

    def _expect(self, name: str, seconds: float) -> None:
        if timer := self._timers.get(name):
            timer.cancel()
        self._timers[name] = self._clock.call_later(seconds, lambda: self._recovered(name))

    def _recovered(self, name: str) -> None:
        if name in self._troubled:
            return
        known = self._health[name]
        if known.state == "degraded":
            log.info("%s works again", name)
        self._set(name, "up", "" if known.state == "standing by" else known.last_error)

    def _set(self, name: str, state: str, error: str, *, restarted: bool = False) -> None:
        known = self._health.get(name)
        restarts = (known.restarts if known else 0) + int(restarted)
        self._health[name] = PartHealth(name, state, self._clock.wall(), restarts, error)

    def _backoff(self, failures: int) -> float:
        return self._pauses.backoff[min(failures, len(self._pauses.backoff) - 1)]


async def sweep_each(parts: Iterable[Part]) -> None:
    """Sweeps every part, also after one has failed; then raises the first failure, so that it is reported."""
    failures: list[Exception] = []
    for part in parts:
        try:
            await part.sweep()
        except Exception as error:
            if failures:
                log.error("the sweep of %s failed too: %r", type(part).__name__, error, exc_info=error)
            failures.append(error)
    if failures:
        raise failures[0]

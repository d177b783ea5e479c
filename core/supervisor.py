"""Keeps one long-lived part alive: back-off, health, last error; it takes nobody with it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextvars import Context

from core.alarms import Alarms
from core.clock import Clock
from core.desk import PartHealth
from core.errors import Misconfigured, StandingBy
from core.redaction import clean

log = logging.getLogger(__name__)

BACKOFF_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
# A part that lived so long was well; its next failure starts the back-off anew.
WELL_SECONDS = 60.0
STEADY_SECONDS = 10.0
# What the owner must mend is looked at now and then, in case they have.
MISCONFIGURED_SECONDS = 300.0


class Supervisor:
    def __init__(self, clock: Clock, alarms: Alarms) -> None:
        self._clock = clock
        self._alarms = alarms
        self._health: dict[str, PartHealth] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stopping = False

    def keep(self, name: str, part: Callable[[], Awaitable[None]]) -> None:
        """Runs `part` until `stop`, again and again however it ends."""
        self._set(name, "starting", "")
        self._tasks[name] = asyncio.create_task(self._keep(name, part), name=name, context=Context())

    async def stop(self) -> None:
        self._stopping = True
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def health(self) -> tuple[PartHealth, ...]:
        return tuple(self._health.values())

    async def _keep(self, name: str, part: Callable[[], Awaitable[None]]) -> None:
        failures = 0
        while True:
            began = self._clock.now()
            # After a failure it shows as well again only when it has lived for a while.
            doubted = failures or self._health[name].state == "standing by"
            timer = self._clock.call_later(STEADY_SECONDS if doubted else 0.0, lambda: self._recovered(name))
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
                reason, state = str(error), "misconfigured"
            except (Exception, SystemExit) as error:
                reason, state = f"{error}" or type(error).__name__, "degraded"
                log.debug("%s failed", name, exc_info=True)
            finally:
                timer.cancel()
            failures = 0 if self._clock.now() - began > WELL_SECONDS else failures
            pause = MISCONFIGURED_SECONDS if state == "misconfigured" else backoff(failures)
            failures += 1
            self._set(name, state, clean(reason), restarted=True)
            self._alarms.sound("adapter", f"{name} is {state}: {reason}; next try in {pause:g} s")
            await self._clock.sleep(pause)

    async def _stand_by(self, name: str, error: StandingBy) -> None:
        """Nothing is wrong: somebody else does the work, and we are there when they are not."""
        if self._health[name].state != "standing by":
            log.warning("%s stands by: %s", name, error)
        self._set(name, "standing by", clean(str(error)))
        await self._clock.sleep(error.seconds)

    def _recovered(self, name: str) -> None:
        known = self._health[name]
        self._set(name, "up", "" if known.state == "standing by" else known.last_error)

    def _set(self, name: str, state: str, error: str, *, restarted: bool = False) -> None:
        known = self._health.get(name)
        restarts = (known.restarts if known else 0) + int(restarted)
        self._health[name] = PartHealth(name, state, self._clock.wall(), restarts, error)


def backoff(failures: int) -> float:
    return BACKOFF_SECONDS[min(failures, len(BACKOFF_SECONDS) - 1)]

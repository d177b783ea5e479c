"""Fires due schedules, each instant at most once, even if the wall clock jumps."""

from __future__ import annotations

import asyncio
import logging
from contextvars import Context

from msgspec.structs import replace

from tidings.core.clock import Clock
from tidings.core.desk.work import Missed, Plan
from tidings.core.errors import Unkeepable
from tidings.core.store.store import Row, Store, Transaction
from tidings.core.store.wakeups import ScheduleDue
from tidings.core.types import encode
from tidings.core.work.mandates import Mandates
from tidings.core.work.schedules import rows as schedule_rows
from tidings.core.work.schedules import when as schedule_when
from tidings.core.work.schedules.when import When
from tidings.core.work.schedules.zones import told

log = logging.getLogger(__name__)

# The longest wait between checks, because the wall clock may jump.
LOOK_SECONDS = 30.0
# An instant that is later than this counts as missed.
GRACE_SECONDS = 300.0
# How many due schedules start at once.
AT_ONCE = 5
STAGGER_SECONDS = 1.0
# How many instants are checked for earlier firings when the wall clock went back.
LOOKED_UP = 2_000
DOWN = "I could not run it then"
BEHIND = "the run before it is still waiting"


class FiringLoop:
    def __init__(self, store: Store, clock: Clock, mandates: Mandates) -> None:
        self._store = store
        self._clock = clock
        self._mandates = mandates
        self._poked = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        # How far wall time was ahead of steady time at the last check.
        self._last_ahead: float | None = None
        self._stopped = False
        store.wakeups.subscribe(ScheduleDue, lambda due: self._poked.set())

    def keep(self) -> None:
        """Starts the watch, or starts it again after an exception."""
        if not self._stopped and (self._watching is None or self._watching.done()):
            self._watching = asyncio.create_task(self._look_on(), context=Context())
            self._watching.add_done_callback(_left)

    def pause(self) -> None:
        self._stopped = True
        if self._watching is not None:
            self._watching.cancel()

    async def stop(self) -> None:
        self.pause()
        if self._watching is not None:
            await asyncio.gather(self._watching, return_exceptions=True)

    def _now(self, row: Row) -> float:
        return self._clock.now() if row["steady"] else self._clock.wall()

    async def _look_on(self) -> None:
        while True:
            self._poked.clear()
            wait = await self._look()
            timer = self._clock.call_later(wait, self._poked.set)
            try:
                await self._poked.wait()
            finally:
                timer.cancel()

    async def _look(self) -> float:
        """Fires what is due; returns after how many seconds to look again."""
        if self._last_ahead is None or abs(self._clock.ahead - self._last_ahead) > 1.0:
            await self._store.insist(self._mend)
            self._last_ahead = self._clock.ahead
        due = await self._store.insist(self._due)
        for id in due[:AT_ONCE]:
            await self._store.insist(lambda tx, id=id: self._take(tx, id))  # type: ignore[misc]
        if due:
            return STAGGER_SECONDS if len(due) > AT_ONCE else 0.0
        return await self._store.read(self._until_next)

    def _due(self, tx: Transaction) -> list[str]:
        rows = tx.all(
            "SELECT id FROM schedules WHERE next IS NOT NULL AND paused = 0 AND removed = 0"
            " AND next <= CASE steady WHEN 1 THEN CAST(? AS DOUBLE PRECISION) ELSE CAST(? AS DOUBLE PRECISION) END"
            " ORDER BY next, id LIMIT ?",
            self._clock.now(),
            self._clock.wall(),
            AT_ONCE + 1,
        )
        return [row["id"] for row in rows]

    def _until_next(self, tx: Transaction) -> float:
        rows = tx.all(
            "SELECT steady, min(next) AS next FROM schedules WHERE next IS NOT NULL AND paused = 0 AND removed = 0"
            " GROUP BY steady"
        )
        waits: list[float] = [row["next"] - self._now(row) for row in rows]
        return max(0.0, min([LOOK_SECONDS, *waits]))

    def _mend(self, tx: Transaction) -> None:
        """After the wall clock went back, makes instants due again that have not been fired."""
        rows = tx.all("SELECT * FROM schedules WHERE next IS NOT NULL AND steady = 0 AND paused = 0 AND removed = 0")
        for row in rows:
            plan = schedule_rows.plan_of(row)
            try:
                when = schedule_when.known(plan.when, plan.zone)
            except Unkeepable:
                continue
            earlier = None if when.once else self._first_unfired(tx, row, when)
            if earlier is not None and earlier < row["next"]:
                tx.execute("UPDATE schedules SET next = ? WHERE id = ?", earlier, row["id"])

    def _first_unfired(self, tx: Transaction, row: Row, when: When) -> float | None:
        instant = when.after(self._clock.wall())
        for _ in range(LOOKED_UP):
            if instant is None or instant >= row["next"]:
                return None
            if not tx.one("SELECT 1 FROM firings WHERE schedule = ? AND instant = ?", row["id"], instant):
                return instant
            instant = when.after(instant)
        return None

    def _take(self, tx: Transaction, id: str) -> None:
        """Stores the firing, its run and the next instant in one transaction."""
        row = tx.one("SELECT * FROM schedules WHERE id = ? AND paused = 0 AND removed = 0", id)
        if row is None or row["next"] is None or row["next"] > self._now(row):
            return
        plan = schedule_rows.plan_of(row)
        if why := self._mandates.lapsed(plan.asker):
            what, key = f"“{plan.name}” (schedule) did not run and is paused", f"lapsed/{id}/{row['next']}"
            self._give_up(tx, row, plan, why, "")
            self._mandates.tell(tx, what, why, key)
            return
        try:
            when = schedule_when.known(plan.when, plan.zone)
        except Unkeepable as error:
            self._give_up(tx, row, plan, str(error), f"⚠ “{plan.name}” is paused: {error}.")
            return
        newest = when.newest(row["next"], self._now(row))
        fired = row["fired"] + 1
        last = when.once or (plan.repeat and fired >= plan.repeat)
        following = None if last else when.after(newest)
        ran = self._decide(tx, row, plan, when, newest, following)
        tx.execute(
            "UPDATE schedules SET next = ?, fired = fired + ? WHERE id = ? AND next = ?",
            following if ran or when.once else when.after(newest),
            int(ran),
            id,
            row["next"],
        )

    def _decide(
        self, tx: Transaction, row: Row, plan: Plan, when: When, newest: float, following: float | None
    ) -> bool:
        """Tells whether the newest instant runs; the ones before it count as missed."""
        now, shift = self._now(row), self._clock.ahead if row["steady"] else 0.0
        missed, late = now - row["next"] > GRACE_SECONDS, now - newest > GRACE_SECONDS
        if missed and plan.on_missed is Missed.SKIP:
            passed = newest if late else row["next"]
            self._miss(tx, row, plan, passed, shift, DOWN, when.after(newest) if not when.once else None)
            if late:
                return False
        if not when.once and schedule_rows.awaits_its_turn(tx, row["id"]):
            self._miss(tx, row, plan, newest, shift, BEHIND, when.after(newest))
            return False
        log.info("%s “%s” runs%s", row["id"], plan.name, " late" if late else "")
        return bool(schedule_rows.begin(tx, row["id"], plan, newest, newest + shift, self._clock, late))

    def _miss(
        self, tx: Transaction, row: Row, plan: Plan, instant: float, shift: float, reason: str, next: float | None
    ) -> None:
        wall = self._clock.wall()
        again = f" It runs again {told(next + shift, plan.zone, wall)}." if next is not None else ""
        words = f"⚠ “{plan.name}” did not run {told(instant + shift, plan.zone, wall)}: {reason}.{again}"
        log.warning("%s “%s” was missed: %s", row["id"], plan.name, reason)
        schedule_rows.miss(
            tx, row["id"], plan, instant, instant + shift, reason, words, self._clock, hourly=reason == BEHIND
        )

    def _give_up(self, tx: Transaction, row: Row, plan: Plan, reason: str, words: str) -> None:
        """Pauses a schedule that cannot run, such as for an unknown time zone; no `words` if it is told elsewhere."""
        paused = replace(plan, paused=True, paused_reason=reason)
        tx.execute("UPDATE schedules SET paused = 1, plan = ? WHERE id = ?", encode(paused), row["id"])
        schedule_rows.miss(tx, row["id"], paused, row["next"], row["next"], reason, words, self._clock, hourly=False)


def _left(watching: asyncio.Task[None]) -> None:
    """Logs the exception that ended the watch; the next sweep starts it again."""
    if not watching.cancelled() and (error := watching.exception()):
        log.error("the watch over schedules failed: %r", error, exc_info=error)

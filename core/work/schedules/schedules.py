"""Requests about schedules: add, change, remove and fire them; impossible ones are refused at once."""

from __future__ import annotations

import secrets

from msgspec.structs import replace

from tidings.core.desk.work import Firing, Plan, Schedule
from tidings.core.errors import Overdrawn, Unkeepable, Unknown, Unsupported
from tidings.core.inbound.abilities import Can
from tidings.core.inbound.bots import Bots
from tidings.core.outbound import homes
from tidings.core.part import Part
from tidings.core.redaction import one_line, plain
from tidings.core.settings import Work
from tidings.core.store.essentials import Essentials
from tidings.core.store.store import Row, Transaction
from tidings.core.store.wakeups import ScheduleDue
from tidings.core.types import Audience, Target, encode
from tidings.core.work.mandates import Mandates
from tidings.core.work.schedules import rows as schedule_rows
from tidings.core.work.schedules import when as schedule_when
from tidings.core.work.schedules.firing import FiringLoop
from tidings.core.work.schedules.shell import ScheduledShell
from tidings.core.work.schedules.when import When

NAME_CHARACTERS = 200
PROMPT_CHARACTERS = 20_000
COMMAND_BYTES = 100_000


class Schedules(Part):
    def __init__(
        self,
        essentials: Essentials,
        settings: Work,
        can: Can,
        bots: Bots,
        jobs: ScheduledShell,
        owner: Target | None,
        mandates: Mandates,
    ) -> None:
        """`owner` is the target that needs no chat, such as the console."""
        self._store = store = essentials.store
        self._clock = clock = essentials.clock
        self._settings = settings
        self._can = can
        self._bots = bots
        self._jobs = jobs
        self._owner = owner
        self._mandates = mandates
        self._watch = FiringLoop(store, clock, mandates)

    # Called by the gateway.

    async def recover(self) -> None:
        await self._jobs.recover()

    async def start(self) -> None:
        await self._jobs.sweep()
        self._watch.keep()

    async def sweep(self) -> None:
        await self._store.insist(lambda tx: schedule_rows.follow_deliveries(tx, self._clock))
        if self._clock.confirmed:
            await self._store.insist(lambda tx: schedule_rows.forget(tx, self._clock.wall()))
        await self._jobs.sweep()
        self._watch.keep()

    @property
    def busy(self) -> bool:
        """Tells whether a command is running, which a stop would cut off."""
        return self._jobs.busy

    def pause(self) -> None:
        """Starts nothing more; schedules that become due run after the next start."""
        self._watch.pause()
        self._jobs.pause()

    async def stop(self, patience: float) -> None:
        await self._watch.stop()
        await self._jobs.stop()

    # Requests at the desk.

    async def add(self, plan: Plan) -> Schedule:
        return await self._store.write(lambda tx: self.put(tx, plan))

    async def all(self, conversation: str = "", *, paused: bool = True) -> list[Schedule]:
        wall = self._clock.wall()
        found = await self._store.read(lambda tx: schedule_rows.all_of(tx, conversation, self._clock.ahead, wall))
        return [each for each in found if paused or not each.plan.paused]

    async def get(self, id: str) -> Schedule:
        return await self._store.read(
            lambda tx: schedule_rows.schedule_of(tx, schedule_rows.find(tx, id), self._clock.ahead)
        )

    async def change(self, id: str, plan: Plan) -> Schedule:
        return await self._store.write(lambda tx: self.alter(tx, id, plan))

    async def remove(self, id: str) -> None:
        await self._store.write(lambda tx: self.drop(tx, id))

    async def fire(self, id: str) -> Firing:
        return await self._store.write(lambda tx: self.fire_now(tx, id))

    async def firings(self, id: str, limit: int) -> list[Firing]:
        def unit(tx: Transaction) -> list[Firing]:
            schedule_rows.find(tx, id)
            rows = tx.all("SELECT * FROM firings WHERE schedule = ? ORDER BY due DESC, instant DESC LIMIT ?", id, limit)
            return [schedule_rows.firing_of(tx, row) for row in rows]

        return await self._store.read(unit)

    async def firing(self, id: str) -> Firing:
        def unit(tx: Transaction) -> Firing:
            row = tx.one("SELECT * FROM firings WHERE id = ?", id)
            if row is None:
                raise Unknown(f"there is no firing {id}")
            return schedule_rows.firing_of(tx, row)

        return await self._store.read(unit)

    # The same requests inside the caller's transaction.

    def put(self, tx: Transaction, plan: Plan, when: When | None = None) -> Schedule:
        """Stores a schedule; `when` is its time if that was already read."""
        wall = self._clock.wall()
        plan = self._checked(tx, plan)
        if plan.conversation:
            here = [
                each
                for each in schedule_rows.all_of(tx, plan.conversation, 0.0, wall)
                if not schedule_rows.is_over(each)
            ]
            if len(here) >= self._settings.schedules:
                raise Overdrawn(f"there are {len(here)} schedules here already; remove one first")
        when = when or schedule_when.read(plan.when, plan.zone, wall)
        plan = replace(plan, when=when.text, zone=when.zone)
        id, due = secrets.token_hex(6), self._first(when)
        tx.execute(
            "INSERT INTO schedules (id, plan, owner, next, steady, paused, created) VALUES (?, ?, ?, ?, ?, ?, ?)",
            id,
            encode(plan),
            plan.conversation,
            due,
            int(when.relative),
            int(plan.paused),
            wall,
        )
        self._announce(tx, plan, due)
        return schedule_rows.schedule_of(tx, schedule_rows.find(tx, id), self._clock.ahead)

    def alter(self, tx: Transaction, id: str, plan: Plan) -> Schedule:
        """Changes a schedule; if its time is the same, it stays due as before, unless it was paused."""
        row = schedule_rows.find(tx, id)
        old = schedule_rows.plan_of(row)
        plan = replace(plan, conversation=old.conversation, sender=old.sender, asker=old.asker)
        # A schedule may always be paused, even if its platform or bot no longer exists.
        if plan != replace(old, paused=True, paused_reason=plan.paused_reason):
            plan = self._checked(tx, plan)
        due, steady = row["next"], row["steady"]
        if (plan.when, plan.zone) != (old.when, old.zone):
            when = schedule_when.read(plan.when, plan.zone, self._clock.wall())
            plan = replace(plan, when=when.text, zone=when.zone)
            due, steady = self._first(when), int(when.relative)
        elif (old.paused and not plan.paused) or plan.repeat != old.repeat:
            due = self._resumed(row, schedule_when.known(plan.when, plan.zone))
        if plan.repeat and row["fired"] >= plan.repeat:
            due = None
        tx.execute(
            "UPDATE schedules SET plan = ?, next = ?, steady = ?, paused = ? WHERE id = ?",
            encode(plan),
            due,
            steady,
            int(plan.paused),
            id,
        )
        self._announce(tx, plan, due)
        return schedule_rows.schedule_of(tx, schedule_rows.find(tx, id), self._clock.ahead)

    def _announce(self, tx: Transaction, plan: Plan, due: float | None) -> None:
        if due is not None and not plan.paused:
            tx.announce(ScheduleDue(due))

    def _resumed(self, row: Row, when: When) -> float | None:
        if when.once:
            if row["next"] is not None and row["next"] <= self._now(row):
                raise Unkeepable("its time has passed; run it now, or give it another time")
            due: float | None = row["next"]
            return due
        return self._first(when)

    def drop(self, tx: Transaction, id: str) -> Schedule:
        """Removes a schedule; a firing in progress still ends and is reported."""
        known = schedule_rows.schedule_of(tx, schedule_rows.find(tx, id), self._clock.ahead)
        tx.execute("UPDATE schedules SET removed = 1, next = NULL WHERE id = ?", id)
        return known

    def fire_now(self, tx: Transaction, id: str) -> Firing:
        row, wall = schedule_rows.find(tx, id), self._clock.wall()
        if why := self._mandates.lapsed(schedule_rows.plan_of(row).asker):
            raise Unkeepable(f"it does not run, because {why}")
        if schedule_rows.awaits_its_turn(tx, id):
            raise Overdrawn("it is already waiting to run")
        # Its own instants are whole seconds, so this one cannot equal them.
        instant = wall + 0.0001
        while tx.one("SELECT 1 FROM firings WHERE schedule = ? AND instant = ?", id, instant):
            instant += 0.001
        begun = schedule_rows.begin(tx, id, schedule_rows.plan_of(row), instant, wall, self._clock, late=False)
        firing = tx.one("SELECT * FROM firings WHERE id = ?", begun)
        assert firing is not None
        return schedule_rows.firing_of(tx, firing)

    def _checked(self, tx: Transaction, plan: Plan) -> Plan:
        name = plain(one_line(plan.name))[:NAME_CHARACTERS]
        if not name:
            raise Unkeepable("a schedule needs a name")
        if bool(plan.prompt.strip()) == bool(plan.command.strip()):
            raise Unkeepable("give either a prompt or a command")
        if len(plan.prompt) > PROMPT_CHARACTERS:
            raise Unkeepable(f"a prompt has at most {PROMPT_CHARACTERS:,} characters")
        if len(plan.command.encode()) > COMMAND_BYTES or "\0" in plan.command:
            raise Unkeepable("this command is too long; write it into a file, and run that")
        bots = self._bots.names
        if plan.bot and plan.bot not in bots:
            raise Unkeepable(f"there is no bot named {plan.bot!r}; there are: {', '.join(bots)}")
        if plan.repeat < 0:
            raise Unkeepable("it cannot repeat less than once")
        failures = self._reachable(tx, plan.failures) if plan.failures else None
        return replace(plan, name=name, target=self._reachable(tx, plan.target), failures=failures)

    def _reachable(self, tx: Transaction, target: Target) -> Target:
        """The target without what expires; raises an error if messages cannot be sent there later."""
        target = homes.resolve(tx, target).lasting()
        if target.audience is Audience.ONE:
            # The answer to an ephemeral request must never go to the whole group.
            raise Unsupported("async_delivery", str(target))
        can = self._can(target)
        if can is None:
            raise Unknown(f"no platform {target.adapter}@{target.account} is configured")
        if not target.chat and (self._owner is None or self._owner.adapter != target.adapter):
            raise Unknown(f"{target} has no home yet; name a chat, or write /sethome in one")
        for ability, wanted in {"async_delivery": True, "threads": bool(target.thread)}.items():
            if wanted and not getattr(can, ability):
                raise Unsupported(ability, str(target))
        return target

    def _now(self, row: Row) -> float:
        return self._clock.now() if row["steady"] else self._clock.wall()

    def _first(self, when: When) -> float | None:
        if not when.relative:
            return when.after(self._clock.wall())
        return self._clock.now() + (when.seconds or (when.moment or 0.0) - self._clock.wall())

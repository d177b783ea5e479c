"""The courier sends deliveries to their targets, lane by lane; only the courier calls Adapter.send."""

from __future__ import annotations

import asyncio
import logging
from contextvars import Context
from typing import NamedTuple

from tidings.core.adapter import Adapter
from tidings.core.errors import (
    Doubtful,
    Misconfigured,
    Moved,
    RateLimited,
    Rejected,
    SendError,
    Unfit,
    Unreachable,
    Unstored,
    ViewLost,
)
from tidings.core.failpoints import fail_here
from tidings.core.outbound import compose, doubts, outbox, pace
from tidings.core.outbound.accounts import Accounts
from tidings.core.outbound.doubts import Arrival
from tidings.core.outbound.moved_chats import Aliases
from tidings.core.outbound.outages import Outages
from tidings.core.outbound.outbox import Class, Head, Owed
from tidings.core.outbound.pace import Budgets
from tidings.core.outbound.resolver import Settler, answered, is_harmless
from tidings.core.outbound.views import Stopped, Views
from tidings.core.part import Part as GatewayPart
from tidings.core.redaction import one_line
from tidings.core.store import wakeups
from tidings.core.store.essentials import Essentials
from tidings.core.store.store import Transaction
from tidings.core.types import Body, Capabilities, DeliveryState, Inbound, Pace, Part, PartKind, Receipt, Signal, Target

log = logging.getLogger(__name__)


class Lane:
    """The state of one target's queue while a task works on it."""

    __slots__ = ("idle", "poked", "task")

    def __init__(self) -> None:
        self.poked = asyncio.Event()
        # True while the lane waits for a pause to end.
        self.idle = False
        self.task: asyncio.Task[None] | None = None


class Reserved(NamedTuple):
    """A turn that was granted before the delivery was stored, so that one commit can do both."""

    owed: Owed
    bodies: tuple[Body, ...]
    paces: tuple[Pace, ...]


class Courier(GatewayPart):
    def __init__(self, essentials: Essentials, accounts: Accounts, stopped: Stopped) -> None:
        """`stopped` is called with a run whose answer the person stopped with the platform's own button."""
        self._store = store = essentials.store
        self._clock = clock = essentials.clock
        self._alarms = alarms = essentials.alarms
        self._metrics = essentials.metrics
        self._accounts = accounts
        self._budgets = Budgets(clock)
        self._outages = Outages(clock, self.wake)
        self._lanes: dict[str, Lane] = {}
        self._aliases = Aliases()
        self.views = Views(store, clock, accounts, self._budgets, stopped)
        self._settler = Settler(store, clock, accounts, alarms, self._aliases.where, self._settled)
        # Lanes wait until the courier is started, which then finds them all.
        self._stopped = True
        store.wakeups.subscribe(wakeups.Lane, lambda due: self.wake(due.name))

    async def recover(self) -> None:
        """Sends that were in flight when the last process ended may or may not have arrived."""
        if doubtful := await self._store.insist(doubts.recover):
            log.warning("after an unclean end: %d sends were in flight", doubtful)

    async def start(self) -> None:
        """Continues with all open deliveries; call this after recovery."""
        self._stopped = False

        def unit(tx: Transaction) -> tuple[dict[str, float], list[str]]:
            outbox.release(tx, "")
            pace.forget_pauses(tx, self._clock.now())
            self._aliases.load(tx)
            return pace.load_pauses(tx), outbox.open_lanes(tx)

        paused, lanes = await self._store.insist(unit)
        for budget, until in paused.items():
            self._budgets.pause(budget, until)
        for lane in lanes:
            self.wake(lane)
        await self._settler.start()

    @property
    def busy(self) -> bool:
        return any(not lane.idle for lane in self._lanes.values())

    async def stop(self, patience: float) -> None:
        """Waits for sends under way, so that a clean stop leaves no doubt behind."""
        self._stopped = True
        self._outages.stop()
        carrying = [lane.task for lane in self._lanes.values() if lane.task and not lane.idle]
        if carrying and patience:
            await asyncio.wait(carrying, timeout=patience)
        tasks = [lane.task for lane in self._lanes.values() if lane.task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, self._settler.stop(), self.views.stop(patience), return_exceptions=True)

    async def sweep(self) -> None:
        """Wakes every lane with due deliveries and gives up expired ones."""
        now = self._clock.now()

        def unit(tx: Transaction) -> tuple[list[str], list[Head]]:
            gone = outbox.expired(tx, now) if self._clock.confirmed else []
            for old in gone:
                outbox.die(tx, old, "expired: it could not be delivered in time", now)
            return outbox.open_lanes(tx), gone

        lanes, gone = await self._store.insist(unit)
        for old in gone:
            self._lost(old, "expired")
        for lane in lanes:
            if lane not in self._lanes:
                self.wake(lane)
        await self._settler.start()

    async def reachable(self, adapter: str, account: str) -> None:
        """The platform was heard from: everything that waits for this account may be sent."""
        self._outages.reached((adapter, account))
        await self.try_again(adapter, account)

    async def try_again(self, adapter: str, account: str) -> None:
        """Makes held and waiting deliveries of an account due; during an outage, one lane probes first."""

        def unit(tx: Transaction) -> None:
            place = Target(adapter=adapter, account=account).lane
            outbox.release(tx, place)
            outbox.retry_now(tx, place)

        try:
            await self._store.write(unit)
        except Unstored as error:
            # The adapter does not wait for the store; the sweep finds due deliveries.
            log.warning("deliveries to %s@%s are tried at the next sweep: %s", adapter, account, error)

    def decided(self, delivery: str) -> None:
        """The owner has decided about a delivery, so its doubt is dropped."""
        self._settler.forget(delivery)

    async def move(self, adapter: str, account: str, chat: str, to: str) -> None:
        # Memory changes before the row: a message from the new chat may be next in the writer's queue.
        await self._store.insist(self._aliases.move(adapter, account, chat, to))

    def at_home(self, inbound: Inbound) -> Inbound:
        return self._aliases.at_home(inbound)

    def origin(self, target: Target) -> Target:
        return self._aliases.origin(target)

    def lanes(self, target: Target) -> tuple[str, ...]:
        """The lanes of a target: its own, and those of its chat's former ids."""
        return self._aliases.lanes(target)

    def can(self, target: Target) -> Capabilities | None:
        return self._accounts.can(target)

    def dropped(self, owed: Owed) -> None:
        """The owner has given up a delivery."""
        self._signal(owed, DeliveryState.DEAD)
        self.decided(owed.id)

    def wake(self, lane: str) -> None:
        """Looks for due deliveries in this lane."""
        if self._stopped:
            return
        if lane in self._lanes:
            self._lanes[lane].poked.set()
        else:
            self._lanes[lane] = Lane()
            self._work_on(lane, None)

    def reserve(self, owed: Owed) -> Reserved | None:
        """Grants a turn at once if the lane is empty; otherwise the delivery waits in its lane like any other."""
        adapter = self._accounts.of(owed.target)
        if adapter is None or owed.target.lane in self._lanes or self._stopped:
            return None
        if not compose.is_quick(owed.body):
            # A long body is composed in another thread; the caller does not wait for that.
            return None
        if self._outages.is_on(_account(owed)):
            return None
        can = adapter.can(self._aliases.where(owed.target))
        bodies = compose.compose(adapter, owed.target, owed.body, can)
        if not self._budgets.take(can.pace):
            return None
        self._lanes[owed.target.lane] = Lane()
        return Reserved(owed, bodies, can.pace)

    def put(self, tx: Transaction, owed: Owed, reserved: Reserved | None) -> Head | None:
        """Stores a delivery in the transaction of its cause; with a reserved turn, marks its first part as sending."""
        outbox.put(tx, owed, self._clock.now())
        first = outbox.head(tx, owed.target.lane) if reserved else None
        if reserved is None or first is None or first.owed.id != owed.id or first.view is not None:
            return None
        return self._mark(tx, first, reserved.bodies)

    def _mark(self, tx: Transaction, due: Head, bodies: tuple[Body, ...]) -> Head | None:
        """Composes a part if needed and marks it as sending; None if it may no longer be sent."""
        now = self._clock.now()
        if not due.composed:
            if outbox.state_of(tx, due.owed.id) is not DeliveryState.WAITING:
                return None
            due = outbox.compose(tx, due, bodies)
        ready = due._replace(since=due.since or now)
        return ready if outbox.mark_sending(tx, ready, now) else None

    def carry(self, reserved: Reserved, first: Head | None) -> None:
        """Sends the marked part after its transaction, or lets the lane proceed as usual."""
        if first is None:
            self._budgets.give_back(reserved.paces)
        self._work_on(reserved.owed.target.lane, first)

    def give_back(self, reserved: Reserved) -> None:
        """Returns a turn whose transaction failed; nothing was sent."""
        self._budgets.give_back(reserved.paces)
        self._work_on(reserved.owed.target.lane, None)

    def _work_on(self, lane: str, first: Head | None) -> None:
        # A fresh context: a delivery outlives the run that caused it and must not inherit its session.
        task = self._lanes[lane].task = asyncio.create_task(self._work(lane, first), context=Context())
        task.add_done_callback(lambda task: self._ended(lane, task))

    def _ended(self, lane: str, task: asyncio.Task[None]) -> None:
        """Frees a lane whose task failed; the sweep finds its deliveries."""
        error = None if task.cancelled() else task.exception()
        if self._stopped or lane not in self._lanes or self._lanes[lane].task is not task:
            return
        log.error("the lane %s failed: %r", lane, error, exc_info=error)
        del self._lanes[lane]
        self._outages.left(lane)

    async def _work(self, name: str, first: Head | None) -> None:
        lane = self._lanes[name]
        sending = first
        while True:
            if sending is not None:
                try:
                    await self._carry(sending)
                except Exception as error:
                    # An exception in our own code after the send: whether the message arrived is unknown.
                    await self._doubt(sending, error)
                sending = None
            if self._stopped:
                return
            lane.poked.clear()
            due = await self._store.insist(lambda tx: outbox.head(tx, name))
            if due is not None and due.in_flight:
                await self._doubt(due, Doubtful("no verdict was stored"))
            elif due is not None:
                sending = await self._prepare(due, lane)
            elif not lane.poked.is_set():
                del self._lanes[name]
                self._outages.left(name)
                return

    async def _prepare(self, due: Head, lane: Lane) -> Head | None:
        """Waits until this part may be sent and marks it as sending; None when the lane must be checked again."""
        adapter = self._accounts.of(due.owed.target)
        if adapter is None:
            reason = f"no adapter {due.owed.target.adapter}@{due.owed.target.account} is configured"
            await self._store.insist(lambda tx: outbox.hold(tx, due, reason))
            self._alarms.sound("held", f"{due.owed.id}: {reason}", due.owed.target.at)
            return None
        if (wait := due.not_before - self._clock.now()) > 0:
            lane.idle = True
            await self._wait(lane, wait)
            lane.idle = False
            return None
        if self._outages.holds(_account(due.owed), due.owed.target.lane):
            lane.idle = True
            await lane.poked.wait()
            lane.idle = False
            return None
        can = adapter.can(self._aliases.where(due.owed.target))
        bodies = () if due.composed else await compose.compose_aside(adapter, due.owed.target, due.body, can)
        fail_here("out.claimed")
        # This comes before the turn: a show under way may meet a pause, which then applies to this part too.
        await self.views.await_show(due.owed.run)
        paces = can.pace + can.show_pace if due.shows else can.pace
        lane.idle = self._budgets.ready_in(paces) > 0
        if due.kind is PartKind.OPENING:
            # Only the opening needs room for a view; the answer that supersedes the opening must not wait for that.
            is_granted = await self._budgets.turn_unless(paces, lane.poked)
        else:
            await self._budgets.turn(paces)
            is_granted = True
        lane.idle = False
        if self._stopped or not is_granted:
            return None
        if due.tried is not None and not is_harmless(due, can, self._clock):
            # The part waited so long that repeating it is no longer harmless.
            self._budgets.give_back(paces)
            await self._store.insist(lambda tx: doubts.doubt(tx, due))
            self._settler.settle(due.owed.id)
            return None

        marked = await self._store.insist(lambda tx: self._mark(tx, due, bodies))
        if marked is None:
            self._budgets.give_back(paces)
        return marked

    async def _wait(self, lane: Lane, seconds: float) -> None:
        timer = self._clock.call_later(seconds, lane.poked.set)
        try:
            await lane.poked.wait()
        finally:
            timer.cancel()

    async def _carry(self, sending: Head) -> None:
        """Makes one attempt, and stores its result in one commit."""
        fail_here("out.dispatching_committed")
        owed = sending.owed
        adapter = self._accounts[owed.target.adapter, owed.target.account]
        part = sending.part(self._aliases.where(owed.target))
        answered = True
        try:
            receipt = await self._measured(adapter, part)
        except RateLimited as error:
            await self._pause(adapter.can(part.target), sending, error)
        except Unreachable as error:
            level = logging.DEBUG if sending.misses else logging.INFO
            log.log(level, "%s waits, %s is unreachable: %s", owed.id, owed.target, error, extra=_about(owed))
            later = self._clock.now() + pace.backoff(sending.misses)
            await self._store.insist(lambda tx: outbox.not_sent(tx, sending, later, missed=True))
            self._outages.missed(_account(owed), owed.target.lane)
            answered = False
        except Misconfigured as error:
            reason = str(error)
            await self._store.insist(lambda tx: outbox.hold(tx, sending, reason))
            self._alarms.sound("held", f"{owed.id} to {owed.target}: {error}", owed.target.at)
        except ViewLost as error:
            if sending.view is None:
                await self._reject(sending, str(error))
            else:
                await self._store.insist(lambda tx: outbox.forget_view(tx, sending))
        except Moved as error:
            if error.chat == part.target.chat:
                await self._reject(sending, str(error))
            else:
                await self._move(part.target, sending, error.chat)
        except Unfit:
            await self._refit(adapter, sending)
        except Rejected as error:
            await self._reject(sending, str(error))
        except Exception as error:
            await self._doubt(sending, error)
            self._outages.left(owed.target.lane)
            answered = False
        else:
            await self._delivered(sending, receipt)
        # Any answer shows that the platform is up, so lanes need not wait any longer.
        if answered and self._outages.reached(_account(owed)):
            await self.try_again(*_account(owed))

    async def _measured(self, adapter: Adapter, part: Part) -> Receipt:
        verdict = "Doubtful"
        try:
            receipt = await answered(self._clock, adapter.send(part))
            verdict = "delivered"
        except SendError as error:
            verdict = type(error).__name__
            raise
        finally:
            self._metrics.outbound[adapter.name, verdict.lower()] += 1
        self._metrics.sent_at[f"{adapter.name}@{adapter.account}"] = self._clock.wall()
        return receipt

    async def _delivered(self, sending: Head, receipt: Receipt) -> None:
        fail_here(_effect_label(sending))
        fail_here("out.pre_receipt")
        now, wall = self._clock.now(), self._clock.wall()
        can = self.can(self._aliases.where(sending.owed.target))
        # Where reading back is possible, message ids are unique in an account.
        unique = can is not None and can.send_proof.readback
        arrival = await self._store.insist(lambda tx: doubts.deliver(tx, sending, receipt, now, wall, unique=unique))
        if arrival is Arrival.OF_ANOTHER_PART:
            return
        fail_here("out.post_receipt" if sending.position >= sending.total else "out.between_parts")
        self.views.opened(sending.owed.id, receipt.view)
        if arrival is Arrival.WHOLE:
            self._signal(sending.owed, DeliveryState.DELIVERED)

    async def _doubt(self, sending: Head, error: Exception) -> None:
        log.warning(
            "%s to %s is in doubt: %s",
            sending.owed.id,
            sending.owed.target,
            one_line(str(error)) or type(error).__name__,
            extra=_about(sending.owed),
        )
        fail_here("out.ambiguous_pre_commit")
        await self._store.insist(lambda tx: doubts.doubt(tx, sending))
        self._settler.settle(sending.owed.id)

    async def _pause(self, can: Capabilities, sending: Head, error: RateLimited) -> None:
        now = self._clock.now()
        budget, until = pace.pause_of(can, error, now, sending.misses)
        if budget:
            self._budgets.pause(budget, until)

        def unit(tx: Transaction) -> None:
            if budget:
                pace.store_pause(tx, budget, until)
            outbox.not_sent(tx, sending, until, missed=error.retry_after is None)

        await self._store.insist(unit)
        log.info("%s pauses until the platform allows it again, in %.1f s", sending.owed.target, until - now)

    async def _move(self, tried: Target, sending: Head, chat: str) -> None:
        store_move = self._aliases.move(tried.adapter, tried.account, tried.chat, chat)

        def unit(tx: Transaction) -> None:
            store_move(tx)
            outbox.not_sent(tx, sending, 0.0, missed=False)

        await self._store.insist(unit)

    async def _refit(self, adapter: Adapter, sending: Head) -> None:
        if sending.kind is PartKind.OPENING:
            # A view is one message; only the final answer is cut.
            await self._reject(sending, "the view does not fit in one message")
            return
        bodies = await compose.smaller_aside(adapter, sending.owed.target, sending.body, marked=sending.marked)
        if len(bodies) < 2:
            await self._reject(sending, "the platform finds the message too long, and it cannot be cut")
            return
        await self._store.insist(lambda tx: outbox.recompose(tx, sending, bodies))

    async def _reject(self, sending: Head, reason: str) -> None:
        reason = one_line(reason)
        if sending.body.files:
            names = ", ".join(file.name for file in sending.body.files)
            line = Body(text=f"{sending.body.text}\n\nI could not send {names}: {reason}".strip())
            await self._store.insist(lambda tx: outbox.recompose(tx, sending, (line,)))
            return
        view_only = sending.owed.kind is Class.OPENING
        await self._store.insist(lambda tx: outbox.die(tx, sending, reason, self._clock.now(), silent=view_only))
        if view_only:
            self.views.opened(sending.owed.id, None)
        else:
            self._lost(sending, reason)

    async def _settled(self, settled: Head, receipt: Receipt | None, state: DeliveryState | None) -> None:
        """Called by the resolver when a doubt is settled."""
        if settled.kind is PartKind.OPENING:
            self.views.opened(settled.owed.id, receipt.view if receipt else None)
        self._signal(settled.owed, state)

    def _lost(self, dead: Head, reason: str) -> None:
        target = dead.owed.target
        self._alarms.sound("dead", f"{dead.owed.id} to {target} will not arrive: {reason}", target.at)
        self._signal(dead.owed, DeliveryState.DEAD)

    def _signal(self, owed: Owed, state: DeliveryState | None) -> None:
        """Shows by a reaction whether the answer arrived, if the message was marked as seen."""
        can = self.can(owed.target) if owed.signal else None
        if can is None or not can.reactions or owed.signal is None:
            return
        if state is DeliveryState.DELIVERED:
            self.views.end(owed.run, owed.target, owed.signal)
        elif state is DeliveryState.DEAD:
            self.views.end(owed.run, owed.target, Signal.FAILED)


def _account(owed: Owed) -> tuple[str, str]:
    return owed.target.adapter, owed.target.account


def _about(owed: Owed) -> dict[str, str]:
    """The run and conversation for log lines about a delivery, which has no session."""
    return {"run": owed.run or "", "conversation": owed.target.lane}


def _effect_label(sending: Head) -> str:
    if sending.kind is PartKind.ANCHOR:
        return "anchor.effect"
    return "edit.effect" if sending.view else "out.effect"

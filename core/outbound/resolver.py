"""Settles doubts: asks the platform whether a message arrived, and decides what may be repeated."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar

import msgspec

from tidings.core.adapter import Adapter
from tidings.core.background import Background
from tidings.core.clock import Clock, ended_within
from tidings.core.errors import Doubtful, Moved, RateLimited, SendError, Unreachable
from tidings.core.failpoints import fail_here
from tidings.core.outbound import doubts, outbox, pace
from tidings.core.outbound.outbox import Head
from tidings.core.store.store import Store, Transaction
from tidings.core.store.wakeups import Lane
from tidings.core.telemetry.alarms import Alarms
from tidings.core.types import Absent, Capabilities, DeliveryState, PartKind, Receipt, Target, Unreadable

log = logging.getLogger(__name__)

# The share of a key's lifetime within which it is repeated; later, the key might have expired.
KEY_MARGIN = 0.75
# A sent message may become readable with a delay.
READBACK_SECONDS = 3.0
# A platform that allows reading back only after a longer pause counts as unreadable.
READBACK_LONGEST_SECONDS = 600.0
# After this many exceptions from its own code, an adapter is not asked again.
READBACK_FAULTS = 3
# Adapters have timeouts of their own; this one only keeps a call from hanging for ever.
CALL_SECONDS = 300.0
# A message that is absent this many times in a row was not sent.
PROOF_OF_ABSENCE = 2
# A copy that is sent at once would often overtake the first.
PATIENCE_SECONDS = 5.0
ANCHORS = 5

T = TypeVar("T")
# Called with the doubtful part, its receipt if one was found, and the state of the whole delivery.
Settled = Callable[[Head, Receipt | None, DeliveryState | None], Awaitable[None]]
Decision = Callable[[Transaction], object]


class Settler:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        adapters: Mapping[tuple[str, str], Adapter],
        alarms: Alarms,
        where: Callable[[Target], Target],
        settled: Settled,
    ) -> None:
        self._store = store
        self._clock = clock
        self._adapters = adapters
        self._alarms = alarms
        self._where = where
        self._settled = settled
        # After a fault of our own the doubt stays, and the sweep tries again.
        self._background = Background(log, "settling a doubt failed")

    async def start(self) -> None:
        for delivery in await self._store.insist(doubts.open_doubts):
            self.settle(delivery)

    async def stop(self) -> None:
        await self._background.close()

    def settle(self, delivery: str) -> None:
        if delivery not in self._background:
            self._background.begin(self._settle(delivery), key=delivery)

    def forget(self, delivery: str) -> None:
        """Stops asking about a delivery that was decided in another way."""
        self._background.forget(delivery)

    async def _settle(self, delivery: str) -> None:
        doubtful = await self._store.insist(lambda tx: doubts.doubtful(tx, delivery))
        if doubtful is None:
            return
        target = doubtful.owed.target
        adapter = self._adapters.get((target.adapter, target.account))
        if adapter is None:
            # The doubt stays until the adapter is configured again.
            return
        found = await self._ask(adapter, doubtful)
        if isinstance(found, Receipt):
            if not await self._prove(doubtful, found):
                # The message that was found has just proved another part, so this part is looked for again.
                await self._settle(delivery)
        elif isinstance(found, Absent):
            await self._close(doubtful, lambda tx: doubts.again(tx, doubtful, absent=True))
        elif found is None:
            await self._close(doubtful, lambda tx: doubts.again(tx, doubtful, absent=False))
        else:
            await self._decide(adapter, doubtful, found.reason)

    async def _ask(self, adapter: Adapter, doubtful: Head) -> Receipt | Absent | Unreadable | None:
        """Looks for the message; None means that no answer is needed because repeating the part is harmless."""
        can = adapter.can(self._where(doubtful.owed.target))
        if is_harmless(doubtful, can, self._clock):
            # A broken connection must not be retried in a tight loop; deliveries do not wait behind a doubtful one.
            await self._clock.sleep(pace.backoff(doubtful.attempts - 1))
            if is_harmless(doubtful, can, self._clock):
                return None
        if not can.send_proof.readback:
            return Unreadable(reason="the platform cannot be asked")
        return await self._read_back(adapter, doubtful)

    async def _prove(self, doubtful: Head, receipt: Receipt) -> bool:
        """Stores the receipt; false when the message became another part's receipt meanwhile."""
        fail_here("rec.pre_commit")

        now, wall = self._clock.now(), self._clock.wall()

        def unit(tx: Transaction) -> tuple[bool, bool, DeliveryState | None]:
            if not is_still(doubts.doubtful(tx, doubtful.owed.id), doubtful):
                return True, False, None
            if any(_is_taken(tx, doubtful, id) for id in receipt.ids):
                return False, False, None
            outbox.delivered(tx, doubtful, receipt, now, wall)
            # A final waits for the doubt about its opening.
            tx.announce(Lane(doubtful.owed.target.lane))
            return True, True, outbox.state_of(tx, doubtful.owed.id)

        over, proved, state = await self._store.insist(unit)
        if over:
            await self._settled(doubtful, receipt if proved else None, state)
        return over

    async def _read_back(self, adapter: Adapter, doubtful: Head) -> Receipt | Absent | Unreadable:
        """Asks until there is an answer, because a broken connection seldom recovers within seconds."""
        target = self._where(doubtful.owed.target)

        async def is_taken(id: str) -> bool:
            return await self._store.read(lambda tx: _is_taken(tx, doubtful, id))

        absences, misses, faults, pause = 0, 0, 0, READBACK_SECONDS
        while absences < PROOF_OF_ABSENCE:
            await self._clock.sleep(pause)
            pause = READBACK_SECONDS
            try:
                part = doubtful.part(target, self._clock.now() - doubtful.since)
                found = await answered(self._clock, adapter.find(part, is_taken))
            except RateLimited as error:
                pause = max(error.retry_after or 0.0, READBACK_SECONDS)
                if pause > READBACK_LONGEST_SECONDS:
                    return Unreadable(reason=str(error))
                continue
            except Unreachable:
                pause = max(pace.backoff(misses), READBACK_SECONDS)
                misses += 1
                continue
            except Moved as error:
                target = msgspec.structs.replace(target, chat=error.chat)
                continue
            except SendError as error:
                return Unreadable(reason=str(error))
            except Exception as error:
                # A bug in the adapter: ask again, and give up after a few times.
                log.error("reading back %s failed: %r", doubtful.owed.id, error, exc_info=error)
                faults += 1
                if faults >= READBACK_FAULTS:
                    return Unreadable(reason=f"reading it back failed: {error!r}")
                continue
            fail_here("rec.read_done")
            if not isinstance(found, Absent):
                return found
            absences += 1
        return Absent()

    async def _decide(self, adapter: Adapter, doubtful: Head, reason: str) -> None:
        """Decides without proof: a view is dropped, a text is repeated once and marked, and then counts as lost."""
        now = self._clock.now()
        edits = adapter.can(self._where(doubtful.owed.target)).streaming_edits
        if doubtful.kind is PartKind.OPENING:
            await self._close(doubtful, lambda tx: outbox.die(tx, doubtful, outbox.DROPPED, now, silent=True))
            return
        await self._clock.sleep(PATIENCE_SECONDS)
        if doubtful.is_bare_anchor and doubtful.attempts < ANCHORS:
            await self._close(doubtful, lambda tx: doubts.another_anchor(tx, doubtful))
        elif doubtful.kind is PartKind.PLAIN and doubtful.body.files:
            await self._close(doubtful, lambda tx: doubts.replace_files(tx, doubtful))
        elif not doubtful.is_bare_anchor and not doubtful.marked:
            is_plain = doubtful.kind is PartKind.PLAIN
            await self._close(doubtful, lambda tx: doubts.again_marked(tx, doubtful, anchored=edits and is_plain))
        else:
            why = f"unconfirmed: {reason}"
            target = doubtful.owed.target
            if await self._close(doubtful, lambda tx: outbox.die(tx, doubtful, why, self._clock.now())):
                self._alarms.sound("unconfirmed", f"{doubtful.owed.id} to {target}: {reason}", target.at)

    async def _close(self, doubtful: Head, decision: Decision) -> bool:
        """Stores a decision; false when the doubt no longer existed."""
        fail_here("rec.pre_commit")

        def unit(tx: Transaction) -> tuple[bool, DeliveryState | None]:
            if not is_still(doubts.doubtful(tx, doubtful.owed.id), doubtful):
                return False, None
            decision(tx)
            return True, outbox.state_of(tx, doubtful.owed.id)

        decided, state = await self._store.insist(unit)
        await self._settled(doubtful, None, state)
        return decided


def _is_taken(tx: Transaction, doubtful: Head, message: str) -> bool:
    # A final answer edits the message of its opening, so both have the same id.
    return doubtful.view is None and outbox.is_taken(tx, doubtful, message)


def is_still(doubtful: Head | None, asked: Head) -> bool:
    """Tells whether this is still the doubt that was asked about.

    Meanwhile the delivery may have expired, or the owner may have retried it, so that the doubt is about the copy.
    """
    if doubtful is None:
        return False
    return (doubtful.position, doubtful.key, doubtful.tried) == (asked.position, asked.key, asked.tried)


async def answered(clock: Clock, call: Coroutine[Any, Any, T]) -> T:
    """Awaits a call of an adapter; raises Doubtful if the adapter hangs or cancels itself."""
    task = asyncio.create_task(call)
    try:
        if not await ended_within(clock, task, CALL_SECONDS):
            raise Doubtful(f"no answer after {CALL_SECONDS:g} s")
    finally:
        task.cancel()
    if task.cancelled():
        raise Doubtful("the adapter gave up")
    return task.result()


def is_harmless(tried: Head, can: Capabilities, clock: Clock) -> bool:
    """Tells whether a part that was tried may be sent again, even if it has arrived."""
    if tried.view is not None and tried.view.anchored:
        return True
    if tried.tried is None or not clock.confirmed:
        # With an unconfirmed clock, the age of the key is unknown.
        return False
    return 0 <= clock.now() - tried.tried < can.send_proof.keyed_for * KEY_MARGIN

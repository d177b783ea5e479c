"""Seeded bugs, each switched on in the child alone: a sweep that finds none of them proves nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from core.adapter import Receive
from core.inbound.door import Door
from core.outbound import doubts, outbox
from core.outbound.courier import Courier, Reserved
from core.outbound.outbox import Head, Owed
from core.outbound.settler import Settler
from core.store.database import Transaction
from core.types import Admission, Inbound, Note, Stored

# Names the mutant that a child becomes.
VARIABLE = "TIDINGS_MUTANT"

_tasks: set[asyncio.Task[None]] = set()


def _keep(task: asyncio.Task[None]) -> None:
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


def acknowledge_before_commit() -> None:
    """The platform is told "taken" while the message is only in memory."""
    real = Door.receive_for

    def receive_for(self: Door, adapter: str, account: str) -> Receive:
        receive = real(self, adapter, account)

        async def store(inbound: Inbound, note: Note | None) -> None:
            await receive(inbound, note)

        async def hasty(inbound: Inbound, note: Note | None = None) -> Admission:
            _keep(asyncio.create_task(store(inbound, note)))
            return Stored(run="")

        return hasty

    Door.receive_for = receive_for  # type: ignore[method-assign]


def delivery_in_second_transaction() -> None:
    """The run is closed first, and what we owe for it is written afterwards."""
    late: dict[str, Owed] = {}

    def put(self: Courier, tx: Transaction, owed: Owed, reserved: Reserved | None) -> Head | None:
        late[owed.id] = owed
        return None

    async def write(self: Courier, owed: Owed) -> None:
        await self._store.insist(lambda tx: outbox.put(tx, owed, self._clock.now()))
        self.wake(owed.target.lane)

    def carry(self: Courier, owed: Owed, reserved: Reserved | None, first: Head | None) -> None:
        if reserved is not None:
            self.give_back(reserved)
        _keep(asyncio.create_task(write(self, late.pop(owed.id))))

    Courier.put = put  # type: ignore[method-assign]
    Courier.carry = carry  # type: ignore[method-assign]


def no_doubtful_state() -> None:
    """What was in flight when the process died is sent again as if it had never left."""

    def recover(tx: Transaction) -> int:
        return tx.execute("UPDATE parts SET state = 'waiting' WHERE state = 'sending'")

    doubts.recover = recover


def drop_when_in_doubt() -> None:
    """What may have arrived is taken to have arrived."""

    async def settle(self: Settler, delivery: str) -> None:
        doubtful = await self._store.read(lambda tx: doubts.doubtful(tx, delivery))
        if doubtful is not None:
            now = self._clock.now()
            await self._close(doubtful, lambda tx: outbox.die(tx, doubtful, "dropped", now, silent=True), None)

    Settler._settle = settle  # type: ignore[method-assign]


MUTANTS: dict[str, Callable[[], None]] = {
    mutant.__name__.replace("_", "-"): mutant
    for mutant in (acknowledge_before_commit, delivery_in_second_transaction, no_doubtful_state, drop_when_in_doubt)
}


def become(name: str) -> None:
    if name:
        MUTANTS[name]()

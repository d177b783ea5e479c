"""Stops a run from outside its conversation: a running one is asked to stop, a waiting one is cancelled."""

from __future__ import annotations

import logging
from collections.abc import Callable

from tidings.core.clock import Clock
from tidings.core.errors import Unstored
from tidings.core.inbound import inbox, joining
from tidings.core.inbound.settlement import Settlement
from tidings.core.runs import stops
from tidings.core.store.store import Row, Store, Transaction
from tidings.core.types import Inbound

log = logging.getLogger(__name__)


class Stopping:
    def __init__(self, store: Store, clock: Clock, settlement: Settlement) -> None:
        self._store = store
        self._clock = clock
        self._settlement = settlement

    async def stop(self, run: str, by: str) -> bool:
        """Stops a run; false if it has already ended, or if another run has heard its message and answers it."""

        def unit(tx: Transaction) -> bool:
            if joining.is_heard(tx, run):
                return False
            return inbox.ask_stop(tx, run, by) or self._settlement.cancel(tx, run, stops.reason(by))

        return await self._store.write(unit)

    def stop_resting(self, tx: Transaction, by: Inbound, may_stop: Callable[[str], bool]) -> bool:
        """Cancels messages that have not begun because more of their sender may follow; false if there are none.

        So a stop that comes right after a message stops its answer, too.
        """
        resting = [run for run in joining.resting_runs(tx, by.conversation.id, self._clock.now()) if may_stop(run)]
        for run in resting:
            self._settlement.cancel(tx, run, stops.reason(by.sender.name or by.sender.id))
        return bool(resting)

    async def stop_for_sender(self, run: str) -> None:
        """Stops a run for the person who asked, after a press of the platform's own stop button."""
        try:
            message = await self._store.read(lambda tx: inbox.message_of(tx, run))
            await self.stop(run, message.sender.name or message.sender.id)
        except Unstored as error:
            log.warning("the stop of %s could not be stored: %s", run, error)

    async def stop_task(self, row: Row, by: str) -> None:
        """Stops the run that works on a task."""
        await self.stop(row["work"], by)

"""Stops a run from outside its conversation: a running one is asked to stop, a waiting one is cancelled."""

from __future__ import annotations

import logging

from tidings.core.errors import Unstored
from tidings.core.inbound import inbox
from tidings.core.inbound.settlement import Settlement
from tidings.core.store.store import Row, Store, Transaction

log = logging.getLogger(__name__)


class Stopping:
    def __init__(self, store: Store, settlement: Settlement) -> None:
        self._store = store
        self._settlement = settlement

    async def stop(self, run: str, by: str) -> bool:
        """Stops a run; false if it has already ended."""

        def unit(tx: Transaction) -> bool:
            return inbox.ask_stop(tx, run, by) or self._settlement.cancel(tx, run, f"stopped by {by}")

        return await self._store.write(unit)

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

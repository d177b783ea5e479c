"""Stops a run from outside its conversation: a live run is asked, a waiting one is cancelled."""

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
        """False for a run that has ended."""

        def unit(tx: Transaction) -> bool:
            return inbox.ask_stop(tx, run, by) or self._settlement.cancel(tx, run, f"stopped by {by}")

        return await self._store.write(unit)

    async def stop_for_sender(self, run: str) -> None:
        """The person who asked for the answer has stopped it with the platform's own button."""
        try:
            message = await self._store.read(lambda tx: inbox.message_of(tx, run))
            await self.stop(run, message.sender.name or message.sender.id)
        except Unstored as error:
            log.warning("the stop of %s could not be stored: %s", run, error)

    async def stop_task(self, row: Row, by: str) -> None:
        """Stops the run that a task was handed to."""
        await self.stop(row["work"], by)

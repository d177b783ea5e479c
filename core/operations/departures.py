"""Departures: the private chat of a person who may no longer talk is no home any more, and watches no cards."""

from __future__ import annotations

import logging
from typing import NamedTuple

from tidings.core.background import Background
from tidings.core.clock import Clock
from tidings.core.memory import history
from tidings.core.outbound import homes
from tidings.core.part import Part
from tidings.core.people import audit
from tidings.core.people.people import People
from tidings.core.roles import OWNER
from tidings.core.store.store import Store, Transaction
from tidings.core.types import Target
from tidings.core.work.board import cards as card_rows

log = logging.getLogger(__name__)


class _Left(NamedTuple):
    """What still points at private chats of people who have left."""

    homes: list[Target]
    watchers: list[tuple[int, Target]]


class Departures(Part):
    """Looks when people change, and at each start and sweep for changes that it has not heard of."""

    def __init__(self, store: Store, clock: Clock, people: People) -> None:
        self._store = store
        self._clock = clock
        self._people = people
        # The version of people at the last look: a look goes through every watcher.
        self._looked_at = -1
        self._ending = Background(log, "the home of a person who has left could not be ended")
        people.subscribe(self._hear)

    async def recover(self) -> None:
        # The settings may have changed while no gateway ran.
        await self.sweep()

    async def sweep(self) -> None:
        if self._people.version != self._looked_at:
            await self._end()

    async def stop(self, patience: float) -> None:
        await self._ending.close()

    def _hear(self) -> None:
        self._ending.begin(self._end())

    async def _end(self) -> None:
        # One unit, queued at once: what is owed after the change must not reach the chat any more.
        version = self._people.version
        await self._store.insist(self._end_all)
        self._looked_at = version

    def _left(self, tx: Transaction) -> _Left:
        def is_closed(target: Target) -> bool:
            return history.is_closed(tx, target, self._people)

        return _Left(
            [home for home in homes.all_of(tx).values() if is_closed(home)],
            [(card, target) for card, target in card_rows.all_watchers(tx) if is_closed(target)],
        )

    def _end_all(self, tx: Transaction) -> None:
        left = self._left(tx)
        for home in left.homes:
            log.warning("%s is no home any more: its person may no longer talk to the bot", home)
            homes.remove(tx, home)
            audit.write(tx, OWNER.id, "home", str(home), self._clock.wall(), "removed")
        for card, target in left.watchers:
            card_rows.unwatch(tx, card, target)

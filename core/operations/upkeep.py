"""The owner's operations on stored data while the gateway runs: copy, prune, repair deliveries."""

from __future__ import annotations

import asyncio
import shutil
from contextvars import Context
from pathlib import Path

import msgspec

from tidings.core import ids
from tidings.core.clock import Clock
from tidings.core.desk.deliveries import DeliveryLine, Pruned
from tidings.core.errors import Conflict
from tidings.core.operations import retention
from tidings.core.outbound import repair
from tidings.core.outbound.courier import Courier
from tidings.core.part import Part
from tidings.core.settings import Retention as Periods
from tidings.core.store import checks
from tidings.core.store.store import Store, Transaction
from tidings.core.telemetry.alarms import Alarms

# The folder for copies of the store that a backup is being made of.
SNAPSHOTS = "snapshots"
# A copy that is older was left behind by a caller that died.
LEFT_BEHIND_SECONDS = 86_400.0


class Upkeep(Part):
    def __init__(
        self,
        store: Store,
        clock: Clock,
        courier: Courier,
        alarms: Alarms,
        periods: Periods,
        home: Path,
        checked_bytes: int = checks.CHECKED_BYTES,
    ) -> None:
        self._store = store
        self._clock = clock
        self._courier = courier
        self._home = home
        self._retention = retention.Retention(store, clock, periods, home)
        self._alarms = alarms
        self._checked_bytes = checked_bytes
        self._looking: asyncio.Task[None] | None = None
        self._copying = asyncio.Lock()
        # Interrupted backups may have left copies behind.
        shutil.rmtree(home / SNAPSHOTS, ignore_errors=True)

    async def sweep(self) -> None:
        if self._looking is None and await self._store.size() > self._checked_bytes:
            self._looking = asyncio.create_task(self._look_over(), context=Context())
        await self._retention.sweep()

    async def stop(self, patience: float) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    async def _look_over(self) -> None:
        """Checks a large store once after the start, because the start itself did not wait for that."""
        if found := await self._store.damage():
            self._alarms.sound("store", f"the store is damaged ({found}); stop, and restore your newest backup")

    async def snapshot(self) -> Path:
        if self._copying.locked():
            raise Conflict("another backup is being made; wait until it is done")
        async with self._copying:
            folder = self._home / SNAPSHOTS
            folder.mkdir(mode=0o700, exist_ok=True)
            _remove_old(folder, self._clock.wall() - LEFT_BEHIND_SECONDS)
            path = folder / f"{ids.new('snapshot')}.db"
            # The file is private from its creation, whatever the process's umask.
            path.touch(mode=0o600)
            try:
                await self._store.copy(path)
            except BaseException:
                path.unlink(missing_ok=True)
                raise
            return path

    async def prune(self, older_than: float | None, *, rehearsal: bool) -> Pruned:
        pruned = await self._retention.prune(older_than, rehearsal=rehearsal)
        return msgspec.structs.replace(pruned, spare_bytes=await self._store.spare())

    async def deliveries(self, *, waiting: bool, limit: int, before: int = 0) -> list[DeliveryLine]:
        states = repair.OPEN if waiting else repair.IN_TROUBLE
        return await self._store.read(lambda tx: repair.lines(tx, states, limit, before, self._clock.ahead))

    async def retry(self, id: str) -> str:
        def unit(tx: Transaction) -> str:
            can = self._courier.can(repair.target_of(tx, id))
            return repair.retry(tx, id, self._clock.now(), edits=can is not None and can.streaming_edits)

        words = await self._store.write(unit)
        self._courier.decided(id)
        return words

    async def drop(self, id: str) -> None:
        owed = await self._store.write(lambda tx: repair.drop(tx, id, self._clock.now()))
        self._courier.dropped(owed)


def _remove_old(folder: Path, before: float) -> None:
    for path in folder.iterdir():
        if path.stat().st_mtime < before:
            path.unlink(missing_ok=True)

"""One incarnation of the gateway: it dies at a commit, and whatever is left of it can no longer act."""

from __future__ import annotations

import asyncio
import errno
import heapq
import os
import sqlite3
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.worlds.fakes import FakeClock
from tidings.core.errors import TidingsError, Unstored
from tidings.core.gateway.gateway import Gateway
from tidings.core.store.sqlite import (
    DATABASE,
    RETRY_SECONDS,
    SqliteStore,
    SqliteTransaction,
    _Done,
    _Job,
    _resolve,
    connect,
)
from tidings.core.store.store import Store, T, Transaction, Unit

# More turns of the loop than any step takes: whoever needs them turns for ever.
TURNS = 20_000
# A task that is cancelled so often and does not end holds on to a dead process.
BURIAL_TURNS = 200


class Dead(BaseException):
    """Raised to whoever acts after the crash; no `except Exception` of the code under test may swallow it."""


class Fuse(NamedTuple):
    """The process dies at the n-th commit from now, before or after it."""

    commits: int
    after: bool


class ModelClock(FakeClock):
    """Moves from timer to timer; it outlives the process, whose timers it forgets."""

    async def advance_with(self, life: Life, seconds: float) -> None:
        end = self._now + seconds
        await life.rest()
        while not life.dead and self._timers and self._timers[0][0] <= end:
            timer = heapq.heappop(self._timers)[2]
            if not timer.cancelled:
                self._now = max(self._now, timer.at)
                timer.callback()
                await life.rest()
        self._now = max(self._now, end)

    def pass_by(self, seconds: float) -> None:
        """Time goes on while nobody lives."""
        self._now += seconds

    def forget(self) -> None:
        self._timers.clear()


class Life:
    """What one process has in memory: a loop of its own, and the gates at which its agents wait."""

    def __init__(self, complain: Callable[[str], None], fuse: Fuse | None) -> None:
        self.dead = False
        self.fuse = fuse
        # So many commits find the disk full.
        self.full = 0
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(self._unheard)
        self.stores: list[MortalStore] = []
        self.gateway: Gateway | None = None
        self._complain = complain

    def check(self) -> None:
        if self.dead:
            raise Dead

    async def rest(self) -> None:
        """Returns when nothing goes on by itself; without threads and sockets that is an empty queue of the loop."""
        ready: deque[Any] = self.loop._ready  # type: ignore[attr-defined]
        for _ in range(TURNS):
            if self.dead or not ready:
                return
            await asyncio.sleep(0)
        raise AssertionError("the gateway never comes to rest")

    def drive(self, work: Awaitable[None] | None = None, turns: int = -1) -> None:
        """Lets the process live for so many turns, or until it comes to rest or dies."""

        async def live() -> None:
            task = None if work is None else asyncio.ensure_future(work)
            if turns < 0:
                await self.rest()
            else:
                for _ in range(turns):
                    if not self.dead:
                        await asyncio.sleep(0)
            if task is not None and task.done() and not self.dead:
                task.result()

        self.loop.run_until_complete(live())

    def bury(self) -> None:
        """As the system does with a process that was killed: nothing of it acts, and what it held is free."""
        self.dead = True

        async def end() -> None:
            for _ in range(BURIAL_TURNS):
                left = asyncio.all_tasks() - {asyncio.current_task()}
                if not left:
                    return
                for task in left:
                    task.cancel()
                await asyncio.sleep(0)
            raise AssertionError(f"these outlive their process: {left}")

        self.loop.run_until_complete(end())
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()
        for store in self.stores:
            store.abandon()
        if self.gateway is not None:
            self.gateway._lock.release()

    def _unheard(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A fault that nobody looked at; a verdict that came too late for its caller is none."""
        error = context.get("exception")
        if not self.dead and not isinstance(error, TidingsError):
            self._complain(f"unheard: {context.get('message')} {error!r}")


class Boundary:
    """The store's connection, which counts the commits that change something and burns the fuse."""

    def __init__(self, connection: sqlite3.Connection, life: Life) -> None:
        self._connection = connection
        self._life = life
        self._before = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        if sql == "BEGIN IMMEDIATE":
            self._before = self._connection.total_changes
        if sql == "COMMIT" and self._connection.total_changes != self._before:
            return self._commit()
        return self._connection.execute(sql, *parameters)

    def _commit(self) -> sqlite3.Cursor:
        life = self._life
        if life.full:
            life.full -= 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if life.fuse is None:
            return self._connection.execute("COMMIT")
        life.fuse = life.fuse._replace(commits=life.fuse.commits - 1)
        burnt = life.fuse.commits <= 0
        if burnt and not life.fuse.after:
            life.dead = True
            raise Dead
        cursor = self._connection.execute("COMMIT")
        if burnt:
            life.dead = True
            raise Dead
        return cursor


class MortalStore(SqliteStore):
    """The real store, ungrouped, with turns of the loop in the place of its thread, so that every run is the same."""

    def __init__(self, path: Path, life: Life, clock: ModelClock, hops: int) -> None:
        super().__init__(path, grouped=False)
        self._life = life
        self._clock = clock
        # How many turns of the loop a commit takes.
        self._hops = hops
        self._raw = connect(path)
        self._boundary: Any = Boundary(self._raw, life)
        self._queue: deque[_Job] = deque()
        life.stores.append(self)

    def write(self, unit: Unit[T]) -> asyncio.Future[T]:
        self._life.check()
        future: asyncio.Future[T] = self._loop.create_future()
        if self._closed:
            future.set_exception(Unstored("the store is closed"))
        else:
            self._queue.append(_Job(unit, future))
            self._loop.call_soon(self._hop, self._hops)
        return future

    read = write

    async def insist(self, unit: Unit[T]) -> T:
        """As the real one, but it waits by the model's clock."""
        while True:
            try:
                return await self.write(unit)
            except Unstored:
                if self._closed:
                    raise
                await self._clock.sleep(RETRY_SECONDS)

    async def close(self) -> None:
        """As the real one, after everything that was asked for before."""
        if not self._closed:
            last = self.write(lambda tx: None)
            self._closed = True
            await last
            self.abandon()

    def abandon(self) -> None:
        """Closing rolls back what was not committed, as the end of a process does."""
        self._closed = True
        self._raw.close()

    def transaction(self) -> Transaction:
        return SqliteTransaction(self._raw, self.wakeups)

    def _hop(self, left: int) -> None:
        if self._life.dead or not self._queue:
            return
        if left:
            self._loop.call_soon(self._hop, left - 1)
            return
        job = self._queue.popleft()
        try:
            done = self._commit(self._boundary, self.transaction(), [job])  # type: ignore[arg-type]
        except Dead:
            return
        self._loop.call_soon(self._answer, done)

    def _answer(self, done: list[_Done]) -> None:
        if not self._life.dead:
            _resolve(done, self.wakeups)


class MortalGateway(Gateway):
    """The real gateway on a mortal store."""

    life: Life
    model_clock: ModelClock
    hops: int

    async def _open(self) -> Store:
        return self.open(self._home / DATABASE)

    def open(self, path: Path) -> MortalStore:
        return MortalStore(path, self.life, self.model_clock, self.hops)

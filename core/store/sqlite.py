"""The SQLite store: one thread owns the connection, with WAL and synchronous=FULL; many units share a commit."""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from tidings.core.errors import Clash, Unstored
from tidings.core.failpoints import fail_here
from tidings.core.store import checks
from tidings.core.store.connection import connect
from tidings.core.store.store import Row, T, Transaction, Unit
from tidings.core.store.wakeups import Due, Wakeups

log = logging.getLogger(__name__)

# The name of the database file in the home.
DATABASE = "tidings.db"
# More units in one commit would gain nothing and delay the first of them.
GROUP_LIMIT = 64
RETRY_SECONDS = 0.25
FAULT_LOG_SECONDS = 60.0

# A test runs every unit twice, and undoes the first run: another store may have to.
TWICE = bool(os.environ.get("TIDINGS_TWICE"))

# A copy is made in slices of this many pages of 4 KB; writers get a turn between slices.
COPIED_PAGES = 256

# Primary result codes of SQLite that mean "not now" rather than "this statement is wrong".
_TRANSIENT = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_NOTADB,
}


class _Job(NamedTuple):
    unit: Unit[Any]
    future: asyncio.Future[Any]


class _Copying(NamedTuple):
    to: Path
    future: asyncio.Future[Any]


class _Done(NamedTuple):
    future: asyncio.Future[Any]
    value: Any
    error: BaseException | None
    # Empty for a unit that was undone.
    announced: Sequence[Due] = ()


class _Step:
    __slots__ = ("_announced", "_name", "_transaction")

    def __init__(self, transaction: SqliteTransaction, name: str) -> None:
        self._transaction = transaction
        self._name = name
        self._announced = len(transaction.announced)

    def undo(self) -> None:
        self._transaction.execute(f"ROLLBACK TO {self._name}")
        del self._transaction.announced[self._announced :]


class SqliteTransaction:
    """Raises Unstored for an error that may pass, Clash when a row would break a rule of the schema."""

    __slots__ = ("_connection", "_depth", "_wakeups", "announced")

    def __init__(self, connection: sqlite3.Connection, wakeups: Wakeups | None = None) -> None:
        """Without `wakeups` every announcement is kept."""
        self._connection = connection
        self._wakeups = wakeups
        self._depth = 0
        self.announced: list[Due] = []

    def announce(self, due: Due) -> None:
        if self._wakeups is None or self._wakeups.is_followed(type(due)):
            self.announced.append(due)

    @contextmanager
    def step(self) -> Iterator[_Step]:
        """A savepoint with a name of its own, so that steps can be nested."""
        name = f"step_{self._depth}"
        self.execute(f"SAVEPOINT {name}")
        self._depth += 1
        step = _Step(self, name)
        try:
            yield step
        except Unstored:
            # The whole batch is undone, and the savepoint may be gone already.
            raise
        except BaseException:
            step.undo()
            self._end_step(name)
            raise
        self._end_step(name)

    def _end_step(self, name: str) -> None:
        self.execute(f"RELEASE {name}")
        self._depth -= 1

    def begin_unit(self) -> None:
        """The unit before this one may have been left in the middle."""
        self._depth = 0
        self.announced = []

    def execute(self, sql: str, *parameters: object) -> None:
        self.count(sql, *parameters)

    def count(self, sql: str, *parameters: object) -> int:
        try:
            return self._connection.execute(sql, parameters).rowcount
        except sqlite3.Error as error:
            _judge(error)
            raise

    def one(self, sql: str, *parameters: object) -> Row | None:
        try:
            row: Row | None = self._connection.execute(sql, parameters).fetchone()
        except sqlite3.Error as error:
            _judge(error)
            raise
        return row

    def all(self, sql: str, *parameters: object) -> list[Row]:
        try:
            return self._connection.execute(sql, parameters).fetchall()
        except sqlite3.Error as error:
            _judge(error)
            raise


class SqliteStore:
    """The store, built by `open_store`; only one connection writes and checkpoints, which avoids the WAL-reset bug."""

    def __init__(
        self,
        path: Path,
        *,
        grouped: bool = True,
        factory: type[sqlite3.Connection] = sqlite3.Connection,
        wakeups: Wakeups | None = None,
    ) -> None:
        self.fault = ""
        self.wakeups = wakeups or Wakeups()
        self._path = path
        self._factory = factory
        self._group = GROUP_LIMIT if grouped else 1
        self._jobs: queue.SimpleQueue[_Job | _Copying | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._own, name="store", daemon=True)
        self._fault_logged = 0.0
        self._closed = False
        self._copying = False
        self._ending = False

    def write(self, unit: Unit[T]) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self._loop.create_future()
        if self._closed:
            future.set_exception(Unstored("the store is closed"))
        else:
            self._jobs.put(_Job(unit, future))
        return future

    # Reads run in the same thread, so they see every write that was requested before them.
    read = write

    async def insist(self, unit: Unit[T]) -> T:
        while True:
            try:
                return await self.write(unit)
            except Unstored:
                if self._closed:
                    raise
                await asyncio.sleep(RETRY_SECONDS)

    async def copy(self, to: Path) -> None:
        """Copies the store as it is when the copy ends; writers wait for one slice at most."""
        future: asyncio.Future[None] = self._loop.create_future()
        if self._closed or self._copying:
            raise Unstored("the store is closed" if self._closed else "the store is being copied already")
        self._copying = True
        self._jobs.put(_Copying(to, future))
        try:
            await future
        finally:
            self._copying = False

    async def size(self) -> int:
        return self._path.stat().st_size

    async def spare(self) -> int:
        return await self.read(spare_bytes)

    async def damage(self) -> str:
        return await checks.damage(self._path)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)

    async def start(self) -> None:
        self._thread.start()
        await self._opened

    def _own(self) -> None:
        try:
            connection = connect(self._path, factory=self._factory)
        except Exception as error:
            # Any error must reach the caller that waits for the start.
            self._loop.call_soon_threadsafe(self._opened.set_exception, error)
            return
        self._loop.call_soon_threadsafe(self._opened.set_result, None)
        transaction = SqliteTransaction(connection, self.wakeups)
        while not self._ending:
            self._take_turn(connection, transaction)
        connection.close()

    def _take_turn(self, connection: sqlite3.Connection, transaction: SqliteTransaction) -> None:
        """Waits for a job, and runs all queued units that can share its commit."""
        job = self._jobs.get()
        batch: list[_Job] = []
        while isinstance(job, _Job):
            batch.append(job)
            if len(batch) == self._group or self._jobs.empty():
                break
            job = self._jobs.get()
        if batch:
            self._tell(self._commit(connection, transaction, batch))
        if isinstance(job, _Copying):
            self._tell([self._copy(connection, transaction, job)])
        elif job is None:
            self._ending = True

    def _tell(self, done: list[_Done]) -> None:
        try:
            self._loop.call_soon_threadsafe(_resolve, done, self.wakeups)
        except RuntimeError:
            # The event loop is closed, so no caller waits any more.
            self._ending = True

    def _copy(self, connection: sqlite3.Connection, transaction: SqliteTransaction, job: _Copying) -> _Done:
        """Copies the store in slices; the same connection writes in between, and those writes are copied too."""

        def between(status: int, remaining: int, total: int) -> None:
            if status != sqlite3.SQLITE_DONE and not self._jobs.empty():
                self._take_turn(connection, transaction)
            if self._ending:
                raise Unstored("the store is closed")

        try:
            with closing(sqlite3.connect(job.to)) as copy:
                # The caller makes the copy durable, so that other units need not wait for it.
                copy.execute("PRAGMA journal_mode = OFF")
                copy.execute("PRAGMA synchronous = OFF")
                connection.backup(copy, pages=COPIED_PAGES, progress=between)
        except (sqlite3.Error, OSError) as error:
            return _Done(job.future, None, Unstored(f"the store cannot be copied: {error}"))
        except Unstored as error:
            return _Done(job.future, None, error)
        fail_here("store.copied")
        return _Done(job.future, None, None)

    def _commit(self, connection: sqlite3.Connection, transaction: SqliteTransaction, batch: list[_Job]) -> list[_Done]:
        before = connection.total_changes
        try:
            if connection.in_transaction:
                # The last batch could not be rolled back, so nothing may be stored on top of it.
                connection.execute("ROLLBACK")
            connection.execute("BEGIN IMMEDIATE")
            done = [_perform(connection, transaction, job) for job in batch]
            wrote = connection.total_changes != before
            if wrote:
                fail_here("store.pre_commit")
            connection.execute("COMMIT")
            if wrote:
                fail_here("store.post_commit")
        except BaseException as error:
            # Any error must be reported: if this thread died, every caller would wait for ever.
            _undo(connection)
            return self._failed(batch, error)
        if self.fault and wrote:
            log.info("the store writes again")
            self.fault = ""
        return done

    def _failed(self, batch: list[_Job], error: BaseException) -> list[_Done]:
        self.fault = f"the store cannot write: {error}"
        if time.monotonic() - self._fault_logged > FAULT_LOG_SECONDS or not self._fault_logged:
            self._fault_logged = time.monotonic()
            log.error("%s; nothing is confirmed until it can", self.fault)
        return [_Done(job.future, None, Unstored(self.fault)) for job in batch]


def spare_bytes(tx: Transaction) -> int:
    """The space inside the file that no row uses."""
    pages, size = tx.one("PRAGMA freelist_count"), tx.one("PRAGMA page_size")
    return int(pages["freelist_count"]) * int(size["page_size"]) if pages and size else 0


def _perform(connection: sqlite3.Connection, transaction: SqliteTransaction, job: _Job) -> _Done:
    """Runs one unit in a savepoint of its own: an error undoes only this unit and is raised to its caller."""
    connection.execute("SAVEPOINT unit")
    if TWICE:
        _rehearse(connection, transaction, job)
    transaction.begin_unit()
    try:
        value = job.unit(transaction)
    except Unstored:
        # An error of the store fails the whole batch.
        raise
    except BaseException as error:
        connection.execute("ROLLBACK TO unit")
        connection.execute("RELEASE unit")
        return _Done(job.future, None, error)
    connection.execute("RELEASE unit")
    return _Done(job.future, value, None, transaction.announced)


def _rehearse(connection: sqlite3.Connection, transaction: SqliteTransaction, job: _Job) -> None:
    """Runs one unit and undoes it: whatever it raises, the real run raises again."""
    transaction.begin_unit()
    with suppress(BaseException):
        job.unit(transaction)
    connection.execute("ROLLBACK TO unit")


def _undo(connection: sqlite3.Connection) -> None:
    try:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    except sqlite3.Error as error:
        log.error("the store could not roll back a failed commit and tries again: %s", error)


def _judge(error: sqlite3.Error) -> None:
    """Raises Unstored for an error that may pass and Clash for a broken rule; other errors are left to the caller."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in _TRANSIENT:
        raise Unstored(str(error)) from error
    if code == sqlite3.SQLITE_CONSTRAINT:
        raise Clash(str(error)) from error


def _resolve(done: list[_Done], wakeups: Wakeups) -> None:
    """Answers the callers in the order of their units, each after the parts that its unit wakes."""
    published: set[Due] = set()
    loop = asyncio.get_running_loop()
    for future, value, error, announced in done:
        news = [due for due in dict.fromkeys(announced) if due not in published]
        if news:
            published.update(news)
            # Queued like the answers, so that the caller of an earlier unit goes on before a later unit is heard of.
            loop.call_soon(wakeups.publish, news)
        if future.done():
            continue
        if error is None:
            future.set_result(value)
        elif isinstance(error, StopIteration) or not isinstance(error, Exception):
            # A future cannot hold StopIteration, and SystemExit would end more than the caller.
            future.set_exception(RuntimeError(f"a unit of work raised {error!r}"))
        else:
            future.set_exception(error)


async def open_store(
    path: Path,
    *,
    grouped: bool = True,
    factory: type[sqlite3.Connection] = sqlite3.Connection,
    wakeups: Wakeups | None = None,
) -> SqliteStore:
    store = SqliteStore(path, grouped=grouped, factory=factory, wakeups=wakeups)
    await store.start()
    return store

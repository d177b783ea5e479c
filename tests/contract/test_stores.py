"""SQLite is a store, grouped and one unit to a commit; and the contract finds each lie it should."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import pytest

from tests.contract.stores import StoreBench, StoreContract
from tidings.core import failpoints
from tidings.core.errors import Unstored
from tidings.core.store.sqlite import SqliteStore, SqliteTransaction, open_store
from tidings.core.store.store import Store, T, Transaction, Unit
from tidings.core.store.wakeups import Wakeups

SLOW_MILLISECONDS = 150


class SqliteBench:
    def __init__(self, home: Path, *, grouped: bool = True) -> None:
        self.path = home / "tidings.db"
        self._grouped = grouped
        self._opened: list[SqliteStore] = []

    async def open(self) -> Store:
        self._opened.append(await open_store(self.path, grouped=self._grouped))
        return self._opened[-1]

    async def close(self) -> None:
        failpoints.arm("")
        for store in self._opened:
            await store.close()

    def peek(self, sql: str) -> list[tuple[Any, ...]]:
        connection = sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()

    def fail_commits(self, count: int) -> None:
        failpoints.arm(",".join(f"store.pre_commit:{number}:enospc" for number in range(1, count + 1)))

    def slow_commit(self) -> None:
        failpoints.arm(f"store.pre_commit:1:delay={SLOW_MILLISECONDS}")


class TestSqlite(StoreContract):
    @pytest.fixture(params=[True, False], ids=["grouped", "ungrouped"])
    async def bench(self, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[StoreBench]:
        bench = SqliteBench(tmp_path, grouped=request.param)
        yield bench
        await bench.close()


class HonestStore:
    """Passes everything on; each liar below changes one thing."""

    def __init__(self, inner: Store, bench: SqliteBench) -> None:
        self.inner = inner
        self.bench = bench

    @property
    def wakeups(self) -> Wakeups:
        return self.inner.wakeups

    @property
    def fault(self) -> str:
        return self.inner.fault

    @fault.setter
    def fault(self, fault: str) -> None:
        self.inner.fault = fault

    def write(self, unit: Unit[T]) -> Awaitable[T]:
        return self.inner.write(unit)

    def read(self, unit: Unit[T]) -> Awaitable[T]:
        return self.inner.read(unit)

    async def insist(self, unit: Unit[T]) -> T:
        return await self.inner.insist(unit)

    async def close(self) -> None:
        await self.inner.close()


class AnswersBeforeTheCommit(HonestStore):
    def write(self, unit: Unit[T]) -> Awaitable[T]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def early(tx: Transaction) -> None:
            loop.call_soon_threadsafe(answer.set_result, unit(tx))

        self.commit = self.inner.write(early)
        return answer


class TakesTurns(HonestStore):
    """Every second unit lets the next one pass."""

    def __init__(self, inner: Store, bench: SqliteBench) -> None:
        super().__init__(inner, bench)
        self._calls = 0

    def write(self, unit: Unit[T]) -> Awaitable[T]:
        self._calls += 1
        return self.inner.write(unit) if self._calls % 2 else asyncio.ensure_future(self._later(unit))

    async def _later(self, unit: Unit[T]) -> T:
        return await self.inner.write(unit)


class KeepsHalves(HonestStore):
    """What a failing unit has written so far stays."""

    def write(self, unit: Unit[T]) -> Awaitable[T]:
        return asyncio.ensure_future(self._write(unit))

    async def _write(self, unit: Unit[T]) -> T:
        errors: list[Exception] = []

        def whole(tx: Transaction) -> T | None:
            try:
                return unit(tx)
            except Exception as error:  # noqa: BLE001
                errors.append(error)
            return None

        value = await self.inner.write(whole)
        if errors:
            raise errors[0]
        return value  # type: ignore[return-value]


class ReadsBesideTheWriter(HonestStore):
    def read(self, unit: Unit[T]) -> Awaitable[T]:
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        connection = sqlite3.connect(self.bench.path)
        connection.row_factory = sqlite3.Row
        answer.set_result(unit(SqliteTransaction(connection)))
        connection.close()
        return answer


class SaysStoredWhenItIsNot(HonestStore):
    def write(self, unit: Unit[T]) -> Awaitable[T]:
        return asyncio.ensure_future(self._write(unit))

    async def _write(self, unit: Unit[T]) -> T:
        try:
            return await self.inner.write(unit)
        except Unstored:
            return None  # type: ignore[return-value]


class GivesUp(HonestStore):
    async def insist(self, unit: Unit[T]) -> T:
        return await self.inner.write(unit)


class InsistsOnEverything(HonestStore):
    async def insist(self, unit: Unit[T]) -> T:
        for _ in range(3):
            try:
                return await self.inner.insist(unit)
            except Exception as error:  # noqa: BLE001
                last = error
        raise last


class NeverComplains(HonestStore):
    @property
    def fault(self) -> str:
        return ""

    @fault.setter
    def fault(self, fault: str) -> None:
        raise NotImplementedError


class Forgets(HonestStore):
    async def close(self) -> None:
        await self.inner.write(lambda tx: tx.execute("DELETE FROM notebook"))
        await self.inner.close()


class AnnouncesAtOnce(HonestStore):
    """What a unit announces is heard while the unit may still be undone."""

    def write(self, unit: Unit[T]) -> Awaitable[T]:
        loop = asyncio.get_running_loop()

        def hasty(tx: Transaction) -> T:
            value = unit(tx)
            assert isinstance(tx, SqliteTransaction)
            loop.call_soon_threadsafe(self.inner.wakeups.publish, tx.announced)
            tx.announced = []
            return value

        return self.inner.write(hasty)


class AnnouncesWhatWasUndone(HonestStore):
    def write(self, unit: Unit[T]) -> Awaitable[T]:
        loop = asyncio.get_running_loop()

        def loud(tx: Transaction) -> T:
            try:
                return unit(tx)
            except Exception:
                assert isinstance(tx, SqliteTransaction)
                loop.call_soon_threadsafe(self.inner.wakeups.publish, tx.announced)
                raise

        return self.inner.write(loud)


class AnnouncesNothing(HonestStore):
    @property
    def wakeups(self) -> Wakeups:
        return Wakeups()


class LyingBench(SqliteBench):
    def __init__(self, home: Path, liar: type[HonestStore]) -> None:
        super().__init__(home)
        self._liar = liar

    async def open(self) -> Store:
        return self._liar(await super().open(), self)


@pytest.mark.parametrize(
    ("liar", "finder"),
    [
        (AnswersBeforeTheCommit, "test_a_result_means_that_it_is_committed"),
        (TakesTurns, "test_units_happen_in_order_of_the_calls"),
        (KeepsHalves, "test_a_unit_that_fails_undoes_itself_and_nobody_else"),
        (ReadsBesideTheWriter, "test_a_read_sees_every_write_that_was_asked_for_before_it"),
        (SaysStoredWhenItIsNot, "test_what_cannot_be_committed_is_unstored_and_leaves_no_half"),
        (GivesUp, "test_insisting_goes_on_by_itself_when_the_fault_has_gone"),
        (InsistsOnEverything, "test_insisting_does_not_repeat_a_unit_that_is_wrong"),
        (NeverComplains, "test_a_store_says_what_is_wrong_until_it_can_write_again"),
        (Forgets, "test_reopening_keeps_everything"),
        (AnnouncesAtOnce, "test_what_a_unit_announces_is_heard_after_its_commit_and_before_its_caller_goes_on"),
        (AnnouncesNothing, "test_each_value_is_heard_once_for_each_unit"),
        (AnnouncesWhatWasUndone, "test_a_unit_that_is_undone_announces_nothing"),
    ],
)
async def test_a_lying_store_is_found_out(tmp_path: Path, liar: type[HonestStore], finder: str) -> None:
    honest, lying = SqliteBench(tmp_path / "honest"), LyingBench(tmp_path / "lying", liar)
    try:
        for bench in (honest, lying):
            bench.path.parent.mkdir()
        await getattr(StoreContract(), finder)(honest)
        # What pytest.raises says when nothing was raised is no AssertionError, nor is Unstored.
        with pytest.raises((AssertionError, pytest.fail.Exception, Unstored)):
            await getattr(StoreContract(), finder)(lying)
    finally:
        await honest.close()
        await lying.close()

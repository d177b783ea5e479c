"""The contract of a store: what it says is stored is stored, in order, whole or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

import pytest

from tests.worlds.builders import body, inbound, target
from tidings.core.errors import Clash, Unstored
from tidings.core.inbound import inbox
from tidings.core.outbound import outbox
from tidings.core.outbound.outbox import Class, Owed
from tidings.core.store.store import Store, Transaction, Unit
from tidings.core.store.wakeups import Conversation, Due, Lane


class StoreBench(Protocol):
    """What somebody who brings a store must offer beside it."""

    async def open(self) -> Store:
        """The same data each time; the last must be closed before, and the bench closes what is left at the end."""
        ...

    def peek(self, sql: str) -> list[tuple[Any, ...]]:
        """Asks by a connection of its own, which sees only what is committed."""
        ...

    def fail_commits(self, count: int) -> None:
        """The next commits fail as on a full disk; each undoes what it was about to store."""
        ...

    def slow_commit(self) -> None:
        """The next commit takes so long that whoever does not wait for it is caught."""
        ...


def noting(name: str, value: str = "") -> Unit[str]:
    """A small unit that anybody can recognise."""

    def unit(tx: Transaction) -> str:
        tx.execute("INSERT INTO notebook (adapter, account, name, value) VALUES ('a', 'b', ?, ?)", name, value)
        return name

    return unit


def announcing(name: str, *values: Due) -> Unit[str]:
    """A small unit that says what it made due."""

    def unit(tx: Transaction) -> str:
        for value in values:
            tx.announce(value)
        return noting(name)(tx)

    return unit


def names(tx: Transaction) -> list[str]:
    return [row["name"] for row in tx.all("SELECT name FROM notebook ORDER BY name")]


NAMES = "SELECT name FROM notebook ORDER BY name"


class Broken(Exception):
    """What a unit raises that has changed its mind."""


class StoreContract:
    """Every store passes this, or it is not a store. Subclasses give `bench`."""

    @pytest.fixture
    def bench(self) -> StoreBench:
        raise NotImplementedError

    async def test_a_result_means_that_it_is_committed(self, bench: StoreBench) -> None:
        store = await bench.open()
        bench.slow_commit()
        assert await store.write(noting("a")) == "a"
        assert bench.peek(NAMES) == [("a",)]

    async def test_nothing_is_seen_of_a_unit_before_its_commit(self, bench: StoreBench) -> None:
        store = await bench.open()

        def unit(tx: Transaction) -> list[tuple[Any, ...]]:
            noting("a")(tx)
            return bench.peek(NAMES)

        assert await store.write(unit) == []

    async def test_units_happen_in_order_of_the_calls(self, bench: StoreBench) -> None:
        store = await bench.open()
        happened: list[int] = []

        def numbered(number: int) -> Unit[int]:
            def unit(tx: Transaction) -> int:
                happened.append(number)
                tx.execute("INSERT INTO conversations (id) VALUES (?)", f"{number}")
                row = tx.one("SELECT count(*) AS n FROM conversations")
                assert row is not None
                return int(row["n"])

            return unit

        calls = [store.write(numbered(number)) for number in range(200)]
        assert await asyncio.gather(*calls) == list(range(1, 201))
        assert happened == list(range(200))

    async def test_a_unit_that_fails_undoes_itself_and_nobody_else(self, bench: StoreBench) -> None:
        store = await bench.open()

        def broken(tx: Transaction) -> None:
            noting("half")(tx)
            raise Broken("on second thoughts")

        calls = [store.write(noting("a")), store.write(broken), store.write(noting("b"))]
        first, second, third = await asyncio.gather(*calls, return_exceptions=True)
        assert (first, third) == ("a", "b")
        assert isinstance(second, Broken)
        assert bench.peek(NAMES) == [("a",), ("b",)]
        assert store.fault == "", "a unit's own mistake is no fault of the store"

    @pytest.mark.parametrize(
        "fault",
        [StopIteration(), StopAsyncIteration(), OSError(28, "no space"), SystemExit(3), asyncio.CancelledError()],
        ids=lambda fault: type(fault).__name__,
    )
    async def test_whatever_a_unit_raises_its_caller_hears_of_it_and_the_others_are_stored(
        self, bench: StoreBench, fault: BaseException
    ) -> None:
        store = await bench.open()

        def broken(tx: Transaction) -> None:
            noting("half")(tx)
            raise fault

        calls = [store.write(noting("a")), store.write(broken), store.write(noting("b"))]
        async with asyncio.timeout(10):
            first, second, third = await asyncio.gather(*calls, return_exceptions=True)
        assert (first, third) == ("a", "b")
        assert isinstance(second, Exception)
        assert not isinstance(second, Unstored), "to try it again would fail again"
        assert await store.write(noting("c")) == "c"
        assert bench.peek(NAMES) == [("a",), ("b",), ("c",)]
        assert store.fault == ""

    async def test_what_a_unit_announces_is_heard_after_its_commit_and_before_its_caller_goes_on(
        self, bench: StoreBench
    ) -> None:
        store = await bench.open()
        heard: list[tuple[str, list[tuple[Any, ...]]]] = []
        store.wakeups.subscribe(Lane, lambda due: heard.append((due.name, bench.peek(NAMES))))
        bench.slow_commit()
        await store.write(announcing("a", Lane("here")))
        assert heard == [("here", [("a",)])]

    async def test_each_value_is_heard_once_for_each_unit(self, bench: StoreBench) -> None:
        store = await bench.open()
        heard: list[object] = []
        store.wakeups.subscribe(Lane, heard.append)
        store.wakeups.subscribe(Conversation, heard.append)
        waits = Conversation("x", 0.0, inbound())
        await store.write(announcing("a", Lane("x"), waits, Lane("x"), Lane("y")))
        assert heard == [Lane("x"), waits, Lane("y")]
        await store.write(announcing("b", Lane("x")))
        assert heard[3:] == [Lane("x")]

    async def test_callers_go_on_in_order_each_behind_what_its_own_unit_announced(self, bench: StoreBench) -> None:
        store = await bench.open()
        order: list[str] = []
        store.wakeups.subscribe(Lane, lambda due: order.append(f"heard {due.name}"))
        calls = []
        for name in ("a", "b", "c"):
            calls.append(store.write(announcing(name, Lane(name))))
            calls[-1].add_done_callback(lambda call: order.append(f"answered {call.result()}"))
        await asyncio.gather(*calls)
        assert order == ["heard a", "answered a", "heard b", "answered b", "heard c", "answered c"]

    async def test_a_unit_that_is_undone_announces_nothing(self, bench: StoreBench) -> None:
        store = await bench.open()
        heard: list[object] = []
        store.wakeups.subscribe(Lane, heard.append)

        def broken(tx: Transaction) -> None:
            announcing("half", Lane("broken"))(tx)
            raise Broken("on second thoughts")

        with pytest.raises(Broken):
            await store.write(broken)
        await store.write(announcing("a", Lane("right")))
        bench.fail_commits(1)
        with pytest.raises(Unstored):
            await store.write(announcing("b", Lane("unstored")))
        await store.write(noting("c"))
        assert heard == [Lane("right")]

    async def test_a_step_that_is_undone_leaves_neither_rows_nor_announcements(self, bench: StoreBench) -> None:
        store = await bench.open()
        heard: list[object] = []
        store.wakeups.subscribe(Lane, heard.append)

        def broken_step(tx: Transaction) -> None:
            with tx.step():
                announcing("c", Lane("inner"))(tx)
                raise Broken

        def unit(tx: Transaction) -> None:
            announcing("a", Lane("before"))(tx)
            with tx.step() as outer:
                announcing("b", Lane("outer"))(tx)
                with pytest.raises(Broken):
                    broken_step(tx)
                announcing("d", Lane("outer too"))(tx)
                outer.undo()
            with tx.step():
                announcing("e", Lane("kept"))(tx)

        await store.write(unit)
        assert heard == [Lane("before"), Lane("kept")]
        assert bench.peek(NAMES) == [("a",), ("e",)]

    async def test_a_wrong_statement_goes_to_whoever_wrote_it(self, bench: StoreBench) -> None:
        store = await bench.open()
        wrong = store.write(lambda tx: tx.execute("UPDATE there_is_no_such_table SET x = 1"))
        right = store.write(noting("a"))
        with pytest.raises(Exception, match="there_is_no_such_table"):
            await wrong
        assert await right == "a"
        assert store.fault == ""

    async def test_a_read_sees_every_write_that_was_asked_for_before_it(self, bench: StoreBench) -> None:
        store = await bench.open()
        bench.slow_commit()
        write = store.write(noting("a"))
        seen = store.read(names)
        later = store.write(noting("b"))
        assert await seen == ["a"]
        await asyncio.gather(write, later)

    async def test_what_cannot_be_committed_is_unstored_and_leaves_no_half(self, bench: StoreBench) -> None:
        store = await bench.open()
        bench.fail_commits(1)

        def both(tx: Transaction) -> None:
            noting("a")(tx)
            noting("b")(tx)

        with pytest.raises(Unstored):
            await store.write(both)
        assert bench.peek(NAMES) == []
        assert await store.read(names) == []

    async def test_a_store_says_what_is_wrong_until_it_can_write_again(self, bench: StoreBench) -> None:
        store = await bench.open()
        bench.fail_commits(1)
        with pytest.raises(Unstored) as trouble:
            await store.write(noting("a"))
        assert store.fault
        assert store.fault in str(trouble.value)
        assert await store.write(noting("a")) == "a"
        assert store.fault == ""

    async def test_insisting_goes_on_by_itself_when_the_fault_has_gone(self, bench: StoreBench) -> None:
        store = await bench.open()
        bench.fail_commits(2)
        assert await store.insist(noting("a")) == "a"
        assert bench.peek(NAMES) == [("a",)]
        assert store.fault == ""

    async def test_insisting_does_not_repeat_a_unit_that_is_wrong(self, bench: StoreBench) -> None:
        store = await bench.open()
        tries: list[int] = []

        def broken(tx: Transaction) -> None:
            tries.append(1)
            raise Broken("whatever the disk does")

        with pytest.raises(Broken):
            await store.insist(broken)
        assert len(tries) == 1

    async def test_a_caller_that_has_gone_spoils_nothing(self, bench: StoreBench) -> None:
        store = await bench.open()
        bench.slow_commit()
        gone = asyncio.ensure_future(store.write(noting("a")))
        stays = store.write(noting("b"))
        await asyncio.sleep(0)
        gone.cancel()
        assert await stays == "b"
        assert await store.write(noting("c")) == "c"
        assert bench.peek(NAMES) == [("a",), ("b",), ("c",)]

    async def test_a_store_that_is_closed_has_stored_what_was_asked_and_takes_no_more(self, bench: StoreBench) -> None:
        store = await bench.open()
        calls = [store.write(noting(f"{number:03}")) for number in range(100)]
        await store.close()
        await asyncio.gather(*calls)
        assert len(bench.peek(NAMES)) == 100
        with pytest.raises(Unstored):
            await store.write(noting("late"))
        with pytest.raises(Unstored):
            await store.insist(noting("late"))
        await store.close()

    async def test_reopening_keeps_everything(self, bench: StoreBench) -> None:
        store = await bench.open()
        await store.write(lambda tx: inbox.put(tx, inbound("hi", key="m1"), "run_1", 5.0))
        await store.write(noting("a", "value"))
        await store.close()
        again = await bench.open()
        assert await again.read(names) == ["a"]
        known = await again.read(lambda tx: inbox.find(tx, inbound("hi", key="m1")))
        assert known is not None
        assert known.run == "run_1"

    async def test_values_come_back_as_they_went_in(self, bench: StoreBench) -> None:
        store = await bench.open()
        data = bytes(range(256))
        text = "naïve 😀 \u202e and a\nline; DROP TABLE notebook --"

        def unit(tx: Transaction) -> None:
            tx.execute("INSERT INTO conversations (id, generation, checkpoint) VALUES (?, ?, ?)", text, 2**53, data)
            tx.execute("INSERT INTO conversations (id, checkpoint) VALUES (?, ?)", "none", None)
            tx.execute("INSERT INTO pauses (budget, until) VALUES (?, ?)", text, 1234567.000001)

        await store.write(unit)
        row = await store.read(
            lambda tx: tx.one("SELECT id, generation, checkpoint FROM conversations WHERE id = ?", text)
        )
        assert row is not None
        assert (row["id"], row["generation"], bytes(row["checkpoint"])) == (text, 2**53, data)
        nothing = await store.read(lambda tx: tx.one("SELECT checkpoint FROM conversations WHERE id = 'none'"))
        assert nothing is not None
        assert nothing["checkpoint"] is None
        pause = await store.read(lambda tx: tx.one("SELECT until FROM pauses"))
        assert pause is not None
        assert pause["until"] == 1234567.000001

    async def test_the_rows_that_a_change_touched_are_counted_where_they_are_asked_for(self, bench: StoreBench) -> None:
        store = await bench.open()
        for name in ("a", "b", "c"):
            await store.write(noting(name))
        change = "UPDATE notebook SET value = 'x' WHERE name > ?"
        assert await store.write(lambda tx: tx.count(change, "a")) == 2
        assert await store.write(lambda tx: tx.count(change, "z")) == 0
        assert await store.write(_answer_of_execute(change, "a")) is None
        assert await store.read(lambda tx: tx.one("SELECT name FROM notebook WHERE name = 'z'")) is None
        assert await store.read(lambda tx: tx.all("SELECT name FROM notebook WHERE name = 'z'")) == []

    async def test_a_store_tells_its_size_its_spare_room_and_that_nothing_is_wrong(self, bench: StoreBench) -> None:
        store = await bench.open()
        before = await store.size()
        await store.write(noting("long", "x" * 200_000))
        await store.write(lambda tx: tx.execute("DELETE FROM notebook"))
        await store.close()
        again = await bench.open()
        assert await again.size() > before
        assert 0 <= await again.spare() < await again.size()
        assert await again.damage() == ""

    # What the schema itself protects, whatever a caller does.

    async def test_an_inbound_key_is_stored_once(self, bench: StoreBench) -> None:
        """I2."""

        def put(run: str, account: str) -> Unit[bool]:
            return lambda tx: inbox.put(tx, inbound(key="m1", account=account), run, 1.0)

        store = await bench.open()
        await self.is_protected(store, put("run_1", "main"), put("run_2", "main"), put("run_3", "second"))
        assert bench.peek("SELECT run FROM inbox ORDER BY run") == [("run_1",), ("run_3",)]

    async def test_a_run_ends_once(self, bench: StoreBench) -> None:
        """I10."""

        def entry(run: str, seq: int, kind: str) -> Unit[None]:
            insert = "INSERT INTO journal (run, seq, kind, event, at) VALUES (?, ?, ?, ?, 1)"
            return lambda tx: tx.execute(insert, run, seq, kind, b"{}")

        store = await bench.open()
        first, second = entry("run_1", 1, "ended"), entry("run_1", 2, "ended")
        await self.is_protected(store, first, second, entry("run_2", 1, "ended"))
        first, same = entry("run_3", 1, "text"), entry("run_3", 1, "text")
        await self.is_protected(store, first, same, entry("run_3", 2, "text"))

    async def test_a_run_has_one_final_delivery(self, bench: StoreBench) -> None:
        """I4."""

        def owe(id: str, run: str, kind: Class) -> Unit[None]:
            return lambda tx: outbox.put(tx, Owed(id, kind, target(), body(), run), 1.0)

        store = await bench.open()
        first, second = owe("d1", "run_1", Class.FINAL), owe("d2", "run_1", Class.FINAL)
        await self.is_protected(store, first, second, owe("d3", "run_2", Class.FINAL))
        await store.write(owe("d4", "run_1", Class.REPLY))
        await store.write(owe("d5", "run_1", Class.REPLY))

    async def test_a_conversation_has_one_live_run(self, bench: StoreBench) -> None:
        """I9."""
        store = await bench.open()
        for run, chat in (("run_1", "1"), ("run_2", "1"), ("run_3", "2")):
            await store.write(_putting(run, chat))

        def start(run: str) -> Unit[None]:
            return lambda tx: tx.execute("UPDATE inbox SET state = 'running' WHERE run = ?", run)

        await self.is_protected(store, start("run_1"), start("run_2"), start("run_3"))

    async def test_a_run_is_done_exactly_when_it_has_an_outcome(self, bench: StoreBench) -> None:
        """I3."""
        store = await bench.open()
        await store.write(_putting("run_1", "1"))
        for wrong in ("state = 'done'", "outcome = 'completed'", "state = 'done', outcome = 'superb'"):
            with pytest.raises(Clash):
                await store.write(_changing(f"UPDATE inbox SET {wrong} WHERE run = 'run_1'"))
        assert await store.write(_changing("UPDATE inbox SET state = 'done', outcome = 'failed'")) == 1

    async def is_protected(self, store: Store, first: Unit[Any], forbidden: Unit[Any], allowed: Unit[Any]) -> None:
        await store.write(first)
        with pytest.raises(Clash):
            await store.write(forbidden)
        await store.write(allowed)


def _putting(run: str, chat: str) -> Unit[bool]:
    return lambda tx: inbox.put(tx, inbound(chat=chat), run, 1.0)


def _changing(sql: str) -> Callable[[Transaction], int]:
    return lambda tx: tx.count(sql)


def _answer_of_execute(sql: str, *parameters: object) -> Unit[object]:
    def unit(tx: Transaction) -> object:
        run: Callable[..., object] = tx.execute
        return run(sql, *parameters)

    return unit

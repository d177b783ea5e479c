"""Parts that fail in ways no contract allows: they hang, cancel themselves, exit, or tell secrets."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from tests.simulators.paper.simulator import Kind
from tests.worlds.fakes import FakeClock
from tests.worlds.world import Doorway, Echo, Gate, Scripted, World, armed, handed
from tidings.core.adapter import Receive
from tidings.core.agent import FileMade, OutcomeKind
from tidings.core.errors import Rejected, ViewLost
from tidings.core.inbound import inbox
from tidings.core.outbound import doubts, outbox
from tidings.core.store.connection import connect
from tidings.core.store.sqlite import DATABASE
from tidings.core.store.store import Row, Transaction
from tidings.core.types import Part, Receipt

KEYED = Kind(keyed_for=600, streaming="none")
TOKEN = "123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw1"


class Troubled(Doorway):
    """Fails its first send in a way of its own."""

    failures = 1

    async def send(self, part: Part) -> Receipt:
        if self.failures:
            self.failures -= 1
            await self.fail(part)
        return await super().send(part)

    async def fail(self, part: Part) -> None:
        raise NotImplementedError


class CancelsItself(Troubled):
    async def fail(self, part: Part) -> None:
        raise asyncio.CancelledError


class LosesAViewItNeverHad(Troubled):
    async def fail(self, part: Part) -> None:
        raise ViewLost("no such message")


class TellsItsToken(Troubled):
    failures = 2

    async def fail(self, part: Part) -> None:
        if part.body.files:
            raise Rejected(f"POST https://platform/bot{TOKEN}/sendDocument: 400 too big")


class Hangs(Troubled):
    async def fail(self, part: Part) -> None:
        await asyncio.Event().wait()


class Deaf(Doorway):
    """Its first lifetime ends as if somebody had cancelled it."""

    lifetimes = 0

    async def listen(self, receive: Receive) -> None:
        self.lifetimes += 1
        if self.lifetimes == 1:
            raise asyncio.CancelledError
        await super().listen(receive)


async def test_a_send_that_cancels_itself_holds_up_nobody(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), kind=KEYED, adapter=CancelsItself) as world:
        world.paper.says("one")
        await world.paper.until(lambda paper: paper.posts == ["you said: one"])


async def test_a_send_that_hangs_is_in_doubt_after_a_while(tmp_path: Path) -> None:
    clock = FakeClock(patience=0.01)
    async with World(tmp_path, Echo(), kind=KEYED, adapter=Hangs, clock=clock) as world:
        world.paper.says("one")
        await clock.advance_until(lambda: world.paper.posts == ["you said: one"], limit=900, real_limit=30)


async def test_a_lost_view_that_never_was_is_no_endless_loop(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), kind=KEYED, adapter=LosesAViewItNeverHad) as world:
        world.paper.says("one")
        await world.eventually(lambda: world.rows("SELECT 1 FROM deliveries WHERE state = 'dead'"))
        assert "no such message" in (await world.gateway.desk.health()).alarms[-1].last


async def test_a_platform_that_tells_a_token_in_its_error_tells_nobody_else(tmp_path: Path) -> None:
    note = tmp_path / "note.txt"
    note.write_text("x")
    agent = Scripted("here", FileMade(str(note), "note.txt"))
    async with World(tmp_path / "home", agent, kind=KEYED, adapter=TellsItsToken) as world:
        world.paper.says("send it")
        await world.paper.until(lambda paper: any("I could not send note.txt" in post for post in paper.posts))
        assert TOKEN not in "".join(world.paper.posts)
        await world.stop()
        assert TOKEN.encode() not in (world.home / DATABASE).read_bytes()


async def test_an_adapter_whose_listening_is_cancelled_from_within_is_restarted(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), kind=KEYED, adapter=Deaf) as world:
        world.paper.says("are you there?")
        await world.paper.until(lambda paper: paper.posts == ["you said: are you there?"])
        part = next(part for part in (await world.gateway.desk.health()).parts if part.name.startswith("paper"))
        assert (part.restarts, part.last_error) == (1, "it was cancelled from within")


async def test_an_agent_that_exits_ends_its_run_and_nothing_else(tmp_path: Path) -> None:
    agent = Scripted(lambda turn: sys.exit(3) if turn.message.text == "exit" else "well")
    async with World(tmp_path, agent, kind=KEYED) as world:
        key = world.paper.says("exit")
        await world.paper.until(lambda paper: "could not finish" in "".join(paper.posts))
        assert (await world.outcome(key)).kind is OutcomeKind.FAILED
        world.paper.says("how are you?", chat="2")
        await world.paper.until(lambda paper: paper.posts_in("2") == ["well"])


async def test_whoever_watches_a_waiting_run_sees_it_cancelled(tmp_path: Path) -> None:
    gate = Gate()
    async with World(tmp_path, Scripted(gate, "done"), kind=KEYED) as world:
        world.paper.says("first")
        await gate.reached()
        waiting = await world.receive(handed("second"))
        seen = asyncio.create_task(_follow(world, waiting.run))
        await asyncio.sleep(0)
        assert await world.gateway.desk.stop(waiting.run, "me")
        async with asyncio.timeout(10):
            assert await seen == ["Ended"]
        gate.open()


async def _follow(world: World, run: str) -> list[str]:
    return [type(entry.event).__name__ async for entry in world.gateway.desk.follow(run)]


async def test_who_goes_away_while_a_message_is_stored_is_answered_all_the_same(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), kind=KEYED) as world:
        asking = asyncio.create_task(world.receive(handed("hello")))
        await asyncio.sleep(0)
        asking.cancel()
        await world.paper.until(lambda paper: paper.posts == ["you said: hello"])
        assert (await world.gateway.desk.health()).queued == 0


@pytest.mark.parametrize("label", ["run.pre_terminal", "run.post_terminal", "out.claimed", "out.ambiguous_pre_commit"])
async def test_a_fault_of_ours_leaves_no_lane_and_no_run_behind(tmp_path: Path, label: str) -> None:
    clock = FakeClock(patience=0.01)
    async with World(tmp_path, Echo(), kind=KEYED, clock=clock) as world:
        with armed(f"{label}:1:raise"):
            if label == "out.ambiguous_pre_commit":
                world.paper.drop_next(after_effect=False)
            world.paper.says("one")
            await clock.advance_until(lambda: world.paper.posts == ["you said: one"], limit=300, real_limit=30)
        world.paper.says("two")
        await clock.advance_until(lambda: world.paper.posts[-1:] == ["you said: two"], limit=300, real_limit=30)


async def test_what_is_swept_every_few_seconds_never_reads_a_whole_table(tmp_path: Path) -> None:
    """The tables only grow; a sweep that scans them would one day stop the gateway."""
    connection = connect(tmp_path / DATABASE)
    seen: list[str] = []

    class Explaining:
        def execute(self, sql: str, *values: object) -> None:
            self.count(sql, *values)

        def count(self, sql: str, *values: object) -> int:
            self._explain(sql, values)
            return connection.execute(sql, values).rowcount

        def one(self, sql: str, *values: object) -> Row | None:
            return next(iter(self.all(sql, *values)), None)

        def all(self, sql: str, *values: object) -> list[Row]:
            self._explain(sql, values)
            return connection.execute(sql, values).fetchall()

        def _explain(self, sql: str, values: tuple[object, ...]) -> None:
            plan = connection.execute(f"EXPLAIN QUERY PLAN {sql}", values).fetchall()
            seen.extend(f"{row['detail']} in: {sql}" for row in plan)

    tx: Transaction = Explaining()
    inbox.busy_conversations(tx)
    inbox.open_runs(tx)
    inbox.count_waiting(tx)
    outbox.expired(tx, 0.0)
    outbox.open_lanes(tx)
    outbox.counts(tx)
    outbox.release(tx, "paper:main%")
    doubts.open_doubts(tx)
    doubts.recover(tx)
    connection.close()
    # A subquery, whose name follows its parenthesis, is no table.
    tables = [line for line in seen if line.startswith("SCAN") and f") AS {line.split()[1]} " not in line]
    scans = [line for line in tables if "USING" not in line.split(" in: ")[0]]
    assert seen
    assert scans == []

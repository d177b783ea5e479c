"""The audit of effects: who had which tool act, stored with the announcement of the tool itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.worlds.builders import inbound
from tests.worlds.fakes import FakeClock
from tests.worlds.world import Gate, Scripted, World, armed
from tidings.core.agent import Effect, Outcome, OutcomeKind, ToolFinished, ToolStarted
from tidings.core.desk.runs import Numbered
from tidings.core.errors import Unkeepable
from tidings.core.inbound import inbox
from tidings.core.inbound.hearing import Hearing
from tidings.core.inbound.settlement import Ending, Settlement
from tidings.core.people import audit
from tidings.core.runs import journal
from tidings.core.runs.journal import Journal
from tidings.core.store.sqlite import DATABASE, open_store
from tidings.core.store.store import Transaction

SECRET = '{"sum": 5, "to": "Eve"}'


def pay(call: str = "c1", effect: Effect = Effect.EFFECT) -> ToolStarted:
    return ToolStarted(call, "pay", SECRET, effect)


def entries(world: World) -> list[tuple[str, ...]]:
    rows = world.rows("SELECT actor, action, object, detail FROM audit WHERE action = 'tool' ORDER BY seq")
    return [tuple(row) for row in rows]


async def said(world: World, text: str = "go", **place: Any) -> str:
    """The run of a message, once it is answered."""
    key = world.paper.says(text, **place)
    await world.paper.until(lambda paper: key in paper.confirmed)
    await world.settled()
    return str(world.run(key)["run"])


async def test_an_effect_is_audited_with_ids_and_no_words(tmp_path: Path) -> None:
    async with World(tmp_path, Scripted(pay(), ToolFinished("c1", "paid to Eve"), "done")) as world:
        run = await said(world)
        assert entries(world) == [("paper:7", "tool", "pay", run)]
        (line,) = await world.gateway.desk.people.audit(10)
        assert (line.actor, line.action, line.object, line.detail) == ("paper:7", "tool", "pay", run)
        assert "Eve" not in str([tuple(row) for row in world.rows("SELECT * FROM audit")])


async def test_each_effect_has_an_entry_of_its_own(tmp_path: Path) -> None:
    script = (pay("c1"), ToolFinished("c1", "ok"), pay("c2"), ToolFinished("c2", "ok"), "done")
    async with World(tmp_path, Scripted(*script)) as world:
        run = await said(world)
        assert entries(world) == [("paper:7", "tool", "pay", run)] * 2


@pytest.mark.parametrize("effect", [Effect.PURE, Effect.IDEMPOTENT])
async def test_what_changes_nothing_is_not_audited(tmp_path: Path, effect: Effect) -> None:
    async with World(tmp_path, Scripted(pay(effect=effect), ToolFinished("c1", "ok"), "done")) as world:
        await said(world)
        assert entries(world) == []


async def test_each_person_of_a_group_has_their_own_entries(tmp_path: Path) -> None:
    async with World(
        tmp_path, Scripted(pay(), ToolFinished("c1", "ok"), "done"), allow=["paper:7", "paper:8"]
    ) as world:
        for sender in ("7", "8"):
            await said(world, chat="5", sender=sender, private=False)
        assert [entry[0] for entry in entries(world)] == ["paper:7", "paper:8"]


async def test_an_effect_is_known_before_it_happens_and_once_after_a_crash(tmp_path: Path) -> None:
    gate = Gate()
    async with World(tmp_path, Scripted(pay(), gate, ToolFinished("c1", "ok"), "done")) as world:
        key = world.paper.says("go")
        await gate.reached()
        await world.crash()
        assert entries(world) == [("paper:7", "tool", "pay", world.run(key)["run"])]
        await world.start()
        assert "pay was at work" in (await world.outcome(key)).reason
        await world.settled()
        assert len(entries(world)) == 1


async def test_an_effect_that_was_not_announced_has_no_entry(tmp_path: Path) -> None:
    with armed("tool.pre_start:1:raise"):
        async with World(tmp_path, Scripted(pay(), ToolFinished("c1", "ok"), "done")) as world:
            await said(world)
            assert entries(world) == []


def audited(tx: Transaction) -> list[tuple[str, ...]]:
    return [(line.actor, line.action, line.object, line.detail) for line in audit.read(tx, 10)]


async def test_event_and_entry_are_one_transaction(tmp_path: Path) -> None:
    store, entry = await open_store(tmp_path / DATABASE), Numbered(1, pay(), 0.0)

    def undone(tx: Transaction) -> None:
        journal.write(tx, "run_1", [entry], "psn_1")
        raise Unkeepable("no")

    with pytest.raises(Unkeepable):
        await store.write(undone)
    assert await store.read(lambda tx: (journal.last(tx, "run_1"), audited(tx))) == (0, [])
    await store.write(lambda tx: journal.write(tx, "run_1", [entry], "psn_1"))
    expected = [("psn_1", "tool", "pay", "run_1")]
    assert await store.read(lambda tx: (journal.last(tx, "run_1"), audited(tx))) == (1, expected)
    await store.close()


async def test_what_the_journal_had_not_stored_is_audited_with_the_end_of_the_run(tmp_path: Path) -> None:
    """A run that is stopped at once: its last announcement is stored by the settlement, and once."""
    store, clock, message = await open_store(tmp_path / DATABASE), FakeClock(), inbound("go")
    await store.write(lambda tx: inbox.put_unclaimed(tx, message, "run_1", 0.0))
    claimed = await store.write(lambda tx: inbox.claim(tx, message.conversation.id, 0.0, lambda first, other: False))
    assert claimed is not None
    hearing = Hearing(store, clock, claimed, lambda first, other: False)
    writer = Journal(store, clock, hearing, "run_1", person="psn_1", fence=claimed.fence, last=0)
    writer.add(pay())
    pending = await writer.close()
    assert pending == [pay()]
    assert await store.read(audited) == []
    stopped = Outcome(OutcomeKind.CANCELLED, "stopped", "")
    ending = Ending(claimed, stopped, False, pending, writer.last, writer.person)
    await store.write(lambda tx: Settlement(clock, lambda target: None, {}).settle(tx, ending))
    assert await store.read(audited) == [("psn_1", "tool", "pay", "run_1")]
    await store.close()

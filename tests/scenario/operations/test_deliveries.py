"""What an owner does about deliveries in trouble: looks at them, has them tried again, drops them."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.simulators.paper.simulator import Kind
from tests.worlds.builders import body, target
from tests.worlds.world import KEYED, Echo, OwnedClock, World
from tidings.adapters.local.socket import LocalServer
from tidings.adapters.local.verbs import routes_for
from tidings.core.errors import Clash, Conflict, TidingsError, Unknown
from tidings.core.operations import offline
from tidings.core.outbound import repair
from tidings.core.outbound.outbox import EXPIRES_SECONDS, MARK
from tidings.core.settings import Retention
from tidings.core.store.sqlite import DATABASE

ROOT = Path(__file__).resolve().parents[3]
EDITS, MUTE = Kind(), Kind(streaming="none")


@pytest.fixture
def kind() -> Kind:
    return KEYED


@pytest.fixture
async def world(tmp_path: Path, clock: OwnedClock, kind: Kind) -> AsyncIterator[World]:
    async with World(tmp_path, Echo(), kind=kind, clock=clock, settings={"call_seconds": 0.15}) as world:
        yield world


async def owe(world: World, text: str = "hello") -> str:
    return await world.gateway.desk.owe(target(), body(text), "test")


def is_state(world: World, id: str, expected: str) -> Callable[[], bool]:
    return lambda: world.rows("SELECT state FROM deliveries WHERE id = ?", id)[0]["state"] == expected


async def dead(world: World) -> str:
    """A chat that has blocked us takes nothing."""
    world.paper.block("1")
    id = await owe(world)
    await world.until(is_state(world, id, "dead"))
    world.paper.block("1", on=False)
    return id


async def listed(world: World, *, waiting: bool = False) -> list[tuple[str, str]]:
    found = await world.gateway.desk.upkeep.deliveries(waiting=waiting, limit=10)
    return [(each.id, each.state) for each in found]


async def test_what_is_in_trouble_is_listed_with_its_reason_and_its_beginning(world: World) -> None:
    id = await dead(world)
    (line,) = await world.gateway.desk.upkeep.deliveries(waiting=False, limit=10)
    assert (line.id, line.state, line.target, line.title, line.cause) == (id, "dead", "paper:1", "hello", "test")
    assert "blocked" in line.reason


async def test_a_list_has_pages_and_names_what_only_waits_when_asked(world: World) -> None:
    await world.paper.outage(True)
    ids = [await owe(world, f"{number}") for number in range(5)]
    assert await listed(world) == []
    first = await world.gateway.desk.upkeep.deliveries(waiting=True, limit=3)
    rest = await world.gateway.desk.upkeep.deliveries(waiting=True, limit=3, before=first[-1].seq)
    assert [line.id for line in (*first, *rest)] == ids[::-1]
    await world.paper.outage(False)


async def test_what_was_refused_is_sent_as_it_was_once_the_owner_has_mended_it(world: World) -> None:
    id = await dead(world)
    assert await world.gateway.desk.upkeep.retry(id) == "is tried again now"
    await world.until(is_state(world, id, "delivered"))
    assert world.posts == ["hello"]
    assert await listed(world) == []
    world.paper.says("hi")
    await world.until(lambda: len(world.posts) == 2)
    assert world.posts[1] == "you said: hi", "the chat is not told of a loss that was none"


async def test_a_retry_has_as_much_time_as_what_is_new(world: World, clock: OwnedClock) -> None:
    id = await dead(world)
    await world.end()
    await clock.advance(EXPIRES_SECONDS + 3600)
    await world.start()
    await world.paper.outage(True)
    await world.gateway.desk.upkeep.retry(id)
    await clock.advance(60)
    assert is_state(world, id, "waiting")()
    await world.paper.outage(False)
    await world.until(is_state(world, id, "delivered"))
    assert world.posts == ["hello"]


@pytest.mark.parametrize(("kind", "lost"), [(EDITS, 6), (MUTE, 2)], ids=["edits", "none"])
@pytest.mark.parametrize("arrived", [True, False], ids=["arrived", "not arrived"])
async def test_what_may_have_arrived_is_sent_again_under_another_key_and_says_so(
    world: World, lost: int, arrived: bool
) -> None:
    world.paper.drop_next(after_effect=arrived, method="post", count=lost)
    id = await owe(world)
    await world.until(is_state(world, id, "dead"))
    assert "may have arrived" in await world.gateway.desk.upkeep.retry(id)
    await world.until(is_state(world, id, "delivered"))
    final = [message.text for message in world.paper.visible() if message.text == f"{MARK}hello"]
    # On a platform that cannot edit, the second copy may stand there, too.
    assert len(final) == (2 if arrived and lost == 2 else 1)


@pytest.mark.parametrize("kind", [Kind(readback=True)])
async def test_a_doubt_that_nobody_can_settle_now_is_sent_again_if_the_owner_says_so(world: World) -> None:
    world.paper.drop_next(after_effect=False, method="post")
    world.paper.fail_next(503, method="find", count=1000)
    id = await owe(world)
    await world.until(is_state(world, id, "doubtful"))
    assert await listed(world) == [(id, "doubtful")]
    await world.gateway.desk.upkeep.retry(id)
    await world.until(is_state(world, id, "delivered"))
    assert world.posts[-1] == f"{MARK}hello" or world.paper.visible()[-1].text == f"{MARK}hello"


@pytest.mark.parametrize("kind", [Kind(readback=True, streaming="none")])
async def test_who_asked_about_the_first_copy_decides_nothing_about_the_second(world: World, clock: OwnedClock) -> None:
    """The owner has it sent again while the platform is being asked, and the second copy comes into doubt, too."""
    world.paper.drop_next(after_effect=True, method="post")
    gate = world.paper.hold_next("history")
    id = await owe(world)
    await world.until(lambda: world.paper.calls("history"))
    world.paper.drop_next(after_effect=False, method="post")
    # As by upkeep, which would also end whoever asks.
    await world.gateway._store.write(lambda tx: repair.retry(tx, id, clock.now(), edits=False))
    world.gateway._parts.courier.wake(target().lane)
    await world.until(lambda: len(world.paper.calls("post")) == 2 and is_state(world, id, "doubtful")(), limit=0.0)
    gate.set()
    await world.until(is_state(world, id, "delivered"))
    assert world.posts == ["hello", f"{MARK}hello"]
    (part,) = world.rows("SELECT receipt FROM parts WHERE delivery = ?", id)
    assert world.paper.sent[1].id in part["receipt"].decode(), "the receipt is the second copy's"


@pytest.mark.parametrize("kind", [Kind(readback=True)])
async def test_nobody_asks_any_more_about_what_was_dropped(world: World, clock: OwnedClock) -> None:
    world.paper.drop_next(after_effect=False, method="post")
    world.paper.fail_next(503, method="history", count=1000)
    id = await owe(world)
    await world.until(lambda: world.paper.calls("history"))
    await world.gateway.desk.upkeep.drop(id)
    asked = len(world.paper.calls("history"))
    await clock.advance(3600.0)
    assert (len(world.paper.calls("history")), world.posts) == (asked, [])
    assert is_state(world, id, "dead")()


async def test_what_is_held_goes_on_after_a_retry(world: World) -> None:
    world.paper.fail_next(401, method="post")
    id = await owe(world)
    await world.until(is_state(world, id, "held"))
    assert await listed(world) == [(id, "held")]
    await world.gateway.desk.upkeep.retry(id)
    await world.until(is_state(world, id, "delivered"))
    assert world.posts == ["hello"]


async def test_what_was_dropped_is_neither_sent_nor_told_nor_counted(world: World) -> None:
    id = await dead(world)
    assert (await world.gateway.desk.health()).deliveries == {"dead": 1}
    await world.gateway.desk.upkeep.drop(id)
    assert (await world.gateway.desk.health()).deliveries == {}
    assert await listed(world) == []
    world.paper.says("hi")
    await world.until(lambda: world.posts)
    assert world.posts == ["you said: hi"]


async def test_what_waits_can_be_dropped_and_what_is_behind_it_goes_on(world: World) -> None:
    await world.paper.outage(True)
    first, second = await owe(world, "first"), await owe(world, "second")
    await world.until(lambda: world.rows("SELECT 1 FROM parts WHERE misses > 0 AND state = 'waiting'"), limit=0.0)
    await world.gateway.desk.upkeep.drop(first)
    await world.paper.outage(False)
    await world.until(is_state(world, second, "delivered"))
    assert world.posts == ["second"]
    assert (await world.gateway.desk.delivery(first)).reason == "dropped by the owner"


async def test_what_has_arrived_or_is_on_its_way_is_left_alone(world: World) -> None:
    gone = await owe(world)
    await world.until(is_state(world, gone, "delivered"))
    gate = world.paper.hold_next("post")
    sending = await owe(world, "slow")
    await world.paper.until(lambda paper: len(paper.calls("post")) == 2)
    for verb in (world.gateway.desk.upkeep.retry, world.gateway.desk.upkeep.drop):
        with pytest.raises(Conflict, match="already arrived"):
            await verb(gone)
        with pytest.raises(Conflict, match="being sent"):
            await verb(sending)
        with pytest.raises(Unknown, match="no delivery"):
            await verb("dlv_nothing")
    gate.set()
    await world.until(is_state(world, sending, "delivered"))


async def test_without_a_gateway_the_store_itself_is_asked_and_the_next_start_sends(world: World) -> None:
    id = await dead(world)
    other = await dead(world)
    await world.end()
    assert [line.id for line in offline.deliveries(world.home, waiting=False, limit=10)] == [other, id]
    assert offline.retry(world.home, id) == "is tried again now"
    offline.drop(world.home, other)
    await world.start()
    await world.until(is_state(world, id, "delivered"))
    assert world.posts == ["hello"]


@pytest.mark.parametrize("verb", [offline.retry, offline.drop])
@pytest.mark.parametrize("kind", [Kind(readback=True)])
async def test_without_a_gateway_it_is_done_whole_or_not_at_all(
    world: World, verb: Callable[[Path, str], object]
) -> None:
    world.paper.drop_next(after_effect=False, method="post")
    world.paper.fail_next(503, method="history", count=1000)
    id = await owe(world)
    await world.until(is_state(world, id, "doubtful"))
    await world.end()
    with closing(sqlite3.connect(world.home / DATABASE)) as connection, connection:
        connection.execute(
            "CREATE TRIGGER full BEFORE UPDATE OF created, dismissed ON deliveries"
            " BEGIN SELECT RAISE(ABORT, 'the disk is full'); END"
        )
    stored = "SELECT d.state, d.reason, p.* FROM deliveries d JOIN parts p ON p.delivery = d.id"
    before = [tuple(row) for row in world.rows(stored)]
    with pytest.raises(Clash, match="disk is full"):
        verb(world.home, id)
    assert [tuple(row) for row in world.rows(stored)] == before
    with closing(sqlite3.connect(world.home / DATABASE)) as connection, connection:
        connection.execute("DROP TRIGGER full")
    await world.start()


def test_whoever_looks_at_an_empty_home_makes_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    looks: tuple[Callable[[], object], ...] = (
        lambda: offline.deliveries(home, waiting=True, limit=10),
        lambda: offline.retry(home, "dlv_1"),
        lambda: offline.drop(home, "dlv_1"),
        lambda: offline.prune(home, Retention(), None, rehearsal=True),
    )
    for look in looks:
        with pytest.raises(TidingsError, match="nothing is stored"):
            look()
    assert not home.exists()


async def test_the_command_line_lists_retries_and_drops(world: World) -> None:
    first, second = await dead(world), await dead(world)

    async def tidings(*words: str) -> subprocess.CompletedProcess[str]:
        surroundings = {**os.environ, "TIDINGS_HOME": str(world.home)}
        command = [sys.executable, "-m", "tidings.bots.main", "deliveries", *words]
        return await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, cwd=ROOT, env=surroundings, timeout=60
        )

    async with LocalServer() as server:
        with server.routes(routes_for(world.gateway.desk)):
            async with server.serving(world.home):
                shown = await tidings()
                assert [first in shown.stdout, second in shown.stdout] == [True, True]
                assert "“hello”" in shown.stdout
                assert "tidings deliveries retry ID" in shown.stderr
                assert (await tidings("retry", first)).stdout == f"{first} is tried again now\n"
                dropped = await tidings("drop", second)
                assert dropped.stdout == f"{second} is dropped; its chat hears no more about it\n"
                await world.until(is_state(world, first, "delivered"))
                assert json.loads((await tidings("list", "--json")).stdout) == []
                again = await tidings("retry", first)
                assert (again.returncode, again.stderr) == (1, f"tidings: {first} has already arrived\n")

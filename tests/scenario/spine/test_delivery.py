"""A delivery that fails in each way ends as it must on every kind of proof, told against the ground truth."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from tests.simulators.paper.simulator import Kind, PaperServer
from tests.worlds.builders import body, target
from tests.worlds.world import KEYED, PROOFS, Doorway, Echo, Gate, OwnedClock, Scripted, World
from tidings.core.adapter import Taken
from tidings.core.agent import FileMade
from tidings.core.desk.health import Alarm
from tidings.core.errors import Unknown, Unsupported
from tidings.core.gateway.gateway import SWEEP_SECONDS
from tidings.core.inbound.door import MAY_BE_LOST
from tidings.core.outbound.outbox import EXPIRES_SECONDS, MARK
from tidings.core.outbound.resolver import ANCHORS
from tidings.core.outbound.resolver import CALL_SECONDS as CALL_SECONDS_OF_ADAPTERS
from tidings.core.store.sqlite import DATABASE
from tidings.core.types import Absent, Body, Choice, File, Pace, Part, Receipt, Target, Unreadable, encode
from tidings.core.work.tasks.tasks import TaskKind

READBACK, NEITHER = Kind(readback=True), Kind()
MUTE = Kind(streaming="none")
# A call that hangs is given up after so long, in real time.
CALL_SECONDS = 0.15

each_proof = pytest.mark.parametrize("kind", [pytest.param(kind, id=name) for name, kind in PROOFS.items()])
proved = pytest.mark.parametrize(
    "kind", [pytest.param(kind, id=name) for name, kind in PROOFS.items() if "neither" not in name]
)


@pytest.fixture
def kind() -> Kind:
    return KEYED


@pytest.fixture
async def world(tmp_path: Path, clock: OwnedClock, kind: Kind) -> AsyncIterator[World]:
    async with World(tmp_path, Echo(), kind=kind, clock=clock, settings={"call_seconds": CALL_SECONDS}) as world:
        world.paper.open_chat("2")
        yield world


async def owe(world: World, text: str = "hello", *, to: Target | None = None) -> str:
    return await world.gateway.desk.owe(to or target(), body(text), "test")


async def heard(world: World, text: str, *, chat: str) -> str:
    """Says it and waits for the answer; returns the key."""
    key = world.paper.says(text, chat=chat, private=False)
    await world.until(lambda: world.paper.posts_in(chat)[-1:] == [f"you said: {text}"])
    return key


def state(world: World, id: str) -> str:
    return str(world.rows("SELECT state FROM deliveries WHERE id = ?", id)[0]["state"])


def is_state(world: World, id: str, expected: str) -> Callable[[], bool]:
    return lambda: state(world, id) == expected


def attempts(world: World, id: str) -> int:
    """Attempts of its one part that count."""
    (part,) = world.rows("SELECT attempts FROM parts WHERE delivery = ?", id)
    return int(part["attempts"])


async def alarm(world: World, name: str) -> Alarm | None:
    return next((each for each in (await world.gateway.desk.health()).alarms if each.name == name), None)


def call_times(paper: PaperServer, chat: str = "1") -> list[float]:
    return [call.at for call in paper.calls() if call.ask.chat == chat]


# The platform asks us to wait.


@each_proof
async def test_a_rate_limited_answer_waits_as_long_as_told_and_arrives_once(world: World, clock: OwnedClock) -> None:
    world.paper.fail_next(429, retry_after=30.0, method="post")
    id = await owe(world)
    await world.paper.until(lambda paper: paper.calls("post"))
    await clock.advance(29.9)
    assert len(world.paper.calls()) == 1
    await world.until(is_state(world, id, "delivered"))
    first, second = call_times(world.paper)
    assert second - first >= 30.0
    assert world.posts == ["hello"]
    assert attempts(world, id) == 1, "what the platform turned away costs nothing"


async def test_nothing_goes_to_a_chat_that_asked_us_to_wait_while_other_chats_go_on(
    world: World, clock: OwnedClock
) -> None:
    world.paper.open_chat("1", "aside")
    world.paper.fail_next(429, retry_after=30.0, method="post")
    ids = [await owe(world, "first")]
    await world.until(lambda: world.rows("SELECT 1 FROM pauses"))
    ids.append(await owe(world, "second"))
    ids.append(await owe(world, "in a thread of the same chat", to=target(thread="aside")))
    await owe(world, "elsewhere", to=target("2"))
    await world.paper.until(lambda paper: paper.posts_in("2") == ["elsewhere"])
    await clock.advance(29.0)
    assert len(call_times(world.paper, "1")) == 1
    await world.until(lambda: all(state(world, id) == "delivered" for id in ids))
    assert world.paper.posts_in("1", "") == ["first", "second"]
    assert world.paper.posts_in("1", "aside") == ["in a thread of the same chat"]


@pytest.mark.parametrize("kind", [Kind(keyed_for=3600.0, pace=(Pace(key="account", seconds=0.001, burst=1000),))])
async def test_a_limit_on_the_whole_account_stops_every_chat(world: World, clock: OwnedClock) -> None:
    for chat in ("3", "4", "5"):
        world.paper.open_chat(chat)
    world.paper.limit_rate(None, 60.0, 1)
    ids = [await owe(world, f"to {chat}", to=target(chat)) for chat in ("1", "2")]
    await world.until(lambda: world.rows("SELECT 1 FROM pauses"))
    began = clock.now()
    refused = len(world.paper.calls("post"))
    ids += [await owe(world, f"to {chat}", to=target(chat)) for chat in ("3", "4", "5")]
    await clock.advance(59.0)
    assert clock.now() - began < 60.0
    assert len(world.paper.calls("post")) == refused
    await world.until(lambda: all(state(world, id) == "delivered" for id in ids))
    assert sorted(world.posts) == [f"to {chat}" for chat in "12345"]


@each_proof
async def test_a_rate_limit_survives_a_restart_for_everything_that_goes_there(world: World, clock: OwnedClock) -> None:
    world.paper.fail_next(429, retry_after=300.0, method="post")
    id = await owe(world, "first")
    await world.until(lambda: world.rows("SELECT 1 FROM pauses"))
    await clock.advance(10.0)
    await world.crash()
    await world.start()
    later = await owe(world, "second")
    await clock.advance(289.0)
    assert len(world.paper.calls("post")) == 1
    await world.until(lambda: state(world, id) == state(world, later) == "delivered")
    assert world.posts == ["first", "second"]
    first, second, _ = call_times(world.paper)
    assert second - first >= 300.0


@each_proof
async def test_a_rate_limit_without_a_time_is_met_with_growing_pauses(world: World) -> None:
    world.paper.fail_next(429, method="post", count=4)
    id = await owe(world)
    await world.until(is_state(world, id, "delivered"))
    times = call_times(world.paper)
    assert [round(later - earlier) for earlier, later in zip(times, times[1:], strict=False)] == [1, 2, 4, 8]
    assert (world.posts, attempts(world, id)) == (["hello"], 1)


async def test_only_the_part_waits_where_no_budget_is_declared(tmp_path: Path, clock: OwnedClock) -> None:
    async with World(tmp_path, Echo(), kind=Kind(keyed_for=3600.0, pace=()), clock=clock) as world:
        world.paper.fail_next(429, retry_after=30.0, method="post")
        id = await owe(world)
        await world.paper.until(lambda paper: paper.calls("post"))
        await clock.advance(29.0)
        assert len(world.paper.calls("post")) == 1
        await world.until(is_state(world, id, "delivered"))
        assert world.posts == ["hello"]


# The platform cannot be reached.


@each_proof
async def test_what_is_owed_in_an_outage_goes_out_in_order_when_it_is_over(world: World, clock: OwnedClock) -> None:
    await world.paper.outage(True)
    ids = [await owe(world, text) for text in ("one", "two", "three")]
    await clock.advance(100.0)
    (head,) = world.rows("SELECT attempts, misses FROM parts")
    assert head["attempts"] == 0, "nobody heard us, so no attempt is spent"
    assert head["misses"] > 2
    assert {state(world, id) for id in ids} == {"waiting"}
    await world.paper.outage(False)
    await world.until(lambda: all(state(world, id) == "delivered" for id in ids))
    assert world.posts == ["one", "two", "three"]


async def test_what_waited_for_the_platform_goes_as_soon_as_it_is_known_to_be_back(
    world: World, clock: OwnedClock
) -> None:
    """The back-off of a send has grown to a minute by then, but a new connection is news."""
    world.paper.fail_next(503, method="post", count=7)
    id = await owe(world)
    await world.until(lambda: len(world.paper.calls("post")) == 7)
    (part,) = world.rows("SELECT not_before FROM parts")
    assert part["not_before"] - clock.now() == 60.0
    await world.gateway._reported.reachable("paper", "main")
    await world.until(is_state(world, id, "delivered"), limit=0.0)
    assert world.posts == ["hello"]


async def test_a_platform_that_says_it_is_down_is_tried_again_later(world: World) -> None:
    world.paper.fail_next(503, method="post", count=3)
    id = await owe(world)
    await world.until(is_state(world, id, "delivered"))
    assert (world.posts, attempts(world, id)) == (["hello"], 1)


# The platform says no.


@each_proof
async def test_what_is_rejected_is_dead_with_its_reason_and_the_next_contact_begins_with_it(world: World) -> None:
    world.paper.block("1")
    id = await owe(world)
    await world.until(is_state(world, id, "dead"))
    assert (await world.gateway.desk.delivery(id)).reason == "the bot was blocked"
    rung = await alarm(world, "dead")
    assert rung is not None
    assert id in rung.last
    assert (await world.gateway.desk.health()).deliveries == {"dead": 1}
    world.paper.block("1", on=False)
    assert len(world.paper.calls("post")) == 1, "never again"
    world.paper.says("are you there?")
    await world.paper.until(lambda paper: len(paper.posts) == 2)
    assert world.posts == [MAY_BE_LOST, "you said: are you there?"]
    world.paper.says("and now?")
    await world.paper.until(lambda paper: len(paper.posts) == 3)
    assert world.posts[2:] == ["you said: and now?"]


async def test_a_loss_is_told_in_the_chat_where_it_happened_and_nowhere_else(world: World) -> None:
    world.paper.block("2")
    id = await owe(world, to=target("2"))
    await world.until(is_state(world, id, "dead"))
    world.paper.block("2", on=False)
    world.paper.says("hi")
    await world.paper.until(lambda paper: paper.posts_in("1") == ["you said: hi"])
    world.paper.says("hi", chat="2")
    await world.paper.until(lambda paper: paper.posts_in("2") == [MAY_BE_LOST, "you said: hi"])


async def test_an_answer_whose_thread_was_deleted_dies_and_never_appears_beside_it(
    tmp_path: Path, clock: OwnedClock
) -> None:
    gate = Gate()
    async with World(tmp_path, Scripted(gate, "a secret"), kind=MUTE, clock=clock) as world:
        world.paper.says("hi", thread="t", private=False)
        await gate.reached()
        world.paper.delete_thread("1", "t")
        gate.open()
        await world.until(lambda: world.rows("SELECT 1 FROM deliveries WHERE state = 'dead'"))
        (final,) = world.rows("SELECT reason FROM deliveries")
        assert "thread" in final["reason"]
        assert world.posts == []
        assert {call.ask.thread for call in world.paper.calls("post")} == {"t"}
        assert await alarm(world, "dead") is not None


async def test_a_delivery_has_arrived_only_with_an_id_of_the_platform(world: World) -> None:
    id = await owe(world)
    await world.until(is_state(world, id, "delivered"))
    delivery = await world.gateway.desk.delivery(id)
    assert [receipt.ids for receipt in delivery.receipts] == [(world.paper.sent[0].id,)]
    lost = await owe(world, to=target("no such chat"))
    await world.until(is_state(world, lost, "dead"))
    delivery = await world.gateway.desk.delivery(lost)
    assert (delivery.receipts, delivery.reason) == ((), "chat not found")


# The owner must mend something first.


@each_proof
async def test_a_refused_token_holds_what_is_owed_until_the_next_start(world: World) -> None:
    world.paper.fail_next(401, method="post")
    id = await owe(world)
    await world.until(is_state(world, id, "held"))
    assert attempts(world, id) == 0
    rung = await alarm(world, "held")
    assert rung is not None
    assert id in rung.last
    await world.crash()
    await world.start()
    await world.until(is_state(world, id, "delivered"))
    assert (world.posts, attempts(world, id)) == (["hello"], 1)


async def test_a_revoked_token_loses_nothing(world: World, clock: OwnedClock) -> None:
    world.settings["token"] = world.paper.token
    world.paper.revoke("new")
    ids = [await owe(world, text) for text in ("one", "two")]
    await world.until(lambda: all(state(world, id) == "held" for id in ids))
    await world.crash()
    await world.start(attached=False)
    assert world.posts == []
    await world.until(lambda: all(state(world, id) == "held" for id in ids))
    await world.crash()
    world.settings["token"] = "new"
    await clock.advance(2 * EXPIRES_SECONDS)
    await world.start()
    await world.until(lambda: all(state(world, id) == "delivered" for id in ids))
    assert world.posts == ["one", "two"]


async def test_what_is_owed_to_an_adapter_that_is_not_configured_waits_for_it(world: World) -> None:
    await world.paper.outage(True)
    ids = [await owe(world, text) for text in ("one", "two")]
    await world.until(lambda: world.rows("SELECT 1 FROM parts WHERE misses > 0"))
    await world.crash()
    world.absent = {"paper"}
    await world.start()
    await world.until(lambda: all(state(world, id) == "held" for id in ids))
    rung = await alarm(world, "held")
    assert rung is not None
    assert "paper@main" in rung.last
    assert {row["attempts"] for row in world.rows("SELECT attempts FROM parts")} == {0}
    await world.crash()
    world.absent = set()
    await world.paper.outage(False)
    await world.start()
    await world.until(lambda: all(state(world, id) == "delivered" for id in ids))
    assert world.posts == ["one", "two"]


# Nobody knows whether it arrived.

FAULTS: dict[str, tuple[bool, Callable[[PaperServer], None]]] = {
    "lost before": (False, lambda paper: paper.drop_next(after_effect=False, method="post")),
    "lost after": (True, lambda paper: paper.drop_next(after_effect=True, method="post")),
    "hangs before": (False, lambda paper: paper.hang_next(after_effect=False, method="post")),
    "hangs after": (True, lambda paper: paper.hang_next(after_effect=True, method="post")),
    "half an answer": (True, lambda paper: paper.garble_next(method="post")),
    "an error of the server": (False, lambda paper: paper.fail_next(500, method="post")),
}
each_fault = pytest.mark.parametrize("fault", FAULTS)


@proved
@each_fault
async def test_a_doubt_that_can_be_settled_ends_in_exactly_one_copy(world: World, fault: str) -> None:
    _, happen = FAULTS[fault]
    happen(world.paper)
    id = await owe(world)
    await world.until(is_state(world, id, "delivered"))
    assert world.posts == ["hello"]


@pytest.mark.parametrize("kind", [NEITHER])
@each_fault
async def test_a_doubt_that_nobody_can_settle_is_repeated_once_and_marked_by_edit(world: World, fault: str) -> None:
    arrived, happen = FAULTS[fault]
    happen(world.paper)
    id = await owe(world)
    await world.until(is_state(world, id, "delivered"))
    assert world.posts == [*(["hello"] if arrived else []), f"{MARK}hello"]
    assert [call.ask.text for call in world.paper.calls("post")] == ["hello", "…"]
    assert [call.ask.text for call in world.paper.calls("edit")] == [f"{MARK}hello"]


@pytest.mark.parametrize("kind", [MUTE])
@each_fault
async def test_where_nothing_can_be_edited_the_marked_copy_is_a_message(world: World, fault: str) -> None:
    arrived, happen = FAULTS[fault]
    happen(world.paper)
    id = await owe(world)
    await world.until(is_state(world, id, "delivered"))
    assert world.posts == [*(["hello"] if arrived else []), f"{MARK}hello"]
    assert len({call.ask.key for call in world.paper.calls("post")}) == 2, "another body has another key"


@pytest.mark.parametrize("kind", [NEITHER])
async def test_a_marked_copy_may_be_finished_again_and_again_until_it_stands(world: World) -> None:
    world.paper.drop_next(after_effect=True, method="post")
    world.paper.drop_next(after_effect=False, method="edit", count=3)
    world.paper.drop_next(after_effect=True, method="edit", count=3)
    id = await owe(world)
    await world.until(is_state(world, id, "delivered"))
    assert world.posts == ["hello", f"{MARK}hello"]


@pytest.mark.parametrize("kind", [NEITHER])
async def test_a_lost_anchor_leaves_at_most_an_ellipsis_and_another_is_sent(world: World) -> None:
    world.paper.drop_next(after_effect=True, method="post", count=2)
    id = await owe(world)
    await world.until(is_state(world, id, "delivered"))
    assert world.posts == ["hello", "…", f"{MARK}hello"]


@pytest.mark.parametrize("kind", [NEITHER])
async def test_when_no_anchor_gets_through_the_answer_counts_as_unconfirmed(world: World) -> None:
    world.paper.drop_next(after_effect=False, method="post", count=1 + ANCHORS)
    id = await owe(world)
    await world.until(is_state(world, id, "dead"))
    assert len(world.paper.calls("post")) == 1 + ANCHORS
    await assert_unconfirmed(world, id)


@pytest.mark.parametrize("kind", [MUTE])
@pytest.mark.parametrize("arrived", [True, False])
async def test_two_lost_in_a_row_are_unconfirmed_and_the_next_contact_says_so(world: World, arrived: bool) -> None:
    world.paper.drop_next(after_effect=arrived, method="post", count=2)
    id = await owe(world)
    await world.until(is_state(world, id, "dead"))
    assert world.posts == (["hello", f"{MARK}hello"] if arrived else [])
    await assert_unconfirmed(world, id)


async def assert_unconfirmed(world: World, id: str) -> None:
    """Dead, alarmed, told at the next contact, and nothing more is sent."""
    assert (await world.gateway.desk.delivery(id)).reason.startswith("unconfirmed")
    rung = await alarm(world, "unconfirmed")
    assert rung is not None
    assert id in rung.last
    before = world.posts
    world.paper.says("are you there?")
    await world.paper.until(lambda paper: len(paper.posts) == len(before) + 2)
    assert world.posts == [*before, MAY_BE_LOST, "you said: are you there?"]


@pytest.mark.parametrize("kind", [NEITHER, MUTE, KEYED, READBACK])
async def test_a_doubt_does_not_hold_back_what_is_owed_later(world: World, clock: OwnedClock) -> None:
    await clock.advance(1.0)
    world.paper.drop_next(after_effect=False, method="post")
    ids = [await owe(world, "first")]
    await world.paper.until(lambda paper: paper.calls("post"))
    ids.append(await owe(world, "second"))
    if world.paper.kind != KEYED:
        await world.paper.until(lambda paper: paper.posts == ["second"])
        assert state(world, ids[0]) == "doubtful"
    await world.until(lambda: all(state(world, id) == "delivered" for id in ids))
    assert sorted(text.removeprefix(MARK) for text in world.posts) == ["first", "second"]


@pytest.mark.parametrize("kind", [READBACK])
@pytest.mark.parametrize("arrived", [True, False])
async def test_a_doubt_that_falls_into_an_outage_is_settled_when_the_platform_can_be_asked(
    world: World, clock: OwnedClock, arrived: bool
) -> None:
    """The connection that loses an answer is seldom back within seconds."""
    world.paper.drop_next(after_effect=arrived, method="post")
    id = await owe(world)
    await world.paper.until(lambda paper: paper.calls("post"))
    await world.until(is_state(world, id, "doubtful"), limit=0.0)
    await world.paper.outage(True)
    await clock.advance(120.0)
    await world.paper.outage(False)
    await world.until(is_state(world, id, "delivered"))
    assert world.posts == ["hello"]


@pytest.mark.parametrize("kind", [READBACK])
async def test_a_message_that_is_readable_a_little_late_is_not_sent_again(world: World) -> None:
    world.paper.drop_next(after_effect=True, method="post")
    world.paper.fail_next(429, retry_after=40.0, method="history")
    world.paper.fail_next(503, method="history", count=2)
    id = await owe(world)
    await world.until(is_state(world, id, "delivered"))
    assert world.posts == ["hello"]


@pytest.mark.parametrize("kind", [Kind(readback=True, streaming="none")])
async def test_where_reading_back_is_forbidden_after_all_the_copy_is_marked(world: World) -> None:
    world.paper.drop_next(after_effect=True, method="post")
    world.paper.fail_next(403, method="history", count=20)
    id = await owe(world)
    await world.until(is_state(world, id, "delivered"))
    assert world.posts == ["hello", f"{MARK}hello"]


@pytest.mark.parametrize("kind", [Kind(keyed_for=60.0, streaming="none")])
async def test_a_key_that_has_run_out_proves_nothing(world: World, clock: OwnedClock) -> None:
    world.paper.drop_next(after_effect=True, method="post")
    id = await owe(world)
    await world.paper.until(lambda paper: paper.posts)
    await world.crash()
    await clock.advance(3600.0)
    await world.start()
    await world.until(is_state(world, id, "delivered"))
    assert world.posts == ["hello", f"{MARK}hello"]


@pytest.mark.parametrize("kind", [KEYED, NEITHER])
async def test_a_server_that_is_ill_for_long_is_not_hammered(world: World, clock: OwnedClock) -> None:
    """Repeating is harmless where a key or an edit proves it, but not for a platform that is down already."""
    if world.paper.kind == NEITHER:
        world.paper.drop_next(after_effect=True, method="post")
    method = "edit" if world.paper.kind == NEITHER else "post"
    world.paper.fail_next(500, method=method, count=1000)
    id = await owe(world)
    await clock.advance(120.0)
    assert 3 < len(world.paper.calls(method)) < 20
    later = await owe(world, "nobody waits behind a doubt")
    if method == "edit":
        await world.until(is_state(world, later, "delivered"), limit=1.0)
    world.paper.heal()
    await world.until(lambda: state(world, id) == state(world, later) == "delivered")
    assert (
        sorted(text.removeprefix(MARK) for text in set(world.posts))
        == ["hello", "hello", "nobody waits behind a doubt"][method == "post" :]
    )


@pytest.mark.parametrize("kind", [Kind(keyed_for=60.0, streaming="none"), Kind(keyed_for=60.0, readback=True)])
async def test_a_key_that_ran_out_in_a_pause_is_not_trusted(world: World) -> None:
    world.paper.drop_next(after_effect=True, method="post")
    world.paper.fail_next(429, retry_after=300.0, method="post")
    id = await owe(world)
    await world.until(is_state(world, id, "delivered"))
    assert world.posts == (["hello"] if world.paper.kind.readback else ["hello", f"{MARK}hello"])


@pytest.mark.parametrize("kind", [MUTE, NEITHER, READBACK])
async def test_a_limit_met_by_a_repeated_part_is_no_new_doubt(world: World) -> None:
    world.paper.drop_next(after_effect=False, method="post")
    world.paper.fail_next(429, retry_after=30.0, method="post", count=2)
    world.paper.fail_next(503, method="post", count=2)
    id = await owe(world)
    await world.until(is_state(world, id, "delivered"))
    assert [text.removeprefix(MARK) for text in world.posts] == ["hello"]


# Files and buttons.


def report(tmp_path: Path) -> File:
    path = tmp_path / "report.pdf"
    path.write_bytes(b"numbers")
    return File(path=str(path), name="report.pdf")


def uploads(paper: PaperServer) -> list[str]:
    return [file.name for message in paper.sent for file in message.files]


@each_proof
@pytest.mark.parametrize("arrived", [True, False])
async def test_a_file_in_doubt_is_never_sent_twice(world: World, tmp_path: Path, arrived: bool) -> None:
    world.paper.drop_next(after_effect=arrived, method="post")
    id = await world.gateway.desk.owe(target(), Body(files=(report(tmp_path),)), "test")
    await world.until(is_state(world, id, "delivered"))
    if world.paper.kind.keyed_for or world.paper.kind.readback:
        assert uploads(world.paper) == ["report.pdf"]
        assert world.posts == [""]
    else:
        assert uploads(world.paper) == (["report.pdf"] if arrived else [])
        assert "report.pdf" in world.posts[-1]
        assert "may not have arrived" in world.posts[-1]


async def test_a_file_that_fails_is_named_with_the_reason_and_the_text_arrives(
    tmp_path: Path, clock: OwnedClock
) -> None:
    gone = FileMade(path=str(tmp_path / "gone.pdf"), name="gone.pdf")
    good = report(tmp_path)
    agent = Scripted("Here they are.", gone, FileMade(path=good.path, name=good.name))
    async with World(tmp_path / "home", agent, clock=clock) as world:
        world.paper.says("the reports, please")
        await world.until(lambda: len(world.posts) == 3)
        assert world.posts[0] == "Here they are."
        assert world.posts[1].startswith("I could not send gone.pdf: a file cannot be read")
        assert uploads(world.paper) == ["report.pdf"]


async def test_a_file_that_met_a_passing_fault_is_sent_after_it(world: World, tmp_path: Path) -> None:
    world.paper.fail_next(503, method="post")
    id = await world.gateway.desk.owe(target(), Body(files=(report(tmp_path),)), "test")
    await world.until(is_state(world, id, "delivered"))
    assert uploads(world.paper) == ["report.pdf"]


async def test_a_platform_without_files_says_in_words_what_it_cannot_send(tmp_path: Path, clock: OwnedClock) -> None:
    good = report(tmp_path)
    agent = Scripted("Here it is.", FileMade(path=good.path, name=good.name))
    async with World(tmp_path / "home", agent, kind=Kind(keyed_for=3600.0, files=False), clock=clock) as world:
        world.paper.says("the report, please")
        await world.paper.until(lambda paper: paper.posts)
        assert world.posts == ["Here it is.\n\n(The file report.pdf cannot be sent here.)"]


@pytest.mark.parametrize("kind", [Kind(keyed_for=3600.0, buttons=False)])
async def test_a_platform_without_buttons_lists_the_choices(world: World, clock: OwnedClock) -> None:
    choices = (Choice(id="y", label="Yes"), Choice(id="n", label="No"))
    put_by_hand(world, clock, Body(text="Shall I?", choices=choices))
    await world.until(lambda: world.posts)
    assert world.posts == ["Shall I?\n\n• Yes\n\n• No"]


# It does not fit, or the chat lives elsewhere.


async def test_what_the_platform_finds_too_long_is_composed_smaller_and_each_part_arrives_once(
    tmp_path: Path, clock: OwnedClock
) -> None:
    text = "\n".join(f"line {number}" for number in range(1, 301))
    async with World(tmp_path, Echo(), clock=clock, limit=500, settings={"limit": 2000}) as world:
        id = await owe(world, text)
        await world.until(is_state(world, id, "delivered"))
        assert "\n".join(world.posts) == text
        assert max(map(len, world.posts)) <= 500
        keys = [message.key for message in world.paper.sent]
        assert len(set(keys)) == len(keys) > 5


async def test_a_part_in_the_middle_that_does_not_fit_disturbs_neither_its_neighbours_nor_their_order(
    tmp_path: Path, clock: OwnedClock
) -> None:
    text = "\n".join(f"line {number}" for number in range(1, 301))
    async with World(tmp_path, Echo(), clock=clock) as world:
        world.adapters["paper"]._limit = 1000
        gate = world.paper.hold_next("post", after_effect=True)
        id = await owe(world, text)
        await world.paper.until(lambda paper: paper.posts)
        world.paper.chats.limit = 300
        gate.set()
        await world.until(is_state(world, id, "delivered"))
        assert "\n".join(world.posts) == text
        assert [len(post) <= 300 for post in world.posts][1:] == [True] * (len(world.posts) - 1)


async def test_a_marked_copy_that_grew_past_the_limit_is_cut_like_any_other(tmp_path: Path, clock: OwnedClock) -> None:
    text = "x" * 495
    async with World(tmp_path, Echo(), kind=NEITHER, clock=clock, limit=500) as world:
        world.paper.drop_next(after_effect=False, method="post")
        id = await owe(world, text)
        await world.until(is_state(world, id, "delivered"))
        assert "".join(world.posts).startswith(MARK.strip())
        assert "".join(world.posts).count("x") == 495


@each_proof
async def test_a_chat_that_moved_is_followed_also_after_a_restart(world: World) -> None:
    world.paper.move("1", "99")
    id = await owe(world)
    await world.until(is_state(world, id, "delivered"))
    assert world.paper.posts_in("99") == ["hello"]
    await world.crash()
    await world.start()
    later = await owe(world, "and again")
    await world.until(is_state(world, later, "delivered"))
    assert world.paper.posts_in("99") == ["hello", "and again"]
    assert [call.ask.chat for call in world.paper.calls("post")] == ["1", "99", "99"]


@proved
@pytest.mark.parametrize("arrived", [True, False])
async def test_a_doubt_in_a_chat_that_moved_is_settled_where_it_lives_now(world: World, arrived: bool) -> None:
    world.paper.move("1", "99")
    id = await owe(world, "first")
    await world.until(is_state(world, id, "delivered"))
    world.paper.drop_next(after_effect=arrived, method="post")
    later = await owe(world, "second")
    await world.until(is_state(world, later, "delivered"))
    assert world.paper.posts_in("99") == ["first", "second"]


async def test_a_limit_met_in_a_chat_that_moved_pauses_what_goes_there(world: World, clock: OwnedClock) -> None:
    world.paper.open_chat("1", "aside")
    world.paper.move("1", "99")
    id = await owe(world, "first")
    await world.until(is_state(world, id, "delivered"))
    world.paper.limit_rate("99", 60.0, 1)
    ids = [await owe(world, "second"), await owe(world, "third")]
    await world.until(lambda: world.rows("SELECT 1 FROM pauses"))
    seen = len(world.paper.calls("post"))
    ids.append(await owe(world, "by its new name", to=target("99")))
    ids.append(await owe(world, "in a thread of the old one", to=target("1", thread="aside")))
    await clock.advance(50.0)
    assert len(world.paper.calls("post")) == seen
    world.paper.chats.rates.clear()
    await world.until(lambda: all(state(world, id) == "delivered" for id in ids))


async def test_a_chat_that_moves_twice_is_followed_twice(world: World) -> None:
    world.paper.move("1", "99")
    world.paper.move("99", "100")
    id = await owe(world)
    await world.until(is_state(world, id, "delivered"))
    assert world.paper.posts_in("100") == ["hello"]


async def moves(world: World, chat: str, to: str, *, told: bool) -> None:
    """The gateway learns of it by an event, or by the answer to what it sends there."""
    world.paper.move(chat, to)
    if told:
        await world.gateway._reported.moved("paper", "main", chat, to)
    id = await owe(world, f"to {to}")
    await world.until(is_state(world, id, "delivered"))


@pytest.mark.parametrize("second_told", [True, False])
@pytest.mark.parametrize("first_told", [True, False])
async def test_a_chat_that_moved_twice_is_one_conversation_also_after_a_restart(
    world: World, first_told: bool, second_told: bool
) -> None:
    began = await heard(world, "hi", chat="1")
    await moves(world, "1", "99", told=first_told)
    between = await heard(world, "still here?", chat="99")
    await moves(world, "99", "100", told=second_told)
    await world.restart()
    # What names a place in the middle finds its way, and the conversation is the one that it was.
    id = await owe(world, "by an old name", to=target("99"))
    await world.until(is_state(world, id, "delivered"))
    assert world.paper.posts_in("100")[-1] == "by an old name"
    last = await heard(world, "and now?", chat="100")
    assert {world.run(key)["conversation"] for key in (between, last)} == {world.run(began)["conversation"]}
    await world.restart()
    after = await heard(world, "and after that?", chat="100")
    assert world.run(after)["conversation"] == world.run(began)["conversation"]


async def test_a_chat_that_moved_back_lives_where_it_began(world: World) -> None:
    began = await heard(world, "hi", chat="1")
    await moves(world, "1", "99", told=True)
    world.paper.chats.moved.clear()
    world.paper.move("99", "1")
    await world.gateway._reported.moved("paper", "main", "99", "1")
    for _ in range(2):
        ids = [await owe(world, "here"), await owe(world, "there", to=target("99"))]
        await world.until(lambda ids=ids: all(state(world, id) == "delivered" for id in ids))  # type: ignore[misc]
        assert sorted(world.paper.posts_in("1")[-2:]) == ["here", "there"]
        key = await heard(world, "and now?", chat="1")
        assert world.run(key)["conversation"] == world.run(began)["conversation"]
        await world.restart()


@pytest.mark.parametrize("restarted", [True, False])
async def test_a_loss_is_told_where_the_chat_lives_now(world: World, restarted: bool) -> None:
    world.paper.block("1")
    id = await owe(world)
    await world.until(is_state(world, id, "dead"))
    world.paper.block("1", on=False)
    await moves(world, "1", "99", told=True)
    world.paper.block("99")
    id = await owe(world, "by its new name", to=target("99"))
    await world.until(is_state(world, id, "dead"))
    world.paper.block("99", on=False)
    await moves(world, "99", "100", told=True)
    if restarted:
        await world.restart()
    await heard(world, "hi", chat="100")
    assert world.paper.posts_in("100") == ["to 100", MAY_BE_LOST, "you said: hi"]
    await heard(world, "anything else?", chat="100")
    assert world.paper.posts_in("100")[3:] == ["you said: anything else?"]


# Order, and who waits for whom.


@each_proof
async def test_one_lane_keeps_its_order_through_limits_and_outages(world: World) -> None:
    world.paper.fail_next(429, retry_after=5.0, method="post")
    world.paper.fail_next(503, method="post", count=2)
    world.paper.fail_next(429, method="post")
    texts = [f"message {number}" for number in range(8)]
    ids = [await owe(world, text) for text in texts]
    await world.until(lambda: all(state(world, id) == "delivered" for id in ids))
    assert world.posts == texts


async def test_a_target_that_hangs_does_not_delay_a_free_one(world: World) -> None:
    gate = world.paper.hold_next("post")
    stuck = await owe(world, "slow")
    await world.paper.until(lambda paper: paper.calls("post"))
    free = await owe(world, "quick", to=target("2"))
    await world.paper.until(lambda paper: paper.posts_in("2") == ["quick"])
    assert world.paper.posts_in("1") == []
    gate.set()
    await world.until(lambda: state(world, stuck) == state(world, free) == "delivered")
    assert world.paper.posts_in("1") == ["slow"]


async def test_a_dead_platform_does_not_delay_another(tmp_path: Path, clock: OwnedClock) -> None:
    async with World(tmp_path, Echo(), platforms={"paper": KEYED, "other": KEYED}, clock=clock) as world:
        await world.papers["paper"].outage(True)
        await owe(world, "lost for now")
        await owe(world, "arrives", to=target(adapter="other"))
        await world.papers["other"].until(lambda paper: paper.posts == ["arrives"])
        await world.papers["paper"].outage(False)
        await world.until(lambda: world.posts == ["lost for now"])


async def test_a_result_that_comes_later_appears_where_the_work_was_begun(tmp_path: Path, clock: OwnedClock) -> None:
    """A8 and C2: whoever spoke last, and across a restart."""

    async def begin(turn: object) -> str:
        if turn.message.text != "go":  # type: ignore[attr-defined]
            return "I see."
        await turn.desk.begin("count", "sheep", 60.0)  # type: ignore[attr-defined]
        return "I began."

    async def count(argument: str) -> str:
        return f"counted the {argument}"

    kinds = [TaskKind("count", count, True)]
    async with World(tmp_path, Scripted(begin), kinds=kinds, clock=clock) as world:
        world.paper.says("go", chat="1", thread="A", private=False)
        await world.paper.until(lambda paper: paper.posts == ["I began."])
        world.paper.says("something else", chat="1", thread="B", private=False)
        world.paper.says("something else", chat="2")
        await world.paper.until(lambda paper: len(paper.posts) == 3)
        await world.crash()
        await world.start()
        await world.until(lambda: len(world.posts) == 4)
        assert world.paper.posts_in("1", "A") == ["I began.", "counted the sheep"]
        assert world.paper.posts_in("1", "B") == world.paper.posts_in("2") == ["I see."]


# The end of patience, refusals, and rows that nobody woke.


async def test_what_could_not_be_delivered_for_three_days_is_given_up_and_said_so(
    world: World, clock: OwnedClock
) -> None:
    await world.paper.outage(True)
    id = await owe(world)
    await world.until(lambda: world.rows("SELECT 1 FROM parts WHERE misses > 0"))
    await world.crash()
    await clock.advance(EXPIRES_SECONDS - 60.0)
    await world.start(attached=False)
    await clock.advance(30.0)
    assert state(world, id) == "waiting"
    await clock.advance(60.0)
    await world.until(is_state(world, id, "dead"), limit=SWEEP_SECONDS)
    assert (await world.gateway.desk.delivery(id)).reason.startswith("expired")
    assert await alarm(world, "dead") is not None
    await world.paper.outage(False)
    world.paper.says("hi")
    await world.until(lambda: len(world.posts) == 2)
    assert world.posts == [MAY_BE_LOST, "you said: hi"]


async def test_nothing_is_given_up_while_the_clock_may_be_wrong(world: World, clock: OwnedClock) -> None:
    await world.paper.outage(True)
    id = await owe(world)
    await world.until(lambda: world.rows("SELECT 1 FROM parts WHERE misses > 0"))
    await world.crash()
    clock.confirmed = False
    await clock.advance(EXPIRES_SECONDS)
    await world.start(attached=False)
    await clock.advance(4 * SWEEP_SECONDS)
    assert state(world, id) == "waiting"
    told = await alarm(world, "clock")
    assert told is not None
    assert "Nothing expires or is pruned" in told.last
    clock.confirmed = True
    await world.until(is_state(world, id, "dead"), limit=2 * SWEEP_SECONDS)


async def test_a_key_proves_nothing_while_nobody_knows_how_long_the_machine_was_off(
    world: World, clock: OwnedClock
) -> None:
    world.paper.drop_next(after_effect=True, method="post")
    id = await owe(world)
    await world.until(is_state(world, id, "doubtful"), limit=0.0)
    await world.crash()
    clock.confirmed = False
    await world.start()
    await world.until(is_state(world, id, "delivered"))
    assert world.posts == ["hello", f"{MARK}hello"]


@pytest.mark.parametrize("kind", [READBACK])
async def test_a_doubt_that_expired_while_nobody_answered_stays_dead(world: World, clock: OwnedClock) -> None:
    world.paper.drop_next(after_effect=False, method="post")
    id = await owe(world)
    await world.until(is_state(world, id, "doubtful"), limit=0.0)
    await world.crash()
    await world.paper.outage(True)
    await clock.advance(EXPIRES_SECONDS - 20.0)
    await world.start(attached=False)
    await world.until(is_state(world, id, "dead"), limit=60.0)
    await world.paper.outage(False)
    await clock.advance(300.0)
    assert (state(world, id), world.posts) == ("dead", [])


@pytest.mark.parametrize(
    ("to", "what", "refusal"),
    [
        (target(adapter="nowhere"), body("hi"), "no platform nowhere@main"),
        (target(account="second"), body("hi"), "no platform paper@second"),
    ],
)
async def test_nothing_is_owed_to_a_target_that_nobody_serves(
    world: World, to: Target, what: Body, refusal: str
) -> None:
    with pytest.raises(Unknown, match=refusal):
        await world.gateway.desk.owe(to, what, "test")
    assert world.rows("SELECT 1 FROM deliveries") == []


@pytest.mark.parametrize(
    ("kind", "to", "what", "ability"),
    [
        (Kind(async_delivery=False), target(), body("hi"), "async_delivery"),
        (Kind(files=False), target(), body("hi", files=(File(path="/tmp/x", name="x"),)), "files"),
        (Kind(buttons=False), target(), body("hi", choices=(("y", "Yes"),)), "buttons"),
        (Kind(threads=False), target(thread="t"), body("hi"), "threads"),
    ],
    ids=["later", "files", "buttons", "threads"],
)
async def test_what_a_platform_does_not_declare_is_refused_up_front(
    world: World, to: Target, what: Body, ability: str
) -> None:
    with pytest.raises(Unsupported) as refused:
        await world.gateway.desk.owe(to, what, "test")
    assert refused.value.ability == ability
    assert world.rows("SELECT 1 FROM deliveries") == []


@pytest.mark.parametrize("blank", ["", " \n "])
async def test_an_empty_message_ends_by_itself_and_does_not_block_those_behind_it(world: World, blank: str) -> None:
    empty = await owe(world, blank)
    id = await owe(world, "not empty")
    await world.until(is_state(world, id, "delivered"))
    assert state(world, empty) == "dead"
    assert world.posts == ["not empty"]


def put_by_hand(world: World, clock: OwnedClock, what: Body, *, id: str = "dlv_by_hand") -> None:
    """A row that this process has never heard of."""
    with closing(sqlite3.connect(world.home / DATABASE)) as connection, connection:
        connection.execute(
            "INSERT INTO deliveries (id, lane, kind, cause, target, body, state, created)"
            " VALUES (?, ?, 'reply', 'by hand', ?, ?, 'waiting', ?)",
            (id, target().lane, encode(target()), encode(what), clock.now()),
        )


async def test_a_row_that_nobody_woke_is_found_by_the_sweeper(world: World, clock: OwnedClock) -> None:
    # The start itself looks for what is open, too; only after that the sweeper is alone.
    await world.rest()
    put_by_hand(world, clock, body("found"))
    await world.until(lambda: world.posts == ["found"], limit=SWEEP_SECONDS + 1.0)


async def test_a_doubt_that_nobody_works_on_is_found_by_the_sweeper(world: World, clock: OwnedClock) -> None:
    id = "dlv_in_doubt"
    put_by_hand(world, clock, body("found"), id=id)
    with closing(sqlite3.connect(world.home / DATABASE)) as connection, connection:
        connection.execute("UPDATE deliveries SET state = 'doubtful' WHERE id = ?", (id,))
        connection.execute(
            "INSERT INTO parts (delivery, position, kind, key, body, state, attempts, tried, since)"
            " VALUES (?, 1, 'plain', ?, ?, 'doubtful', 1, ?, ?)",
            (id, f"{id}.1", encode(body("found")), clock.now(), clock.wall()),
        )
    await world.until(is_state(world, id, "delivered"), limit=SWEEP_SECONDS + 1.0)
    assert world.posts == ["found"]


class Baffled(Doorway):
    """Reading back raises what no adapter should, so many times."""

    faults = 0
    asked = 0

    async def find(self, part: Part, is_taken: Taken) -> Receipt | Absent | Unreadable:
        type(self).asked += 1
        if type(self).faults:
            type(self).faults -= 1
            raise AttributeError("'NoneType' object has no attribute 'ts'")
        return await super().find(part, is_taken)


@pytest.mark.parametrize("arrived", [True, False])
@pytest.mark.parametrize("faults", [1, 1000])
async def test_a_fault_in_reading_back_is_logged_and_the_doubt_is_settled_all_the_same(
    tmp_path: Path, clock: OwnedClock, caplog: pytest.LogCaptureFixture, faults: int, arrived: bool
) -> None:
    class Reader(Baffled):
        pass

    Reader.faults = faults
    async with World(tmp_path, Echo(), kind=READBACK, clock=clock, adapter=Reader) as world:
        world.paper.drop_next(after_effect=arrived, method="post")
        id = await owe(world)
        await world.until(is_state(world, id, "delivered"), limit=SWEEP_SECONDS)
        if faults == 1:
            assert world.posts == ["hello"], "it could be asked after all"
        else:
            assert [message.text for message in world.paper.visible()][-1] == f"{MARK}hello"
        assert "has no attribute 'ts'" in caplog.text


class Hanging(Doorway):
    async def find(self, part: Part, is_taken: Taken) -> Receipt | Absent | Unreadable:
        await asyncio.Event().wait()
        raise AssertionError


class GivingUp(Doorway):
    async def find(self, part: Part, is_taken: Taken) -> Receipt | Absent | Unreadable:
        raise asyncio.CancelledError


@pytest.mark.parametrize("adapter", [Hanging, GivingUp])
async def test_a_reading_back_that_never_ends_or_gives_up_means_that_nobody_can_be_asked(
    tmp_path: Path, clock: OwnedClock, adapter: type[Doorway]
) -> None:
    async with World(tmp_path, Echo(), kind=READBACK, clock=clock, adapter=adapter) as world:
        world.paper.drop_next(after_effect=False, method="post")
        id = await owe(world)
        await world.until(is_state(world, id, "delivered"), limit=CALL_SECONDS_OF_ADAPTERS + SWEEP_SECONDS)
        assert [message.text for message in world.paper.visible()][-1] == f"{MARK}hello"


def test_every_kind_of_proof_is_played() -> None:
    assert [msgspec.structs.replace(kind, streaming="edits") for kind in PROOFS.values()][::2] == [
        KEYED,
        READBACK,
        NEITHER,
    ]

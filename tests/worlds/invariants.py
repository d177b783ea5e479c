"""The invariants of the guarantees, over the database and the ground truth of the platforms: each yields its faults."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from tests.simulators.paper.simulator import Kind
from tests.simulators.paper.wire import Ask
from tidings.core.agent import Ended, JournalEvent, Restarted, TextDelta
from tidings.core.types import Receipt, Target

if TYPE_CHECKING:
    from tests.worlds.world import World

_event = msgspec.json.Decoder(JournalEvent).decode


def check(world: World) -> None:
    checks = {name: check for name, check in CHECKS.items() if name not in world.skip}
    with world.reading():
        broken = {name: found for name, check in checks.items() if (found := [*check(world)])}
    assert broken == {}, broken


def _confirmed_is_stored(world: World) -> Iterator[str]:
    for name, paper in world.papers.items():
        stored = {row["key"] for row in world.rows("SELECT key FROM inbox WHERE adapter = ?", name)}
        yield from (key for key in paper.confirmed if key not in stored | world.ignored)


def _one_row_per_key(world: World) -> Iterator[str]:
    rows = world.rows("SELECT key, count(*) AS n FROM inbox GROUP BY adapter, account, key HAVING n > 1")
    yield from (row["key"] for row in rows)


def _one_outcome_each(world: World) -> Iterator[str]:
    for row in world.runs():
        ends = [_event(entry["event"]) for entry in world.journal(row["run"]) if entry["kind"] == "ended"]
        expected = [row["outcome"]] if row["state"] == "done" else []
        if [end.kind for end in ends if isinstance(end, Ended)] != expected:
            yield f"{row['run']} is {row['state']} with {ends}"


def _one_final_per_done_run(world: World) -> Iterator[str]:
    for row in world.runs():
        finals = world.rows("SELECT 1 FROM deliveries WHERE run = ? AND kind = 'final'", row["run"])
        # Of an errand's end tells whoever sent it.
        is_errand = json.loads(row["message"]).get("errand")
        expected = 0 if is_errand else _finals_expected(world, row, bool(finals))
        if len(finals) != expected:
            yield f"{row['run']} is {row['state']} with {len(finals)} finals"


def _finals_expected(world: World, row: sqlite3.Row, found: bool) -> int:
    if row["outcome"] == "failed" and row["attempt"] == 0 and "is used up until" in row["reason"]:
        # A message that an allowance does not cover: its sender is told by a notice, once in a window.
        return 0
    # Only a run for which nobody waits may end in silence, and then nothing is owed.
    message = json.loads(row["message"])
    is_awaited = message.get("origin", "person") == "person" and not message.get("overheard")
    silent = row["outcome"] == "completed" and not is_awaited
    spoken = row["state"] == "done" and _kind(world, row["adapter"]).async_delivery
    return int(spoken and not (silent and not found))


def _promises_are_kept(world: World) -> Iterator[str]:
    """Each task's end is told as it was promised: once."""
    for row in world.rows("SELECT id, state, manner FROM tasks"):
        key, ended = f"end/{row['id']}", row["state"] not in ("waiting", "running")
        notices = len(world.rows("SELECT 1 FROM deliveries WHERE key = ?", key))
        turns = len(world.rows("SELECT 1 FROM inbox WHERE key = ?", key))
        if (notices, turns) != (int(ended and row["manner"] == "tell"), int(ended and row["manner"] == "wake")):
            yield f"{row['id']} is {row['state']} with {notices} notices and {turns} turns"


def _delivered_is_there(world: World) -> Iterator[str]:
    for delivery, part, target, messages in _delivered_parts(world):
        paper = world.papers[target.adapter]
        effects = {effect.message: effect for effect in paper.effects if effect.act in ("post", "stream")}
        for id in messages:
            if id not in effects:
                yield f"{delivery['id']}.{part['position']} was delivered as {id}, which nobody posted"


def _in_the_right_place(world: World) -> Iterator[str]:
    moves = world.rows("SELECT * FROM aliases")
    origins = {(row["adapter"], row[name]): row["origin"] for row in moves for name in ("chat", "moved_to")}
    for delivery, _, target, messages in _delivered_parts(world):
        began = origins.get((target.adapter, target.chat), target.chat)
        for effect in world.papers[target.adapter].effects:
            ours = effect.act in ("post", "stream") and effect.message in messages
            there = origins.get((target.adapter, effect.chat), effect.chat)
            if ours and not (there == began and effect.thread == target.thread):
                yield f"{delivery['id']} went to {effect.chat}:{effect.thread}"


def _no_key_twice(world: World) -> Iterator[str]:
    for paper in world.papers.values():
        keys = [message.key for message in paper.sent if message.key]
        yield from {key for key in keys if keys.count(key) > 1}


def _one_body_per_key(world: World) -> Iterator[str]:
    for paper in world.papers.values():
        bodies: dict[str, set[Ask]] = {}
        for call in paper.calls():
            if call.ask.key:
                bodies.setdefault(call.ask.key, set()).add(msgspec.structs.replace(call.ask, chat=""))
        yield from (key for key, asked in bodies.items() if len(asked) > 1)


def _in_order(world: World) -> Iterator[str]:
    """Of what went out at the first attempt and without a view, each lane shows it in order of creation."""
    order = {message.id: message.order for paper in world.papers.values() for message in paper.sent}
    lanes: dict[str, list[tuple[int, str]]] = {}
    for delivery, part, _, messages in _delivered_parts(world):
        if part["attempts"] == 1 and not part["view"] and part["kind"] == "plain" and not part["marked"]:
            lanes.setdefault(delivery["lane"], []).extend((order[id], delivery["id"]) for id in messages if id in order)
    for shown in lanes.values():
        if shown != sorted(shown):
            yield f"{[id for _, id in shown]} appeared as {[id for _, id in sorted(shown)]}"


def _journals_are_whole(world: World) -> Iterator[str]:
    for row in world.runs():
        entries = world.journal(row["run"])
        kinds = [entry["kind"] for entry in entries]
        if [entry["seq"] for entry in entries] != list(range(1, len(entries) + 1)):
            yield f"{row['run']} has gaps"
        if "ended" in kinds[:-1]:
            yield f"{row['run']} goes on after its end"
        if row["state"] == "done":
            yield from _text_is_deltas(row["run"], [_event(entry["event"]) for entry in entries])


def _text_is_deltas(run: str, events: list[JournalEvent]) -> Iterator[str]:
    text = ""
    for event in events:
        if isinstance(event, Restarted):
            text = ""
        elif isinstance(event, TextDelta):
            text += event.text
    ended = events[-1] if events else None
    if not isinstance(ended, Ended) or ended.text != text:
        yield f"{run} said {text!r} and ended with {ended}"


def _no_push_where_none_is_declared(world: World) -> Iterator[str]:
    for row in world.rows("SELECT id, target FROM deliveries"):
        target = msgspec.json.decode(row["target"], type=Target)
        if not _kind(world, target.adapter).async_delivery:
            yield f"{row['id']} is owed to {target}"


def _delivered_parts(world: World) -> Iterator[tuple[sqlite3.Row, sqlite3.Row, Target, tuple[str, ...]]]:
    for delivery in world.rows("SELECT * FROM deliveries ORDER BY seq"):
        target = msgspec.json.decode(delivery["target"], type=Target)
        if target.adapter not in world.papers:
            continue
        for part in world.rows("SELECT * FROM parts WHERE delivery = ? ORDER BY position", delivery["id"]):
            if part["state"] == "delivered":
                yield delivery, part, target, msgspec.json.decode(part["receipt"], type=Receipt).ids


def _kind(world: World, adapter: str) -> Kind:
    return world.papers[adapter].kind if adapter in world.papers else Kind(keyed_for=3600.0)


CHECKS: dict[str, Callable[[World], Iterator[str]]] = {
    "I1": _confirmed_is_stored,
    "I2": _one_row_per_key,
    "I3": _one_outcome_each,
    "I4": _one_final_per_done_run,
    "I5": _delivered_is_there,
    "I6": _no_key_twice,
    "I7": _in_the_right_place,
    "I8": _in_order,
    "I10": _journals_are_whole,
    "I13": _no_push_where_none_is_declared,
    "promises": _promises_are_kept,
    "I24": _one_body_per_key,
}

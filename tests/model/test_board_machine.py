"""Cards, leases and fences in every order of events: none is stranded, and nobody writes who lost the card."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.worlds.board import anybody
from tidings.core.desk.board import Block, CardState, Hand, NewCard
from tidings.core.errors import Fenced, Unkeepable
from tidings.core.store import migrate
from tidings.core.store.sqlite import SqliteTransaction
from tidings.core.store.wakeups import BoardChanged
from tidings.core.types import Target
from tidings.core.work.board import cards as card_rows
from tidings.core.work.board import rules as board_rules
from tidings.core.work.board.cards import Moment
from tidings.core.work.board.rules import Hold

LEASE = 45.0
# Few, so that much happens to each.
MOST_CARDS = 5
ROSTER = ("bot",)
STUCK = ("blocked", "triage", "archived")
WATCHER = Hand("Ada", Target(adapter="paper", chat="1"))
BOT = Hand("bot", Target(adapter="paper", chat="2"), is_person=False)
REASONS = st.sampled_from(["no wood", "no nails"])
KINDS = st.sampled_from([Block.NEEDS_INPUT, Block.BUDGET, Block.PROTOCOL, Block.HANG])

T = TypeVar("T")


@cache
def _empty() -> sqlite3.Connection:
    """Made once: it takes longer than all that happens on it."""
    made = sqlite3.connect(":memory:", isolation_level=None)
    migrate.upgrade(made, Path("memory"))
    return made


class Machine(RuleBasedStateMachine):
    cards: Bundle[str] = Bundle("cards")
    holds: Bundle[Hold] = Bundle("holds")

    def __init__(self) -> None:
        super().__init__()
        self.connection = sqlite3.connect(":memory:", isolation_level=None)
        self.connection.row_factory = sqlite3.Row
        _empty().backup(self.connection)
        self.tx = SqliteTransaction(self.connection)
        self.now = 1000.0
        # What each worker holds that nobody has taken from it yet.
        self.live: dict[int, Hold] = {}
        # Whoever held a card once.
        self.zombies: list[Hold] = []
        self.made = 0

    def teardown(self) -> None:
        self.connection.close()

    @property
    def at(self) -> Moment:
        return Moment(self.now, self.now + 500)

    def unit(self, work: Callable[[], T]) -> T:
        """As the store does it: what is refused leaves nothing behind."""
        self.connection.execute("SAVEPOINT unit")
        try:
            result = work()
        except (Fenced, Unkeepable):
            self.connection.execute("ROLLBACK TO unit")
            self.connection.execute("RELEASE unit")
            raise
        self.connection.execute("RELEASE unit")
        return result

    def state(self, id: str) -> str:
        return str(card_rows.find(self.tx, id)["state"])

    def written(self) -> list[tuple[object, ...]]:
        tables = ("cards", "card_attempts", "card_events", "deliveries")
        return [tuple(row) for table in tables for row in self.connection.execute(f"SELECT * FROM {table}")]

    def owed(self) -> int:
        return int(self.connection.execute("SELECT count(*) FROM deliveries").fetchone()[0])

    @initialize(target=cards)
    def begin(self) -> str:
        first = self.add([], False, 0)
        second = self.add([first], False, 1)
        return multiple(first, second, self.add([second], False, 0))  # type: ignore[return-value]

    @precondition(lambda self: self.made < MOST_CARDS)
    @rule(target=cards, parents=st.lists(cards, max_size=2), triage=st.booleans(), priority=st.integers(-1, 1))
    def add(self, parents: list[str], triage: bool, priority: int) -> str:
        self.made += 1
        new = NewCard("a card", assignee="bot", parents=tuple(parents), triage=triage, priority=priority)
        return str(self.unit(lambda: board_rules.add(self.tx, new, WATCHER, ROSTER, 1000, self.at, anybody))["id"])

    @rule(parent=cards, child=cards)
    def link(self, parent: str, child: str) -> None:
        cyclic = card_rows.leads_to(self.tx, int(child), int(parent))
        try:
            self.unit(lambda: board_rules.link(self.tx, parent, child, WATCHER, self.at, anybody))
        except Unkeepable:
            assert cyclic or self.state(child) in ("running", "review", "done", "archived")
        else:
            known = self.connection.execute("SELECT 1 FROM card_links WHERE parent = ? AND child = ?", (parent, child))
            assert known.fetchone()
            assert not cyclic

    @rule(target=holds, count=st.integers(1, 3))
    def claim(self, count: int) -> Hold:
        ready = self.connection.execute(
            "SELECT id FROM cards WHERE state = 'ready' AND due <= ? ORDER BY priority DESC, id", (self.now,)
        ).fetchall()
        claimed = self.unit(lambda: board_rules.claim(self.tx, count, LEASE, self.at))
        assert [each.hold.card for each in claimed] == [row["id"] for row in ready[:count]], "the most urgent first"
        for each in claimed:
            self.live[each.hold.card] = each.hold
            self.zombies.append(each.hold)
        return multiple(*(each.hold for each in claimed))  # type: ignore[return-value]

    def write(self, hold: Hold, work: Callable[[], object]) -> bool:
        """Only whoever holds the card now may write; whoever does not is told so, and changes nothing."""
        if self.live.get(hold.card) == hold:
            self.unit(work)
            return True
        before = self.written()
        with pytest.raises(Fenced):
            self.unit(work)
        assert self.written() == before
        return False

    @precondition(lambda self: any(hold.card in self.live and hold not in self.live.values() for hold in self.zombies))
    @rule()
    def a_zombie_comes_back(self) -> None:
        """Its card is somebody else's now, and stays so."""
        for hold in self.zombies:
            if hold.card in self.live and self.live[hold.card] != hold:
                assert not self.write(hold, lambda hold=hold: board_rules.complete(self.tx, hold, "late", (), self.at))  # type: ignore[misc]

    @rule(hold=holds)
    def heartbeat(self, hold: Hold) -> None:
        if self.write(hold, lambda: board_rules.renew(self.tx, hold, LEASE, self.at)):
            assert card_rows.find(self.tx, str(hold.card))["lease"] == self.now + LEASE

    @rule(hold=holds)
    def complete(self, hold: Hold) -> None:
        before, watchers = self.owed(), len(card_rows.watchers(self.tx, hold.card))
        if self.write(hold, lambda: board_rules.complete(self.tx, hold, "done", (), self.at)):
            del self.live[hold.card]
            assert self.owed() - before == watchers, "each watcher is told once"
            assert self.state(str(hold.card)) == "done"

    @rule(hold=holds, kind=KINDS, reason=REASONS)
    def block(self, hold: Hold, kind: Block, reason: str) -> None:
        row = card_rows.find(self.tx, str(hold.card))
        mark = kind.value if kind in board_rules.BY_KIND else f"{kind}: {reason}"
        before, watchers = self.owed(), len(card_rows.watchers(self.tx, hold.card))
        if self.write(hold, lambda: board_rules.block(self.tx, hold, kind, reason, "", self.at)):
            del self.live[hold.card]
            again = row["blocked_before"] == mark
            assert self.state(str(hold.card)) == ("triage" if again else "blocked")
            # Whoever watches only what waits for it is told besides.
            assert self.owed() - before >= watchers

    @rule(hold=holds)
    def review(self, hold: Hold) -> None:
        if self.write(hold, lambda: board_rules.review(self.tx, hold, "look", self.at)):
            del self.live[hold.card]

    @rule(hold=holds, pause=st.sampled_from([0.0, 30.0]))
    def put_back(self, hold: Hold, pause: float) -> None:
        due = self.now + pause
        if self.write(hold, lambda: board_rules.put_back(self.tx, hold, Block.PROTOCOL, "silent", "", due, self.at)):
            del self.live[hold.card]
            assert self.state(str(hold.card)) == "ready"

    @precondition(lambda self: self.live)
    @rule()
    def leases_run_out(self) -> None:
        """As the supervisor does it: whoever was silent for too long loses the card."""
        for card, hold in list(self.live.items()):
            lease = card_rows.find(self.tx, str(card))["lease"]
            assert lease is not None
            if lease <= self.now:
                self.unit(
                    lambda hold=hold: board_rules.put_back(self.tx, hold, Block.HANG, "silent", "", self.now, self.at)  # type: ignore[misc]
                )
                del self.live[card]

    @rule(card=cards, hand=st.sampled_from([WATCHER, BOT]))
    def unblock(self, card: str, hand: Hand) -> None:
        row = card_rows.find(self.tx, card)
        try:
            self.unit(lambda: board_rules.unblock(self.tx, card, "go", hand, self.at))
        except Unkeepable:
            assert (
                row["state"] not in ("blocked", "triage", "review")
                or (row["state"] in ("triage", "review") and not hand.is_person)
                or row["block"] == Block.DEPENDENCY
            )
        else:
            assert self.state(card) in ("ready", "todo", "blocked")

    @precondition(lambda self: self.zombies and self.made > 3)
    @rule(card=cards)
    def finish(self, card: str) -> None:
        before = self.state(card)
        try:
            self.unit(lambda: board_rules.finish(self.tx, card, "", WATCHER, self.at))
        except Unkeepable:
            assert before in ("running", "done", "archived")

    @rule(card=cards, reason=REASONS, hand=st.sampled_from([WATCHER, BOT]))
    def set_aside(self, card: str, reason: str, hand: Hand) -> None:
        before = self.state(card)
        try:
            self.unit(lambda: board_rules.set_aside(self.tx, card, Block.NEEDS_INPUT, reason, hand, self.at))
        except Unkeepable:
            is_gated = before in ("triage", "review") and not hand.is_person
            assert is_gated or before in ("running", "done", "archived", "blocked")

    @precondition(lambda self: self.zombies and self.made > 3)
    @rule(card=cards)
    def archive(self, card: str) -> None:
        ended = "SELECT count(*) FROM card_attempts WHERE card = ? AND ending = 'archived'"
        before = self.connection.execute(ended, (card,)).fetchone()[0]
        self.tx.announced.clear()
        try:
            self.unit(lambda: board_rules.archive(self.tx, card, WATCHER, self.at))
        except Unkeepable:
            return
        held = self.live.pop(int(card), None)
        assert self.connection.execute(ended, (card,)).fetchone()[0] - before == (held is not None)
        assert BoardChanged() in self.tx.announced, "the supervisor hears that a worker lost its card"

    @rule(seconds=st.sampled_from([1.0, 20.0, 60.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def nothing_runs_without_a_lease_and_an_attempt(self) -> None:
        running = self.connection.execute(
            "SELECT c.id, c.fence, c.lease, a.fence AS held FROM cards c LEFT JOIN card_attempts a"
            " ON a.card = c.id AND a.ended IS NULL WHERE c.state = 'running'"
        ).fetchall()
        assert {row["id"] for row in running} == set(self.live)
        for row in running:
            assert row["lease"] is not None
            assert row["held"] == row["fence"] == self.live[row["id"]].fence
        stray = self.connection.execute(
            "SELECT 1 FROM card_attempts a JOIN cards c ON c.id = a.card WHERE a.ended IS NULL AND c.state <> 'running'"
        )
        assert stray.fetchone() is None

    @invariant()
    def what_is_ready_waits_for_nothing_and_what_waits_says_for_what(self) -> None:
        for row in self.connection.execute("SELECT * FROM cards").fetchall():
            waits = [parent for parent in card_rows.parents(self.tx, row["id"]) if parent["finished"] is None]
            if row["state"] in ("ready", "running"):
                assert not waits
            if row["state"] == "todo":
                assert waits
                assert not any(parent["state"] in STUCK for parent in waits), "a stop is told to what is behind it"
            if row["state"] == "blocked":
                assert row["reason"]
                if row["block"] == Block.DEPENDENCY:
                    assert waits, "it continues by itself"
                    assert any(f"#{parent['id']}" in row["reason"] for parent in waits), "what it says is still so"
            if row["state"] == CardState.DONE:
                assert row["finished"] is not None

    @invariant()
    def every_ended_attempt_has_a_verdict(self) -> None:
        nameless = self.connection.execute(
            "SELECT 1 FROM card_attempts WHERE ending IN ('blocked', 'retry') AND (kind = '' OR reason = '')"
        )
        assert nameless.fetchone() is None

    @invariant()
    def nobody_is_told_twice(self) -> None:
        keys = [row["key"] for row in self.connection.execute("SELECT key FROM deliveries")]
        assert len(keys) == len(set(keys))


def test_no_card_is_stranded_in_any_order_of_events() -> None:
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=120,
            stateful_step_count=50,
            deadline=None,
            derandomize=True,
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
        ),
    )

"""Measures the board: listing, showing and claiming with ten thousand cards on it."""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tidings.core.desk.board import CardState, Hand, NewCard
from tidings.core.store.sqlite import open_store
from tidings.core.store.store import Store, Transaction
from tidings.core.work.board import cards as card_rows
from tidings.core.work.board import rules as board_rules
from tidings.core.work.board import text
from tidings.core.work.board.cards import Moment

CARDS = 10_000
TIMES = 50
LEASE = 45.0
HAND = Hand("bench")


async def measure(cards: int = CARDS) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        store: Store = await open_store(Path(folder) / "board.db")
        try:
            await store.write(lambda tx: _fill(tx, cards))
            figures: dict[str, float] = {"cards": cards}
            for name, unit in (("list", _list), ("list_done", _list_done), ("claim", _claim), ("complete", _complete)):
                taken = await _taken(store, unit)
                figures[name], figures[f"{name}_p95"] = statistics.median(taken), statistics.quantiles(taken, n=20)[-1]
            return figures
        finally:
            await store.close()


def _fill(tx: Transaction, cards: int) -> None:
    """Half of them done, some blocked, many ready, and some behind another."""
    for number in range(cards):
        parents = (str(number),) if number % 20 == 19 else ()
        new = NewCard(f"card {number}", assignee="bot", parents=parents, priority=number % 5)
        row = board_rules.add(tx, new, HAND, ("bot",), cards + 1, _at()).card
        if number % 2 and row["state"] == CardState.READY:
            board_rules.finish(tx, str(row["id"]), "done", HAND, _at())


def _at() -> Moment:
    return Moment(1000.0, 2000.0)


def _list(tx: Transaction) -> None:
    text.board(card_rows.board(tx, (), 40, "", 0.0), 2000.0)


def _list_done(tx: Transaction) -> None:
    """The half of the board that has ended, newest first."""
    text.board(card_rows.board(tx, (CardState.DONE,), 40, "", 0.0), 2000.0)


def _claim(tx: Transaction) -> None:
    assert len(board_rules.claim(tx, 4, LEASE, _at())) == 4


def _complete(tx: Transaction) -> None:
    row = tx.one("SELECT card, number, fence FROM card_attempts WHERE ended IS NULL LIMIT 1")
    assert row is not None
    board_rules.complete(tx, board_rules.Hold(row["card"], row["number"], row["fence"]), "done", (), _at())


async def _taken(store: Store, unit: Callable[[Transaction], None]) -> list[float]:
    """In milliseconds, commit included."""
    taken = []
    for _ in range(TIMES):
        began = time.perf_counter()
        await store.write(unit)
        taken.append((time.perf_counter() - began) * 1000)
    return taken


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure())))

"""Seeded bugs in the board: a worker that lost its card is believed, news are swallowed, and effects are repeated."""

from __future__ import annotations

from collections.abc import Iterable

from tests.chaos.mutation_seams import swap
from tidings.core.store.store import Row, Transaction
from tidings.core.types import File
from tidings.core.work.board import cards as card_rows
from tidings.core.work.board import rules as board_rules
from tidings.core.work.board import workers
from tidings.core.work.board.cards import Moment
from tidings.core.work.board.conclusions import Conclusions
from tidings.core.work.board.rules import Hold
from tidings.core.work.board.supervisor import BoardSupervisor
from tidings.core.work.board.verdicts import Verdict


def late_verdict_counts() -> None:
    """Whoever once held a card may write on it for ever."""

    def held(tx: Transaction, hold: Hold) -> Row:
        row = tx.one("SELECT * FROM cards WHERE id = ?", hold.card)
        assert row is not None
        return row

    swap(board_rules, "held", held)


def second_block_is_no_news() -> None:
    """The key of a notice names the card and not what happened to it."""
    real = card_rows.tell

    def tell(
        tx: Transaction,
        card: int,
        event: int,
        text: str,
        at: Moment,
        files: Iterable[File] = (),
        *,
        told: Iterable[str] = (),
    ) -> None:
        real(tx, card, 0, text, at, files, told=told)

    swap(card_rows, "tell", tell)


def effect_tried_again() -> None:
    """A worker that ends without a verdict gets a second try, whatever it has done in the first."""
    real = Conclusions.conclude

    def conclude(
        self: Conclusions, tx: Transaction, attempt: Row, verdict: Verdict, notes: str, *, effect: bool = False
    ) -> None:
        tx.execute("UPDATE card_attempts SET effect = 0 WHERE card = ? AND ended IS NULL", attempt["card"])
        harmless = board_rules.open_attempt(tx, attempt["card"])
        assert harmless is not None
        real(self, tx, harmless, verdict, notes)

    swap(Conclusions, "conclude", conclude)


def worker_outlives_its_card() -> None:
    """A card is archived, and nobody tells whoever works on it."""

    async def end(self: BoardSupervisor, attempt: Row, by: str) -> None:
        return

    swap(BoardSupervisor, "end", end)


def sleep_counts_as_silence() -> None:
    """The machine slept, and whoever slept with it has lost the card."""

    def listen_longer(self: BoardSupervisor, tx: Transaction, at: Moment) -> None:
        return

    swap(BoardSupervisor, "_listen_longer", listen_longer)


def sleep_counts_as_work() -> None:
    """The time that a worker has runs out while the machine sleeps."""
    swap(workers, "HOP_SECONDS", 1e9)

"""Seeded bugs in allowances: counted outside of the transaction, windows that stay, reservations given back wrongly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.chaos.mutation_seams import swap
from tidings.core.agent import Usage
from tidings.core.allowances import allowances, rows, windows
from tidings.core.allowances.reservation import Payer, Reservation
from tidings.core.allowances.rows import Change
from tidings.core.desk.usage import Counts, SpentRow
from tidings.core.store.store import Transaction

_charges = allowances._charges


def allowance_counted_before_the_commit() -> None:
    """What a run reserves is counted in memory, before and whatever becomes of its transaction."""

    def reserve(tx: Transaction, changes: Sequence[Change]) -> list[SpentRow]:
        return [
            SpentRow(change.key, Counts(runs=change.runs, reserved_tokens=change.reserved_tokens)) for change in changes
        ]

    swap(rows, "reserve", reserve)


def window_that_never_resets() -> None:
    """Every day is the first one."""

    def day_of(wall: float, zone: str) -> str:
        return "2026-01-01"

    swap(windows, "day_of", day_of)


def reservation_given_back_twice() -> None:
    def charges(payers: tuple[Payer, ...], own: Reservation | None, spent: Usage) -> Iterator[Change]:
        for change in _charges(payers, own, spent):
            yield change._replace(reserved_tokens=2 * change.reserved_tokens)

    swap(allowances, "_charges", charges)


def reservation_never_given_back() -> None:
    def charges(payers: tuple[Payer, ...], own: Reservation | None, spent: Usage) -> Iterator[Change]:
        for change in _charges(payers, own, spent):
            yield change._replace(reserved_tokens=0, reserved_cost=0.0)

    swap(allowances, "_charges", charges)


def reservation_that_nobody_weighs() -> None:
    """Runs start although others hold all that is left."""

    def _is_held(allowance: object, used: Counts) -> bool:
        return False

    swap(allowances, "_is_held", _is_held)

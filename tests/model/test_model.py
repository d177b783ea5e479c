"""Whatever people, platforms, clocks and crashes do in whatever order: never silent, never lost, never misplaced."""

from __future__ import annotations

from hypothesis.stateful import run_state_machine_as_test

from tests.model.machine import Model, profile


def test_the_guarantees_hold_in_every_order_of_events() -> None:
    run_state_machine_as_test(Model, settings=profile())

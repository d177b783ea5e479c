"""How far the wall clock is ahead of steady time, as everything that tells people a time asks for it."""

import pytest

from tests.worlds.fakes import FakeClock


@pytest.mark.parametrize("jump", [0.0, 86_400.0, -3600.0])
def test_a_steady_time_becomes_the_wall_time_by_adding_what_the_wall_clock_is_ahead(jump: float) -> None:
    clock = FakeClock(now=1000.0, wall=1_750_000_000.0)
    clock.jump(jump)
    assert clock.now() + clock.ahead == pytest.approx(clock.wall(), abs=0.06)


def test_two_questions_an_instant_apart_name_the_same_time() -> None:
    first, second = FakeClock(now=1000.0, wall=2000.01), FakeClock(now=1000.0, wall=2000.02)
    assert first.ahead == second.ahead

"""The mirror of spending keeps every day that is today somewhere, and no more than it must."""

from tidings.core.allowances.mirror import MANY, Mirror
from tidings.core.desk.usage import Counts, Key, Scope, SpentRow


def row(name: str, day: str) -> SpentRow:
    return SpentRow(Key(Scope.PERSON, name, day), Counts(runs=1))


def test_a_day_that_has_begun_elsewhere_drops_nothing_of_today() -> None:
    mirror = Mirror()
    mirror.take([row("in Berlin", "2026-11-18"), row("in Auckland", "2026-11-19")])
    # A clock was wrong for a moment.
    mirror.take([row("in the future", "2030-01-01")])
    for number in range(MANY):
        mirror.take([row(f"person {number}", "2026-11-18")])
    assert mirror.sum([Key(Scope.PERSON, "in Berlin", "2026-11-18")]).runs == 1


def test_earlier_days_are_dropped() -> None:
    mirror = Mirror()
    for day in range(10, 30):
        mirror.take([row(f"person {number}", f"2026-11-{day}") for number in range(MANY // 5)])
    assert mirror.sum([Key(Scope.PERSON, "person 1", "2026-11-10")]).runs == 0
    assert mirror.sum([Key(Scope.PERSON, "person 1", "2026-11-29")]).runs == 1

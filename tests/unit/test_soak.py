"""The verdict of a soak: it finds what grows, and nothing where nothing does."""

from __future__ import annotations

import pytest

from tests.bench.soak import Look, complaints


def lives(count: int, **growing: float) -> list[Look]:
    """Ten looks at each life; what is named grows by so much with each look or, as `life_mb`, with each life."""
    looks = []
    for life in range(1, count + 1):
        for number in range(10):
            memory = 80.0 + number * 0.1 + life * growing.get("life_mb", 0.0)
            descriptors = 40 + 5 * (life % 4) + int(number * growing.get("descriptors", 0.0))
            log_mb = 4.0 + (life * 10 + number) * growing.get("log_mb", 0.0)
            looks.append(Look(life * 10.0 + number, life, memory, descriptors, log_mb, life * 1.0))
    return looks


def test_what_stays_as_it_was_is_flat() -> None:
    assert list(complaints(lives(12))) == []


@pytest.mark.parametrize(
    ("growing", "words"),
    [
        ({"life_mb": 4.0}, "memory grows"),
        ({"descriptors": 1.0}, "descriptors grow: by 9"),
        ({"log_mb": 1.0}, "the write-ahead log grows"),
    ],
)
def test_what_grows_is_named(growing: dict[str, float], words: str) -> None:
    (found,) = complaints(lives(12, **growing))
    assert found.startswith(words)


def test_two_lives_are_no_comparison() -> None:
    assert next(complaints(lives(2))).startswith("too few lives")

"""A few kills in the ordinary tests; `python -m tests.chaos.usage --kills 500` takes five hundred."""

import pytest

from tests.chaos.usage import count_usage


@pytest.mark.xdist_group("chaos")
def test_usage_after_kills_is_the_providers_own_count_without_what_was_cut_off() -> None:
    figures = count_usage(seed=3, kills=8)
    assert not figures.is_red, figures.faults
    assert figures.kills == 8
    assert figures.charged > 0

"""A few promises and a few kills in the ordinary tests; `make promises` keeps a thousand."""

import pytest

from tests.chaos.promises import keep_promises


@pytest.mark.xdist_group("chaos")
def test_every_promise_is_told_in_its_thread_once() -> None:
    figures = keep_promises(seed=7, promises=60, kills=5)
    assert not figures.is_red, [*figures.missing, *figures.misplaced, *figures.doubled, *figures.faults]
    assert figures.promises >= 40
    assert figures.kills == 5

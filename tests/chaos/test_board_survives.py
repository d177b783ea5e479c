"""A small board and a few kills in the ordinary tests; `make board` works off five hundred cards."""

import pytest

from tests.chaos.board import work_off


@pytest.mark.xdist_group("chaos")
def test_every_card_ends_done_or_blocked_whatever_its_worker_and_the_gateway_do() -> None:
    figures = work_off(seed=3, cards=40, kills=3)
    assert figures.faults == ()
    assert figures.ended["done"] > 0
    assert {"blocked protocol", "blocked hang", "blocked budget"} <= figures.ended.keys()

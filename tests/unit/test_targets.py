"""A target that work keeps for later names the place and nothing that expires."""

from tidings.core.types import Audience, Target


def test_what_expires_is_left_out_and_the_place_stays() -> None:
    asked = Target(
        adapter="paper",
        account="two",
        chat="c",
        thread="t",
        reply_to="m1",
        audience=Audience.GROUP,
        handle="expires",
    )
    kept = asked.lasting()
    assert kept == Target(adapter="paper", account="two", chat="c", thread="t", audience=Audience.GROUP)
    assert kept.lane == asked.lane
    assert kept.lasting() == kept

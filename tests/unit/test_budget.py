"""What one run may spend: each limit by itself, when little is left, and in which words."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tidings.bots.assistant.budget import Budget
from tidings.bots.assistant.prompt import NOTE
from tidings.bots.assistant.settings import BotLimits
from tidings.core.agent import Usage


class Watch:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def budget(watch: Watch | None = None, **limits: Any) -> Budget:
    none = {"requests": 0, "tokens": 0, "money": 0.0, "seconds": 0.0}
    return Budget(BotLimits(**{**none, **limits}), watch or Watch())


def spend(own: Budget, requests: int, tokens: int = 10, cost: float = 0.0) -> Budget:
    for _ in range(requests):
        own.spend(tokens, 0, cost)
    return own


def check(own: Budget, *, warned: str = "", exhausted: str = "") -> None:
    note = f"{NOTE} of {warned} Come to an end.)" if warned else ""
    assert (own.warning, own.exhausted) == (note, exhausted)


def test_a_plain_turn_is_far_from_every_default() -> None:
    own = Budget(BotLimits(), Watch())
    check(own)
    check(spend(own, 1, tokens=50_000, cost=1.0))


def test_no_limit_is_never_reached() -> None:
    watch = Watch()
    own = spend(budget(watch), 10_000, tokens=1_000_000, cost=100.0)
    watch.now += 1e9
    check(own)


def test_requests() -> None:
    own = spend(budget(requests=10), 7)
    check(own)
    check(spend(own, 1), warned="10 requests to the model for this answer only 2 are left.")
    check(spend(own, 1), warned="10 requests to the model for this answer only 1 is left.")
    check(spend(own, 1), exhausted="my limit of 10 requests to the model for one answer is used up")


def test_the_last_of_a_few_requests_is_announced_too() -> None:
    for limit in (2, 3, 4):
        own = spend(budget(requests=limit), limit - 1)
        check(own, warned=f"{limit} requests to the model for this answer only 1 is left.")
    own = spend(budget(requests=1), 1)
    check(own, exhausted="my limit of 1 request to the model for one answer is used up")


def test_tokens_of_both_directions() -> None:
    own = budget(tokens=1000)
    own.spend(500, 299, 0.0)
    check(own)
    own.spend(1, 0, 0.0)
    check(own, warned="1,000 tokens for this answer only about 200 are left.")
    own.spend(0, 200, 0.0)
    check(own, exhausted="my limit of 1,000 tokens for one answer is used up")


def test_money() -> None:
    own = spend(budget(money=0.5), 1, cost=0.3)
    check(own)
    check(spend(own, 1, cost=0.125), warned="$0.50 for this answer only $0.075 is left.")
    check(spend(own, 1, cost=0.125), exhausted="my limit of $0.50 for one answer is used up")


def test_small_change_is_not_nothing() -> None:
    check(spend(budget(money=0.004), 1, cost=0.01), exhausted="my limit of $0.004 for one answer is used up")


def test_seconds_since_the_beginning() -> None:
    watch = Watch()
    own = budget(watch, seconds=60)
    watch.now += 47
    check(own)
    watch.now += 1
    check(own, warned="60 seconds for this answer only about 12 are left.")
    watch.now += 12
    check(own, exhausted="my limit of 60 seconds for one answer is used up")


def test_what_is_used_up_is_not_said_to_be_nearly_so() -> None:
    own = spend(budget(requests=5, tokens=1000), 5, tokens=500)
    check(own, exhausted="my limit of 5 requests to the model for one answer is used up")


def test_the_usage_adds_up() -> None:
    own = budget()
    assert own.spent.usage is None
    own.spend(100, 20, 0.001)
    own.spend(200, 30, 0.002)
    assert own.spent.usage == Usage(input_tokens=300, output_tokens=50, requests=2, cost=0.003)


@pytest.mark.parametrize("limits", [{"requests": 1}, {"tokens": 1}, {"money": 0.1}, {"seconds": 1.5}])
def test_no_sentence_has_an_internal_code_in_it(limits: dict[str, float]) -> None:
    watch = Watch()
    own = budget(watch, **limits)
    own.spend(10, 10, 1.0)
    watch.now += 10
    assert own.exhausted
    assert re.findall(r"\w+_\w+|[{}<>]", own.exhausted) == []

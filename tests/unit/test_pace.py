"""Budgets: bursts, the average rate, whose turn it is, and pauses that count for everybody."""

from __future__ import annotations

import asyncio

import pytest

from tests.worlds.builders import capabilities
from tests.worlds.fakes import FakeClock, settle
from tidings.core.errors import RateLimited
from tidings.core.outbound import pace
from tidings.core.outbound.pace import Budgets
from tidings.core.types import Pace

CHAT = Pace(key="chat 1", seconds=1.0, burst=3)
STRICT = Pace(key="strict", seconds=2.0, burst=1)
ACCOUNT = Pace(key="account", seconds=0.5, burst=5)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def budgets(clock: FakeClock) -> Budgets:
    return Budgets(clock)


class Sends:
    """Sends that wait for their turn, and when each got it."""

    def __init__(self, clock: FakeClock, budgets: Budgets) -> None:
        self._clock = clock
        self._budgets = budgets
        self._began = clock.now()
        self._tasks: list[asyncio.Task[None]] = []
        self.went: list[tuple[str, float]] = []

    def queue(self, name: str, *paces: Pace) -> None:
        self._tasks.append(asyncio.create_task(self._go(name, paces)))

    async def _go(self, name: str, paces: tuple[Pace, ...]) -> None:
        await self._budgets.turn(paces)
        self.went.append((name, self._clock.now() - self._began))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.went]

    @property
    def times(self) -> list[float]:
        return [at for _, at in self.went]


@pytest.fixture
async def sends(clock: FakeClock, budgets: Budgets) -> Sends:
    return Sends(clock, budgets)


def test_a_fresh_budget_lets_a_whole_burst_pass_and_no_more(budgets: Budgets) -> None:
    assert [budgets.take((CHAT,)) for _ in range(4)] == [True, True, True, False]


def test_a_call_that_did_not_fit_costs_nothing(budgets: Budgets, clock: FakeClock) -> None:
    for _ in range(3):
        budgets.take((CHAT,))
    waits = [budgets.ready_in((CHAT,)), *(budgets.take((CHAT,)) for _ in range(5)), budgets.ready_in((CHAT,))]
    assert waits == [1.0, False, False, False, False, False, 1.0]


async def test_an_empty_budget_fills_at_its_rate(budgets: Budgets, clock: FakeClock) -> None:
    for _ in range(3):
        budgets.take((CHAT,))
    await clock.advance(1.0)
    assert [budgets.take((CHAT,)) for _ in range(2)] == [True, False]
    await clock.advance(2.0)
    assert [budgets.take((CHAT,)) for _ in range(3)] == [True, True, False]


async def test_a_long_rest_earns_one_burst_and_not_two(budgets: Budgets, clock: FakeClock) -> None:
    budgets.take((CHAT,))
    await clock.advance(1000.0)
    assert [budgets.take((CHAT,)) for _ in range(4)] == [True, True, True, False]


async def test_sends_go_in_a_burst_and_then_at_the_average_rate(sends: Sends, clock: FakeClock) -> None:
    for number in range(6):
        sends.queue(str(number), CHAT)
    await clock.advance(10.0)
    assert sends.times == [0.0, 0.0, 0.0, 1.0, 2.0, 3.0]


async def test_sends_get_their_turn_in_the_order_in_which_they_asked(sends: Sends, clock: FakeClock) -> None:
    for number in range(20):
        sends.queue(str(number), STRICT)
    await clock.advance(60.0)
    assert sends.names == [str(number) for number in range(20)]


async def test_a_thousand_waiting_sends_do_not_wake_each_other(sends: Sends, clock: FakeClock) -> None:
    for number in range(1000):
        sends.queue(str(number), STRICT)
    await settle()
    assert clock.waiting == 999
    await clock.advance(2.0)
    assert (len(sends.went), clock.waiting) == (2, 998)


async def test_a_call_draws_on_every_budget_that_it_names(budgets: Budgets) -> None:
    assert budgets.take((CHAT, ACCOUNT))
    assert [budgets.take((CHAT,)) for _ in range(3)] == [True, True, False]
    assert [budgets.take((ACCOUNT,)) for _ in range(5)] == [True, True, True, True, False]


async def test_the_slowest_budget_decides(sends: Sends, clock: FakeClock) -> None:
    sends.queue("first", STRICT, ACCOUNT)
    sends.queue("second", STRICT, ACCOUNT)
    await clock.advance(10.0)
    assert sends.times == [0.0, 2.0]


async def test_one_exhausted_chat_does_not_slow_another(sends: Sends, clock: FakeClock) -> None:
    for number in range(10):
        sends.queue(f"busy {number}", STRICT)
    sends.queue("free", CHAT)
    await settle()
    assert sends.names == ["busy 0", "free"]


async def test_a_chat_that_must_wait_does_not_hold_back_the_budget_that_all_share(
    budgets: Budgets, sends: Sends, clock: FakeClock
) -> None:
    budgets.pause(STRICT.key, clock.now() + 30.0)
    sends.queue("paused", STRICT, ACCOUNT)
    for number in range(8):
        sends.queue(str(number), Pace(key=f"chat {number}", seconds=1.0, burst=1), ACCOUNT)
    await clock.advance(29.0)
    assert sends.names == [str(number) for number in range(8)]
    assert sends.times[-1] == 1.5
    await clock.advance(1.0)
    assert sends.names[-1] == "paused"


async def test_what_waited_for_a_shared_budget_keeps_its_distance_all_the_same(
    budgets: Budgets, sends: Sends, clock: FakeClock
) -> None:
    shared = Pace(key="shared", seconds=10.0, burst=1)
    assert budgets.take((shared,))
    sends.queue("first", STRICT, shared)
    await clock.advance(10.0)
    sends.queue("second", STRICT)
    await clock.advance(10.0)
    assert sends.times == [10.0, 12.0]


async def test_a_show_never_overtakes_a_waiting_send(budgets: Budgets, sends: Sends, clock: FakeClock) -> None:
    sends.queue("first", STRICT)
    sends.queue("second", STRICT)
    await settle()
    await clock.advance(1.0)
    assert not budgets.take((STRICT,))
    # Behind the second send, which goes at 2 and keeps the budget busy until 4.
    assert budgets.ready_in((STRICT,)) == 3.0
    await clock.advance(1.0)
    assert sends.names == ["first", "second"]
    assert not budgets.take((STRICT,))


def test_a_signal_is_skipped_unless_a_send_would_still_fit(budgets: Budgets) -> None:
    assert budgets.take((CHAT,), spare=1)
    assert budgets.take((CHAT,), spare=1)
    assert not budgets.take((CHAT,), spare=1)
    assert budgets.take((CHAT,)), "what the signal left is there for a send"


async def test_a_budget_of_one_has_nothing_to_spare_for_a_signal(budgets: Budgets, clock: FakeClock) -> None:
    assert not budgets.take((STRICT,), spare=1)
    budgets.take((STRICT,))
    await clock.advance(1000.0)
    assert not budgets.take((STRICT,), spare=1)
    assert budgets.take((STRICT,))


async def test_a_pause_counts_for_everybody_who_draws_on_the_budget(
    budgets: Budgets, sends: Sends, clock: FakeClock
) -> None:
    budgets.pause(ACCOUNT.key, clock.now() + 30.0)
    assert not budgets.take((CHAT, ACCOUNT))
    assert not budgets.take((CHAT, ACCOUNT), spare=1)
    sends.queue("a send", STRICT, ACCOUNT)
    await clock.advance(29.0)
    assert sends.names == []
    await clock.advance(1.0)
    assert sends.times == [30.0]
    assert budgets.take((CHAT, ACCOUNT))


async def test_a_pause_leaves_other_budgets_alone(budgets: Budgets, sends: Sends, clock: FakeClock) -> None:
    budgets.pause(STRICT.key, clock.now() + 30.0)
    sends.queue("elsewhere", CHAT)
    await settle()
    assert sends.times == [0.0]
    assert budgets.take((CHAT, ACCOUNT))


async def test_a_send_that_waits_for_its_turn_waits_for_a_pause_that_begins_meanwhile(
    budgets: Budgets, sends: Sends, clock: FakeClock
) -> None:
    sends.queue("first", STRICT)
    sends.queue("second", STRICT)
    await settle()
    budgets.pause(STRICT.key, clock.now() + 30.0)
    await clock.advance(29.0)
    assert sends.names == ["first"]
    await clock.advance(1.0)
    assert sends.times == [0.0, 30.0]


async def test_those_who_waited_out_a_pause_do_not_rush_in_together(
    budgets: Budgets, sends: Sends, clock: FakeClock
) -> None:
    for number in range(4):
        sends.queue(str(number), STRICT)
    await settle()
    budgets.pause(STRICT.key, clock.now() + 30.0)
    await clock.advance(60.0)
    assert sends.names == ["0", "1", "2", "3"]
    assert all(later - earlier >= 2.0 for earlier, later in zip(sends.times, sends.times[1:], strict=False))


async def test_a_shorter_pause_does_not_end_a_longer_one(budgets: Budgets, clock: FakeClock) -> None:
    budgets.pause(CHAT.key, clock.now() + 30.0)
    budgets.pause(CHAT.key, clock.now() + 5.0)
    assert budgets.ready_in((CHAT,)) == 30.0


async def test_a_turn_that_was_not_used_goes_to_the_next(budgets: Budgets, clock: FakeClock) -> None:
    assert budgets.take((STRICT, ACCOUNT))
    assert not budgets.take((STRICT, ACCOUNT))
    budgets.give_back((STRICT, ACCOUNT))
    assert budgets.take((STRICT, ACCOUNT))
    assert not budgets.take((STRICT, ACCOUNT))


async def test_a_call_that_stops_waiting_leaves_its_turn_to_the_others(budgets: Budgets, clock: FakeClock) -> None:
    assert budgets.take((STRICT, ACCOUNT))
    news = asyncio.Event()
    waiting = [asyncio.create_task(budgets.turn_unless((STRICT, ACCOUNT), news)) for _ in range(10)]
    await settle()
    assert budgets.ready_in((STRICT,)) == 22.0
    news.set()
    assert await asyncio.gather(*waiting) == [False] * 10
    assert budgets.ready_in((STRICT,)) == 2.0


async def test_a_call_whose_turn_comes_before_any_news_goes(budgets: Budgets, clock: FakeClock) -> None:
    assert budgets.take((STRICT,))
    waiting = asyncio.create_task(budgets.turn_unless((STRICT,), asyncio.Event()))
    await clock.advance(2.0)
    assert await waiting
    assert budgets.ready_in((STRICT,)) == 2.0


async def test_giving_back_late_earns_nothing(budgets: Budgets, clock: FakeClock) -> None:
    budgets.take((STRICT,))
    await clock.advance(100.0)
    budgets.give_back((STRICT,))
    assert [budgets.take((STRICT,)) for _ in range(2)] == [True, False]


async def test_a_target_without_budgets_never_waits(budgets: Budgets, sends: Sends) -> None:
    sends.queue("free")
    await settle()
    assert sends.names == ["free"]
    assert budgets.take((), spare=1)


async def test_budgets_that_are_full_again_are_forgotten(budgets: Budgets, clock: FakeClock) -> None:
    """A gateway that speaks to a million chats keeps only those that it spoke to just now."""
    remembered = 0
    for number in range(3 * pace.FORGET_ABOVE):
        budgets.take((Pace(key=f"chat {number}", seconds=1.0, burst=1),))
        if number % 5000 == 0:
            await clock.advance(2.0)
        remembered = max(remembered, len(budgets._full_at))
    assert remembered <= pace.FORGET_ABOVE + 1


async def test_pauses_that_are_over_are_forgotten_too(budgets: Budgets, clock: FakeClock) -> None:
    for number in range(3 * pace.FORGET_ABOVE):
        budgets.pause(f"chat {number}", clock.now() + 1.0)
        if number % 5000 == 0:
            await clock.advance(2.0)
    assert len(budgets._paused) <= pace.FORGET_ABOVE + 1


def test_back_off_grows_to_a_minute_and_stays_there() -> None:
    waits = [pace.backoff(misses) for misses in range(10)]
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (1.0, 60.0)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RateLimited(35.0), ("chat 1", 1035.0)),
        (RateLimited(35.0, "account"), ("account", 1035.0)),
        (RateLimited(0.0), ("chat 1", 1000.0)),
        (RateLimited(None), ("chat 1", 1004.0)),
    ],
)
def test_a_rate_limit_closes_the_budget_it_names_or_the_first(error: RateLimited, expected: tuple[str, float]) -> None:
    can = capabilities(pace=(CHAT, ACCOUNT))
    assert pace.pause_of(can, error, 1000.0, misses=2) == expected


def test_a_rate_limit_where_no_budget_is_declared_closes_none() -> None:
    assert pace.pause_of(capabilities(pace=()), RateLimited(35.0), 1000.0, misses=0) == ("", 1035.0)

"""The turnstile: a few in each round of the loop, in order, and nobody waits who finds it free."""

from __future__ import annotations

import asyncio

from tests.worlds.rounds import Rounds
from tidings.bots.assistant.turnstile import Turnstile


class Crowd:
    """Tasks that pass one turnstile and note it."""

    def __init__(self, turnstile: Turnstile) -> None:
        self._turnstile = turnstile
        self.passed: list[int] = []
        self.moves = asyncio.Event()

    async def come(self, number: int) -> None:
        await self._turnstile.enter()
        self.passed.append(number)
        self.moves.set()


async def test_who_finds_it_free_passes_without_waiting() -> None:
    crowd = Crowd(Turnstile(most=2))
    for number in range(2):
        # Driven by hand: had it waited for anything, this would yield.
        coming = crowd.come(number)
        try:
            coming.send(None)
        except StopIteration:
            continue
        coming.close()
    assert crowd.passed == [0, 1]


async def test_a_few_pass_in_each_round_of_the_loop_and_in_the_order_in_which_they_came() -> None:
    crowd = Crowd(Turnstile(most=3))
    with Rounds(lambda: len(crowd.passed)) as rounds:
        await asyncio.gather(*map(crowd.come, range(20)))
    assert crowd.passed == list(range(20))
    assert max(rounds.steps) == 3
    assert len([step for step in rounds.steps if step]) >= 7


async def test_whoever_comes_while_others_wait_does_not_overtake_them() -> None:
    crowd = Crowd(Turnstile(most=1))
    early = [asyncio.create_task(crowd.come(number)) for number in range(5)]
    await crowd.moves.wait()
    late = asyncio.create_task(crowd.come(5))
    await asyncio.gather(*early, late)
    assert crowd.passed == [0, 1, 2, 3, 4, 5]


async def test_who_leaves_the_queue_holds_up_nobody() -> None:
    crowd = Crowd(Turnstile(most=1))
    tasks = [asyncio.create_task(crowd.come(number)) for number in range(6)]
    await crowd.moves.wait()
    for number in (1, 2, 4):
        tasks[number].cancel()
    await asyncio.wait(tasks)
    assert crowd.passed[0] == 0
    assert [number for number in crowd.passed if number not in (1, 2, 4)] == [0, 3, 5]
    # And it is free again.
    await crowd.come(6)
    assert crowd.passed[-1] == 6

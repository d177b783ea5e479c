"""The clock that a test owns behaves like one."""

from __future__ import annotations

import asyncio

from tests.worlds.fakes import FakeClock


async def test_a_clock_fires_timers_in_order_and_the_wall_may_jump() -> None:
    clock = FakeClock()
    fired: list[tuple[str, float]] = []
    begun = clock.now()

    async def chain() -> None:
        for name in ("first", "second"):
            await clock.sleep(2)
            fired.append((name, clock.now() - begun))

    task = asyncio.create_task(chain())
    clock.call_later(3, lambda: fired.append(("between", clock.now() - begun)))
    clock.call_later(1, lambda: fired.append(("never", 0))).cancel()
    clock.jump(-86_400)
    await clock.advance(10)
    await task
    assert fired == [("first", 2), ("between", 3), ("second", 4)]
    assert (clock.now() - begun, clock.waiting) == (10, 0)

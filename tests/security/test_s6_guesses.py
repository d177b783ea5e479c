"""S6: wrong keys are answered ever later, also after a restart; the right key always passes."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from tests.security.wire import Answer, ask, bearer, connected, request
from tests.worlds.api import ApiWorld
from tests.worlds.fakes import FakeClock, MemoryNotebook
from tests.worlds.world import Echo
from tidings.adapters.api.guesses import FREE, FREE_OF_ALL, LONGEST_SECONDS, SECONDS, Guesses


async def guess(api: ApiWorld, *credentials: str, source: str = "127.0.0.1") -> int:
    return (await ask(api.url, "GET", "/v1/models", *credentials, source=source)).status


async def delays(guesses: Guesses, clock: FakeClock, count: int, address: str = "a") -> list[float]:
    """How long each of so many wrong keys waits, one asked after the other was answered."""
    waited = []
    for _ in range(count):
        waited.append(guesses.delay(address))
        asked = asyncio.create_task(guesses.hold_back(address))
        await clock.advance(waited[-1])
        await asyncio.wait_for(asked, 10)
    return waited


async def test_s6_the_right_key_passes_however_many_wrong_ones_came(tmp_path: Path) -> None:
    """From the same address, as behind one proxy, and by whatever header the wrong ones came."""
    clock = FakeClock()
    async with ApiWorld(tmp_path, Echo(), clock=clock) as api, AsyncExitStack() as crowd:
        waiting: list[asyncio.Task[Answer]] = []
        for number in range(4 * FREE):
            wrong = f"wrong-{number}"
            credentials = (
                (bearer(wrong),),
                (f"X-Api-Key: {wrong}",),
                (bearer(wrong), f"X-Api-Key: also-{wrong}", "X-Device-Token: bogus"),
                (f"Authorization: Basic {wrong}", f"X-Api-Key: {wrong}"),
            )[number % 4]
            client = await crowd.enter_async_context(connected(api.url))
            client.send(request("GET", "/v1/models", *credentials))
            waiting.append(asyncio.create_task(client.answer()))
            if number < FREE:
                assert (await waiting.pop()).status == 401
        assert await guess(api, bearer(api.key)) == 200
        assert not any(task.done() for task in waiting)
        await clock.advance(LONGEST_SECONDS)
        assert {(await task).status for task in waiting} == {401}
        assert await guess(api, bearer(api.key)) == 200


async def test_s6_each_wrong_key_is_answered_later_than_the_one_before() -> None:
    clock = FakeClock()
    guesses = Guesses(MemoryNotebook(), clock)
    assert await delays(guesses, clock, FREE + 5) == [0.0] * FREE + [1.0, 2.0, 4.0, 8.0, 16.0]
    # Hundreds at once are no way around it.
    for _ in range(3 * FREE):
        asked = asyncio.create_task(guesses.hold_back("a"))
        await asyncio.sleep(0)
        assert guesses.delay("a") == LONGEST_SECONDS
        asked.cancel()


async def test_s6_a_restart_forgets_no_guess(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Echo()) as api:
        for number in range(FREE):
            assert await guess(api, bearer(f"wrong-{number}")) == 401
        await api.crash()
        await api.start()
        assert api.adapter._guesses.delay("127.0.0.1") == 1.0
        assert "wrong-" not in api.rows("SELECT value FROM notebook WHERE name = 'guesses'")[0]["value"]


async def test_s6_many_strangers_do_not_slow_down_who_is_known() -> None:
    clock = FakeClock()
    guesses = Guesses(MemoryNotebook(), clock)
    guesses.welcome("mine")
    for number in range(FREE_OF_ALL):
        await guesses.hold_back(f"stranger {number}")
    assert guesses.delay("another stranger") == 1.0
    assert guesses.delay("mine") == 0.0


async def test_s6_without_a_key_nothing_is_counted(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Echo()) as api:
        assert {await guess(api) for _ in range(3 * FREE)} == {401}
        assert api.adapter._guesses.delay("127.0.0.1") == 0.0


async def test_s6_after_a_quiet_minute_the_next_one_is_answered_at_once() -> None:
    clock = FakeClock()
    guesses = Guesses(MemoryNotebook(), clock)
    await delays(guesses, clock, FREE + 2)
    assert guesses.delay("a") == 4.0
    await clock.advance(SECONDS)
    assert guesses.delay("a") == 0.0


async def test_s6_a_flood_of_wrong_keys_costs_few_commits() -> None:
    clock, notebook = FakeClock(), MemoryNotebook()
    guesses = Guesses(notebook, clock)
    tasks = [asyncio.create_task(guesses.hold_back("a")) for _ in range(1000)]
    await asyncio.sleep(0)
    assert len(guesses._recent) < 2 * FREE
    for task in tasks:
        task.cancel()


async def test_s6_who_leaves_while_a_wrong_key_waits_gives_up_its_place(tmp_path: Path) -> None:
    clock = FakeClock()
    async with ApiWorld(tmp_path, Echo(), clock=clock) as api:
        for number in range(FREE):
            assert await guess(api, bearer(f"wrong-{number}")) == 401
        listener = api._listening._listener
        assert listener is not None
        async with connected(api.url) as client:
            client.send(request("GET", "/v1/models", bearer("one more")))
            await api.eventually(lambda: len(listener.running) == 1)
        await api.eventually(lambda: not listener.running)

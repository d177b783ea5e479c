"""A task that nothing awaits is held, ends with its owner, and never fails in silence."""

import asyncio
import contextvars
import gc
import logging

import pytest

from tidings.core.background import Background

log = logging.getLogger("tests.background")
BOUND: contextvars.ContextVar[str] = contextvars.ContextVar("BOUND", default="nothing")


async def fails() -> None:
    raise RuntimeError("no ink")


async def test_a_task_that_nothing_else_holds_is_carried_out() -> None:
    background, done = Background(log, "it failed"), asyncio.Event()

    async def work() -> None:
        await asyncio.sleep(0)
        done.set()

    background.begin(work())
    gc.collect()
    await background.drain()
    assert done.is_set()
    assert len(background) == 0


async def test_a_fault_is_logged_once_with_the_key_of_its_task(caplog: pytest.LogCaptureFixture) -> None:
    background = Background(log, "a letter was not written")
    background.begin(fails(), key="letter 7")
    background.begin(fails())
    await background.drain()
    assert [record.getMessage() for record in caplog.records] == [
        "a letter was not written (letter 7): RuntimeError('no ink')",
        "a letter was not written: RuntimeError('no ink')",
    ]


async def test_an_owner_that_wants_to_judge_a_fault_is_given_it_and_nothing_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    faults: list[str] = []
    background = Background(log, "it failed", lambda error: faults.append(str(error)))
    background.begin(fails())
    await background.drain()
    assert faults == ["no ink"]
    assert caplog.records == []


async def test_closing_cancels_what_is_at_work_and_waits_for_its_end(caplog: pytest.LogCaptureFixture) -> None:
    background, tidied = Background(log, "it failed"), asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            tidied.set()

    background.begin(work())
    await asyncio.sleep(0)
    await background.close()
    assert tidied.is_set()
    assert caplog.records == [], "to be cancelled is no fault"


async def test_what_a_task_begins_while_it_is_cancelled_is_waited_for_too() -> None:
    background, last = Background(log, "it failed"), asyncio.Event()

    async def tidy() -> None:
        await asyncio.sleep(0)
        last.set()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            background.begin(tidy())

    background.begin(work())
    await asyncio.sleep(0)
    await background.close()
    assert last.is_set()


async def test_a_task_inherits_nothing_from_its_caller_unless_it_is_given_a_context() -> None:
    background, seen = Background(log, "it failed"), []

    async def look() -> None:
        seen.append(BOUND.get())

    BOUND.set("a session")
    background.begin(look())
    background.begin(look(), context=contextvars.copy_context())
    await background.drain()
    assert seen == ["nothing", "a session"]


async def test_a_key_is_free_again_as_soon_as_its_task_is_forgotten() -> None:
    background, ended = Background(log, "it failed"), asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    background.begin(work(), key="lane")
    await asyncio.sleep(0)
    background.forget("lane")
    assert "lane" not in background
    second = background.begin(work(), key="lane")
    assert background.get("lane") is second
    await background.close()
    assert ended.is_set()

"""The supervisor begins a part again: soon when it may be well by itself, and at once when the owner asks for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.worlds.fakes import FakeClock, settle
from tidings.core.errors import Misconfigured, Unreachable
from tidings.core.gateway.supervisor import Supervisor, sweep_each
from tidings.core.part import Part as GatewayPart
from tidings.core.telemetry.alarms import Alarms


class Part:
    """Fails as it is told, and counts how often it was begun."""

    def __init__(self, fault: Exception) -> None:
        self.fault: Exception | None = fault
        self.begun = 0

    async def __call__(self) -> None:
        self.begun += 1
        if self.fault is not None:
            raise self.fault
        await asyncio.Event().wait()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def supervisor(clock: FakeClock) -> AsyncIterator[Supervisor]:
    supervisor = Supervisor(clock, Alarms(clock))
    yield supervisor
    await supervisor.stop()


def state(supervisor: Supervisor) -> str:
    [part] = supervisor.health()
    return part.state


async def test_what_may_be_well_by_itself_is_tried_again_within_a_second(
    supervisor: Supervisor, clock: FakeClock
) -> None:
    part = Part(Unreachable("port 8642 is in use"))
    supervisor.keep("api@main", part)
    await settle()
    assert (part.begun, state(supervisor)) == (1, "degraded")
    part.fault = None
    await clock.advance(1)
    assert part.begun == 2


async def test_what_the_owner_has_mended_is_tried_at_once_when_they_say_so(
    supervisor: Supervisor, clock: FakeClock
) -> None:
    part = Part(Misconfigured("the token is wrong"))
    supervisor.keep("telegram@main", part)
    await settle()
    await clock.advance(60)
    assert (part.begun, state(supervisor)) == (1, "misconfigured")
    part.fault = None
    assert supervisor.try_misconfigured() == ("telegram@main",)
    await settle()
    assert part.begun == 2
    await clock.advance(60)
    assert state(supervisor) == "up"
    # There is nothing left to try.
    assert supervisor.try_misconfigured() == ()


async def test_what_nobody_has_mended_is_looked_at_every_five_minutes(supervisor: Supervisor, clock: FakeClock) -> None:
    part = Part(Misconfigured("the token is wrong"))
    supervisor.keep("telegram@main", part)
    await settle()
    await clock.advance(301)
    assert (part.begun, state(supervisor)) == (2, "misconfigured")


class Swept(GatewayPart):
    def __init__(self, fault: Exception | None = None) -> None:
        self.times = 0
        self._fault = fault

    async def sweep(self) -> None:
        self.times += 1
        if self._fault:
            raise self._fault


async def test_a_part_that_cannot_sweep_keeps_no_other_from_it_and_is_reported() -> None:
    parts = (Swept(), Swept(OSError("the disk is gone")), Swept(ValueError("nor does this work")), Swept())
    with pytest.raises(OSError, match="the disk is gone"):
        await sweep_each(parts)
    assert [part.times for part in parts] == [1, 1, 1, 1]

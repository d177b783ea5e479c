"""A paper platform and an adapter that is joined to it, on the clock of a test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.simulators.paper.adapter import PaperAdapter, settings_for
from tests.simulators.paper.simulator import Kind, PaperServer
from tests.worlds.fakes import FakeClock, host


@asynccontextmanager
async def platform(
    kind: Kind | None = None, *, limit: int = 2000, clock: FakeClock | None = None, **settings: Any
) -> AsyncIterator[tuple[PaperServer, PaperAdapter]]:
    clock = clock or FakeClock()
    async with PaperServer(kind, limit=limit, clock=clock) as paper:
        yield paper, PaperAdapter("main", settings_for(paper, **settings), host(clock))

"""A paper platform and an adapter that is joined to it, on the clock of a test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.fakes import FakeClock, host
from tests.simulators.paper import Kind, PaperServer
from tests.simulators.paper_adapter import PaperAdapter, settings_for


@asynccontextmanager
async def platform(
    kind: Kind | None = None, *, limit: int = 2000, clock: FakeClock | None = None, **settings: Any
) -> AsyncIterator[tuple[PaperServer, PaperAdapter]]:
    clock = clock or FakeClock()
    async with PaperServer(kind, limit=limit, clock=clock) as paper:
        yield paper, PaperAdapter("main", settings_for(paper, **settings), host(clock))

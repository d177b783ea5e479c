"""The gateway of a chaos run: a process like any other, with its own clock and grouped commits, until it is killed."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
from multiprocessing.connection import Connection
from pathlib import Path

from pydantic import SecretStr

from tests.chaos import crowd, mutants, scripted, visitors
from tests.chaos.steps import OWNER
from tests.worlds.fakes import FakeLocal
from tidings.adapters.api.adapter import ADAPTER, ApiAdapter
from tidings.adapters.api.settings import HttpSettings
from tidings.adapters.shared.http_server import HttpServer
from tidings.core import failpoints
from tidings.core.adapter import Platform
from tidings.core.gateway.gateway import Gateway
from tidings.core.gateway.options import Team
from tidings.core.settings import Access, Core, Limits
from tidings.core.types import Value

# What is only imported by who listens, here once for all lives: quicker, and the same code to the end of a run.
for _late in ("tidings.adapters.api.serve", "tidings.adapters.shared.http_limits"):
    importlib.import_module(_late)


class Life(Value, frozen=True, kw_only=True):
    """What one process is told before it starts."""

    home: str
    boot: int
    # As in TIDINGS_FAILPOINT; empty where only the clock kills.
    failpoint: str
    # (name of the stand, account, address) of each adapter.
    adapters: tuple[tuple[str, str, str], ...]
    # Where the HTTP API listens, and the owner's key to it.
    port: int
    key: str
    # What effectful tools really did.
    ledger: str
    log: str


def main(life: Life, lifeline: Connection) -> None:
    with open(life.log, "a") as log:
        os.dup2(log.fileno(), 2)
    # Files that an agent makes go where the process stands.
    os.chdir(Path(life.home).parent)
    logging.basicConfig(filename=life.log, level=logging.INFO, format=f"{life.boot} %(levelname)s %(name)s %(message)s")
    asyncio.run(_live(life, lifeline))


async def _live(life: Life, lifeline: Connection) -> None:
    # Whoever started us has gone: nobody is left to kill us.
    asyncio.get_running_loop().add_reader(lifeline.fileno(), os._exit, 3)
    mutants.become(os.environ.get(mutants.VARIABLE, ""))
    failpoints.arm(life.failpoint)
    http = HttpSettings(port=life.port, key=SecretStr(life.key))
    async with HttpServer(http.host, http.port) as server, _gateway(life, http, server):
        await asyncio.Event().wait()


def _gateway(life: Life, http: HttpSettings, server: HttpServer) -> Gateway:
    platforms = [
        Platform(name, account, lambda host, n=name, a=account, at=address: crowd.STANDS[n].build(a, at, host))  # type: ignore[misc]
        for name, account, address in life.adapters
    ]
    platforms.append(Platform(ADAPTER, "main", lambda host: ApiAdapter("main", http, host), nearby=True))
    clock = crowd.SwiftClock()
    agent = crowd.CrowdAgent(clock, scripted.Ledger(Path(life.ledger)))
    allowed = tuple(f"{name}:{person}" for name, stand in crowd.STANDS.items() for person in stand.people)
    return Gateway(
        Path(life.home),
        Core(access=Access(allow=allowed, owners=(f"{visitors.DESK}:{OWNER}",)), limits=Limits(burst_seconds=0)),
        platforms,
        Team({"crowd": agent}, "crowd", scripted.kinds(clock)),
        FakeLocal(),
        server,
    )

"""Measures a change of people: how long an admission takes, and for how long at most nothing else is done meanwhile.

`python -m tests.bench.people PEOPLE` prints one JSON object for a gateway that has so many people stored.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.platform import MemoryAdapter
from tests.bench.standstill import Pulse
from tests.worlds.fakes import FakeLocal, FakeServer
from tidings.bots.echo.agent import EchoAgent
from tidings.core.gateway.gateway import Gateway
from tidings.core.gateway.options import Team
from tidings.core.people import rows
from tidings.core.people.rows import Stored
from tidings.core.roles import OWNER, Role
from tidings.core.settings import Core
from tidings.core.store.sqlite import DATABASE, open_store
from tidings.core.store.store import Transaction

ADMISSIONS = 10


async def measure(people: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        store = await open_store(home / DATABASE)
        await store.write(lambda tx: _fill(tx, people))
        await store.close()
        adapter = MemoryAdapter()
        team = Team({"bot": EchoAgent()}, "bot")
        async with Gateway(home, Core(), [adapter.platform()], team, FakeLocal(), FakeServer()) as gateway:
            await adapter.listening.wait()
            return await _admit(gateway)


def _fill(tx: Transaction, people: int) -> None:
    for number in range(people):
        rows.put_person(tx, Stored(f"psn_{number}", f"Person {number}", Role.MEMBER, OWNER.id, 0.0, (f"a:{number}",)))


async def _admit(gateway: Gateway) -> dict[str, float]:
    pulse, taken = Pulse(), []
    beating = asyncio.create_task(pulse.beat())
    for number in range(ADMISSIONS):
        began = time.perf_counter()
        await gateway.desk.people.admit(OWNER, f"b:{number}")
        taken.append((time.perf_counter() - began) * 1000)
        # The beat that came too late is counted.
        await asyncio.sleep(0.01)
    beating.cancel()
    return {"admit_ms": round(statistics.median(taken), 2), "longest_ms": pulse.figures()["longest_ms"]}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure(int(sys.argv[1])))))

"""How much longer everybody else waits while one platform is down and all its answers are owed.

`python -m tests.bench.crowd_of_platforms` prints one JSON object. For each platform that can go down it has the mean of
the seconds that each other surface takes to answer a hundred people: while it answers a hundred too, while nobody asks
there, and while it is down; and how much more the last is than the first, in percent. Everything is in one process,
with the simulated platforms and the people; the paces are as usual.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import statistics
import tempfile
import time
from pathlib import Path

from tests.worlds.all_platforms import AllPlatforms, Mirror, Surface

ROUNDS = 3
# Until every pace has room again.
PAUSE_SECONDS = 2.0


async def _seconds(world: AllPlatforms, down: str, text: str) -> float:
    others = [surface for name, surface in world.surfaces.items() if name != down]
    began = time.perf_counter()

    async def answered(surface: Surface) -> float:
        await surface.answers()
        return time.perf_counter() - began

    for surface in others:
        surface.ask(text)
    return statistics.mean(await asyncio.gather(*map(answered, others)))


async def _rested(world: AllPlatforms) -> None:
    await world.settled()
    await asyncio.sleep(PAUSE_SECONDS)


async def _compare(home: Path, down: str) -> dict[str, float]:
    usual: list[float] = []
    idle: list[float] = []
    broken: list[float] = []
    async with AllPlatforms(home, Mirror()) as world:
        await _seconds(world, "", "warm")
        for number in range(ROUNDS):
            await _rested(world)
            world.outages[down].ask(f"usual{number}")
            usual.append(await _seconds(world, down, f"usual{number}"))
            await _rested(world)
            idle.append(await _seconds(world, down, f"idle{number}"))
            await _rested(world)
            await world.break_down(down, f"owed{number}")
            broken.append(await _seconds(world, down, f"down{number}"))
            await world.outages[down].outage(False)
    seconds, slowed = statistics.median(usual), statistics.median(broken)
    return {
        "seconds": seconds,
        "seconds_idle": statistics.median(idle),
        "seconds_in_outage": slowed,
        "slower_percent": (slowed / seconds - 1) * 100,
    }


def measure() -> dict[str, dict[str, float]]:
    figures = {}
    for down in ("telegram", "discord", "slack"):
        with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_FOLDER")) as home:
            figures[down] = asyncio.run(_compare(Path(home), down))
    return figures


if __name__ == "__main__":
    # What is said of an outage is no news here.
    logging.disable(logging.CRITICAL)
    print(json.dumps(measure()))

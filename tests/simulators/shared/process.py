"""A simulated platform in a process of its own, so that a bench measures only the other side.

The process tells about itself as one line of JSON, then obeys lines of JSON until its input ends:
{"say": TEXT, "place": NUMBER} lets a person speak there; {"tell": true} asks for the truth.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from tests.simulators.shared.server import SimulatedPlatform

S = TypeVar("S", bound=SimulatedPlatform[Any, Any, Any])


class PlatformProcess(ABC, Generic[S]):
    """One simulator and the places in which people speak to the bot there."""

    def __init__(self, server: S, places: int) -> None:
        self.server = server
        self.places = places

    @abstractmethod
    def furnish(self) -> dict[str, Any]:
        """Makes people and places; tells where the platform is, the bot's tokens, and the ids of the people."""

    @abstractmethod
    def say(self, text: str, place: int) -> None: ...

    @abstractmethod
    def truth(self) -> dict[str, Any]:
        """attached; said and posted as (place, time, text); acks as (text, seconds) where there are any."""

    async def serve(self, limited: bool) -> None:
        async with self.server:
            self.server.limit_rates(limited)
            _write(self.furnish())
            began = time.process_time()
            while line := await asyncio.to_thread(sys.stdin.readline):
                order = json.loads(line)
                if "say" in order:
                    self.say(order["say"], order.get("place", 0))
                else:
                    calls, cpu = len(self.server.calls()), time.process_time() - began
                    _write({**self.truth(), "calls": calls, "cpu": cpu})


def _write(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


def main(process: type[PlatformProcess[Any]], server: type[SimulatedPlatform[Any, Any, Any]]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--places", type=int, default=10, help="how many places people speak in")
    parser.add_argument("--limited", action="store_true", help="with the rate limits that are known")
    options = parser.parse_args()
    asyncio.run(_run(process, server, options.places, options.limited))


async def _run(
    process: type[PlatformProcess[Any]], server: type[SimulatedPlatform[Any, Any, Any]], places: int, limited: bool
) -> None:
    await process(server(), places).serve(limited)  # type: ignore[call-arg]

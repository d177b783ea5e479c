"""Measures how long /health takes while a hundred turns of the assistant begin at once, beside an idle gateway."""

from __future__ import annotations

import asyncio
import json
import statistics
import time

from tests.bench.api import Figures, Server, _ask, _request, serving
from tests.bench.assistant import MODEL, provider

# An answer of ordinary length and speed: what many streams cost is measured elsewhere.
TURNS, TOKENS, RATE = 100, 20, 10.0
PROBE_SECONDS = 0.01
IDLE_SECONDS = 2.0
ALONE = 10


async def _probe(server: Server, found: list[float]) -> None:
    """Asks for ever, each time a moment after it was answered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    # A connection that has shown a key is not closed in favour of new ones.
    await _ask(reader, writer, _request("GET", "/v1/models"))
    request = _request("GET", "/health")
    try:
        while True:
            began = time.perf_counter()
            await _ask(reader, writer, request)
            found.append((time.perf_counter() - began) * 1000)
            await asyncio.sleep(PROBE_SECONDS)
    finally:
        writer.close()


async def _turn(server: Server, name: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    named = f"X-Tidings-Conversation: {name}\r\n"
    body = {"messages": [{"role": "user", "content": "hello there"}]}
    await _ask(reader, writer, _request("POST", "/v1/chat/completions", body, named))
    writer.close()


async def health() -> Figures:
    async with provider(TOKENS, RATE) as place:
        bot = {
            "TIDINGS_BOT__MODEL": f"openai-chat:{MODEL}",
            "TIDINGS_BOT__BASE_URL": place["openai"],
            "TIDINGS_BOT__API_KEY": place["key"],
        }
        async with serving("tidings", bot) as server:
            await _turn(server, "first")
            cpu, began = server.cpu, time.perf_counter()
            for number in range(ALONE):
                await _turn(server, f"alone-{number}")
            alone, alone_cpu = (time.perf_counter() - began) / ALONE, (server.cpu - cpu) / ALONE
            probes: list[float] = []
            probing = asyncio.create_task(_probe(server, probes))
            await asyncio.sleep(IDLE_SECONDS)
            idle = probes.copy()
            probes.clear()
            began = time.perf_counter()
            await asyncio.gather(*(_turn(server, str(number)) for number in range(TURNS)))
            wall = time.perf_counter() - began
            probing.cancel()
            await asyncio.wait({probing})
    return {
        "idle_p50_ms": statistics.median(idle),
        "idle_worst_ms": max(idle),
        "p50_ms": statistics.median(probes),
        "worst_ms": max(probes),
        "probes": float(len(probes)),
        "seconds": wall,
        "alone_ms": alone * 1000,
        "alone_cpu_ms": alone_cpu * 1000,
    }


def main() -> None:
    print(json.dumps(asyncio.run(health())))


if __name__ == "__main__":
    main()

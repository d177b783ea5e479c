"""Measures the assistant's own share of a turn, beside a bare client of the same provider in the same run."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.bench.measures import gateway
from tidings.bots.assistant.agent import Assistant
from tidings.bots.assistant.settings import Assistant as Settings

MODEL = "sim-large"
SHORT, LONG = 8, 2008
TURNS = 200
LONG_TURNS = 10
# As many people at once as a small server may have, each reading a quick model.
STREAMS, RATE, TOKENS = 50, 50.0, 500

Figures = dict[str, float]
Ask = Callable[[int, int], Awaitable[int]]


@asynccontextmanager
async def provider(tokens: int, rate: float) -> AsyncIterator[dict[str, str]]:
    """In a process of its own, so that its work is not counted as ours."""
    arguments = ["-m", "tests.simulators.provider.process", "--tokens", str(tokens), "--rate", str(rate)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    yield json.loads(await process.stdout.readline())
    process.stdin.close()
    await process.stdout.read()
    await process.wait()


@asynccontextmanager
async def ours(place: dict[str, str]) -> AsyncIterator[Ask]:
    settings = Settings.model_validate(
        {"model": f"openai-chat:{MODEL}", "base_url": place["openai"], "api_key": place["key"]}
    )
    agent = Assistant("bench", settings)
    await agent.prepare()
    with tempfile.TemporaryDirectory() as home:
        async with gateway(Path(home), agent) as adapter:

            async def ask(chat: int, number: int) -> int:
                await adapter.ask(str(chat), f"{chat}.{number}", "hello there")
                return 1

            yield ask
    await agent.close()


@asynccontextmanager
async def bare(place: dict[str, str]) -> AsyncIterator[Ask]:
    """The provider's own library, which remembers nothing, stores nothing and tells nobody."""
    import openai

    async with openai.AsyncOpenAI(base_url=place["openai"], api_key=place["key"], max_retries=0) as client:

        async def ask(chat: int, number: int) -> int:
            words: list[Any] = [{"role": "user", "content": "hello there"}]
            stream = await client.chat.completions.create(model=MODEL, messages=words, stream=True)
            return sum([1 async for _ in stream])

        yield ask


SIDES = {"tidings": ours, "bare": bare}


async def _spend(side: str, tokens: int, turns: int) -> float:
    """CPU seconds of one turn after the first."""
    async with provider(tokens, 0.0) as place, SIDES[side](place) as ask:
        await ask(0, 0)
        cpu = time.process_time()
        # Each in a conversation of its own: how a long talk grows is not what is measured here.
        for number in range(1, turns + 1):
            await ask(number, 0)
        return (time.process_time() - cpu) / turns


async def turns(side: str) -> Figures:
    short, long = await _spend(side, SHORT, TURNS), await _spend(side, LONG, LONG_TURNS)
    return {"cpu_ms_per_turn": short * 1000, "cpu_us_per_token": (long - short) / (LONG - SHORT) * 1e6}


async def streams(side: str) -> Figures:
    async with provider(TOKENS, RATE) as place, SIDES[side](place) as ask:
        cpu, began = time.process_time(), time.perf_counter()
        await asyncio.gather(*(ask(number, 0) for number in range(STREAMS)))
        wall = time.perf_counter() - began
        return {"seconds": wall, "cpu_share": (time.process_time() - cpu) / wall * 100}


async def talk(side: str) -> Figures:
    """The hundredth turn of one conversation."""
    async with provider(SHORT, 0.0) as place, SIDES[side](place) as ask:
        for number in range(90):
            await ask(0, number)
        cpu = time.process_time()
        for number in range(90, 110):
            await ask(0, number)
        return {"cpu_ms_per_turn": (time.process_time() - cpu) / 20 * 1000}


def main() -> None:
    measures = {"turns": turns, "streams": streams, "talk": talk}
    print(json.dumps(asyncio.run(measures[sys.argv[1]](sys.argv[2]))))


if __name__ == "__main__":
    main()

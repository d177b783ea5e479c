"""The HTTP clients of a chaos run: each asks for one run, follows its events however often it is cut off, and tells."""

from __future__ import annotations

import asyncio
import random
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import aiohttp

from tests.chaos import crowd
from tests.worlds.api import KEY, Frame, frames_of

# So many messages of the crowd there are for each run.
ONE_IN = 10
# What needs files, background work or commands is for chats; a promise is asked for, and must be refused.
WORDS = {word: odds for word, odds in crowd.WORDS.items() if word.isalpha() and word not in ("file", "frail")}
NAMES = ("", "", "red", "green", "blue")
# Below the ports that the system gives to clients: whoever calls such a port while nobody listens may meet itself.
PORTS = (20_000, 32_000)
RETRY_SECONDS = 0.05
ANSWER_SECONDS = 10.0
# Signs of life come more often.
SILENCE_SECONDS = 30.0
LOOK_BACK_SECONDS = 60.0
AT_ONCE = 20


class Reading(NamedTuple):
    """One reader of a run's events: when it comes, and after how many of them it hangs up, time after time."""

    delay: float
    cuts: tuple[int, ...]


class Ask(NamedTuple):
    """All that a seed decides about one client."""

    key: str
    # Not before so many messages were said.
    after: int
    text: str
    # Empty is asked in none.
    conversation: str
    # Hangs up so soon after asking for the first time, and asks again; zero waits for the answer.
    haste: float
    readings: tuple[Reading, ...]
    # Stops the run so long after it was accepted; zero never does.
    stop: float

    @property
    def stored_key(self) -> str:
        """As the agent and the inbox know it."""
        return f"owner/key/{self.key}"

    @property
    def body(self) -> dict[str, str]:
        return {"input": self.text} | ({"conversation": self.conversation} if self.conversation else {})


class Told:
    """What one client has seen."""

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        # Of each 202.
        self.runs: list[str] = []
        # For each reader.
        self.seen: list[list[Frame]] = [[] for _ in ask.readings]
        # To the word that stops it, in the end; None where nothing was to be stopped.
        self.stop: str | None = None
        # When all is over: the run, and its events to a new reader.
        self.status: dict[str, Any] | None = None
        self.replay: list[Frame] = []
        # Answers that nobody should get.
        self.refusals: list[str] = []
        self.is_done = False

    def __str__(self) -> str:
        return f"{self.ask.key} ({self.ask.text}, {self.runs[0] if self.runs else 'no run'})"


def ask_all(seed: int, messages: int) -> Iterator[Ask]:
    lots = random.Random(f"{seed}/api")
    moments = sorted(lots.randint(0, messages) for _ in range(messages // ONE_IN))
    for number, after in enumerate(moments, start=1):
        (text,) = lots.choices(list(WORDS), list(WORDS.values()))
        stopped = text == "slow" or lots.random() < 0.06
        yield Ask(
            key=f"q{number}",
            after=after,
            text=text,
            conversation=lots.choice(NAMES),
            haste=lots.uniform(0.001, 0.03) if lots.random() < 0.3 else 0.0,
            readings=tuple(_reading(lots) for _ in range(lots.choice((1, 1, 2)))),
            stop=lots.uniform(0.05, 1.5) if stopped else 0.0,
        )


def _reading(lots: random.Random) -> Reading:
    cuts = tuple(lots.randint(0, 4) for _ in range(lots.randint(1, 5))) if lots.random() < 0.5 else ()
    return Reading(lots.choice((0.0, 0.0, lots.uniform(0.0, 2.0))), cuts)


def free_port() -> int:
    """The same for every life of a gateway, so it is chosen before."""
    while True:
        port = random.randint(*PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port


class Clients:
    def __init__(self, asks: tuple[Ask, ...], port: int, reached: Callable[[int], asyncio.Event]) -> None:
        self.told = tuple(Told(ask) for ask in asks)
        # How often what went wrong on the way.
        self.troubles: Counter[str] = Counter()
        self.has_looked_back = False
        self._address = f"http://127.0.0.1:{port}/v1/runs"
        self._reached = reached

    async def __aenter__(self) -> Clients:
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {KEY}"},
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=ANSWER_SECONDS, sock_read=SILENCE_SECONDS),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for told in self.told:
                group.create_task(self._live(told))

    def open(self) -> list[str]:
        """Who still waits for something; the number of events changes as long as it gets on."""
        return [f"API client {told} has {sum(map(len, told.seen))} events" for told in self.told if not told.is_done]

    async def look_back(self) -> None:
        """When all is over, everything is asked for once more."""
        places = asyncio.Semaphore(AT_ONCE)

        async def look(told: Told) -> None:
            async with places:
                await self._look_back(told)

        async with asyncio.timeout(LOOK_BACK_SECONDS), asyncio.TaskGroup() as group:
            for told in self.told:
                group.create_task(look(told))
        self.has_looked_back = True

    async def _look_back(self, told: Told) -> None:
        if not told.runs:
            return
        status, run = await self._insist("GET", f"/{told.runs[0]}")
        told.status = run if status == 200 else None
        await self._read(told, Reading(0.0, ()), told.replay)
        await self._ask(told)

    async def _live(self, told: Told) -> None:
        ask = told.ask
        await self._reached(ask.after).wait()
        if ask.haste:
            with suppress(TimeoutError):
                async with asyncio.timeout(ask.haste):
                    await self._ask(told)
        if await self._ask(told):
            async with asyncio.TaskGroup() as group:
                for reading, seen in zip(ask.readings, told.seen, strict=True):
                    group.create_task(self._read(told, reading, seen))
                if ask.stop:
                    group.create_task(self._stop(told))
        told.is_done = True

    async def _ask(self, told: Told) -> bool:
        ask = told.ask
        status, answer = await self._insist("POST", "", json=ask.body, headers={"Idempotency-Key": ask.key})
        if status == 202:
            told.runs.append(answer["run_id"])
        else:
            told.refusals.append(f"POST was answered by {status} {answer}")
        return status == 202

    async def _stop(self, told: Told) -> None:
        await asyncio.sleep(told.ask.stop)
        status, answer = await self._insist("POST", f"/{told.runs[0]}/stop", json={})
        told.stop = str(answer.get("status", ""))
        if status != 200:
            told.refusals.append(f"stop was answered by {status} {answer}")

    async def _insist(self, method: str, path: str, **more: Any) -> tuple[int, Any]:
        """The first answer that does not ask us to come back; whoever is never answered is found by `open`."""
        more["timeout"] = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
        while True:
            try:
                async with self._session.request(method, self._address + path, **more) as response:
                    answer = await response.json()
                    if response.status < 500 and response.status != 429:
                        return response.status, answer
                    self.troubles[str(response.status)] += 1
            except (aiohttp.ClientError, OSError, TimeoutError):
                self.troubles["unanswered"] += 1
            await asyncio.sleep(RETRY_SECONDS)

    async def _read(self, told: Told, reading: Reading, seen: list[Frame]) -> None:
        """Until the stream closes by itself; what was cut off goes on behind the last event that was whole."""
        await asyncio.sleep(reading.delay)
        cuts = list(reading.cuts)
        while True:
            headers = {"Last-Event-ID": seen[-1].id} if seen else {}
            try:
                async with self._session.get(f"{self._address}/{told.runs[0]}/events", headers=headers) as response:
                    if response.status < 500 and response.status != 429:
                        if response.status != 200:
                            told.refusals.append(f"events were answered by {response.status}")
                            return
                        if await _take(response, seen, cuts.pop(0) if cuts else None):
                            return
                        self.troubles["hung up"] += 1
                        continue
                    self.troubles[str(response.status)] += 1
            except (aiohttp.ClientError, OSError, TimeoutError):
                self.troubles["cut off"] += 1
            await asyncio.sleep(RETRY_SECONDS)


async def _take(response: aiohttp.ClientResponse, seen: list[Frame], most: int | None) -> bool:
    """False for who hangs up before it is over."""
    end = None if most is None else len(seen) + most
    async for frame in frames_of(_lines(response)):
        if len(seen) == end:
            # What is under way is lost, as it is when a connection breaks.
            response.close()
            return False
        seen.append(frame)
    return True


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[str]:
    async for line in response.content:
        yield line.decode().rstrip("\r\n")

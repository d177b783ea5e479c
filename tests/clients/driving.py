"""What the drivers share: each plays its scenarios and prints what it saw. Needs nothing but the standard library."""

from __future__ import annotations

import asyncio
import json
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple


class Place(NamedTuple):
    """Where the gateway is, and the key for it."""

    url: str
    key: str
    client: str

    def said(self, verb: str) -> str:
        return f"{verb} {self.client}"

    @property
    def first(self) -> str:
        """The first turn of two."""
        return f"tools first {self.client}"


WRONG_KEY = "a-key-that-nobody-has-made-0123456789"

# What was seen: the text, or what an exception says.
Scenario = Callable[[Place], Awaitable[str]]


Asked = Callable[[Place, str], Awaitable[str]]


def scenarios_of(whole: Asked, streamed: Asked, second: Scenario) -> dict[str, Scenario]:
    """All of them, by how a client asks for a whole answer, for a streamed one, and twice in a row."""
    return {
        "plain": lambda it: whole(it, "plain"),
        "streamed": lambda it: streamed(it, "streamed"),
        "fail": lambda it: whole(it, "fail"),
        "fail-streamed": lambda it: streamed(it, "fail streamed"),
        "tools": lambda it: whole(it, "tools"),
        "tools-streamed": lambda it: streamed(it, "tools streamed"),
        "second": second,
        "wrong-key": lambda it: whole(it, "wrong-key"),
    }


def drive(scenarios: Mapping[str, Mapping[str, Scenario]]) -> None:
    """By client and scenario; the address and the key are arguments of the process."""
    asyncio.run(_drive(scenarios, *sys.argv[1:3]))


async def _drive(scenarios: Mapping[str, Mapping[str, Scenario]], url: str, key: str) -> None:
    """In one loop, since libraries keep their connections."""
    for client, each in scenarios.items():
        for name, scenario in each.items():
            place = Place(url, WRONG_KEY if name == "wrong-key" else key, client)
            saw = await _play(scenario, place)
            print(json.dumps({"client": client, "scenario": name, "saw": saw}), flush=True)


async def _play(scenario: Scenario, place: Place) -> str:
    try:
        async with asyncio.timeout(60):
            return await scenario(place)
    except Exception as error:
        # What a person would see of it.
        return "".join(traceback.format_exception_only(error)).strip()

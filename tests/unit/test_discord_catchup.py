"""How the past is read: within what Discord bears."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.worlds.fakes import FakeClock
from tidings.adapters.discord import catchup
from tidings.adapters.discord.catchup import Gap, History
from tidings.adapters.discord.client import NO_ACCESS, Client, Refused
from tidings.adapters.discord.directory import Place
from tidings.adapters.discord.settings import DiscordAccount


class Shut(Client):
    """May see no channel at all."""

    asked = 0

    async def call(self, method: str, path: str, *_: Any, **__: Any) -> Any:
        self.asked += 1
        raise Refused("no", NO_ACCESS, 403)


async def test_channels_that_may_not_be_seen_are_asked_for_slower_than_discord_bans() -> None:
    clock, client = FakeClock(), Shut("token", "http://localhost")
    history = History(client, DiscordAccount(), clock, quick_refusals=10)
    reading = asyncio.gather(*(history.since(Place(str(number), "1"), 0) for number in range(100)))
    await clock.advance(0)
    assert client.asked <= 10 + 2 * catchup.AT_ONCE
    before = client.asked
    await clock.advance(10 * catchup.REFUSAL_SECONDS)
    assert client.asked - before <= 11 * catchup.AT_ONCE
    await clock.advance(60)

    assert await reading == [Gap([])] * 100


def test_the_refusals_of_ten_minutes_stay_below_what_discord_bears() -> None:
    assert catchup.QUICK_REFUSALS + 600 / catchup.REFUSAL_SECONDS * catchup.AT_ONCE < 10_000

"""A gateway that is started again and again: it slows itself down, says so, and storms no platform."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
from pydantic import SecretStr

from tests.simulators.discord.simulator import DiscordServer
from tests.simulators.paper.adapter import PaperAdapter, settings_for
from tests.simulators.paper.simulator import PaperServer
from tests.worlds.fakes import FakeLocal, FakeServer
from tests.worlds.process import gateway as process
from tests.worlds.process import status
from tests.worlds.world import Echo, OwnedClock
from tidings.adapters.discord import socket as discord_gateway
from tidings.adapters.discord.adapter import DiscordAdapter
from tidings.adapters.discord.settings import DiscordAccount
from tidings.core.adapter import Platform
from tidings.core.desk.health import PartHealth
from tidings.core.gateway import restarts as gateway_restarts
from tidings.core.gateway.gateway import Gateway
from tidings.core.gateway.options import Options, Team
from tidings.core.gateway.restarts import Starts
from tidings.core.roles import OWNER
from tidings.core.settings import Core, Limits
from tidings.core.store.sqlite import DATABASE
from tidings.core.types import Target

DAY = 24 * 3600.0


def starts(restarts: int, life: float) -> list[float]:
    """When a process that dies so many seconds after its start, and is started at once, begins to listen."""
    now, last, begun = 0.0, None, []
    for _ in range(restarts):
        wait = gateway_restarts.wait(last, now)
        if wait <= life:
            begun.append(now + wait)
            last = gateway_restarts.begun(last, now + wait)
        now += life
    return begun


def most_in_a_day(times: list[float]) -> int:
    return max(sum(start <= time < start + DAY for time in times) for start in times)


@pytest.mark.parametrize("life", [0.1, 1.0, 5.0, 60.0, 100.0])
def test_a_thousand_quick_restarts_stay_far_below_what_a_platform_allows_in_a_day(life: float) -> None:
    """S33. Discord takes a bot's token away after a thousand sessions."""
    begun = starts(1000, life)
    assert most_in_a_day(begun) < 750
    # After the first few, never two within a minute and a half.
    calm = begun[gateway_restarts.FREE_STARTS + 8 :]
    assert all(later - earlier >= 90.0 for earlier, later in zip(calm, calm[1:], strict=False))


def test_whoever_dies_every_few_minutes_still_listens_in_each_life() -> None:
    begun = starts(100, 240.0)
    assert all(later - earlier <= 2 * 240.0 for earlier, later in zip(begun, begun[1:], strict=False))


def test_the_first_few_starts_are_free_and_the_pauses_grow_to_a_limit() -> None:
    pauses = [gateway_restarts.pause(quick) for quick in range(20)]
    assert pauses[: gateway_restarts.FREE_STARTS] == [0.0] * gateway_restarts.FREE_STARTS
    assert pauses[gateway_restarts.FREE_STARTS : gateway_restarts.FREE_STARTS + 4] == [1.0, 2.0, 4.0, 8.0]
    assert pauses == sorted(pauses)
    assert gateway_restarts.pause(10_000) == gateway_restarts.LONGEST_SECONDS


def test_a_healthy_while_makes_it_new() -> None:
    last = Starts(quick=30, at=1000.0)
    assert gateway_restarts.wait(last, 1001.0) == gateway_restarts.LONGEST_SECONDS - 1.0
    assert gateway_restarts.wait(last, 1000.0 + gateway_restarts.WELL_SECONDS) == 0.0
    assert gateway_restarts.begun(last, 1000.0 + gateway_restarts.WELL_SECONDS) == Starts(
        0, 1000.0 + gateway_restarts.WELL_SECONDS
    )


@asynccontextmanager
async def started(home: Path, clock: OwnedClock, *platforms: Platform) -> AsyncIterator[Gateway]:
    settings = Core(limits=Limits(burst_seconds=0, drain_seconds=0))
    made = Gateway(
        home,
        settings,
        platforms,
        Team({"bot": Echo()}, "bot"),
        FakeLocal(),
        FakeServer(),
        Options(clock=clock, governed=True),
    )
    async with made:
        yield made


async def part(running: Gateway, name: str) -> PartHealth:
    return next(part for part in (await running.desk.health()).parts if part.name == name)


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + 20
    while not await holds():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def stands_by(running: Gateway, name: str) -> bool:
    return (await part(running, name)).state == "standing by"


async def test_the_sixth_start_waits_and_says_so_while_what_is_nearby_serves(tmp_path: Path) -> None:
    clock = OwnedClock()
    async with PaperServer() as far, PaperServer() as near:
        platforms = [
            Platform("paper", "main", lambda host: PaperAdapter("main", settings_for(far), host)),
            Platform("near", "main", lambda host: PaperAdapter("main", settings_for(near, name="near"), host), True),
        ]
        for _ in range(gateway_restarts.FREE_STARTS + 1):
            async with started(tmp_path, clock, *platforms) as running:
                await far.until(lambda paper: paper.attached())
                await running.desk.set_home(OWNER, Target(adapter="near", chat="1"))
        async with started(tmp_path, clock, *platforms) as running:
            await until(lambda: stands_by(running, "paper@main"))
            await near.until(lambda paper: paper.attached())
            told = (await part(running, "paper@main")).last_error
            assert told.startswith("the gateway was started 6 times in quick succession, so it listens only in 1 s")
            assert [alarm.name for alarm in (await running.desk.health()).alarms] == ["restarts"]
            assert not far.attached()
            await near.until(lambda paper: len(paper.posts) == 1)
            assert near.posts[0].startswith("⚠ The gateway was restarted repeatedly: paper@main: the gateway was")
            await clock.advance(1.1)
            await far.until(lambda paper: paper.attached())


async def test_a_loop_of_crashes_begins_few_sessions_with_discord(tmp_path: Path) -> None:
    """S33. Sixty starts within ten minutes; each dies as soon as it listens or stands by."""
    clock = OwnedClock()
    async with DiscordServer(clock=clock, identify_limit=1000) as discord:
        account = DiscordAccount(
            token=SecretStr(discord.token), api_url=discord.api_url, gateway_url=discord.gateway_url
        )
        platform = Platform("discord", "main", lambda host: DiscordAdapter("main", account, host))
        for _ in range(60):
            began = discord.identifies()
            async with started(tmp_path, clock, platform) as running:

                async def has_tried(running: Gateway = running, began: int = began) -> bool:
                    return discord.identifies() > began or await stands_by(running, "discord@main")

                await until(has_tried)
            await clock.advance(10.0)
        assert gateway_restarts.FREE_STARTS < discord.identifies() < 20


def test_the_allowance_of_discord_is_a_hard_stop() -> None:
    """S33. Whatever else fails, such as a listener that is restarted within one process."""
    assert discord_gateway.IDENTIFIES_A_DAY == 800
    assert discord_gateway.IDENTIFY_SECONDS >= 90.0
    left, begun = discord_gateway.Allowance(float(discord_gateway.IDENTIFIES_BURST), 0.0), []
    for second in range(0, int(3 * DAY), 5):
        left = left.at_time(float(second))
        if left.left >= 1:
            left = discord_gateway.Allowance(left.left - 1, left.at)
            begun.append(float(second))
    days = [sum(start <= time < start + DAY for time in begun) for start in (0.0, DAY / 2, DAY, 2 * DAY)]
    assert max(days) <= discord_gateway.IDENTIFIES_A_DAY


async def test_a_process_that_is_killed_again_and_again_keeps_count(tmp_path: Path) -> None:
    """The count is on disk before anybody listens, so that no kill can hide a start; the console is never slow."""
    nobody = {"TIDINGS_TELEGRAM__TOKEN": "1:a", "TIDINGS_TELEGRAM__API_URL": "http://127.0.0.1:9"}
    async with process(tmp_path, TIDINGS_BOT__AGENT="echo", **nobody) as child:
        await until_told(tmp_path, "telegram@main", "degraded")
        child.send_signal(signal.SIGKILL)
        await asyncio.to_thread(child.wait)
    with closing(sqlite3.connect(tmp_path / DATABASE)) as store:
        ((value,),) = store.execute("SELECT value FROM notebook WHERE name = 'starts'").fetchall()
        assert json.loads(value)["quick"] == 0
        # As if it had gone on like this for a while.
        many = json.dumps(json.loads(value) | {"quick": 40})
        store.execute("UPDATE notebook SET value = ? WHERE name = 'starts'", [many])
        store.commit()
    async with process(tmp_path, TIDINGS_BOT__AGENT="echo", **nobody):
        await until_told(tmp_path, "telegram@main", "standing by")
        await until_told(tmp_path, "console@main", "up")
        assert "was started 41 times in quick succession" in (tmp_path / "stderr.log").read_text()


async def until_told(home: Path, name: str, state: str) -> None:
    async def is_told() -> bool:
        return {part["name"]: part["state"] for part in (await status(home))["parts"]}[name] == state

    await until(is_told)

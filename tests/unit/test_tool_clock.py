"""The time in words, in any zone."""

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from tests.worlds.tool_bench import in_session, use
from tidings.bots.assistant.tools import clock
from tidings.bots.assistant.tools.tool import ToolError
from tidings.core.agent import Effect


@pytest.mark.parametrize(
    ("zone", "words"),
    [
        (UTC, "Friday, 2026-02-13 23:30:00 (UTC, UTC+00:00)"),
        (ZoneInfo("Europe/Berlin"), "Saturday, 2026-02-14 00:30:00 (Europe/Berlin, UTC+01:00)"),
        (ZoneInfo("Asia/Kolkata"), "Saturday, 2026-02-14 05:00:00 (Asia/Kolkata, UTC+05:30)"),
        (timezone(timedelta(hours=-3), "BRT"), "Friday, 2026-02-13 20:30:00 (BRT, UTC-03:00)"),
    ],
)
def test_a_time_is_told_with_weekday_zone_and_offset(zone: timezone, words: str) -> None:
    now = datetime(2026, 2, 13, 23, 30, tzinfo=UTC)
    assert clock.in_words(now.astimezone(zone)) == words


async def test_without_a_zone_it_is_the_servers_own(tmp_path: Path) -> None:
    with in_session(tmp_path):
        told = await use(clock.TOOLS, "time")
    assert f"{datetime.now().astimezone():(%Z}" in told.text.replace(", UTC", "")


async def test_a_named_zone_is_told(tmp_path: Path) -> None:
    with in_session(tmp_path):
        assert "(Asia/Tokyo, UTC+09:00)" in (await use(clock.TOOLS, "time", zone="Asia/Tokyo")).text
        assert "(UTC, UTC+00:00)" in (await use(clock.TOOLS, "time", zone="utc")).text


@pytest.mark.parametrize("zone", ["Europe/Berlinn", "../../etc/passwd", "/etc/passwd", "Europe", "a\0b", "x" * 5000])
async def test_what_is_no_zone_is_said_in_a_sentence(tmp_path: Path, zone: str) -> None:
    with in_session(tmp_path), pytest.raises(ToolError, match="There is no time zone"):
        await use(clock.TOOLS, "time", zone=zone)


async def test_the_nearest_zone_is_named(tmp_path: Path) -> None:
    with in_session(tmp_path), pytest.raises(ToolError, match="did you mean Europe/Berlin"):
        await use(clock.TOOLS, "time", zone="Europe/Berlinn")


def test_it_is_pure() -> None:
    assert [tool.effect for tool in clock.TOOLS] == [Effect.PURE]

"""The windows of allowances: a day in a time zone, and when the next one begins (pure)."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

MINUTE_SECONDS = 60


@lru_cache(maxsize=64)
def zone_of(name: str) -> tzinfo | None:
    """The zone with this name; None is the machine's own."""
    return ZoneInfo(name) if name else None


def day_of(wall: float, zone: str) -> str:
    """The day as a window names it: 2026-11-18."""
    return datetime.fromtimestamp(wall, zone_of(zone)).date().isoformat()


def end_of_day(wall: float, zone: str) -> float:
    """When the next day begins, by the wall clock."""
    local = datetime.fromtimestamp(wall, zone_of(zone))
    return datetime.combine(local.date() + timedelta(days=1), time.min, local.tzinfo).timestamp()


def minute_of(wall: float) -> int:
    return int(wall // MINUTE_SECONDS)


def end_of_minute(wall: float) -> float:
    return float((minute_of(wall) + 1) * MINUTE_SECONDS)


def clock_time(instant: float, zone: str) -> str:
    return f"{datetime.fromtimestamp(instant, zone_of(zone)):%H:%M}"


def days_back(wall: float, zone: str, days: int) -> str:
    """The day so many days before today."""
    return (date.fromisoformat(day_of(wall, zone)) - timedelta(days=days)).isoformat()

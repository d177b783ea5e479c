"""Time zones, and how instants and durations are written for people."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime, tzinfo
from functools import cache
from pathlib import Path
from zoneinfo import ZoneInfo

from tidings.core.errors import Unkeepable

LOCALTIME = Path("/etc/localtime")
NAME_CHARACTERS = 64
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


def zone_of(name: str) -> tzinfo:
    """Raises Unkeepable for a name that is not a time zone."""
    if not name:
        return machine_zone()
    try:
        # A longer name is no time zone, and looking it up could exceed the file system's limits.
        return ZoneInfo(name[:NAME_CHARACTERS])
    except (KeyError, ValueError, OSError):
        short = name[:NAME_CHARACTERS]
        raise Unkeepable(f"there is no time zone {short!r}; write for example Europe/Berlin or UTC") from None


@cache
def machine_zone() -> tzinfo:
    return find_zone(os.environ, LOCALTIME)


def find_zone(environment: Mapping[str, str], localtime: Path) -> tzinfo:
    """The machine's time zone with its rules, not only with today's offset."""
    name = environment.get("TZ", "").removeprefix(":")
    if name and not name.startswith("/"):
        try:
            return ZoneInfo(name)
        except (KeyError, ValueError, OSError):
            return UTC
    file = Path(name) if name else localtime
    _, found, key = str(file.resolve()).partition("zoneinfo/")
    try:
        if found:
            return ZoneInfo(key.removeprefix("posix/").removeprefix("right/"))
        with file.open("rb") as data:
            return ZoneInfo.from_file(data, key="local time")
    except (KeyError, ValueError, OSError):
        return UTC


def told(instant: float, zone: str, now: float) -> str:
    """An instant in words: today at 18:30 (CET), or on Monday, 2 March 2026 at 09:00 (CET)."""
    try:
        place = zone_of(zone)
    except Unkeepable:
        # The time zone existed when the schedule was made; the report must still be written.
        place, zone = UTC, "UTC"
    local, today = datetime.fromtimestamp(instant, place), datetime.fromtimestamp(now, place)
    days = (local.date() - today.date()).days
    near = {-1: "yesterday", 0: "today", 1: "tomorrow"}.get(days)
    day = near or f"on {local:%A}, {local.day} {MONTHS[local.month - 1]} {local.year}"
    # The zone is always named, so that people need not guess it.
    return f"{day} at {local:%H:%M} ({zone or local.tzname()})"


def brief(seconds: float) -> str:
    """A duration in the form in which people write it: 90m is 1h30m."""
    left, words = int(seconds), ""
    for letter, size in reversed(UNITS.items()):
        count, left = divmod(left, int(size))
        words += f"{count}{letter}" if count else ""
    return words or "0s"

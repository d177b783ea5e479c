"""Tells the model what time it is."""

from __future__ import annotations

import asyncio
import difflib
from datetime import UTC, datetime, tzinfo
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from msgspec import Meta

from tidings.bots.assistant.tools.tool import Arguments, Occasion, Result, ToolError, define
from tidings.core.agent import Effect
from tidings.core.roles import Permission


class Zone(Arguments, frozen=True):
    zone: Annotated[str, Meta(description="An IANA zone such as Europe/Berlin; empty means the server's own.")] = ""


async def tell(asked: Zone, occasion: Occasion) -> Result:
    # Reading zones means reading files, so it happens in a thread.
    zone = await asyncio.to_thread(zone_of, asked.zone.strip())
    return Result(in_words(datetime.now(UTC).astimezone(zone)))


def zone_of(name: str) -> tzinfo | None:
    """The zone that the model named; None is the server's own zone."""
    if not name or name.upper() == "UTC":
        return UTC if name else None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        near = difflib.get_close_matches(name, available_timezones(), n=1)
        hint = f"did you mean {near[0]}?" if near else "write one such as Europe/Berlin, or UTC."
        raise ToolError(f"There is no time zone {name!r}; {hint}") from error


def in_words(now: datetime) -> str:
    offset = now.strftime("%z")
    return f"{now:%A}, {now:%Y-%m-%d %H:%M:%S} ({now.tzinfo}, UTC{offset[:3]}:{offset[3:5]})"


TOOLS = (define("time", "Tells the date, the weekday and the time now.", Zone, Effect.PURE, Permission.TALK, tell),)

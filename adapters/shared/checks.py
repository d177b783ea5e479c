"""Findings about an account on its platform, and the guide for a person who sets one up."""

from __future__ import annotations

import time
from typing import NamedTuple

import aiohttp

from tidings.adapters.shared.http_client import connector, date_of
from tidings.adapters.shared.proxy import trouble, way

# Slack turns away what was signed longer ago; less is only worth a word.
WRONG_SECONDS = 300.0
ODD_SECONDS = 30.0
DATE_SECONDS = 10.0


class Finding(NamedTuple):
    """Says what is and, where something is wrong, what to change."""

    words: str
    is_fault: bool = False
    # It works, and hardly as it was meant.
    is_odd: bool = False


class Need(NamedTuple):
    """One thing to ask a person for, by the key of its setting."""

    key: str
    words: str


class Guide(NamedTuple):
    """How a person gets an account on a platform, for `tidings init`."""

    title: str
    steps: tuple[str, ...]
    needs: tuple[Need, ...]
    # What to do so that the bot hears a first word.
    greeting: str


def examine_way(url: str, proxy: str) -> list[Finding]:
    """Which proxy is in between, since one that is dead looks like a platform that is."""
    taken = way(proxy, url)
    if why := trouble(taken):
        return [Finding(why, is_fault=True)]
    return [Finding(f"it goes out {taken}")] if taken.by else []


async def examine_clock(url: str, proxy: str) -> list[Finding]:
    """Compares this machine's clock with the platform's; finds nothing if the platform does not tell the time."""
    try:
        timeout = aiohttp.ClientTimeout(total=DATE_SECONDS)
        async with (
            aiohttp.ClientSession(connector=connector(url, 1), timeout=timeout, proxy=way(proxy, url).by) as session,
            session.head(url, allow_redirects=False) as response,
        ):
            told = response.headers.get("Date", "")
    except (TimeoutError, aiohttp.ClientError, OSError):
        # The other checks say whether the platform can be reached at all.
        return []
    date = date_of(told)
    return [] if date is None else judge_clock(date - time.time())


def judge_clock(ahead: float) -> list[Finding]:
    """`ahead` is what the platform's clock shows more than ours."""
    if abs(ahead) < ODD_SECONDS:
        return []
    direction = "behind" if ahead > 0 else "ahead of"
    words = f"this machine's clock is {abs(ahead):.0f} s {direction} the platform's: timedatectl set-ntp true sets it"
    return [Finding(words, is_fault=abs(ahead) >= WRONG_SECONDS, is_odd=True)]

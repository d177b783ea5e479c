"""Reads the messages that were missed while the bot was away, within limits on age and number."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from tidings.adapters.discord.address import time_of
from tidings.adapters.discord.client import Client
from tidings.adapters.discord.directory import Place
from tidings.adapters.discord.settings import DiscordAccount
from tidings.core.clock import Clock
from tidings.core.errors import RateLimited, Rejected, Unreachable

log = logging.getLogger(__name__)

PAGE = 100
# So many channels are read at once, so that answers still have room.
AT_ONCE = 4
# Reading is tried again after so many seconds, and given up for a channel when the last try has failed.
PAUSES = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 60.0, 60.0, 60.0)
LIMITED_SECONDS = 5.0
# Discord tells of channels that we may not see, too, and bans an address after 10,000 refusals in ten minutes: so many
# are quick, and each one more keeps its room for so long.
QUICK_REFUSALS = 500
REFUSAL_SECONDS = 0.5


class Gap(NamedTuple):
    """The missed messages, oldest first; `words` tell which were left out, and are empty if none were."""

    messages: list[dict[str, Any]]
    words: str = ""
    # Not even what was said before stands there.
    is_blank: bool = False


class History:
    def __init__(
        self, client: Client, settings: DiscordAccount, clock: Clock, *, quick_refusals: int = QUICK_REFUSALS
    ) -> None:
        self._client = client
        self._settings = settings
        self._clock = clock
        self._quick_refusals = quick_refusals
        self._room = asyncio.Semaphore(AT_ONCE)
        self._closed: set[str] = set()
        self._blank: set[str] = set()

    async def since(self, place: Place, cursor: int) -> Gap:
        """From the newest backwards: where more was said than we look at, people still wait for the last of it."""
        most = self._settings.missed_messages
        if place.channel in self._closed or not most:
            return Gap([])
        found: list[dict[str, Any]] = []
        try:
            while len(found) <= most:
                page = await self._page(place, found[-1]["id"] if found else "")
                found += page
                oldest = self._oldest()
                if len(page) < PAGE or int(page[-1]["id"]) <= cursor or _said(page[-1]) <= oldest:
                    break
        except Rejected as error:
            self._shut(place, str(error))
            return Gap([])
        except Unreachable as error:
            return Gap([], f"What was said in channel {place.channel} while I was away could not be read: {error}.")
        fresh = [message for message in found if int(message["id"]) > cursor]
        missed = [message for message in fresh if _said(message) > oldest]
        words = self._left_out(place, len(missed) > most, len(missed) < len(fresh))
        return Gap(missed[:most][::-1], words, not found)

    def _left_out(self, place: Place, too_many: bool, too_old: bool) -> str:
        limits = [f"more than {self._settings.missed_messages} messages"] if too_many else []
        limits += [f"messages older than {self._settings.missed_hours:g} hours"] if too_old else []
        if not limits:
            return ""
        return f"While I was away, {' and '.join(limits)} came in channel {place.channel}; I left out the oldest."

    async def _page(self, place: Place, before: str) -> list[dict[str, Any]]:
        """One page, the newest first; raises Rejected, or Unreachable when it was tried for long enough."""
        parameters: dict[str, str | int] = {"limit": PAGE} | ({"before": before} if before else {})
        trouble = ""
        for pause in PAUSES:
            try:
                # A reading that waits for its next try leaves room to the others.
                async with self._room:
                    page = await self._read(place, parameters)
                return sorted(_messages(page), key=lambda message: -int(message["id"]))
            except RateLimited as error:
                trouble = str(error)
                await self._clock.sleep(max(error.retry_after or LIMITED_SECONDS, pause))
            except Unreachable as error:
                trouble = str(error)
                await self._clock.sleep(pause)
        raise Unreachable(trouble)

    async def _read(self, place: Place, parameters: Mapping[str, str | int]) -> Any:
        try:
            return await self._client.call("GET", f"/channels/{place.channel}/messages", params=parameters)
        except Rejected:
            if len(self._closed) >= self._quick_refusals:
                await self._clock.sleep(REFUSAL_SECONDS)
            raise

    def found_nothing(self, place: Place, last: str) -> None:
        """Discord shows an empty past to a bot that may not read it; so we ask again next time."""
        if time_of(last) > self._oldest() and place.channel not in self._blank:
            self._blank.add(place.channel)
            _tell(place, "it was removed, or this bot may not read the message history there")

    def _oldest(self) -> float:
        """The oldest time that is read, by Discord's clock if known, since ours may be wrong."""
        now = self._client.date
        return (self._clock.wall() if now is None else now) - self._settings.missed_hours * 3600

    def _shut(self, place: Place, reason: str) -> None:
        self._closed.add(place.channel)
        _tell(place, reason)


def _tell(place: Place, reason: str) -> None:
    log.info("what was said in channel %s meanwhile cannot be read: %s", place.channel, reason)


def _said(message: Mapping[str, Any]) -> float:
    """When, by the wall clock of Discord's: as it says so itself, else by the id."""
    try:
        return datetime.fromisoformat(message["timestamp"]).timestamp()
    except (KeyError, TypeError, ValueError):
        return time_of(message["id"])


def _messages(page: Any) -> list[dict[str, Any]]:
    found = page if isinstance(page, list) else []
    return [message for message in found if isinstance(message, dict) and str(message.get("id")).isdecimal()]

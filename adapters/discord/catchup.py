"""Reads what was said while nobody listened, within limits on age and number."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, NamedTuple

from adapters.discord.atlas import Place
from adapters.discord.client import Client
from adapters.discord.places import snowflake_at, time_of
from adapters.discord.settings import DiscordAccount
from core.clock import Clock
from core.errors import RateLimited, Rejected, Unreachable

log = logging.getLogger(__name__)

PAGE = 100
# So many channels are read at once, so that answers still have room.
AT_ONCE = 4
# Reading is tried again after so many seconds, and given up for a channel when the last try has failed.
PAUSES = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 60.0, 60.0, 60.0)
LIMITED_SECONDS = 5.0


class Gap(NamedTuple):
    """What was said, oldest first; `words` say what of it was left out, and are empty where nothing was."""

    messages: list[dict[str, Any]]
    words: str = ""


class History:
    def __init__(self, client: Client, settings: DiscordAccount, clock: Clock) -> None:
        self._client = client
        self._settings = settings
        self._clock = clock
        self._room = asyncio.Semaphore(AT_ONCE)
        self._closed: set[str] = set()

    async def since(self, place: Place, cursor: int) -> Gap:
        """From the newest backwards: where more was said than we look at, people still wait for the last of it."""
        most = self._settings.missed_messages
        if place.channel in self._closed or not most:
            return Gap([])
        oldest = int(snowflake_at(self._clock.wall() - self._settings.missed_hours * 3600))
        after = max(cursor, oldest)
        found: list[dict[str, Any]] = []
        try:
            async with self._room:
                while len(found) <= most:
                    page = await self._page(place, found[-1]["id"] if found else "")
                    found += page
                    if len(page) < PAGE or int(page[-1]["id"]) <= after:
                        break
        except Rejected as error:
            self._shut(place, str(error))
            return Gap([])
        except Unreachable as error:
            return Gap([], f"What was said in channel {place.channel} while I was away could not be read: {error}.")
        missed = [message for message in found if int(message["id"]) > after]
        too_old = cursor < oldest and any(cursor < int(message["id"]) <= oldest for message in found)
        return Gap(missed[:most][::-1], self._left_out(place, len(missed) > most, too_old))

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
                page = await self._client.call("GET", f"/channels/{place.channel}/messages", params=parameters)
                return sorted(_messages(page), key=lambda message: -int(message["id"]))
            except RateLimited as error:
                trouble = str(error)
                await self._clock.sleep(max(error.retry_after or LIMITED_SECONDS, pause))
            except Unreachable as error:
                trouble = str(error)
                await self._clock.sleep(pause)
        raise Unreachable(trouble)

    def found_nothing(self, place: Place, last: str) -> None:
        """Discord shows an empty past to whoever may not read it, and says no word."""
        if (
            place.channel not in self._closed
            and time_of(last) > self._clock.wall() - self._settings.missed_hours * 3600
        ):
            self._shut(place, "it was removed, or this bot may not read the message history there")

    def _shut(self, place: Place, reason: str) -> None:
        self._closed.add(place.channel)
        log.info("what was said in channel %s meanwhile cannot be read: %s", place.channel, reason)


def _messages(page: Any) -> list[dict[str, Any]]:
    found = page if isinstance(page, list) else []
    return [message for message in found if isinstance(message, dict) and str(message.get("id")).isdecimal()]

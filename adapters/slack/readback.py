"""Reads what stands in a thread or channel, within the little that Slack allows, to settle what became of a send."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from tidings.adapters.slack.client import Client, Refused, Scopeless
from tidings.core.clock import Clock
from tidings.core.errors import RateLimited
from tidings.core.outbound.pace import Budgets
from tidings.core.types import Absent, Pace, Unreadable

PAGE = 200
MOST_PAGES = 20
# A Date header has whole seconds, and our clock may drift from theirs between attempt and reading back.
MARGIN_SECONDS = 120.0
# Apps of one's own may read so often; those that are sold elsewhere once a minute, as the first refusal tells.
USUAL = Pace(key="history", seconds=1.2, burst=5)
SELDOM = Pace(key="history", seconds=60.0, burst=1)
SELDOM_SECONDS = 20.0
REMEMBERED = 200

# A message, and the time of the first attempt by Slack's clock; 0 where Slack does not tell the time.
IsIt = Callable[[dict[str, Any], float], Awaitable[bool]]


class Readback:
    def __init__(self, client: Client, clock: Clock, budget: str) -> None:
        self._client = client
        self._budget = budget
        self._budgets = Budgets(clock)
        self._pace = USUAL
        # How far each reading has come: a reading that was rate limited goes on from there, or it would never end.
        self._reached: dict[str, tuple[str, int, float]] = {}

    async def find(
        self, key: str, channel: str, thread: str, age: float, is_it: IsIt
    ) -> dict[str, Any] | Absent | Unreadable:
        """Reads the messages since the first attempt, which was `age` seconds ago."""
        cursor, pages, since = self._reached.pop(key) if key in self._reached else ("", 0, await self._ago(age))
        while pages < MOST_PAGES:
            try:
                page = await self._page(channel, thread, oldest=_oldest(since), cursor=cursor)
            except RateLimited:
                self._reached[key] = (cursor, pages, since)
                while len(self._reached) > REMEMBERED:
                    self._reached.pop(next(iter(self._reached)))
                raise
            except Scopeless as error:
                return Unreadable(reason=str(error))
            except Refused as error:
                # What cannot be there is not there.
                return Absent() if error.code == "thread_not_found" else Unreadable(reason=str(error))
            for message in page.get("messages") or ():
                if await is_it(message, since):
                    return dict(message)
            cursor = str((page.get("response_metadata") or {}).get("next_cursor") or "")
            pages += 1
            if not cursor:
                return Absent()
        return Unreadable(reason="too much was said there since")

    async def read(self, channel: str, thread: str, ts: str) -> dict[str, Any] | None:
        """One message as it stands now; None for a message that is gone or that the app may not read."""
        try:
            page = await self._page(channel, thread, oldest=ts, latest=ts, inclusive=True)
        except (Scopeless, Refused):
            return None
        return next((dict(each) for each in page.get("messages") or () if each.get("ts") == ts), None)

    async def _ago(self, seconds: float) -> float:
        """By Slack's clock, since ours may be wrong; 0 if Slack does not tell the time, so that everything is read."""
        await self._client.call("auth.test")
        return 0.0 if self._client.date is None else max(self._client.date - seconds, 0.0)

    async def _page(self, channel: str, thread: str, **where: Any) -> dict[str, Any]:
        if (wait := self._budgets.ready_in((self._pace,))) > 0:
            raise RateLimited(wait, self._budget)
        self._budgets.take((self._pace,))
        wanted: dict[str, Any] = {
            "channel": channel,
            "limit": PAGE,
            "include_all_metadata": True,
            "budget": self._budget,
            **where,
        }
        try:
            if thread:
                return await self._client.call("conversations.replies", ts=thread, **wanted)
            return await self._client.call("conversations.history", **wanted)
        except RateLimited as error:
            if (error.retry_after or 0.0) > SELDOM_SECONDS:
                self._pace = SELDOM
            raise


def _oldest(since: float) -> str | None:
    return f"{since - MARGIN_SECONDS:.6f}" if since > MARGIN_SECONDS else None

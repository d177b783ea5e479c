"""Messages of ours that change after they were sent: edited while an answer grows, and read back when in doubt."""

from __future__ import annotations

from typing import Any

from tidings.adapters.discord import client, compose
from tidings.adapters.discord.address import Shown, is_token_good, landed
from tidings.adapters.discord.client import Client, Refused
from tidings.adapters.discord.compose import Words
from tidings.core.clock import Clock
from tidings.core.errors import Rejected, ViewLost
from tidings.core.types import Absent, Part, Receipt, Unreadable

TOO_LATE = "the time for a private answer is over"
# The token of an interaction is worth nothing any more, or never was.
ENDED = (client.TOKEN_ENDED, client.UNKNOWN_WEBHOOK, client.UNKNOWN_INTERACTION)
# There is nothing left to edit; what is said anew may still arrive.
GONE = (client.UNKNOWN_MESSAGE, client.NOT_OURS, client.ARCHIVED)


class Views:
    def __init__(self, client: Client, clock: Clock, account: str) -> None:
        self._client = client
        self._clock = clock
        self._account = account

    async def edit(self, shown: Shown, said: dict[str, Any], uploads: tuple[tuple[str, bytes], ...] = ()) -> None:
        budget = f"{self._account}/{shown.channel}/show"
        for path in self._ways_to(shown):
            try:
                await self._client.call("PATCH", path, said, files=uploads, budget=budget)
                return
            except Refused as error:
                if error.code in GONE:
                    raise ViewLost(str(error)) from error
                if error.code not in ENDED:
                    raise
        raise Rejected(TOO_LATE)

    def _ways_to(self, shown: Shown) -> list[str]:
        """The paths to a shown message; one that only one person sees can be reached by its token alone."""
        ways = []
        if shown.token and is_token_good(shown.at, self._clock):
            ways.append(f"/webhooks/{shown.application}/{shown.token}/messages/{shown.message}")
        if not shown.secret:
            ways.append(f"/channels/{shown.channel}/messages/{shown.message}")
        return ways

    async def find(self, part: Part, words: Words, shown: Shown) -> Receipt | Absent | Unreadable:
        for path in self._ways_to(shown):
            try:
                found = await self._client.call("GET", path)
            except Refused as error:
                if error.code in ENDED:
                    continue
                return Absent() if error.code in GONE else Unreadable(reason=str(error))
            if not compose.is_said(found, part.body, words):
                return Absent()
            return landed(part.target, shown.message, shown.channel)
        return Unreadable(reason=TOO_LATE)

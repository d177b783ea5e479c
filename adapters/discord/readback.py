"""Reads back what became of a send in doubt: in its channel's history, in a view, or in the answer to a command."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tidings.adapters.discord.address import snowflake_at, time_of
from tidings.adapters.discord.client import NO_ACCESS, NO_PERMISSION, UNKNOWN_CHANNEL, Client, Refused
from tidings.adapters.discord.compose import Words, is_said, nonce_of
from tidings.core.adapter import Taken
from tidings.core.types import Absent, Part, Unreadable

PAGE = 100
MOST_PAGES = 10
PRIVATE_CHANNEL = 1
# A Date header has whole seconds, and our clock may drift from theirs between attempt and reading back.
MARGIN_SECONDS = 120.0


class Reading(NamedTuple):
    """The part to look for, and where."""

    part: Part
    words: Words
    channel: str
    # The message that it answers there; empty for none.
    answered: str


class Readback:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def find(self, reading: Reading, is_taken: Taken) -> dict[str, Any] | Absent | Unreadable:
        """Raises Refused when there is no such channel."""
        me = str((await self._client.call("GET", "/users/@me"))["id"])
        path = f"/channels/{reading.channel}/messages"
        try:
            after, seen = await self._beginning(reading), False
            if after is None:
                return await self._none_found(reading.channel)
            for _ in range(MOST_PAGES):
                page = await self._client.call("GET", path, params={"after": after, "limit": PAGE})
                for message in sorted(page, key=_number):
                    after, seen = str(message["id"]), True
                    if _is_by(message, me) and _is_it(message, reading) and not await is_taken(after):
                        return dict(message)
                if len(page) < PAGE:
                    return Absent() if seen else await self._none_found(reading.channel)
        except Refused as error:
            if error.code == UNKNOWN_CHANNEL:
                raise
            return Unreadable(reason=_why(error))
        return Unreadable(reason="too much was said there since")

    async def _beginning(self, reading: Reading) -> str | None:
        """The smallest id that it can have, by Discord's clock, since ours may be wrong; None in an empty channel."""
        now = self._client.date
        if now is None:
            # The newest message stands in for the time: the part is at most its age older than that.
            newest = await self._client.call("GET", f"/channels/{reading.channel}/messages", params={"limit": 1})
            if not newest:
                return None
            now = time_of(str(newest[0]["id"]))
        beginning = snowflake_at(now - reading.part.age - MARGIN_SECONDS)
        # An answer comes after its question.
        return max(beginning, reading.answered or "0", key=int)

    async def _none_found(self, id: str) -> Absent | Unreadable:
        """A bot that may not read the past is shown an empty one; in private every bot may read it."""
        channel = f"/channels/{id}"
        if await self._client.call("GET", f"{channel}/messages", params={"limit": 1}):
            return Absent()
        if (await self._client.call("GET", channel)).get("type") == PRIVATE_CHANNEL:
            return Absent()
        return Unreadable(reason="the bot may not read the history of this channel")


def _number(message: Mapping[str, Any]) -> int:
    return int(message["id"])


def _is_by(message: Mapping[str, Any], me: str) -> bool:
    return str(message["author"]["id"]) == me or str(message.get("application_id") or "") == me


def _is_it(message: dict[str, Any], reading: Reading) -> bool:
    if message.get("nonce"):
        return str(message["nonce"]) == nonce_of(reading.part)
    replied = str((message.get("message_reference") or {}).get("message_id") or "")
    # What stands below another message is the answer to that one.
    return (not replied or replied == reading.answered) and is_said(message, reading.part.body, reading.words)


def _why(error: Refused) -> str:
    if error.code in (NO_ACCESS, NO_PERMISSION):
        return "the bot may not read this channel"
    return str(error)

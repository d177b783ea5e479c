"""Reads back what became of a send in doubt: in its channel's history, in a view, or in the answer to a command."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adapters.discord.client import NO_ACCESS, NO_PERMISSION, UNKNOWN_CHANNEL, Client, Refused
from adapters.discord.places import channel_of, handle_of, snowflake_at
from adapters.discord.wording import Words, is_said, nonce_of
from core.types import Absent, Part, Unreadable

PAGE = 100
MOST_PAGES = 10
PRIVATE_CHANNEL = 1
# Their clock and ours may differ a little.
MARGIN_SECONDS = 2.0


class Readback:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._me = ""

    async def find(
        self, part: Part, words: Words, known: Mapping[str, str], answered: str
    ) -> dict[str, Any] | Absent | Unreadable:
        """`known` holds the keys of messages that we have posted, by their ids: none of another key is this one."""
        me = self._me or await self._ask_who()
        after, nonce = snowflake_at(part.since - MARGIN_SECONDS), nonce_of(part)
        path, seen = f"/channels/{channel_of(part.target)}/messages", False
        for _ in range(MOST_PAGES):
            try:
                page = await self._client.call("GET", path, params={"after": after, "limit": PAGE})
            except Refused as error:
                if error.code == UNKNOWN_CHANNEL and handle_of(part.target).opens:
                    # The thread was never made.
                    return Absent()
                return Unreadable(reason=_why(error))
            for message in sorted(page, key=_number):
                after, seen = str(message["id"]), True
                is_ours = _is_by(message, me) and known.get(after, part.key) == part.key
                if is_ours and _is_it(message, part, words, nonce, answered):
                    return dict(message)
            if len(page) < PAGE:
                return Absent() if seen else await self._none_found(part)
        return Unreadable(reason="too much was said there since")

    async def _none_found(self, part: Part) -> Absent | Unreadable:
        """Whoever may not read the past is shown an empty one; in private everybody may."""
        channel = f"/channels/{channel_of(part.target)}"
        if await self._client.call("GET", f"{channel}/messages", params={"limit": 1}):
            return Absent()
        if (await self._client.call("GET", channel)).get("type") == PRIVATE_CHANNEL:
            return Absent()
        return Unreadable(reason="the bot may not read the history of this channel")

    async def _ask_who(self) -> str:
        self._me = str((await self._client.call("GET", "/users/@me"))["id"])
        return self._me


def _number(message: Mapping[str, Any]) -> int:
    return int(message["id"])


def _is_by(message: Mapping[str, Any], me: str) -> bool:
    return str(message["author"]["id"]) == me or str(message.get("application_id") or "") == me


def _is_it(message: dict[str, Any], part: Part, words: Words, nonce: str, answered: str) -> bool:
    if message.get("nonce"):
        return str(message["nonce"]) == nonce
    replied = str((message.get("message_reference") or {}).get("message_id") or "")
    # What stands below another message is the answer to that one.
    return (not replied or replied == answered) and is_said(message, part.body, words)


def _why(error: Refused) -> str:
    if error.code in (NO_ACCESS, NO_PERMISSION):
        return "the bot may not read this channel"
    return str(error)

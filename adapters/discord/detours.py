"""Finds another place for a message whose target refuses it: a person's direct messages, or the question's channel."""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Any

from tidings.adapters.discord.address import channel_of, handle_of
from tidings.adapters.discord.client import (
    NO_ACCESS,
    NO_PERMISSION,
    NO_RECIPIENT,
    UNKNOWN_CHANNEL,
    UNKNOWN_USER,
    Client,
    Refused,
)
from tidings.core.errors import Doubtful, Unreachable
from tidings.core.types import Target

log = logging.getLogger(__name__)

NO_SUCH_PLACE = "no channel or person has this id, or the bot was never there"
# How many of the newest detours are cached; older ones are looked up again.
REMEMBERED = 2000


class Detours:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: OrderedDict[str, str] = OrderedDict()

    def place(self, target: Target) -> str:
        """The channel that takes its messages, if it is cached."""
        return self._known.get(channel_of(target), channel_of(target))

    def knows(self, target: Target) -> bool:
        return channel_of(target) in self._known

    async def find(self, target: Target, error: Refused) -> str | None:
        """The channel for a message after this refusal; None if there is no other. Raises a more exact SendError."""
        if self.knows(target):
            return None
        if handle_of(target).opens:
            if error.code not in (NO_PERMISSION, NO_ACCESS, UNKNOWN_CHANNEL):
                return None
            return self.use_channel(target, error)
        if error.code != UNKNOWN_CHANNEL or target.thread or target.reply_to:
            return None
        return await self._open_private(target, error)

    def use_channel(self, target: Target, error: Refused) -> str:
        """Puts the answer below the question, since its thread cannot be opened or used."""
        log.warning("no thread can be used in %s, so the answer goes to the channel: %s", target.chat, error)
        remember(self._known, channel_of(target), target.chat)
        return target.chat

    async def _open_private(self, target: Target, error: Refused) -> str:
        """Tries the id as a person's, since it is not a channel's."""
        try:
            private = await self._client.call("POST", "/users/@me/channels", {"recipient_id": target.chat})
        except Doubtful as unheard:
            # Opening it twice returns the same channel.
            raise Unreachable(str(unheard)) from unheard
        except Refused as refused:
            if refused.code in (NO_RECIPIENT, UNKNOWN_USER):
                raise Refused(NO_SUCH_PLACE, error.code, error.status) from refused
            raise
        id = str(private["id"])
        remember(self._known, channel_of(target), id)
        return id


def remember(known: OrderedDict[str, Any], id: str, value: str | None) -> None:
    known[id] = value
    while len(known) > REMEMBERED:
        known.popitem(last=False)

"""Shows people that we work, have seen their message, are done or have failed; best effort, all of it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from tidings.adapters.slack.client import Client, Refused, Scopeless
from tidings.adapters.slack.sessions import Sessions
from tidings.core.background import Background
from tidings.core.errors import SendError
from tidings.core.types import Signal

log = logging.getLogger(__name__)

# A signal that comes late is worse than none.
SIGNAL_SECONDS = 3.0
REACTIONS = {Signal.SEEN: "eyes", Signal.DONE: "white_check_mark", Signal.FAILED: "x"}
# It stands there already, or is gone with its message.
AS_WANTED = ("already_reacted", "no_reaction", "message_not_found")
# Nothing will be taken there for a while.
SHUT = ("not_in_channel", "channel_not_found", "is_archived", "no_permission", "restricted_action")


class Signals:
    def __init__(self, client: Client, sessions: Sessions, account: str) -> None:
        self._client = client
        self._sessions = sessions
        self._account = account
        # What the app may not do at all, and where it may not; it is not tried again by this process.
        self._lacking: set[str] = set()
        self._refused: set[tuple[str, str]] = set()
        self._background = Background(log, "a reaction failed")

    async def work(self, channel: str, thread: str, *, on: bool) -> None:
        """Sets the status below a private thread."""
        await self._guard("status", channel, partial(self._sessions.work, channel, thread, on=on))

    async def react(self, channel: str, ts: str, signal: Signal) -> None:
        """The last one takes the place of the first."""
        await self._call("reactions.add", channel, channel=channel, timestamp=ts, name=REACTIONS[signal])
        if signal is not Signal.SEEN:
            self._background.begin(self._take_back(channel, ts))

    async def close(self) -> None:
        await self._background.close()

    async def _take_back(self, channel: str, ts: str) -> None:
        """Removes the reaction that says "seen", in the background."""
        try:
            await self._call("reactions.remove", channel, channel=channel, timestamp=ts, name=REACTIONS[Signal.SEEN])
        except SendError as error:
            log.debug("a reaction stays: %s", error)

    async def _call(self, method: str, where: str, **arguments: Any) -> None:
        await self._guard(method, where, partial(self._client.call, method, **arguments))

    async def _guard(self, what: str, where: str, call: Callable[..., Awaitable[Any]]) -> None:
        if what in self._lacking or (what, where) in self._refused:
            return
        try:
            await call(seconds=SIGNAL_SECONDS, budget=f"{self._account}/signal")
        except Scopeless as error:
            self._lacking.add(what)
            log.warning("%s shows fewer signs: %s", self._account, error)
        except Refused as error:
            if error.code in AS_WANTED:
                return
            if error.code in SHUT:
                self._refused.add((what, where))
            raise

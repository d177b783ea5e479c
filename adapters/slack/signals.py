"""Shows people that we work, and how their message stands: seen, waiting, at work, done or failed; best effort."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from tidings.adapters.shared.standing import Standing
from tidings.adapters.slack.client import Client, Refused, Scopeless
from tidings.adapters.slack.sessions import Sessions
from tidings.core.errors import RateLimited, SendError
from tidings.core.types import Signal

log = logging.getLogger(__name__)

# A signal that comes late is worse than none.
SIGNAL_SECONDS = 3.0
REACTIONS = {
    Signal.SEEN: "eyes",
    Signal.WAITING: "hourglass_flowing_sand",
    Signal.WORKING: "writing_hand",
    Signal.DONE: "white_check_mark",
    Signal.FAILED: "x",
}
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
        self._standing = Standing()

    async def work(self, channel: str, thread: str, *, on: bool) -> None:
        """Sets the status below a private thread."""
        await self._guard("status", channel, partial(self._sessions.work, channel, thread, on=on))

    async def react(self, channel: str, ts: str, signal: Signal) -> None:
        """Takes our earlier reaction away, then shows this one."""
        message = f"{channel}:{ts}"
        for other in self._standing.others(message, signal):
            await self._take_back(channel, ts, other)
        if signal is Signal.NONE:
            return
        self._standing.add(message, signal)
        try:
            await self._call("reactions.add", channel, channel=channel, timestamp=ts, name=REACTIONS[signal])
        except Refused:
            self._standing.remove(message, signal)
            raise
        for other in self._standing.others(message, signal):
            await self._take_back(channel, ts, other)

    async def _take_back(self, channel: str, ts: str, signal: Signal) -> None:
        """Removes one of our reactions; a removal that fails is tried once more after the new one is there."""
        try:
            await self._call("reactions.remove", channel, channel=channel, timestamp=ts, name=REACTIONS[signal])
        except RateLimited:
            raise
        except SendError as error:
            log.debug("a reaction stays: %s", error)
            return
        self._standing.remove(f"{channel}:{ts}", signal)

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

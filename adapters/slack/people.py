"""The names of people: asked of Slack in the background, and known from the next message on."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any

from tidings.adapters.slack.client import Client
from tidings.core.errors import Doubtful, Misconfigured, RateLimited, SendError, Unreachable

log = logging.getLogger(__name__)

REMEMBERED = 5000
# More than that at once are not asked for; they are when they are next spoken of.
ASKING = 20
ASK_SECONDS = 10.0


class People:
    def __init__(self, client: Client, begin: Callable[[Coroutine[Any, Any, None]], object]) -> None:
        self._client = client
        self._begin = begin
        self._names: OrderedDict[str, str] = OrderedDict()
        self._asking: set[str] = set()
        self._one_by_one = asyncio.Lock()
        self._may_ask = True

    def name_of(self, user: str) -> str:
        """Empty while the name is not known; the name is asked for, and is there the next time."""
        if user in self._names:
            self._names.move_to_end(user)
            return self._names[user]
        if self._may_ask and user and user not in self._asking and len(self._asking) < ASKING:
            self._asking.add(user)
            self._begin(self._ask(user))
        return ""

    async def _ask(self, user: str) -> None:
        try:
            async with self._one_by_one:
                told = (await self._client.call("users.info", user=user, seconds=ASK_SECONDS))["user"]
            profile = told.get("profile") or {}
            self._learn(user, str(profile.get("display_name") or profile.get("real_name") or told.get("name") or ""))
        except (Unreachable, Doubtful, RateLimited) as error:
            log.debug("the name of %s is not known yet: %s", user, error)
        except Misconfigured as error:
            self._may_ask = False
            log.info("people have no names: %s", error)
        except SendError as error:
            self._learn(user, "")
            log.debug("the name of %s could not be asked for: %s", user, error)
        finally:
            self._asking.discard(user)

    def _learn(self, user: str, name: str) -> None:
        self._names[user] = name
        if len(self._names) > REMEMBERED:
            self._names.popitem(last=False)

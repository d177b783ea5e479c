"""What Telegram tells one bot: updates in order, kept until a higher offset or a webhook's 2xx forgets them."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from tests.simulators.telegram.faults import Faults
from tests.simulators.telegram.texts import Refusal, whole
from tests.simulators.telegram.truth import Truth

FIRST_UPDATE = 500_000_000
POLL_SECONDS = 50
BATCH = 100
# Who asks again with the same offset gets one update at a time within the first, and waits within the second.
HASTY_SECONDS = 0.5
REPEAT_SECONDS = 3.0
# An offset further ahead than this is not of this queue: ids have begun anew.
AHEAD = 10
# What nobody fetches in this time is gone.
KEPT_SECONDS = 24 * 3600.0
# Told only to who asks for it.
UNASKED = {"chat_member", "message_reaction", "message_reaction_count"}

OTHER_POLL = "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running"
WEBHOOK_SET = "Conflict: terminated by setWebhook request"
WEBHOOK_ACTIVE = (
    "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first"
)


class Update(NamedTuple):
    id: int
    type: str
    body: dict[str, Any]
    # "CHAT:MESSAGE_ID" for a message, new or edited; the callback query's id; else a word of our own.
    name: str
    # What must stay in order.
    lane: str
    # By the steady clock.
    at: float

    def json(self) -> dict[str, Any]:
        return {"update_id": self.id, **self.body}


class Hook(NamedTuple):
    url: str
    secret: str
    connections: int


class Queue:
    """One bot's updates. Waiting is real time; it ends as soon as there is something to tell."""

    def __init__(self, account: str, truth: Truth, faults: Faults, repeat_seconds: float) -> None:
        self.account = account
        self.pending: list[Update] = []
        # Everything there ever was to tell.
        self.told: list[Update] = []
        self.expired: list[Update] = []
        self.next_id = FIRST_UPDATE
        # None is the default set.
        self.allowed: frozenset[str] | None = None
        self.hook: Hook | None = None
        self.last_error = ""
        self.last_error_at = 0.0
        # Called for each new update.
        self.on_update: Callable[[], None] = lambda: None
        self.reverse_next = 0
        self._truth = truth
        self._faults = faults
        self._repeat_seconds = repeat_seconds
        self._poll: asyncio.Future[None] | None = None
        self._last_offset: int | None = None
        self._last_asked = -REPEAT_SECONDS
        self._conflict_at = 0.0

    @property
    def is_polled(self) -> bool:
        return self._poll is not None

    def put(self, type: str, body: dict[str, Any], name: str, lane: str) -> int:
        """The update's id; 0 where the bot did not ask for such updates."""
        if not self.allows(type):
            return 0
        update = self._add(type, body, name, lane)
        if self._faults.befalls("duplicate", lane):
            self._add(type, body, name, lane)
        return update.id

    def allows(self, type: str) -> bool:
        return type not in UNASKED if self.allowed is None else type in self.allowed

    def add(self, type: str, body: dict[str, Any], name: str, lane: str) -> Update:
        """Past the filter, and never twice."""
        return self._add(type, body, name, lane)

    def _add(self, type: str, body: dict[str, Any], name: str, lane: str) -> Update:
        update = Update(self.next_id, type, body, name or f"update:{self.next_id}", lane, self._truth.clock.now())
        self.next_id += 1
        self.pending.append(update)
        self.told.append(update)
        self.wake()
        self.on_update()
        self._truth.wake()
        return update

    def jump(self, to: int | None) -> int:
        """Ids go on from a lower value, as they do after a week of silence."""
        if self.pending:
            raise RuntimeError("ids are chosen anew only when nothing is pending")
        self.next_id = random.randrange(1, self.next_id) if to is None else to
        return self.next_id

    def allow(self, params: dict[str, str]) -> None:
        if "allowed_updates" not in params:
            return
        try:
            wanted = json.loads(params["allowed_updates"])
        except ValueError:
            return
        if isinstance(wanted, list):
            self.allowed = frozenset(map(str, wanted)) or None

    def confirm(self, updates: Iterable[Update]) -> None:
        for update in updates:
            self._truth.confirmed.append((self.account, update.name))
            self._truth.log("confirm", self.account, chat=update.lane, message=str(update.id), key=update.name)

    def drop(self) -> None:
        """Nobody asked for them any more, so they count as neither."""
        self.pending.clear()
        self._truth.wake()

    def expire(self) -> None:
        oldest = self._truth.clock.now() - KEPT_SECONDS
        self.expired += [update for update in self.pending if update.at < oldest]
        self.pending = [update for update in self.pending if update.at >= oldest]

    def take(self, id: int) -> None:
        """A webhook has accepted it."""
        found = [update for update in self.pending if update.id == id]
        self.pending = [update for update in self.pending if update.id != id]
        self.confirm(found)

    # Long polling.

    async def get(self, params: dict[str, str]) -> list[dict[str, Any]]:
        if self.hook is not None:
            raise await self._conflict(WEBHOOK_ACTIVE)
        offset = whole(params, "offset")
        limit = min(max(whole(params, "limit", BATCH), 1), BATCH)
        timeout = float(min(max(whole(params, "timeout"), 0), POLL_SECONDS))
        self.allow(params)
        self.expire()
        now = asyncio.get_running_loop().time()
        if offset == self._last_offset:
            if now < self._last_asked + self._repeat_seconds:
                timeout = max(timeout, self._repeat_seconds)
            if now < self._last_asked + HASTY_SECONDS:
                limit = 1
        self._last_offset, self._last_asked = offset, now
        self._forget(offset)
        if not self.pending and timeout:
            await self._wait(timeout)
            # Not again by offset: ids may have begun anew meanwhile.
        batch = self.pending[:limit]
        if len(batch) > 1 and (self.reverse_next or self._faults.befalls("reorder", self.account)):
            self.reverse_next = max(0, self.reverse_next - 1)
            batch.reverse()
        return [update.json() for update in batch]

    def _forget(self, offset: int) -> None:
        if offset < 0:
            self.confirm(self.pending[:offset])
            self.pending = self.pending[offset:]
        elif 0 < offset <= self.next_id + AHEAD:
            gone = [update for update in self.pending if update.id < offset]
            self.pending = [update for update in self.pending if update.id >= offset]
            self.confirm(gone)

    async def _wait(self, seconds: float) -> None:
        self.end_poll(OTHER_POLL)
        mine = self._poll = asyncio.get_running_loop().create_future()
        self._truth.wake()
        try:
            async with asyncio.timeout(seconds):
                await mine
        except TimeoutError:
            return
        except Refusal as refusal:
            raise await self._conflict(refusal.description) from None
        finally:
            if self._poll is mine:
                self._poll = None
            self._truth.wake()

    def wake(self) -> None:
        if self._poll is not None and not self._poll.done():
            self._poll.set_result(None)

    def end_poll(self, why: str) -> None:
        if self._poll is not None and not self._poll.done():
            self._poll.set_exception(Refusal(409, why))
        self._poll = None

    async def _conflict(self, why: str) -> Refusal:
        """The server tells of conflicts at once only every few seconds; whoever fights over a bot is slowed down."""
        self._truth.conflicts += 1
        self._truth.wake()
        now = asyncio.get_running_loop().time()
        if now < self._conflict_at:
            await asyncio.sleep(self._repeat_seconds)
        else:
            self._conflict_at = now + self._repeat_seconds
        return Refusal(409, why)

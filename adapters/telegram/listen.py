"""How updates come in, by long polling or by a webhook: each is confirmed only after it was stored."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

from telegram.error import Conflict, InvalidToken, TelegramError

from tidings.adapters.shared.http_client import decode_object
from tidings.adapters.shared.replies import reply_to
from tidings.adapters.telegram.client import Client, Flooded, Unanswered, verdict
from tidings.adapters.telegram.parse import ADAPTER, WANTED, Reader, moved_to, place_of
from tidings.adapters.telegram.settings import TelegramAccount
from tidings.core.adapter import Host, Receive
from tidings.core.background import Background
from tidings.core.errors import Unreachable, Unstored
from tidings.core.failpoints import fail_here
from tidings.core.types import Kind

log = logging.getLogger(__name__)

UNSTORED_SECONDS = 0.5
WEBHOOK_BYTES = 1024 * 1024
# Telegram keeps updates that were not fetched for a day.
KEPT_SECONDS = 23 * 3600.0
NOTED_EVERY_SECONDS = 600.0


class Limits(NamedTuple):
    """How long the adapter waits for Telegram."""

    poll_seconds: int = 30
    # A poll that is answered later than this is not answered: the connection is open and dead.
    late_seconds: float = 10.0
    # A server that sends bit by bit would never be late.
    whole_seconds: float = 20.0
    # One dead connection is nothing; a longer silence is reported.
    troubled_seconds: float = 60.0
    # Pauses after lost polls. A connection breaks now and then; after the last pause listening ends.
    pauses: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0)
    # Time for the first question, which tells the bot its own name.
    look_seconds: float = 10.0


USUAL = Limits()
# A second look at what is still being stored: sooner, the server would show us one update at a time.
LOOK_AGAIN_SECONDS = 0.7


class Intake:
    def __init__(
        self, settings: TelegramAccount, client: Client, host: Host, reader: Reader, limits: Limits = USUAL
    ) -> None:
        self._settings = settings
        self._limits = limits
        self._client = client
        self._host = host
        self._reader = reader
        self._noted = 0.0
        # When the platform last answered a poll.
        self._heard = host.clock.now()
        self._is_heard = False
        self._background = Background(log, "a call beside listening failed")

    async def run(self, receive: Receive) -> NoReturn:
        await self._tell_gap()
        if self._settings.mode == "webhook":
            await self._serve(receive)
        await self._poll(receive)

    async def _poll(self, receive: Receive) -> NoReturn:
        await self._client.call("deleteWebhook", {})
        # Updates that were handed over and are not confirmed, in the order they came.
        taking: dict[int, asyncio.Task[None]] = {}
        offset: int | None = None
        try:
            while True:
                updates = await self._fetch(offset)
                if offset is not None:
                    fail_here("in.post_ack")
                self._note_time()
                if not updates:
                    # All we confirmed is forgotten there. After a quiet week the ids begin anew, perhaps lower:
                    # a poll that went on asking from the old one would never hear of them.
                    offset = None
                    continue
                self._hand_over(updates, taking, receive)
                await asyncio.wait(taking.values(), timeout=LOOK_AGAIN_SECONDS)
                if await self._put_back(taking):
                    await self._host.clock.sleep(UNSTORED_SECONDS)
                held = [number for number in sorted(taking) if not taking[number].done()]
                came = [update["update_id"] for update in updates]
                unconfirmed = held + [number for number in came if number not in taking]
                offset = min(unconfirmed) if unconfirmed else max(came) + 1
                fail_here("in.pre_ack")
                taking = {number: task for number, task in taking.items() if number >= offset}
        finally:
            for task in taking.values():
                task.cancel()

    def _hand_over(
        self, updates: list[dict[str, Any]], taking: dict[int, asyncio.Task[None]], receive: Receive
    ) -> None:
        """All at once, but in each chat one after the other: what was said later is never stored before."""
        latest: dict[str, asyncio.Task[None]] = {}
        for update in updates:
            chat, number = place_of(update), update["update_id"]
            if number not in taking:
                taking[number] = asyncio.create_task(self._take_after(latest.get(chat), update, receive))
            latest[chat] = taking[number]

    async def _take_after(self, before: asyncio.Task[None] | None, update: dict[str, Any], receive: Receive) -> None:
        if before is not None:
            await asyncio.wait([before])
            if before.cancelled() or before.exception() is not None:
                raise Unstored("what was said before it in its chat is not stored yet")
        await self.take(update, receive)

    async def _fetch(self, offset: int | None) -> list[dict[str, Any]]:
        """One long poll; a connection that stays broken ends the listening."""
        for pause in self._limits.pauses:
            # The first look, and one after a lost poll, is short: whether we are heard should show at once.
            patience = self._limits.poll_seconds if self._is_heard else 0
            parameters = {"offset": offset, "timeout": patience, "allowed_updates": WANTED}
            try:
                async with asyncio.timeout(patience + self._limits.whole_seconds):
                    late = patience + self._limits.late_seconds
                    updates = await self._client.call("getUpdates", parameters, seconds=late)
            except (InvalidToken, Conflict):
                raise
            except (TelegramError, TimeoutError) as error:
                trouble = error if isinstance(error, TelegramError) else Unanswered("it never ended")
                log.debug("a poll was lost: %s", trouble)
                self._note_silence(trouble)
                seconds = trouble.seconds if isinstance(trouble, Flooded) and trouble.seconds else pause
                await self._host.clock.sleep(seconds)
                continue
            await self._note_answer()
            return [update for update in updates if isinstance(update, dict) and "update_id" in update]
        raise Unreachable(str(verdict(trouble)))

    def _note_silence(self, trouble: TelegramError) -> None:
        self._is_heard = False
        silent = self._host.clock.now() - self._heard
        if silent >= self._limits.troubled_seconds:
            words = f"nothing was heard of Telegram for {silent:.0f} s ({verdict(trouble)})"
            self._host.reports.troubled(words)

    async def _note_answer(self) -> None:
        self._heard = self._host.clock.now()
        if not self._is_heard:
            self._is_heard = True
            await self._host.reports.reachable()

    async def _put_back(self, taking: dict[int, asyncio.Task[None]]) -> bool:
        """An update that could not be stored is not confirmed, so Telegram sends it again with the next poll."""
        lost = [number for number, task in taking.items() if task.done() and task.exception() is not None]
        for number in lost:
            error = taking.pop(number).exception()
            if not isinstance(error, Unstored):
                raise error or AssertionError
        return bool(lost)

    async def _serve(self, receive: Receive) -> NoReturn:
        from aiohttp import web

        from tidings.adapters.shared.http_server import read_body, vouch

        secret = self._settings.webhook_secret.get_secret_value()

        async def handle(request: web.BaseRequest, names: Mapping[str, str]) -> web.Response:
            # Before the body is read: a stranger without the secret costs us nothing.
            given = request.headers.get("X-Telegram-Bot-Api-Secret-Token", "")
            if not hmac.compare_digest(given.encode("utf-8", "surrogateescape"), secret.encode()):
                return web.Response(status=403)
            vouch(request)
            update = decode_object(await read_body(request, WEBHOOK_BYTES))
            if update is None:
                log.warning("%s@%s was sent something that is no update", ADAPTER, self._reader.account)
                return web.Response(status=400)
            try:
                await self.take(update, receive)
            except Unstored:
                return web.Response(status=503, headers={"Retry-After": "1"})
            fail_here("in.pre_ack")
            return web.Response()

        path = f"/webhooks/{ADAPTER}/{self._reader.account}"
        async with self._host.server.route("POST", path, handle):
            await self._set_webhook(path, secret)
            while True:
                self._note_time()
                await self._host.clock.sleep(NOTED_EVERY_SECONDS)

    async def _set_webhook(self, path: str, secret: str) -> None:
        address = self._settings.webhook_url.rstrip("/")
        # Behind a proxy the public path may be another one; an address with a path is taken as it is.
        if address.count("/") == 2:
            address += path
        wanted = {"url": address, "secret_token": secret, "allowed_updates": WANTED, "max_connections": 40}
        while True:
            try:
                await self._client.call("setWebhook", wanted)
                return
            except Flooded as error:
                await self._host.clock.sleep(error.seconds or 1.0)

    async def take(self, update: dict[str, Any], receive: Receive) -> None:
        """Returns when the update may be confirmed; raises Unstored when it may not."""
        try:
            moved = moved_to(update)
            inbound = None if moved else self._reader.read(update)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            # It must not block the ones behind it for ever.
            log.warning("passed over update %s, which has a strange shape: %r", update.get("update_id"), error)
            return
        if moved:
            await self._host.reports.moved(*moved)
        if inbound is None:
            return
        admission = await receive(inbound)
        if inbound.kind is Kind.PRESSED:
            words = reply_to(admission, inbound)
            self._background.begin(self._answer(str(update["callback_query"]["id"]), words))

    async def _answer(self, press: str, words: str) -> None:
        """Ends the clock that Telegram shows on a pressed button, with words for this person alone."""
        try:
            await self._client.call("answerCallbackQuery", {"callback_query_id": press, "text": words}, seconds=5.0)
        except TelegramError as error:
            log.debug("a press was not answered: %s", error)

    async def _tell_gap(self) -> None:
        """Reports that messages may be lost: Telegram drops what was not fetched within a day."""
        last = await self._host.notebook.read("listened")
        now = self._host.clock.wall()
        if last is None or now - float(last) < KEPT_SECONDS:
            return
        hours = round((now - float(last)) / 3600)
        words = f"I was offline for {hours} hours; what was written to me more than a day ago may be lost."
        await self._host.reports.missed(words, tell=self._settings.tell_gaps)

    def _note_time(self) -> None:
        """Writes in the background: a store that cannot write must not keep us from listening."""
        now = self._host.clock.wall()
        if not 0 <= now - self._noted < NOTED_EVERY_SECONDS:
            self._noted = now
            self._background.begin(self._write_time(now))

    async def _write_time(self, now: float) -> None:
        try:
            await self._host.notebook.write("listened", f"{now:.0f}")
        except Unstored:
            self._noted = 0.0

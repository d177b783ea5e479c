"""Telegram's webhooks: each chat's updates in order, again until the bot answers 2xx, while other chats go on."""

from __future__ import annotations

import asyncio
import ipaddress
import re
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from tests.simulators.telegram.chats import Bot
from tests.simulators.telegram.texts import Refusal, bad, truth_of, whole
from tests.simulators.telegram.updates import WEBHOOK_SET, Hook, Queue, Update
from tidings.core.clock import Clock

SECRET_HEADER = "X-Telegram-Bot-Api-Secret-Token"
ANSWER_SECONDS = 60.0


class Webhooks:
    """`delay` is the first pause after a failure; it doubles up to `longest`. Both are real seconds, and short."""

    def __init__(self, clock: Clock, *, pause: float, delay: float, longest: float) -> None:
        self._clock = clock
        self._pause = pause
        self._delay = delay
        self._longest = longest
        self._session: aiohttp.ClientSession | None = None
        # By account and lane.
        self._lanes: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._places: dict[str, asyncio.Semaphore] = {}
        # Every attempt: (update id, status), 0 where nobody answered.
        self.attempts: list[tuple[int, int]] = []
        # Cleared while the platform is away.
        self.up = asyncio.Event()

    def set(self, bot: Bot, params: dict[str, str]) -> bool:
        url = params.get("url", "")
        if not url:
            return self.delete(bot, params)
        now = self._clock.now()
        if now < bot.may_set_webhook_at:
            raise Refusal(429, "Too Many Requests: retry after 1", retry_after=1)
        bot.may_set_webhook_at = now + self._pause
        _check(url)
        secret = params.get("secret_token", "")
        if len(secret) > 256:
            raise bad("secret token is too long")
        if not re.fullmatch(r"[A-Za-z0-9_-]*", secret):
            raise bad("secret token contains unallowed characters")
        queue = bot.queue
        self._stop(bot.account)
        if truth_of(params.get("drop_pending_updates", "")):
            queue.drop()
        queue.end_poll(WEBHOOK_SET)
        queue.allow(params)
        queue.hook = Hook(url, secret, min(max(whole(params, "max_connections", 40), 1), 100))
        queue.last_error, queue.last_error_at = "", 0.0
        self._places[bot.account] = asyncio.Semaphore(queue.hook.connections)
        queue.on_update = lambda: self._pump(queue)
        self._pump(queue)
        return True

    def delete(self, bot: Bot, params: dict[str, str]) -> bool:
        self._stop(bot.account)
        bot.queue.hook = None
        bot.queue.on_update = lambda: None
        if truth_of(params.get("drop_pending_updates", "")):
            bot.queue.drop()
        return True

    def info(self, bot: Bot) -> dict[str, Any]:
        queue = bot.queue
        info: dict[str, Any] = {
            "url": queue.hook.url if queue.hook else "",
            "has_custom_certificate": False,
            "pending_update_count": len(queue.pending),
        }
        if queue.hook:
            info["max_connections"] = queue.hook.connections
        if queue.last_error:
            info |= {"last_error_date": int(queue.last_error_at), "last_error_message": queue.last_error}
        if queue.allowed is not None:
            info["allowed_updates"] = sorted(queue.allowed)
        return info

    async def close(self) -> None:
        tasks = list(self._lanes.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    def _stop(self, account: str) -> None:
        for place in [place for place in self._lanes if place[0] == account]:
            self._lanes.pop(place).cancel()

    def _pump(self, queue: Queue) -> None:
        for lane in dict.fromkeys(update.lane for update in queue.pending):
            place = (queue.account, lane)
            if place not in self._lanes:
                self._lanes[place] = asyncio.create_task(self._deliver(queue, lane))

    async def _deliver(self, queue: Queue, lane: str) -> None:
        delay = self._delay
        queue.expire()
        while update := next((each for each in queue.pending if each.lane == lane), None):
            await self.up.wait()
            async with self._places[queue.account]:
                status, wait = await self._post(queue, update)
            self.attempts.append((update.id, status))
            if 200 <= status < 300:
                delay = self._delay
                queue.take(update.id)
                continue
            queue.last_error = f"Wrong response from the webhook: {status}" if status else "Connection failed"
            queue.last_error_at = self._clock.wall()
            await asyncio.sleep(max(delay, min(wait, self._longest)))
            delay = min(2 * delay, self._longest)
            queue.expire()
        # Nothing can have come in between: this part does not wait.
        self._lanes.pop((queue.account, lane), None)

    async def _post(self, queue: Queue, update: Update) -> tuple[int, float]:
        """The status and how long the bot asks to be left alone."""
        assert queue.hook is not None
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS))
        headers = {SECRET_HEADER: queue.hook.secret} if queue.hook.secret else {}
        try:
            async with self._session.post(
                queue.hook.url, json=update.json(), headers=headers, allow_redirects=False, ssl=False
            ) as answer:
                await answer.read()
                wait = answer.headers.get("Retry-After", "")
                return answer.status, float(wait) if wait.isdigit() else 0.0
        except (aiohttp.ClientError, TimeoutError, OSError):
            return 0, 0.0


def _check(url: str) -> None:
    parts = urlsplit(url)
    if not parts.hostname:
        raise bad("invalid webhook URL specified")
    if parts.scheme == "https":
        return
    if parts.scheme != "http" or not _is_loopback(parts.hostname):
        raise bad("bad webhook: An HTTPS URL must be provided for webhook")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

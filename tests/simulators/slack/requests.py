"""Slack's signed requests to the app's own URL: events, commands, presses, and the question whether it is the app's."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from typing import Any, NamedTuple
from urllib.parse import urlencode

import aiohttp

from tests.simulators.slack.places import App
from tests.simulators.slack.truth import Truth
from tidings.core.clock import Clock, ended_within

AGENT = "Slackbot 1.0 (+https://api.slack.com/robots)"
FORM = "application/x-www-form-urlencoded"


class Request(NamedTuple):
    url: str
    headers: dict[str, str]
    body: bytes
    # 0 where nobody answered in time.
    status: int
    answer: bytes


def sign(secret: str, body: bytes, timestamp: int) -> str:
    return "v0=" + hmac.new(secret.encode(), f"v0:{timestamp}:".encode() + body, hashlib.sha256).hexdigest()


def headers_for(secret: str, body: bytes, timestamp: int, type: str = "application/json") -> dict[str, str]:
    return {
        "Content-Type": type,
        "User-Agent": AGENT,
        "X-Slack-Request-Timestamp": str(timestamp),
        "X-Slack-Signature": sign(secret, body, timestamp),
    }


class Requests:
    def __init__(self, truth: Truth, clock: Clock) -> None:
        self._truth = truth
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None
        self.made: list[Request] = []
        # Cleared while the platform is away.
        self.up = asyncio.Event()

    async def verify(self, app: App, url: str, seconds: float) -> None:
        """Makes it the app's URL if it says the challenge back."""
        challenge = hashlib.sha256(url.encode()).hexdigest()[:32]
        body = json.dumps({"token": "verification-token", "challenge": challenge, "type": "url_verification"}).encode()
        status, answer, _ = await self._post(app, url, body, "application/json", {}, seconds)
        if status != 200 or challenge.encode() not in answer:
            raise ValueError(f"the URL did not answer with the challenge: {status} {answer[:200]!r}")
        app.url = url

    async def deliver(
        self, app: App, type: str, payload: dict[str, Any], attempt: int, reason: str, seconds: float
    ) -> tuple[str, dict[str, Any], bool]:
        """The verdict, what came with the answer, and whether the app may be asked again."""
        await self.up.wait()
        retry = {"X-Slack-Retry-Num": str(attempt), "X-Slack-Retry-Reason": reason} if attempt else {}
        match type:
            case "events_api":
                body, kind = json.dumps(payload, ensure_ascii=False).encode(), "application/json"
            case "slash_commands":
                body, kind = urlencode(payload).encode(), FORM
            case _:
                body, kind = urlencode({"payload": json.dumps(payload, ensure_ascii=False)}).encode(), FORM
        status, answer, headers = await self._post(app, app.url, body, kind, retry, seconds)
        may_retry = headers.get("X-Slack-No-Retry") != "1"
        if 200 <= status < 300:
            return "ok", _answer_of(answer), may_retry
        return {0: "timeout", -1: "gone"}.get(status, str(status)), {}, may_retry

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _post(
        self, app: App, url: str, body: bytes, type: str, more: dict[str, str], seconds: float
    ) -> tuple[int, bytes, dict[str, str]]:
        headers = headers_for(app.secret, body, int(self._truth.wall()), type) | more
        task = asyncio.create_task(self._send(url, headers, body))
        try:
            in_time = await ended_within(self._clock, task, seconds)
        finally:
            task.cancel()
        status, answer, said = task.result() if in_time else (0, b"", {})
        self.made.append(Request(url, headers, body, max(status, 0), answer))
        self._truth.wake()
        return status, answer, said

    async def _send(self, url: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes, dict[str, str]]:
        if self._session is None:
            self._session = aiohttp.ClientSession()
        try:
            async with self._session.post(url, data=body, headers=headers, allow_redirects=False) as answer:
                return answer.status, await answer.read(), dict(answer.headers)
        except (aiohttp.ClientError, OSError):
            return -1, b"", {}


def _answer_of(body: bytes) -> dict[str, Any]:
    if not body:
        return {}
    try:
        value = json.loads(body)
    except ValueError:
        return {"text": body.decode(errors="replace")}
    return value if isinstance(value, dict) else {}

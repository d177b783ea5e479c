"""Requests that Slack posts to us: Bolt parses a request only after the request's signature was checked."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING

from slack_bolt.adapter.aiohttp import to_aiohttp_response
from slack_bolt.response import BoltResponse
from slack_sdk.signature import Clock as SignatureClock
from slack_sdk.signature import SignatureVerifier

from tidings.core.clock import Clock
from tidings.core.failpoints import fail_here

if TYPE_CHECKING:
    from aiohttp import web

FRESH_SECONDS = 300
# More requests than this in the time for which one is fresh are more than Slack sends in an hour.
REMEMBERED = 50_000
BODY_BYTES = 1024 * 1024

_SIGNATURE = re.compile(r"v0=[0-9a-f]{64}")
_TIMESTAMP = re.compile(r"[0-9]{1,12}")

# Given the body of a request and the content type: what to answer.
Answer = Callable[[str, str], Awaitable[BoltResponse]]


class WallClock(SignatureClock):
    """The gateway's clock for the library's signature check."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now(self) -> float:
        return self._clock.wall()


class Signatures:
    """Bolt's signature check, asked before Bolt, and a memory of the requests that were taken."""

    def __init__(self, secret: str, clock: Clock) -> None:
        self._clock = clock
        self._verifier = SignatureVerifier(secret, WallClock(clock))
        # Signatures of requests that were taken, with the time after which each is stale anyway.
        self._taken: OrderedDict[str, float] = OrderedDict()

    def may_be_good(self, timestamp: str, signature: str) -> bool:
        """What can be said without the body; the library's check raises for headers of another shape."""
        if not _SIGNATURE.fullmatch(signature) or not _TIMESTAMP.fullmatch(timestamp):
            return False
        return abs(self._clock.wall() - int(timestamp)) <= FRESH_SECONDS

    def is_good(self, timestamp: str, signature: str, body: bytes) -> bool:
        if not self.may_be_good(timestamp, signature) or signature in self._taken:
            return False
        try:
            return self._verifier.is_valid(body, timestamp, signature)
        except UnicodeDecodeError:
            # Slack signs text; the library cannot check other bytes.
            return False

    def take(self, signature: str) -> None:
        """A request that could not be stored is not taken: Slack may repeat it in the same second, signed the same."""
        now = self._clock.wall()
        while self._taken and (next(iter(self._taken.values())) < now or len(self._taken) >= REMEMBERED):
            self._taken.popitem(last=False)
        # A timestamp may lie as far ahead as behind.
        self._taken[signature] = now + 2 * FRESH_SECONDS


class Events:
    def __init__(self, secret: str, clock: Clock, answer: Answer) -> None:
        self._signatures = Signatures(secret, clock)
        self._answer = answer

    async def handle(self, request: web.BaseRequest, names: Mapping[str, str]) -> web.Response:
        from aiohttp import web

        from tidings.adapters.shared.http_server import read_body, vouch

        timestamp = request.headers.get("X-Slack-Request-Timestamp", "")
        signature = request.headers.get("X-Slack-Signature", "")
        # Before the body is read: a request without Slack's headers costs us nothing.
        if not self._signatures.may_be_good(timestamp, signature):
            return web.Response(status=HTTPStatus.UNAUTHORIZED)
        body = await read_body(request, BODY_BYTES)
        if not self._signatures.is_good(timestamp, signature, body):
            return web.Response(status=HTTPStatus.UNAUTHORIZED)
        vouch(request)
        response = await self._answer(body.decode(), request.content_type)
        if response.status == HTTPStatus.BAD_REQUEST:
            return web.Response(status=HTTPStatus.BAD_REQUEST, headers={"X-Slack-No-Retry": "1"})
        if response.status == HTTPStatus.OK:
            fail_here("in.pre_ack")
            self._signatures.take(signature)
        return await to_aiohttp_response(response)

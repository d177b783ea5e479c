"""Events, commands and presses that Slack posts to us: nothing is read of them before their signature was checked."""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl

import msgspec

from tidings.core.clock import Clock
from tidings.core.errors import Unstored
from tidings.core.failpoints import fail_here

if TYPE_CHECKING:
    from aiohttp import web

    from tidings.adapters.slack.socket import Take

log = logging.getLogger(__name__)

FRESH_SECONDS = 300
# More requests than this in the time for which one is fresh are more than Slack sends in an hour.
REMEMBERED = 50_000
BODY_BYTES = 1024 * 1024
FIELDS = 100
FORM = "application/x-www-form-urlencoded"

_SIGNATURE = re.compile(r"v0=[0-9a-f]{64}")
_TIMESTAMP = re.compile(r"[0-9]{1,12}")


class Asked(NamedTuple):
    type: str
    payload: dict[str, Any]


class Signatures:
    """Whether Slack itself has signed something just now, and whether that was taken before."""

    def __init__(self, secret: str, clock: Clock) -> None:
        self._secret = secret.encode()
        self._clock = clock
        # Of what was taken, with the time after which it is stale anyway.
        self._taken: OrderedDict[str, float] = OrderedDict()

    def is_fresh(self, timestamp: str) -> bool:
        return bool(_TIMESTAMP.fullmatch(timestamp)) and abs(self._clock.wall() - int(timestamp)) <= FRESH_SECONDS

    def is_good(self, timestamp: str, signature: str, body: bytes) -> bool:
        if not _SIGNATURE.fullmatch(signature) or not self.is_fresh(timestamp):
            return False
        signed = hmac.new(self._secret, f"v0:{timestamp}:".encode() + body, hashlib.sha256)
        return hmac.compare_digest(f"v0={signed.hexdigest()}", signature) and signature not in self._taken

    def take(self, signature: str) -> None:
        """What could not be stored is not taken: Slack may say it again within the same second, signed the same."""
        now = self._clock.wall()
        while self._taken and (next(iter(self._taken.values())) < now or len(self._taken) >= REMEMBERED):
            self._taken.popitem(last=False)
        # A timestamp may lie as far ahead as behind.
        self._taken[signature] = now + 2 * FRESH_SECONDS


class Events:
    def __init__(self, secret: str, clock: Clock, take: Take) -> None:
        self._signatures = Signatures(secret, clock)
        self._take = take

    async def handle(self, request: web.BaseRequest, names: Mapping[str, str]) -> web.Response:
        from aiohttp import web

        from tidings.adapters.shared.http_server import read_body, vouch

        timestamp = request.headers.get("X-Slack-Request-Timestamp", "")
        signature = request.headers.get("X-Slack-Signature", "")
        # Before the body is read: whoever comes without a word of Slack's costs us nothing.
        if not _SIGNATURE.fullmatch(signature) or not self._signatures.is_fresh(timestamp):
            return web.Response(status=401)
        body = await read_body(request, BODY_BYTES)
        if not self._signatures.is_good(timestamp, signature, body):
            return web.Response(status=401)
        vouch(request)
        try:
            asked = _read(body, request.content_type)
        except (KeyError, ValueError, RecursionError) as error:
            log.warning("passed over a request of Slack's that has a strange shape: %r", error)
            return web.Response(status=400, headers={"X-Slack-No-Retry": "1"})
        if asked.type == "url_verification":
            return web.Response(text=str(asked.payload.get("challenge") or ""))
        try:
            answer = await self._take(asked.type, asked.payload)
        except Unstored:
            answer = None
        if answer is None:
            # No number of seconds is heeded: it comes again when Slack thinks fit.
            return web.Response(status=503)
        fail_here("in.pre_ack")
        self._signatures.take(signature)
        if not answer:
            return web.Response()
        return web.Response(body=msgspec.json.encode(answer), content_type="application/json")


def _read(body: bytes, content_type: str) -> Asked:
    """Raises ValueError or KeyError."""
    if content_type != FORM:
        payload = msgspec.json.decode(body, type=dict[str, Any])
        if payload.get("type") == "url_verification":
            return Asked("url_verification", payload)
        return Asked("events_api", payload)
    fields = dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=FIELDS))
    if "payload" in fields:
        return Asked("interactive", msgspec.json.decode(fields["payload"], type=dict[str, Any]))
    if "ssl_check" in fields:
        # Slack looks now and then whether anybody is there.
        return Asked("ssl_check", {})
    return Asked("slash_commands", dict(fields))

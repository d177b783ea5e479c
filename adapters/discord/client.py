"""Speaks to Discord's REST API by aiohttp, and turns every answer that is no success into our verdicts in one place."""

from __future__ import annotations

import json as plain_json
import logging
import re
import ssl
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import aiohttp
import msgspec

from tidings.adapters.discord.address import ADAPTER
from tidings.adapters.shared import http_client
from tidings.adapters.shared.dates import date_of
from tidings.adapters.shared.proxy import way
from tidings.core.errors import Doubtful, Misconfigured, RateLimited, Rejected, SendError, Unfit, Unreachable

log = logging.getLogger(__name__)

# A slow server may still take the message, so whoever gives up must be in doubt.
READ_SECONDS = 20.0
CONNECT_SECONDS = 10.0
UPLOAD_SECONDS = 120.0
CONNECTIONS = 200
# The edge in front of Discord shuts out a whole address, and seldom says for how long.
SHUT_OUT_SECONDS = 60.0
LARGEST_DOWNLOAD = 50 * 1024 * 1024
REASON_CHARACTERS = 300
# Discord asks every bot to name itself in this form, with an address and a version.
AGENT = "DiscordBot (https://discord.com/developers/applications, 0.1.0) Tidings"
FILE_HOSTS = ("cdn.discordapp.com", "media.discordapp.net")

UNKNOWN_CHANNEL = 10003
UNKNOWN_MESSAGE = 10008
UNKNOWN_USER = 10013
UNKNOWN_WEBHOOK = 10015
UNKNOWN_INTERACTION = 10062
TOO_BIG = 40005
NO_ACCESS = 50001
NOT_OURS = 50005
NO_PERMISSION = 50013
TOKEN_ENDED = 50027
NO_RECIPIENT = 50033
BAD_FORM = 50035
ARCHIVED = 50083
NO_REPLY = 160002
THREAD_EXISTS = 160004

REASONS: Mapping[int, str] = {
    UNKNOWN_CHANNEL: "the channel or thread is gone, or the bot was never in it",
    UNKNOWN_MESSAGE: "the message is gone",
    UNKNOWN_WEBHOOK: "the time to answer this command is over",
    UNKNOWN_INTERACTION: "the time to answer this command is over",
    10004: "the server is gone, or the bot was removed from it",
    TOO_BIG: "the file is too big for Discord",
    NO_ACCESS: "the bot may not see this channel, or was removed from the server",
    50006: "Discord takes no empty message",
    50007: "this person takes no messages from the bot",
    NO_PERMISSION: "the bot lacks a permission in this channel",
    50024: "this kind of channel does not allow it",
    TOKEN_ENDED: "the time to answer this command is over",
    ARCHIVED: "the thread is archived and locked",
    50278: "the bot shares no server with this person, so it may not write to them",
    160005: "the thread is locked",
}

# Its lines hold what people say to each other.
logging.getLogger("discord").setLevel(logging.WARNING)


class Refused(Rejected):
    """Discord's own no; `code` is its number for the reason, 0 where there is none."""

    def __init__(self, reason: str, code: int = 0, status: int = 0) -> None:
        super().__init__(reason)
        self.code = code
        self.status = status


class Answer(NamedTuple):
    """What came back; without a status nothing did, and `left` says whether a byte may have left us."""

    status: int = 0
    payload: bytes = b""
    retry_after: str = ""
    left: bool = True
    trouble: str = ""


class Client:
    """One bot account. Answers are the server's own JSON."""

    def __init__(self, token: str, api_url: str, account: str = "main", proxy: str = "") -> None:
        self._token = token
        self._base = api_url.rstrip("/")
        self._account = f"{ADAPTER}/{account}"
        self._proxy = proxy
        self._made: aiohttp.ClientSession | None = None
        self._is_closed = False
        # Discord's time, from its newest answer; None if no answer told it.
        self.date: float | None = None

    async def call(
        self,
        method: str,
        path: str,
        json: Any = None,
        *,
        params: Mapping[str, str | int] | None = None,
        files: Sequence[tuple[str, bytes]] = (),
        seconds: float = READ_SECONDS,
        budget: str = "",
    ) -> Any:
        """Raises a SendError; `budget` is what a limit of this route exhausts, unless it is the account's own.

        Answers None where there is no body.
        """
        headers = {"Authorization": f"Bot {self._token}", "User-Agent": AGENT}
        data: Any = None
        if files:
            # An upload is answered only when the server has worked through it.
            data, seconds = _form(json, files), max(seconds, UPLOAD_SECONDS)
        elif json is not None:
            data, headers["Content-Type"] = msgspec.json.encode(json), "application/json"
        answer = await self._ask(method, f"{self._base}{path}", headers, seconds, data, params)
        if error := verdict(answer, method, self._account, budget):
            raise error
        if not answer.payload:
            return None
        try:
            return decode(answer.payload)
        except ValueError:
            raise _unheard(method, "the server's answer was broken") from None

    async def download(self, url: str) -> bytes:
        """A file of a message; no other address is ever asked, whoever wrote it there."""
        if not self._is_ours(url):
            raise Refused("it does not lie with Discord")
        answer = await self._ask("GET", url, {"User-Agent": AGENT}, UPLOAD_SECONDS, most=LARGEST_DOWNLOAD)
        if answer.status == HTTPStatus.OK:
            return answer.payload
        if HTTPStatus.BAD_REQUEST <= answer.status < HTTPStatus.TOO_MANY_REQUESTS:
            raise Refused(f"Discord has no such file any more ({answer.status})", status=answer.status)
        raise verdict(answer, "GET", self._account) or Unreachable("Discord did not hand the file over")

    async def close(self) -> None:
        self._is_closed = True
        if self._made is not None:
            await self._made.close()
            self._made = None

    def _is_ours(self, url: str) -> bool:
        asked, base = urlsplit(url), urlsplit(self._base)
        if (asked.scheme, asked.netloc) == (base.scheme, base.netloc):
            return True
        return asked.scheme == "https" and asked.netloc in FILE_HOSTS

    async def _ask(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        seconds: float,
        data: Any = None,
        params: Mapping[str, str | int] | None = None,
        most: int = 0,
    ) -> Answer:
        if self._is_closed:
            # Who comes late would open a connection that nobody closes.
            return Answer(left=False, trouble="closed")
        phase = http_client.Phase()
        try:
            call = self._session().request(
                method,
                url,
                data=data,
                params=params,
                headers=headers,
                timeout=aiohttp.ClientTimeout(connect=CONNECT_SECONDS, sock_read=seconds),
                # A call that is sent elsewhere would be made twice.
                allow_redirects=False,
                trace_request_ctx=phase,
            )
            async with call as response:
                payload = await _read_within(response, most) if most else await response.read()
                self.date = date_of(response.headers.get("Date", ""))
                return Answer(response.status, payload, response.headers.get("Retry-After", ""))
        except (aiohttp.ClientError, OSError) as error:
            # Not the error itself: its words may hold the address, and that may hold a token.
            return Answer(left=phase.has_left, trouble=type(error).__name__)

    def _session(self) -> aiohttp.ClientSession:
        if self._made is None:
            server = urlsplit(self._base)
            self._made = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=CONNECTIONS,
                    keepalive_timeout=60.0,
                    ssl=_certificates() if server.scheme == "https" else True,
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                trace_configs=[http_client.traced()],
                proxy=way(self._proxy, self._base).by,
            )
        return self._made


def verdict(answer: Answer, method: str, account: str, budget: str = "") -> SendError | None:
    """What became of a call; None when it was done."""
    status = answer.status
    if not status:
        if not answer.left:
            return Unreachable(f"Discord cannot be reached ({answer.trouble})")
        return _unheard(method, answer.trouble)
    if status < HTTPStatus.MULTIPLE_CHOICES:
        return None
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return _unheard(method, f"the server answered {status}")
    told = _told(answer.payload)
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return _limited(answer, told, account, budget)
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        # Whoever in between says so will say it again.
        return Refused(REASONS[TOO_BIG], TOO_BIG, status)
    if told is None and status != HTTPStatus.UNAUTHORIZED:
        # Every no of Discord's own is an object: this is a page of something in between, and no verdict on the message.
        return Unreachable(f"something between us and Discord answered {status}")
    code = _code(told or {})
    if status == HTTPStatus.UNAUTHORIZED and code != TOKEN_ENDED:
        return Misconfigured(
            "Discord does not accept the token: look at [discord] token, or reset it in the developer portal"
        )
    if code == BAD_FORM and _is_too_long(told or {}):
        return Unfit("Discord finds the text too long")
    return Refused(REASONS.get(code) or _said(told or {}, status), code, status)


def _unheard(method: str, trouble: str) -> SendError:
    """A call that was perhaps made; whoever only read can simply ask again."""
    if method == "GET":
        return Unreachable(f"no answer from Discord: {trouble}")
    return Doubtful(f"no verdict from Discord: {trouble}")


def _limited(answer: Answer, told: Mapping[str, Any] | None, account: str, budget: str) -> RateLimited:
    if told is not None and isinstance(told.get("retry_after"), (int, float)):
        return RateLimited(float(told["retry_after"]), account if told.get("global") else budget)
    # The edge has shut us out, whatever we ask for.
    named = answer.retry_after
    return RateLimited(float(named) if re.fullmatch(r"\d+(\.\d+)?", named) else SHUT_OUT_SECONDS, account)


def _told(payload: bytes) -> dict[str, Any] | None:
    try:
        found = decode(payload)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _code(told: Mapping[str, Any]) -> int:
    code = told.get("code")
    return code if isinstance(code, int) else 0


def _is_too_long(told: Mapping[str, Any]) -> bool:
    errors = told.get("errors")
    content = errors.get("content") if isinstance(errors, dict) else None
    return isinstance(content, dict) and "BASE_TYPE_MAX_LENGTH" in msgspec.json.encode(content).decode()


def _said(told: Mapping[str, Any], status: int) -> str:
    """In Discord's own words, with the field that it did not like."""
    words = str(told.get("message") or f"Discord answered {status}")
    errors = told.get("errors")
    details = [f"{field}: {said}" for field, said in _complaints(errors)] if isinstance(errors, dict) else []
    return "; ".join([words, *details])[:REASON_CHARACTERS]


def _complaints(errors: Mapping[str, Any], path: str = "") -> Iterable[tuple[str, str]]:
    for name, inner in errors.items():
        if name == "_errors" and isinstance(inner, list):
            yield from ((path, str(each.get("message"))) for each in inner if isinstance(each, dict))
        elif isinstance(inner, dict):
            yield from _complaints(inner, f"{path}.{name}" if path else name)


def _form(json: Any, files: Sequence[tuple[str, bytes]]) -> aiohttp.FormData:
    # Names of files go as they are: Discord would show the signs that others put in their place.
    form = aiohttp.FormData(quote_fields=False)
    form.add_field("payload_json", msgspec.json.encode(json).decode(), content_type="application/json")
    for number, (name, data) in enumerate(files):
        shown = re.sub(r'[\x00-\x1f"\\]+', " ", name)
        form.add_field(f"files[{number}]", data, filename=shown, content_type="application/octet-stream")
    return form


async def _read_within(response: aiohttp.ClientResponse, most: int) -> bytes:
    """Piece by piece, so that nobody fills our memory."""
    data = bytearray()
    async for piece in response.content.iter_chunked(64 * 1024):
        data += piece
        if len(data) > most:
            raise Refused(f"it has more than {most // 1024 // 1024} MB")
    return bytes(data)


def decode(payload: bytes) -> Any:
    """Raises ValueError."""
    try:
        return msgspec.json.decode(payload)
    except msgspec.DecodeError:
        # The quick one takes no half of a pair of surrogates, and one such text must not cost us all the others.
        return plain_json.loads(payload)


@cache
def _certificates() -> ssl.SSLContext:
    """Read once for all accounts: it takes a while, and everybody waits."""
    return ssl.create_default_context()

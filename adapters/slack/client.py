"""Speaks to Slack's Web API by slack_sdk, without its retries, and turns whatever is no success into our verdicts."""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from functools import cache
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import aiohttp
import msgspec
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.web.async_client import AsyncWebClient

from tidings.adapters.shared.dates import date_of
from tidings.adapters.shared.proxy import way
from tidings.core.errors import Doubtful, Misconfigured, RateLimited, Rejected, SendError, Unfit, Unreachable

# A slow server may still take the message, so whoever gives up must be in doubt.
READ_SECONDS = 20.0
CONNECT_SECONDS = 10.0
UPLOAD_SECONDS = 120.0
CONNECTIONS = 200
LARGEST_DOWNLOAD = 50 * 1024 * 1024
REASON_CHARACTERS = 300
# Where Slack keeps files, and where it takes answers to commands.
SLACK_HOSTS = re.compile(r"(?:[a-z0-9-]+\.)*slack\.com", re.IGNORECASE)
SIGN_IN = re.compile(rb"signin_form|Sign in to (?:your|a) workspace", re.IGNORECASE)
# Methods that take structures as they are; all take a form.
TAKES_JSON = ("chat.", "assistant.", "reactions.", "agents.")
# Whoever only asks can ask again, and so can whoever says what may be said twice.
HARMLESS = re.compile(
    r"(?:auth|conversations|users|apps|files)\.(?!completeUploadExternal)\w.*"
    r"|chat\.delete|assistant\.threads\..*|agents\.sessions\..*|reactions\..*|upload|download"
)

CONNECT = "apps.connections.open"
GONE = ("message_not_found", "cant_update_message", "edit_window_closed", "thread_not_found")
CONFIGURATION: Mapping[str, str] = {
    "invalid_auth": "Slack does not accept the token: look at [slack] {token}",
    "not_authed": "Slack does not accept the token: look at [slack] {token}",
    "token_revoked": "the token was revoked: install the app in the workspace again, and renew [slack] {token}",
    "token_expired": "the token has expired: install the app in the workspace again, and renew [slack] {token}",
    "account_inactive": "the app was removed from the workspace: install it again, and renew [slack] {token}",
    "not_allowed_token_type": "this is a token of another kind: bot_token begins with xoxb-, app_token with xapp-",
    "org_login_required": "the workspace is being moved to another organisation: ask its administrators",
    "team_access_not_granted": "the app may not enter this workspace: ask its administrators",
    "ekm_access_denied": "the administrators have suspended access to messages",
}
REASONS: Mapping[str, str] = {
    "channel_not_found": "the channel is gone, or the app was never in it",
    "not_in_channel": "the app is not in this channel: somebody has to invite it",
    "is_archived": "the channel is archived",
    "thread_not_found": "the thread is gone",
    "message_not_found": "the message is gone",
    "user_not_found": "there is no such person in this workspace",
    "user_disabled": "this person has left the workspace",
    "cannot_dm_bot": "bots take no messages from the app",
    "restricted_action": "the workspace does not let the app write there",
    "restricted_action_read_only_channel": "only some may write in this channel",
    "restricted_action_thread_locked": "the thread is locked",
    "messages_tab_disabled": "the app takes no direct messages: switch on its Messages tab",
    "no_text": "Slack takes no empty message",
    "expired_url": "the time to answer this command is over",
    "used_url": "this command was answered as often as Slack allows",
    "file_not_found": "Slack has lost the file",
    "storage_limit_reached": "the workspace has no room for files any more",
    "file_uploads_disabled": "the workspace takes no files",
}
# Slack itself says that some of it may have been done.
UNSURE = ("internal_error", "fatal_error", "request_timeout", "service_unavailable", "server_error")
UNDRAWN = ("invalid_blocks", "invalid_blocks_format", "only_one_table_allowed")
TOO_LONG = ("msg_too_long", "msg_blocks_too_long", "markdown_text_too_long")
LIMITED = ("ratelimited", "rate_limited", "message_limit_exceeded")

# Its lines hold what people say to each other.
logging.getLogger("slack_sdk").setLevel(logging.WARNING)


class Refused(Rejected):
    """Slack's own no; `code` is its word for it, empty where there is none."""

    def __init__(self, reason: str, code: str = "", status: int = 200) -> None:
        super().__init__(reason)
        self.code = code
        self.status = status


class Scopeless(Misconfigured):
    """The app lacks a scope; where that is worth one ability only, the ability is given up."""

    def __init__(self, scope: str) -> None:
        super().__init__(
            f"the app lacks the scope {scope}: add it under OAuth & Permissions, then install the app again"
        )
        self.scope = scope


class Answer(NamedTuple):
    """What came back; without a status nothing did, and `left` says whether a byte may have left us."""

    status: int = 0
    # What Slack said, where it said anything.
    told: Mapping[str, Any] | None = None
    retry_after: str = ""
    left: bool = True
    trouble: str = ""
    payload: bytes = b""
    kind: str = ""


class Client:
    """One bot in one workspace. Answers are Slack's own objects."""

    def __init__(self, token: str, api_url: str, proxy: str = "") -> None:
        self._token = token
        self._base = api_url
        self.proxy = proxy
        self._session: aiohttp.ClientSession | None = None
        self._sdk: AsyncWebClient | None = None
        self._is_closed = False
        # What the app may do, as Slack last told; None before it did.
        self.scopes: tuple[str, ...] | None = None
        # Slack's time, from its newest answer; None if no answer told it.
        self.date: float | None = None

    async def call(
        self, method: str, /, *, seconds: float = READ_SECONDS, budget: str = "", token: str = "", **arguments: Any
    ) -> dict[str, Any]:
        """Raises a SendError; `budget` is what a limit exhausts, and `token` takes the place of the bot's."""
        said = {name: value for name, value in arguments.items() if value is not None}
        answer = await self._ask_sdk(method, said, seconds, token)
        if answer.status == HTTPStatus.OK and answer.told is not None and answer.told.get("ok"):
            return dict(answer.told)
        raise verdict(answer, method, budget)

    async def say(self, method: str, said: Mapping[str, Any], wordings: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        """In the first of these wordings that Slack can draw: what it turns down was not said."""
        refused: Refused | None = None
        for words in wordings:
            try:
                return await self.call(method, **{**said, **words})
            except Refused as error:
                if error.code not in UNDRAWN:
                    raise
                refused = error
        raise refused or AssertionError("there is always a wording")

    async def respond(self, url: str, said: Mapping[str, Any], *, budget: str = "") -> None:
        """Answers a command where Slack waits for it; only the person who gave it sees that."""
        if not self._is_slacks(url):
            raise Refused("it does not lie with Slack")
        headers = {"Content-Type": "application/json; charset=utf-8"}
        answer = await self._ask("POST", url, msgspec.json.encode(said), headers, READ_SECONDS)
        if answer.status != HTTPStatus.OK or (answer.told is not None and not answer.told.get("ok", True)):
            raise verdict(answer, "respond", budget)

    async def upload(self, name: str, data: bytes) -> str:
        """Puts the bytes where Slack can share them, which nobody sees yet; returns the file's id."""
        slot = await self.call("files.getUploadURLExternal", filename=name, length=len(data))
        url = str(slot["upload_url"])
        if not self._is_slacks(url):
            raise Refused("Slack named a strange place for the file")
        headers = {"Content-Type": "application/octet-stream"}
        answer = await self._ask("POST", url, data, headers, UPLOAD_SECONDS)
        if answer.status != HTTPStatus.OK:
            raise verdict(answer, "upload")
        return str(slot["file_id"])

    async def download(self, url: str, *, is_page: bool = False) -> bytes:
        """A file of a message; no other address is ever asked, whoever wrote it there. `is_page`: it is HTML."""
        if not self._is_slacks(url):
            raise Refused("it does not lie with Slack")
        headers = {"Authorization": f"Bearer {self._token}"}
        answer = await self._ask("GET", url, None, headers, UPLOAD_SECONDS, most=LARGEST_DOWNLOAD)
        if answer.status == HTTPStatus.OK:
            # Who may not have the file is shown a page to sign in.
            if answer.kind == "text/html" and (not is_page or SIGN_IN.search(answer.payload)):
                raise Refused("Slack does not hand the file over: the app needs the scope files:read")
            return answer.payload
        if HTTPStatus.BAD_REQUEST <= answer.status < HTTPStatus.TOO_MANY_REQUESTS:
            raise Refused(f"Slack has no such file any more ({answer.status})", status=answer.status)
        raise verdict(answer, "download")

    async def close(self) -> None:
        self._is_closed = True
        if self._session is not None:
            await self._session.close()
            self._session = self._sdk = None

    def _is_slacks(self, url: str) -> bool:
        asked, base = urlsplit(url), urlsplit(self._base)
        if (asked.scheme, asked.netloc) == (base.scheme, base.netloc):
            return True
        return asked.scheme == "https" and SLACK_HOSTS.fullmatch(asked.netloc) is not None

    async def _ask_sdk(self, method: str, said: dict[str, Any], seconds: float, token: str) -> Answer:
        if self._is_closed:
            # Who comes late would open a connection that nobody closes.
            return Answer(left=False, trouble="closed")
        phase = _Phase()
        _phase.set(phase)
        headers = {"Authorization": f"Bearer {token}"} if token else None
        try:
            async with asyncio.timeout(seconds):
                if method.startswith(TAKES_JSON):
                    response = await self._library().api_call(method, json=said, headers=headers)
                else:
                    response = await self._library().api_call(method, data=_form(said), headers=headers)
            self.date = date_of(_header(response.headers, "Date"))
            if (scopes := _header(response.headers, "X-OAuth-Scopes")) and not token:
                self.scopes = tuple(scope.strip() for scope in scopes.split(","))
            return _told(response)
        except SlackApiError as error:
            return _told(error.response)
        except (aiohttp.ClientError, OSError, SlackClientError, ValueError) as error:
            # Not the error itself: its words may hold the address, and more.
            return Answer(left=phase.has_left, trouble=type(error).__name__)

    async def _ask(
        self, method: str, url: str, data: bytes | None, headers: Mapping[str, str], seconds: float, most: int = 0
    ) -> Answer:
        if self._is_closed:
            return Answer(left=False, trouble="closed")
        phase = _Phase()
        _phase.set(phase)
        try:
            timeout = aiohttp.ClientTimeout(connect=CONNECT_SECONDS, sock_read=seconds)
            # The token must not follow to wherever somebody points.
            call = self._opened().request(
                method,
                url,
                data=data,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
                proxy=way(self.proxy, url).by,
            )
            async with call as response:
                payload = await _read_within(response, most) if most else await response.read()
                return Answer(
                    response.status,
                    _object(payload),
                    response.headers.get("Retry-After", ""),
                    payload=payload,
                    kind=response.content_type,
                )
        except (aiohttp.ClientError, OSError) as error:
            return Answer(left=phase.has_left, trouble=type(error).__name__)

    def _library(self) -> AsyncWebClient:
        if self._sdk is None:
            self._sdk = AsyncWebClient(
                self._token,
                base_url=self._base,
                session=self._opened(),
                # Its own retry would post a message twice.
                retry_handlers=[],
                ssl=_certificates() if self._base.startswith("https") else None,
            )
            # Left to itself it takes a proxy also for addresses that need none.
            self._sdk.proxy = way(self.proxy, self._base).by
        return self._sdk

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=CONNECTIONS,
                    keepalive_timeout=60.0,
                    ssl=_certificates() if self._base.startswith("https") else True,
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                trace_configs=[_phases()],
                timeout=aiohttp.ClientTimeout(connect=CONNECT_SECONDS, sock_read=READ_SECONDS),
            )
        return self._session


def verdict(answer: Answer, method: str, budget: str = "") -> SendError:
    """What became of a call that was no success."""
    status, told = answer.status, answer.told
    code = str((told or {}).get("error") or "")
    if not status:
        if not answer.left:
            return Unreachable(f"Slack cannot be reached ({answer.trouble})")
        return _unheard(method, answer.trouble)
    if status == HTTPStatus.TOO_MANY_REQUESTS or code in LIMITED:
        named = answer.retry_after
        return RateLimited(float(named) if re.fullmatch(r"\d+(\.\d+)?", named) else None, budget)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or code in UNSURE:
        return _unheard(method, f"the server answered {code or status}")
    if not code:
        if status == HTTPStatus.OK:
            return _unheard(method, "the server's answer was broken")
        if method == "respond":
            code = answer.payload.decode("utf-8", "replace").strip()
        elif method != "upload":
            # Every no of Slack's own is an object: this is a page of something in between, and no verdict.
            return Unreachable(f"something between us and Slack answered {status}")
    if code == "missing_scope":
        return Scopeless(str((told or {}).get("needed") or "that this needs"))
    if code in CONFIGURATION:
        token = "app_token" if method == CONNECT else "bot_token"
        return Misconfigured(CONFIGURATION[code].format(token=token))
    if code in TOO_LONG:
        return Unfit("Slack finds the text too long")
    return Refused(REASONS.get(code) or _said(told or {}, code, status), code, status)


def _unheard(method: str, trouble: str) -> SendError:
    """A call that was perhaps made."""
    if HARMLESS.fullmatch(method):
        return Unreachable(f"no answer from Slack: {trouble}")
    return Doubtful(f"no verdict from Slack: {trouble}")


def _said(told: Mapping[str, Any], code: str, status: int) -> str:
    """In Slack's own words, with what it did not like."""
    metadata = told.get("response_metadata")
    messages = metadata.get("messages") if isinstance(metadata, Mapping) else None
    details = [str(each) for each in messages] if isinstance(messages, list) else []
    return "; ".join([f"Slack says {code}" if code else f"Slack answered {status}", *details])[:REASON_CHARACTERS]


def _told(response: Any) -> Answer:
    """The library hands out its own object or, where it cannot read what came, that of the connection."""
    if isinstance(response, aiohttp.ClientResponse):
        return Answer(response.status, None, response.headers.get("Retry-After", ""))
    data, retry_after = response.data, _header(response.headers, "Retry-After")
    # A page is an empty object to the library, and plain text a string.
    return Answer(int(response.status_code), data if isinstance(data, dict) and data else None, retry_after)


def _header(headers: Mapping[str, Any], wanted: str) -> str:
    return next((str(value) for name, value in headers.items() if name.lower() == wanted.lower()), "")


def _object(payload: bytes) -> Mapping[str, Any] | None:
    if not payload.startswith(b"{"):
        return None
    try:
        found = msgspec.json.decode(payload)
    except msgspec.DecodeError:
        return None
    return found if isinstance(found, dict) else None


def _form(said: Mapping[str, Any]) -> dict[str, str]:
    return {
        name: value if isinstance(value, str) else msgspec.json.encode(value).decode() for name, value in said.items()
    }


class _Phase:
    """Whether a byte of one request may have left us: its verdict depends on that, and not on an error's name."""

    __slots__ = ("has_left",)

    def __init__(self) -> None:
        self.has_left = False


# The library has no place for what belongs to one call.
_phase: ContextVar[_Phase] = ContextVar("phase")


def _phases() -> aiohttp.TraceConfig:
    async def leaves(session: aiohttp.ClientSession, context: Any, parameters: Any) -> None:
        _phase.get().has_left = True

    config = aiohttp.TraceConfig()
    # Called right before the first byte is written.
    config.on_request_headers_sent.append(leaves)
    return config


async def _read_within(response: aiohttp.ClientResponse, most: int) -> bytes:
    """Piece by piece, so that nobody fills our memory."""
    data = bytearray()
    async for piece in response.content.iter_chunked(64 * 1024):
        data += piece
        if len(data) > most:
            raise Refused(f"it has more than {most // 1024 // 1024} MB")
    return bytes(data)


@cache
def _certificates() -> ssl.SSLContext:
    """Read once for all accounts: it takes a while, and everybody waits."""
    return ssl.create_default_context()

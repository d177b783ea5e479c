"""Speaks to Slack's Web API by slack_sdk, without its retries, and turns whatever is no success into our verdicts."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

import aiohttp
import msgspec
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.web.async_client import AsyncWebClient

from tidings.adapters.shared.http_client import (
    CLOSED,
    LARGEST_DOWNLOAD,
    REASON_CHARACTERS,
    Answer,
    HttpClient,
    Phase,
    Timeouts,
    certificates,
    date_of,
    decode_object,
    in_between,
    retry_after,
    silence,
    unheard,
)
from tidings.core.errors import Misconfigured, RateLimited, Rejected, SendError, Unfit

NAME = "Slack"
# Where Slack keeps files, and where it takes answers to commands.
SLACK_HOSTS = re.compile(r"(?:[a-z0-9-]+\.)*slack\.com", re.IGNORECASE)
SIGN_IN = re.compile(rb"signin_form|Sign in to (?:your|a) workspace", re.IGNORECASE)
# Methods that take structures as they are; all take a form.
TAKES_JSON = ("chat.", "assistant.", "reactions.", "agents.")
# Calls that may be made again: they only read, or making them twice changes nothing more.
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
    "not_in_channel": "the app is not in this channel: invite it with /invite",
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


class Client:
    """One bot in one workspace. Answers are Slack's own objects."""

    def __init__(self, token: str, api_url: str, proxy: str = "", *, timeouts: Timeouts | None = None) -> None:
        self._token = token
        self._base = api_url
        self.proxy = proxy
        self._http = HttpClient(api_url, proxy, timeouts=timeouts)
        self._sdk: AsyncWebClient | None = None
        # What the app may do, as Slack last told; None before it did.
        self.scopes: tuple[str, ...] | None = None
        # Slack's time, from its newest answer; None if no answer told it.
        self.date: float | None = None

    async def call(
        self,
        method: str,
        /,
        *,
        seconds: float | None = None,
        budget: str = "",
        token: str = "",
        **arguments: Any,
    ) -> dict[str, Any]:
        """Raises a SendError; `budget` is what a limit exhausts, and `token` takes the place of the bot's."""
        said = {name: value for name, value in arguments.items() if value is not None}
        answer, told = await self._ask_sdk(
            method, said, self._http.timeouts.read if seconds is None else seconds, token
        )
        if answer.status == HTTPStatus.OK and told is not None and told.get("ok"):
            return told
        raise verdict(answer, told, method, budget)

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
        if not self._http.is_own(url, SLACK_HOSTS.fullmatch):
            raise Refused("it does not lie with Slack")
        headers = {"Content-Type": "application/json; charset=utf-8"}
        answer = await self._http.ask("POST", url, data=msgspec.json.encode(said), headers=headers)
        told = decode_object(answer.payload)
        if answer.status != HTTPStatus.OK or (told is not None and not told.get("ok", True)):
            raise verdict(answer, told, "respond", budget)

    async def upload(self, name: str, data: bytes) -> str:
        """Uploads a file that is not shared yet, and returns its id."""
        slot = await self.call("files.getUploadURLExternal", filename=name, length=len(data))
        url = str(slot["upload_url"])
        if not self._http.is_own(url, SLACK_HOSTS.fullmatch):
            raise Refused("Slack named a strange place for the file")
        headers, seconds = {"Content-Type": "application/octet-stream"}, self._http.timeouts.upload
        answer = await self._http.ask("POST", url, data=data, headers=headers, seconds=seconds)
        if answer.status != HTTPStatus.OK:
            raise verdict(answer, decode_object(answer.payload), "upload")
        return str(slot["file_id"])

    async def download(self, url: str, *, is_page: bool = False) -> bytes:
        """A file of a message. `is_page`: it is HTML."""
        if not self._http.is_own(url, SLACK_HOSTS.fullmatch):
            raise Refused("it does not lie with Slack")
        headers, seconds = {"Authorization": f"Bearer {self._token}"}, self._http.timeouts.upload
        answer = await self._http.ask("GET", url, headers=headers, seconds=seconds, most=LARGEST_DOWNLOAD)
        if answer.status == HTTPStatus.OK:
            # An app that may not have the file is shown a page to sign in.
            is_html = answer.headers.get("Content-Type", "").startswith("text/html")
            if is_html and (not is_page or SIGN_IN.search(answer.payload)):
                raise Refused("Slack does not hand the file over: the app needs the scope files:read")
            return answer.payload
        if HTTPStatus.BAD_REQUEST <= answer.status < HTTPStatus.TOO_MANY_REQUESTS:
            raise Refused(f"Slack has no such file any more ({answer.status})", status=answer.status)
        raise verdict(answer, decode_object(answer.payload), "download")

    async def close(self) -> None:
        await self._http.close()
        self._sdk = None

    async def _ask_sdk(
        self, method: str, said: dict[str, Any], seconds: float, token: str
    ) -> tuple[Answer, dict[str, Any] | None]:
        """The answer, and Slack's own object if it holds one."""
        if self._http.is_closed:
            return CLOSED, None
        phase = Phase.begin()
        headers = {"Authorization": f"Bearer {token}"} if token else None
        try:
            async with asyncio.timeout(seconds):
                if method.startswith(TAKES_JSON):
                    response = await self._library().api_call(method, json=said, headers=headers)
                else:
                    response = await self._library().api_call(method, data=_form(said), headers=headers)
            self.date = date_of(response.headers.get("Date", ""))
            if (scopes := response.headers.get("X-OAuth-Scopes", "")) and not token:
                self.scopes = tuple(scope.strip() for scope in scopes.split(","))
            return _told(response)
        except SlackApiError as error:
            return _told(error.response)
        except (aiohttp.ClientError, OSError, SlackClientError, ValueError) as error:
            # Only the error's name: its words may hold the address, and more.
            return Answer(left=phase.has_left, trouble=type(error).__name__), None

    def _library(self) -> AsyncWebClient:
        if self._sdk is None:
            self._sdk = AsyncWebClient(
                self._token,
                base_url=self._base,
                session=self._http.session,
                # Its own retry would post a message twice.
                retry_handlers=[],
                ssl=certificates() if self._base.startswith("https") else None,
            )
            # Left to itself it takes a proxy also for addresses that need none.
            self._sdk.proxy = self._http.way(self._base)
        return self._sdk


def verdict(answer: Answer, told: Mapping[str, Any] | None, method: str, budget: str = "") -> SendError:
    """What became of a call that was no success; `told` is Slack's own object, if the answer holds one."""
    status, is_harmless = answer.status, HARMLESS.fullmatch(method) is not None
    code = str((told or {}).get("error") or "")
    if not status:
        return silence(NAME, answer, harmless=is_harmless)
    if status == HTTPStatus.TOO_MANY_REQUESTS or code in LIMITED:
        return RateLimited(retry_after(answer), budget)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or code in UNSURE:
        return unheard(NAME, f"the server answered {code or status}", harmless=is_harmless)
    if not code:
        if status == HTTPStatus.OK:
            return unheard(NAME, "the server's answer was broken", harmless=is_harmless)
        if method == "respond":
            code = answer.payload.decode("utf-8", "replace").strip()
        elif method != "upload":
            # Every refusal of Slack's own is an object.
            return in_between(NAME, status)
    if code == "missing_scope":
        return Scopeless(str((told or {}).get("needed") or "that this needs"))
    if code in CONFIGURATION:
        token = "app_token" if method == CONNECT else "bot_token"
        return Misconfigured(CONFIGURATION[code].format(token=token))
    if code in TOO_LONG:
        return Unfit("Slack finds the text too long")
    return Refused(REASONS.get(code) or _said(told or {}, code, status), code, status)


def _said(told: Mapping[str, Any], code: str, status: int) -> str:
    """In Slack's own words, with what it did not like."""
    metadata = told.get("response_metadata")
    messages = metadata.get("messages") if isinstance(metadata, Mapping) else None
    details = [str(each) for each in messages] if isinstance(messages, list) else []
    return "; ".join([f"Slack says {code}" if code else f"Slack answered {status}", *details])[:REASON_CHARACTERS]


def _told(response: Any) -> tuple[Answer, dict[str, Any] | None]:
    """The library hands out its own object or, where it cannot read what came, that of the connection."""
    if isinstance(response, aiohttp.ClientResponse):
        return Answer(response.status, headers=response.headers), None
    data = response.data
    # A page is an empty object to the library, and plain text a string.
    told = data if isinstance(data, dict) and data else None
    return Answer(int(response.status_code), headers=response.headers), told


def _form(said: Mapping[str, Any]) -> dict[str, str]:
    return {
        name: value if isinstance(value, str) else msgspec.json.encode(value).decode() for name, value in said.items()
    }

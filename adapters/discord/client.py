"""Speaks to Discord's REST API by aiohttp, and turns every answer that is no success into our verdicts in one place."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import aiohttp
import msgspec

from tidings.adapters.discord.address import ADAPTER
from tidings.adapters.shared.http_client import (
    LARGEST_DOWNLOAD,
    REASON_CHARACTERS,
    Answer,
    HttpClient,
    Timeouts,
    date_of,
    decode,
    decode_object,
    in_between,
    retry_after,
    silence,
    unheard,
)
from tidings.core.errors import Misconfigured, RateLimited, Rejected, SendError, Unfit, Unreachable

log = logging.getLogger(__name__)

# The edge in front of Discord shuts out a whole address, and seldom says for how long.
SHUT_OUT_SECONDS = 60.0
# Discord asks every bot to name itself in this form, with an address and a version.
AGENT = "DiscordBot (https://discord.com/developers/applications, 0.1.0) Tidings"
FILE_HOSTS = re.compile(r"cdn\.discordapp\.com|media\.discordapp\.net")
NAME = "Discord"

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


class Client:
    """One bot account. Answers are the server's own JSON."""

    def __init__(
        self,
        token: str,
        api_url: str,
        account: str = "main",
        proxy: str = "",
        *,
        timeouts: Timeouts | None = None,
        shut_out_seconds: float = SHUT_OUT_SECONDS,
    ) -> None:
        self._token = token
        self._base = api_url.rstrip("/")
        self._account = f"{ADAPTER}/{account}"
        self._http = HttpClient(self._base, proxy, timeouts=timeouts)
        self._shut_out_seconds = shut_out_seconds
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
        seconds: float | None = None,
        budget: str = "",
    ) -> Any:
        """Raises a SendError; `budget` is what a limit of this route exhausts, unless it is the account's own.

        Answers None where there is no body.
        """
        headers = {"Authorization": f"Bot {self._token}", "User-Agent": AGENT}
        data: Any = None
        if files:
            upload = self._http.timeouts.upload
            data, seconds = _form(json, files), upload if seconds is None else max(seconds, upload)
        elif json is not None:
            data, headers["Content-Type"] = msgspec.json.encode(json), "application/json"
        url = f"{self._base}{path}"
        answer = await self._http.ask(method, url, data=data, headers=headers, params=params, seconds=seconds)
        if answer.status:
            self.date = date_of(answer.headers.get("Date", ""))
        if error := self._verdict(answer, method, budget):
            raise error
        if not answer.payload:
            return None
        try:
            return decode(answer.payload)
        except ValueError:
            raise unheard(NAME, "the server's answer was broken", harmless=method == "GET") from None

    async def download(self, url: str) -> bytes:
        """A file of a message."""
        if not self._http.is_own(url, FILE_HOSTS.fullmatch):
            raise Refused("it does not lie with Discord")
        seconds = self._http.timeouts.upload
        answer = await self._http.ask("GET", url, headers={"User-Agent": AGENT}, seconds=seconds, most=LARGEST_DOWNLOAD)
        if answer.status == HTTPStatus.OK:
            return answer.payload
        if HTTPStatus.BAD_REQUEST <= answer.status < HTTPStatus.TOO_MANY_REQUESTS:
            raise Refused(f"Discord has no such file any more ({answer.status})", status=answer.status)
        raise self._verdict(answer, "GET") or Unreachable("Discord did not hand the file over")

    async def close(self) -> None:
        await self._http.close()

    def _verdict(self, answer: Answer, method: str, budget: str = "") -> SendError | None:
        if answer.status == HTTPStatus.TOO_MANY_REQUESTS:
            return self._limited(answer, budget)
        return verdict(answer, method)

    def _limited(self, answer: Answer, budget: str) -> RateLimited:
        told = decode_object(answer.payload)
        if told is not None and isinstance(told.get("retry_after"), (int, float)):
            return RateLimited(float(told["retry_after"]), self._account if told.get("global") else budget)
        # The edge in front of Discord has shut us out, whatever we ask for.
        named = retry_after(answer)
        return RateLimited(self._shut_out_seconds if named is None else named, self._account)


def verdict(answer: Answer, method: str) -> SendError | None:
    """The verdict on a call that no limit has turned away; None when the call was done."""
    status, is_reading = answer.status, method == "GET"
    if not status:
        return silence(NAME, answer, harmless=is_reading)
    if status < HTTPStatus.MULTIPLE_CHOICES:
        return None
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return unheard(NAME, f"the server answered {status}", harmless=is_reading)
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        # A proxy in between may have said so, and would say it again.
        return Refused(REASONS[TOO_BIG], TOO_BIG, status)
    told = decode_object(answer.payload)
    if told is None and status != HTTPStatus.UNAUTHORIZED:
        # Every refusal of Discord's own is an object.
        return in_between(NAME, status)
    code = _code(told or {})
    if status == HTTPStatus.UNAUTHORIZED and code != TOKEN_ENDED:
        return Misconfigured(
            "Discord does not accept the token: look at [discord] token, or reset it in the developer portal"
        )
    if code == BAD_FORM and _is_too_long(told or {}):
        return Unfit("Discord finds the text too long")
    return Refused(REASONS.get(code) or _said(told or {}, status), code, status)


def _code(told: Mapping[str, Any]) -> int:
    code = told.get("code")
    return code if isinstance(code, int) else 0


def _is_too_long(told: Mapping[str, Any]) -> bool:
    errors = told.get("errors")
    content = errors.get("content") if isinstance(errors, dict) else None
    return isinstance(content, dict) and "BASE_TYPE_MAX_LENGTH" in msgspec.json.encode(content).decode()


def _said(told: Mapping[str, Any], status: int) -> str:
    """The refusal in Discord's own words, with the field that it is about."""
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

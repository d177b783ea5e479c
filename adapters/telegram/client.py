"""Speaks to the Bot API by python-telegram-bot, and turns every error into our verdicts in one place."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from io import BytesIO
from typing import Any

import aiohttp
from telegram import Bot
from telegram.error import BadRequest, ChatMigrated, Conflict, Forbidden, InvalidToken, NetworkError, TelegramError
from telegram.request import BaseRequest, RequestData

from tidings.adapters.shared.http_client import REASON_CHARACTERS, HttpClient, Timeouts, decode_object
from tidings.core.errors import (
    Doubtful,
    Misconfigured,
    Moved,
    RateLimited,
    Rejected,
    SendError,
    StandingBy,
    Unfit,
    Unreachable,
    ViewLost,
)

# Pause after another process has ended our poll: it is given the time to go on.
ELSEWHERE_SECONDS = 20.0

NOT_MODIFIED = ("message is not modified",)
GONE = ("message to edit not found", "message can't be edited", "message_id_invalid", "message not found")
TOO_LONG = ("message is too long", "text is too long", "message_too_long", "caption is too long", "caption_too_long")
UNREADABLE = ("can't parse", "entity_", "entities_", "unsupported start tag")

# Their lines hold the address of each call, and that holds the token; and what people say to each other.
for name in ("httpx", "httpcore", "telegram"):
    logging.getLogger(name).setLevel(logging.WARNING)


class Unsent(NetworkError):
    """No byte of the request has left us."""


class Unanswered(NetworkError):
    """The request left us, and no verdict came back."""


class Flooded(TelegramError):
    def __init__(self, message: str, seconds: float | None) -> None:
        super().__init__(message)
        self.seconds = seconds


class Client:
    """One bot account. Answers are the server's own JSON: what we need of them is little, and objects cost time."""

    def __init__(self, token: str, api_url: str, proxy: str = "", *, timeouts: Timeouts | None = None) -> None:
        base = api_url.rstrip("/")
        self._files = f"{base}/file/bot{token}"
        # Long polls have a connection of their own, or they would take one from the answers.
        self._calls, self._polls = (
            _Request(HttpClient(base, proxy, timeouts=timeouts, connections=most)) for most in (100, 2)
        )
        self._bot = _Bot(
            token,
            base_url=f"{base}/bot",
            base_file_url=f"{base}/file/bot",
            request=self._calls,
            get_updates_request=self._polls,
        )

    async def call(self, method: str, parameters: Mapping[str, Any], *, seconds: float | None = None) -> Any:
        """Raises TelegramError; what is empty or None is left out."""
        given = {name: value for name, value in parameters.items() if value not in (None, "", ())}
        return await self._bot.post(method, given, seconds)

    async def download(self, path: str) -> bytes:
        return await self._calls.get(f"{self._files}/{path}")

    async def close(self) -> None:
        await self._calls.shutdown()
        await self._polls.shutdown()


class _Bot(Bot):
    async def post(self, method: str, parameters: dict[str, Any], seconds: float | None) -> Any:
        return await self._post(
            method, parameters, read_timeout=BaseRequest.DEFAULT_NONE if seconds is None else seconds
        )


class _Request(BaseRequest):
    """Knows for each request whether it may have left us when something broke.

    By aiohttp, which takes a quarter of the time that the library's own client takes.
    """

    def __init__(self, http: HttpClient) -> None:
        self._http = http

    @property
    def read_timeout(self) -> float:
        return self._http.timeouts.read

    async def initialize(self) -> None:
        """The session is made when it is first needed: reading the certificates takes a while."""

    async def shutdown(self) -> None:
        await self._http.close()

    async def do_request(
        self,
        url: str,
        method: str,
        request_data: RequestData | None = None,
        read_timeout: Any = BaseRequest.DEFAULT_NONE,
        write_timeout: Any = BaseRequest.DEFAULT_NONE,
        connect_timeout: Any = BaseRequest.DEFAULT_NONE,
        pool_timeout: Any = BaseRequest.DEFAULT_NONE,
    ) -> tuple[int, bytes]:
        seconds = read_timeout if isinstance(read_timeout, (int, float)) else None
        data: Any = request_data.json_parameters if request_data else None
        if request_data and request_data.contains_files:
            data, seconds = _form(request_data), self._http.timeouts.upload
        code, payload = await self._ask(method, url, seconds, data)
        if code >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise Unanswered(f"the server answered {code}")
        if code == HTTPStatus.TOO_MANY_REQUESTS:
            raise Flooded("too many requests", _retry_after(payload))
        if code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            raise BadRequest("the file is too big for the server")
        return code, payload

    async def get(self, url: str) -> bytes:
        code, payload = await self._ask("GET", url, self._http.timeouts.upload)
        if code != HTTPStatus.OK:
            raise BadRequest(f"the server has no such file ({code})")
        return payload

    @staticmethod
    def parse_json_payload(payload: bytes) -> dict[str, Any]:
        if (found := decode_object(payload)) is None:
            raise Unanswered("the server's answer was broken")
        return found

    async def _ask(self, method: str, url: str, seconds: float | None, data: Any = None) -> tuple[int, bytes]:
        answer = await self._http.ask(method, url, data=data, seconds=seconds)
        if not answer.status:
            raise Unanswered(answer.trouble) if answer.left else Unsent(answer.trouble)
        return answer.status, answer.payload


def _form(request_data: RequestData) -> aiohttp.FormData:
    # Names of files go as they are: Telegram would show the signs that others put in their place.
    form = aiohttp.FormData(quote_fields=False)
    for field, value in request_data.json_parameters.items():
        form.add_field(field, value)
    for field, (name, content, media_type) in request_data.multipart_data.items():
        body = BytesIO(content) if isinstance(content, bytes) else content
        form.add_field(field, body, filename=" ".join(name.split()), content_type=media_type)
    return form


def _retry_after(payload: bytes) -> float | None:
    """None where a proxy in between has answered in its own way: turned away is turned away."""
    try:
        return float((decode_object(payload) or {})["parameters"]["retry_after"])
    except (KeyError, TypeError, ValueError):
        return None


def says(error: TelegramError, fragments: Iterable[str]) -> bool:
    """The library changes case and cuts prefixes, so only a fragment can be looked for."""
    words = error.message.lower()
    return any(fragment in words for fragment in fragments)


def is_unknown_method(error: TelegramError) -> bool:
    """A server that is older than the method; a wrong token would have been found out before."""
    return isinstance(error, InvalidToken) and says(error, ("not found",))


def verdict(error: TelegramError) -> SendError | StandingBy:
    match error:
        case Unsent():
            return Unreachable(f"Telegram cannot be reached ({error.message})")
        case Flooded(seconds=seconds):
            return RateLimited(seconds)
        case ChatMigrated(new_chat_id=chat):
            return Moved(str(chat))
        case InvalidToken():
            return Misconfigured("Telegram refuses the token: look at [telegram] token, or ask BotFather for a new one")
        case Forbidden():
            return Rejected(error.message.removeprefix("Forbidden: "))
        case Conflict():
            return StandingBy("another process, perhaps on another machine, listens with this token", ELSEWHERE_SECONDS)
        case BadRequest():
            return _refusal(error)
        case _:
            return Doubtful(f"no verdict from Telegram: {error.message[:REASON_CHARACTERS]}")


def _refusal(error: BadRequest) -> SendError:
    if says(error, TOO_LONG):
        return Unfit(error.message)
    return ViewLost(error.message) if says(error, GONE) else Rejected(error.message)

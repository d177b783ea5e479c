"""The paper platform's chats: every method a client may call, and all the ways in which it is turned away."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from math import ceil
from typing import Literal

import msgspec
from msgspec.structs import replace

from tests.simulators.paper.truth import Truth
from tests.simulators.paper.wire import (
    MESSAGE_GONE,
    NOT_MODIFIED,
    NOT_STREAMING,
    TOO_LONG,
    Ask,
    Message,
    Refusal,
    Result,
    Upload,
)
from tidings.core.clock import Clock
from tidings.core.types import Pace, Value


class Kind(Value, frozen=True, kw_only=True):
    """What this platform can do; the adapter declares it, the server insists on it."""

    # Seconds for which a repeated key gives the first message; 0 means that keys prove nothing.
    keyed_for: float = 0.0
    readback: bool = False
    streaming: Literal["none", "edits", "drafts", "append"] = "edits"
    threads: bool = True
    reactions: bool = True
    buttons: bool = True
    files: bool = True
    typing: bool = True
    hears_all: bool = True
    async_delivery: bool = True
    # A key with "{chat}" in it is a budget for each chat, any other is shared by the account.
    pace: tuple[Pace, ...] = (Pace(key="chat {chat}", seconds=0.001, burst=1000),)


class PaperError(Exception):
    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.text)
        self.refusal = refusal


def refused(code: int, text: str) -> PaperError:
    return PaperError(Refusal(code=code, text=text))


class Rate:
    """One call every `per_seconds`, `burst` at once."""

    def __init__(self, per_seconds: float, burst: int, clock: Clock) -> None:
        self._per_seconds = per_seconds
        self._slack = per_seconds * (burst - 1)
        self._clock = clock
        self._due = clock.now()

    def wait(self) -> float:
        """The pause that is needed before the next call; 0 when it may pass."""
        return max(0.0, self._due - self._slack - self._clock.now())

    def spend(self) -> None:
        self._due = max(self._due, self._clock.now()) + self._per_seconds


class Chats:
    """The state of the platform. Each method happens whole or not at all."""

    def __init__(self, kind: Kind, limit: int, truth: Truth, clock: Clock) -> None:
        self.kind = kind
        self.limit = limit
        # A chat to its threads, and whether each is open.
        self.threads: dict[str, dict[str, bool]] = {}
        self.blocked: set[str] = set()
        self.moved: dict[str, str] = {}
        self.rates: dict[str | None, Rate] = {}
        self.files: dict[str, Upload] = {}
        # (account, key) to what was posted under it, and when.
        self.keys: dict[tuple[str, str], tuple[str, str, float]] = {}
        self._truth = truth
        self._clock = clock
        self._count = 0
        self._methods: dict[str, Callable[[str, Ask], Result]] = {
            "post": self._post,
            "edit": self._edit,
            "draft": self._draft,
            "draft_clear": self._draft_clear,
            "stream_start": self._stream_start,
            "append": self._append,
            "stop": self._stop,
            "history": self._history,
            "typing": self._typing,
            "whisper": self._whisper,
            "react": self._react,
            "fetch": self._fetch,
        }

    def number(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def open(self, chat: str, thread: str = "") -> None:
        self.threads.setdefault(chat, {})
        if thread:
            self.threads[chat][thread] = True

    def perform(self, method: str, account: str, ask: Ask) -> Result:
        if method not in self._methods:
            raise refused(404, f"no method {method}")
        if method != "fetch":
            self._admit(method, ask)
        return self._methods[method](account, ask)

    def _admit(self, method: str, ask: Ask) -> None:
        chat, thread = ask.chat, ask.thread
        if chat in self.moved:
            raise PaperError(Refusal(code=400, text="the chat has moved", moved_to=self.moved[chat]))
        if chat not in self.threads:
            raise refused(404, "chat not found")
        if chat in self.blocked:
            raise refused(403, "the bot was blocked")
        if thread:
            self._need(self.kind.threads, "threads")
            if thread not in self.threads[chat]:
                raise refused(404, "thread not found")
            if not self.threads[chat][thread]:
                if not ask.reopen:
                    raise refused(404, "thread not found: it is closed")
                self.threads[chat][thread] = True
        if method != "history":
            self._limit_rate(chat)

    def _limit_rate(self, chat: str) -> None:
        rates = [(scope, self.rates[scope]) for scope in (chat, None) if scope in self.rates]
        for scope, rate in rates:
            if (pause := rate.wait()) > 0:
                # Rounded up to milliseconds: who waits as long as told must not be turned away again.
                pause = ceil(pause * 1000) / 1000
                where = "account" if scope is None else "chat"
                raise PaperError(Refusal(code=429, text="too many requests", retry_after=pause, scope=where))
        for _, rate in rates:
            rate.spend()

    def _need(self, able: bool, what: str) -> None:
        if not able:
            raise refused(400, f"this platform has no {what}")

    def _fit(self, text: str, *, may_be_empty: bool = False) -> None:
        if not text.strip() and not may_be_empty:
            raise refused(400, "message text is empty")
        if len(text) > self.limit:
            raise PaperError(Refusal(code=413, text=TOO_LONG, limit=self.limit))

    def _check_body(self, ask: Ask) -> None:
        self._fit(ask.text, may_be_empty=bool(ask.files))
        self._need(not ask.files or self.kind.files, "files")
        self._need(not ask.choices or self.kind.buttons, "buttons")

    def _message(self, ask: Ask) -> Message:
        message = self._truth.messages.get(ask.message_id)
        if message is None or message.chat != ask.chat:
            raise refused(404, MESSAGE_GONE)
        return message

    def _own(self, account: str, ask: Ask) -> Message:
        message = self._message(ask)
        if message.sender or message.account != account:
            raise refused(403, "this is not your message")
        return message

    def _post(self, account: str, ask: Ask) -> Result:
        self._check_body(ask)
        return self._write("post", account, ask, streaming=False)

    def _write(self, act: str, account: str, ask: Ask, *, streaming: bool) -> Result:
        body = hashlib.sha256(msgspec.json.encode((act, ask))).hexdigest()
        if ask.key and self.kind.keyed_for and (account, ask.key) in self.keys:
            known, message_id, at = self.keys[account, ask.key]
            if self._clock.now() - at < self.kind.keyed_for:
                if known != body:
                    raise refused(409, "key_conflict")
                first = self._truth.messages.get(message_id)
                return Result(message_id=message_id, text=first.text if first else "")
        id = self.number("p")
        if ask.key:
            self.keys[account, ask.key] = (body, id, self._clock.now())
        if act == "post":
            for place in [place for place in self._truth.drafts if place[0] == ask.chat]:
                del self._truth.drafts[place]
        self._truth.messages[id] = Message(
            id=id,
            account=account,
            chat=ask.chat,
            thread=ask.thread,
            text=ask.text,
            reply_to=ask.reply_to,
            key=ask.key,
            at=self._clock.wall(),
            order=len(self._truth.effects) + 1,
            files=ask.files,
            choices=ask.choices,
            streaming=streaming,
        )
        self._log(act, account, ask, id)
        return Result(message_id=id, text=ask.text)

    def _log(self, act: str, account: str, ask: Ask, message: str) -> None:
        self._truth.log(act, account, chat=ask.chat, thread=ask.thread, message=message, text=ask.text, key=ask.key)

    def _edit(self, account: str, ask: Ask) -> Result:
        self._need(self.kind.streaming != "none", "edits")
        message = self._own(account, ask)
        self._check_body(ask)
        if message.streaming:
            raise refused(409, "streaming")
        if (message.text, message.files, message.choices) == (ask.text, ask.files, ask.choices):
            raise refused(400, NOT_MODIFIED)
        self._truth.messages[message.id] = replace(
            message, text=ask.text, files=ask.files, choices=ask.choices, edited=message.edited + 1
        )
        self._log("edit", account, ask, message.id)
        return Result(message_id=message.id)

    def _draft(self, account: str, ask: Ask) -> Result:
        self._need(self.kind.streaming == "drafts", "drafts")
        self._fit(ask.text)
        if not ask.draft_id:
            raise refused(400, "a draft needs an id")
        self._truth.drafts[ask.chat, ask.thread] = (account, ask.draft_id, ask.text)
        self._log("draft", account, ask, ask.draft_id)
        return Result()

    def _draft_clear(self, account: str, ask: Ask) -> Result:
        self._need(self.kind.streaming == "drafts", "drafts")
        if self._truth.drafts.pop((ask.chat, ask.thread), None) is not None:
            self._log("draft_clear", account, ask, ask.draft_id)
        return Result()

    def _stream_start(self, account: str, ask: Ask) -> Result:
        self._need(self.kind.streaming == "append", "streams")
        self._check_body(ask)
        return self._write("stream", account, ask, streaming=True)

    def _append(self, account: str, ask: Ask) -> Result:
        message = self._own(account, ask)
        if not message.streaming:
            raise refused(409, NOT_STREAMING)
        if not ask.text:
            raise refused(400, "message text is empty")
        self._fit(message.text + ask.text)
        self._truth.messages[message.id] = replace(message, text=message.text + ask.text)
        self._log("append", account, ask, message.id)
        return Result(message_id=message.id)

    def _stop(self, account: str, ask: Ask) -> Result:
        message = self._own(account, ask)
        if not message.streaming:
            raise refused(409, NOT_STREAMING)
        text = message.text + ask.text
        self._fit(text)
        self._need(not ask.files or self.kind.files, "files")
        self._need(not ask.choices or self.kind.buttons, "buttons")
        self._truth.messages[message.id] = replace(
            message, text=text, files=ask.files, choices=ask.choices, streaming=False
        )
        self._log("stop", account, ask, message.id)
        return Result(message_id=message.id)

    def _history(self, account: str, ask: Ask) -> Result:
        if not self.kind.readback:
            raise refused(403, "reading back is not permitted")
        shown = self._truth.sent(ask.chat, ask.thread)
        oldest = self._truth.clock.wall() - ask.age if ask.age else 0.0
        return Result(messages=tuple(each for each in shown if each.account == account and each.at >= oldest))

    def _typing(self, account: str, ask: Ask) -> Result:
        self._need(self.kind.typing, "typing")
        self._log("typing", account, ask, "")
        return Result()

    def _whisper(self, account: str, ask: Ask) -> Result:
        """Only the person with this id, in `key`, sees it."""
        self._need(self.kind.buttons, "buttons")
        self._truth.log("whisper", account, chat=ask.chat, text=ask.text, key=ask.key)
        return Result()

    def _react(self, account: str, ask: Ask) -> Result:
        self._need(self.kind.reactions, "reactions")
        message = self._message(ask)
        self._truth.messages[message.id] = replace(message, reaction=ask.emoji)
        self._truth.log("react", account, chat=ask.chat, thread=ask.thread, message=message.id, text=ask.emoji)
        return Result()

    def _fetch(self, account: str, ask: Ask) -> Result:
        if ask.file not in self.files:
            raise refused(404, "file not found")
        upload = self.files[ask.file]
        return Result(name=upload.name, data=upload.data)

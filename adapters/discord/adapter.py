"""Discord as a platform: messages, views that are edited, files, buttons, threads and answers to commands."""

from __future__ import annotations

from collections import OrderedDict
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec

from tidings.adapters.discord import client as discord
from tidings.adapters.discord import compose as discord_compose
from tidings.adapters.discord import render
from tidings.adapters.discord.address import (
    ADAPTER,
    Handle,
    Shown,
    channel_of,
    handle_of,
    hook_of,
    is_secret,
    is_token_good,
    landed,
    question_in,
    question_of,
    question_place,
    shown_of,
)
from tidings.adapters.discord.client import Client, Refused
from tidings.adapters.discord.compose import NO_MENTIONS, Words
from tidings.adapters.discord.deferrals import Deferrals
from tidings.adapters.discord.detours import Detours, remember
from tidings.adapters.discord.listen import Intake
from tidings.adapters.discord.readback import Readback, Reading
from tidings.adapters.discord.settings import DiscordAccount
from tidings.adapters.discord.signals import Signals
from tidings.adapters.discord.socket import USUAL, Limits
from tidings.adapters.discord.views import ENDED, TOO_LATE, Views
from tidings.adapters.shared import files
from tidings.adapters.shared.token_lock import claim
from tidings.core import redaction
from tidings.core.adapter import Host, Receive, Taken
from tidings.core.errors import Doubtful, Rejected, Unfit, Unreachable, ViewLost
from tidings.core.types import (
    Absent,
    Attachment,
    Audience,
    Body,
    Capabilities,
    Pace,
    Part,
    PartKind,
    Receipt,
    SendProof,
    Signal,
    Target,
    Unreadable,
    View,
)

# Discord speaks of a few minutes for which it knows a nonce.
NONCE_SECONDS = 90.0
EPHEMERAL, THINKING = 1 << 6, 1 << 7
THREAD_MINUTES = 1440


class DiscordAdapter:
    name = ADAPTER

    def __init__(
        self,
        account: str,
        settings: DiscordAccount,
        host: Host,
        *,
        limits: Limits = USUAL,
        client: Client | None = None,
        text_limit: int = render.LIMIT,
    ) -> None:
        self.account = account
        self._text_limit = text_limit
        self._settings = settings
        self._host = host
        self._token = settings.secret
        redaction.remember(self._token)
        self._client = client or Client(self._token, settings.api_url, account, settings.proxy)
        self._limits = limits
        self._readback = Readback(self._client)
        self._deferrals = Deferrals()
        self._posted: OrderedDict[str, str] = OrderedDict()
        self._opened: OrderedDict[str, None] = OrderedDict()
        self._detours = Detours(self._client)
        # Channels in which we may not attach a file: there a long text comes in as many messages as it takes.
        self._without_files: set[str] = set()
        self._views = Views(self._client, host.clock, f"{self.name}/{account}")
        self._signals = Signals(self._client, host.clock, f"{self.name}/{account}")

    def can(self, target: Target) -> Capabilities:
        account = f"{self.name}/{self.account}"
        channel = self._budget(target)
        is_answer = bool(handle_of(target).token)
        return Capabilities(
            # A bot has no place of its own: without a channel nothing can be delivered.
            async_delivery=bool(target.chat),
            streaming_edits=True,
            # The answer to a command has no nonce; it can be read back.
            send_proof=SendProof(keyed_for=0 if is_answer else NONCE_SECONDS, readback=True),
            threads=target.audience is not Audience.PRIVATE or bool(target.thread),
            reactions=self._settings.reactions,
            buttons=True,
            files=True,
            typing=True,
            hears_all=self._settings.message_content,
            pace=(
                # Discord takes five in five seconds: two at once, and three more in that time.
                Pace(key=channel, seconds=1.25, burst=2),
                # It takes fifty calls in a second of a bot's, and what is saved up must not exceed them.
                Pace(key=account, seconds=1 / 40, burst=6),
            ),
            show_pace=(Pace(key=f"{channel}/show", seconds=1.3, burst=1),),
            signal_pace=(
                Pace(key=f"{channel}/signal", seconds=1.0, burst=4),
                Pace(key=f"{account}/signal", seconds=1 / 10, burst=6),
            ),
        )

    def compose(self, target: Target, body: Body) -> tuple[Body, ...]:
        texts = discord_compose.cut(
            body.text,
            in_one=is_secret(target),
            may_attach=channel_of(target) not in self._without_files,
            limit=self._text_limit,
        )
        parts = [*(Body(text=text) for text in texts), *(Body(files=(file,)) for file in body.files)]
        if body.choices and texts:
            parts[len(texts) - 1] = Body(text=texts[-1], choices=body.choices)
        return tuple(parts)

    async def listen(self, receive: Receive) -> None:
        with claim(self.name, self._settings.api_url, self._token):
            intake = Intake(self.account, self._settings, self._client, self._host, self._deferrals, self._limits)
            await intake.run(receive)

    async def send(self, part: Part) -> Receipt:
        try:
            return await self._send(part)
        except Refused as error:
            if error.code != discord.NO_PERMISSION or not self._words(part).attached or is_secret(part.target):
                raise
            self._without_files.add(channel_of(part.target))
            raise Unfit("the bot may not attach files in this channel, so the text must be cut") from error

    async def show(self, view: View, text: str) -> View:
        shown = shown_of(view)
        assert shown is not None
        try:
            await self._views.edit(
                shown, {"content": render.tail(text, self._text_limit), "allowed_mentions": NO_MENTIONS}
            )
        except Rejected as error:
            raise ViewLost(str(error)) from error
        return view

    async def find(self, part: Part, is_taken: Taken) -> Receipt | Absent | Unreadable:
        words = self._words(part)
        if shown := shown_of(part.view):
            return await self._views.find(part, words, shown)

        async def is_anothers(id: str) -> bool:
            # The store may not know yet what was just posted.
            return self._posted.get(id, part.key) != part.key or await is_taken(id)

        handle = handle_of(part.target)
        if handle.token and is_token_good(handle.at, self._host.clock) and part.position <= 1:
            # Of a private answer this is all that anybody can read.
            original = await self._original(handle)
            if original and _is_thinking(original):
                return Absent()
            if (
                original
                and discord_compose.is_said(original, part.body, words)
                and not await is_anothers(str(original["id"]))
            ):
                return self._receipt(part, original, handle)
        if is_secret(part.target):
            return Unreadable(reason="a private answer cannot be read back")
        found = await self._look(part, words, is_anothers)
        return self._receipt(part, found, Handle()) if isinstance(found, dict) else found

    async def signal(self, target: Target, signal: Signal) -> None:
        handle = handle_of(target)
        # The person who used a command sees that we think; others may not see that we answer in private.
        if handle.token:
            return
        if signal is Signal.TYPING:
            is_unopened = handle.opens and target.thread not in self._opened
            await self._signals.type(target.chat if is_unopened else self._detours.place(target))
        elif self._settings.reactions and target.reply_to:
            await self._signals.react(question_place(target), question_of(target), signal)

    async def fetch(self, attachment: Attachment) -> Path:
        try:
            handle: dict[str, str] = msgspec.json.decode(attachment.handle, type=dict[str, str])
            url = handle["url"]
        except (msgspec.DecodeError, KeyError) as error:
            raise Rejected("this is no file of Discord's") from error
        try:
            data = await self._client.download(url)
        except Refused as error:
            # An address is good for a day; the message has a new one.
            if not error.status:
                raise
            data = await self._client.download(await self._fresh(handle))
        return await files.keep(self._host.attachments, attachment.name, data)

    async def close(self) -> None:
        await self._signals.close()
        await self._client.close()

    # Messages.

    async def _send(self, part: Part) -> Receipt:
        if shown := shown_of(part.view):
            return await self._finish(part, shown)
        handle = handle_of(part.target)
        if handle.token and is_token_good(handle.at, self._host.clock):
            return await self._answer(part, handle)
        return await self._post_late(part)

    async def _post_late(self, part: Part) -> Receipt:
        """Posts the part in the channel, for all to see."""
        if is_secret(part.target):
            raise Rejected(TOO_LATE)
        return await self._post(part)

    async def _post(self, part: Part) -> Receipt:
        target, words = part.target, self._words(part)
        uploads = await discord_compose.attached(part.body, words)
        await self._open_thread(target)
        said = {**self._message(part, words, uploads), "nonce": discord_compose.nonce_of(part), "enforce_nonce": True}
        try:
            return await self._post_at(self._detours.place(target), part, said, uploads)
        except Refused as error:
            # A place that refuses files may still take text.
            is_about_files = uploads and error.code == discord.NO_PERMISSION
            elsewhere = None if is_about_files else await self._detours.find(target, error)
            if not elsewhere:
                raise
        return await self._post_at(elsewhere, part, said, uploads)

    async def _post_at(
        self, place: str, part: Part, said: dict[str, Any], uploads: tuple[tuple[str, bytes], ...]
    ) -> Receipt:
        target, path = part.target, f"/channels/{place}/messages"
        answered = question_in(target, place)
        if answered and part.position <= 1 and (target.audience is Audience.GROUP or part.kind is PartKind.ANCHOR):
            # In a channel an answer stands below what it answers, and so does a second copy anywhere, beside the first.
            # Without this flag a deleted question would cost the answer.
            reference = {"message_id": answered, "fail_if_not_exists": False}
            try:
                below = {**said, "message_reference": reference}
                return self._took(part, await self._client.call("POST", path, below, files=uploads))
            except Refused as error:
                # Who may not read the past may not answer it, but may speak.
                if error.code != discord.NO_REPLY:
                    raise
        return self._took(part, await self._client.call("POST", path, said, files=uploads))

    def _took(self, part: Part, posted: dict[str, Any]) -> Receipt:
        remember(self._posted, str(posted["id"]), part.key)
        return self._receipt(part, posted, Handle())

    async def _open_thread(self, target: Target) -> None:
        """Opens the thread of the message with the same id; a thread that exists already is as good."""
        if not handle_of(target).opens or target.thread in self._opened or self._detours.knows(target):
            return
        message = f"/channels/{target.chat}/messages/{target.thread}"
        said = {"name": await self._title(message), "auto_archive_duration": THREAD_MINUTES}
        try:
            await self._client.call("POST", f"{message}/threads", said)
        except Refused as error:
            if error.code != discord.THREAD_EXISTS:
                self._detours.use_channel(target, error)
                return
        except Doubtful as error:
            # Nothing was said there yet, and the next try finds the thread.
            raise Unreachable(str(error)) from error
        remember(self._opened, target.thread, None)

    async def _look(self, part: Part, words: Words, is_taken: Taken) -> dict[str, Any] | Absent | Unreadable:
        """Looks in its own place and in the place that it may have been diverted to."""
        target, place = part.target, self._detours.place(part.target)
        try:
            found = await self._look_at(place, part, words, is_taken)
        except Refused as error:
            if handle_of(target).opens:
                # The thread was never made.
                found = Absent()
            elif elsewhere := await self._detours.find(target, error):
                return await self._look_at(elsewhere, part, words, is_taken)
            else:
                return Unreadable(reason=str(error))
        if isinstance(found, Absent) and handle_of(target).opens and place != target.chat:
            return await self._look_at(target.chat, part, words, is_taken)
        return found

    async def _look_at(
        self, place: str, part: Part, words: Words, is_taken: Taken
    ) -> dict[str, Any] | Absent | Unreadable:
        return await self._readback.find(Reading(part, words, place, question_in(part.target, place)), is_taken)

    async def _title(self, message: str) -> str:
        try:
            begun = await self._client.call("GET", message)
        except Refused:
            # A thread may have any name, and opening it will tell what is wrong.
            return discord_compose.title("")
        return discord_compose.title(str(begun.get("content") or ""))

    def _words(self, part: Part) -> Words:
        return discord_compose.word(part.body.text, in_one=is_secret(part.target), limit=self._text_limit)

    def _receipt(self, part: Part, message: dict[str, Any], handle: Handle) -> Receipt:
        view = None
        if part.kind is not PartKind.PLAIN:
            secret = is_secret(part.target)
            place, meant = self._detours.place(part.target), channel_of(part.target)
            elsewhere = "" if place == meant else meant
            id = str(message["id"])
            shown = Shown(place, id, handle.application, handle.token, handle.at, secret, elsewhere)
            view = View(handle=msgspec.json.encode(shown).decode(), anchored=True)
        return landed(part.target, str(message["id"]), str(message.get("channel_id") or ""), view)

    def _message(self, part: Part, words: Words, uploads: tuple[tuple[str, bytes], ...]) -> dict[str, Any]:
        return discord_compose.message(part.body, words, uploads, previews=self._settings.previews)

    # Answers to commands.

    async def _answer(self, part: Part, handle: Handle) -> Receipt:
        # An answer may be ready before Discord has heard that one will come.
        await self._deferrals.over(handle.token)
        words = self._words(part)
        uploads = await discord_compose.attached(part.body, words)
        said, hook = self._message(part, words, uploads), hook_of(handle)
        try:
            original = await self._original(handle) if part.position <= 1 else None
            if original and _is_thinking(original):
                # Saying it twice is harmless. What stands there already is another answer's, and stays.
                posted = await self._client.call("PATCH", f"{hook}/messages/@original", said, files=uploads)
            else:
                said["flags"] |= EPHEMERAL if handle.ephemeral else 0
                posted = await self._client.call("POST", hook, said, files=uploads, params={"wait": "true"})
        except Refused as error:
            if error.code not in ENDED:
                raise
            return await self._post_late(part)
        return self._receipt(part, posted, handle)

    async def _original(self, handle: Handle) -> dict[str, Any] | None:
        """The first answer to a command, as its person sees it; None if it is gone or never was."""
        try:
            found: dict[str, Any] = await self._client.call("GET", f"{hook_of(handle)}/messages/@original")
        except Refused as error:
            if error.code in ENDED or error.status == HTTPStatus.NOT_FOUND:
                return None
            raise
        return found

    # Views.

    async def _finish(self, part: Part, shown: Shown) -> Receipt:
        if (shown.meant or shown.channel) != channel_of(part.target):
            raise ViewLost("what was shown stands elsewhere")
        words = self._words(part)
        uploads = await discord_compose.attached(part.body, words)
        await self._views.edit(shown, self._message(part, words, uploads), uploads)
        return landed(part.target, shown.message, shown.channel)

    # The rest.

    def _budget(self, target: Target) -> str:
        return f"{self.name}/{self.account}/{channel_of(target)}"

    async def _fresh(self, handle: dict[str, str]) -> str:
        message = await self._client.call("GET", f"/channels/{handle.get('channel')}/messages/{handle.get('message')}")
        copies = [each.get("message") or {} for each in message.get("message_snapshots") or ()]
        for file in (file for each in (message, *copies) for file in each.get("attachments") or ()):
            if str(file.get("id")) == handle.get("id"):
                return str(file["url"])
        raise Refused("the message has no such file any more")


def _is_thinking(message: dict[str, Any]) -> bool:
    return bool(int(message.get("flags") or 0) & THINKING)

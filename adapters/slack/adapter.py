"""Slack as a platform: messages, growing answers, files, buttons, threads and answers for one person alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from tidings.adapters.shared import files
from tidings.adapters.shared.standing import PASSING
from tidings.adapters.shared.token_lock import claim
from tidings.adapters.slack import compose as slack_compose
from tidings.adapters.slack import render
from tidings.adapters.slack.address import ADAPTER, RESPONSE_SECONDS, Handle, Shown, handle_of
from tidings.adapters.slack.client import Client, Refused
from tidings.adapters.slack.listen import Intake
from tidings.adapters.slack.readback import Readback
from tidings.adapters.slack.sessions import Sessions
from tidings.adapters.slack.settings import SlackAccount
from tidings.adapters.slack.signals import Signals
from tidings.adapters.slack.signature import Seal, payload_of
from tidings.adapters.slack.socket import USUAL, Limits
from tidings.adapters.slack.streams import USUAL_GROWTH, Growth, Streams
from tidings.adapters.slack.uploads import Uploads
from tidings.core import redaction
from tidings.core.adapter import Host, Receive, Taken
from tidings.core.errors import Rejected, Unfit, ViewLost
from tidings.core.types import (
    Absent,
    Attachment,
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

TOO_LATE = "the time for a private answer is over"
# A stream does not say which answer it belongs to, so the search begins only shortly before its start.
STREAM_MARGIN = 5.0


class SlackAdapter:
    name = ADAPTER

    def __init__(
        self,
        account: str,
        settings: SlackAccount,
        host: Host,
        *,
        limits: Limits = USUAL,
        growth: Growth = USUAL_GROWTH,
        client: Client | None = None,
    ) -> None:
        self.account = account
        self._growth = growth
        self._limits = limits
        self._settings = settings
        self._host = host
        self._token = settings.bot_token.get_secret_value()
        for secret in (settings.bot_token, settings.app_token, settings.signing_secret):
            if value := secret.get_secret_value():
                redaction.remember(value)
        self._client = client or Client(self._token, settings.api_url, settings.proxy)
        self._seal = Seal(host.notebook)
        self._readback = Readback(self._client, host.clock, f"{self._key}/history")
        self._uploads = Uploads(self._client, host.notebook)
        self._sessions = Sessions(self._client)
        self._signals = Signals(self._client, self._sessions, self._key)
        self._streams = Streams(
            self._client, host.clock, self._key, growth, native=settings.native_streams, mentions=settings.mentions
        )
        # Where people are written to by their ids.
        self._direct: dict[str, str] = {}
        self._me = ""

    @property
    def _key(self) -> str:
        return f"{self.name}/{self.account}"

    def can(self, target: Target) -> Capabilities:
        handle, account = handle_of(target), self._key
        channel, show = f"{account}/{target.chat}", f"{account}/{target.chat}/{target.thread}/show"
        is_secret, streams = bool(handle.response_url), self._streams.may_stream(target)
        # Slack's tiers: a hundred pieces of streams a minute, or fifty edits.
        every, method, seconds = (
            (self._growth.flush_seconds, "append", 0.6) if streams else (self._growth.edit_seconds, "update", 1.2)
        )
        return Capabilities(
            # An app has no place of its own: without a channel nothing can be delivered.
            async_delivery=bool(target.chat),
            # What only one person sees can be neither edited nor read, and a file is for all.
            streaming_edits=not is_secret,
            send_proof=SendProof(keyed_for=0, readback=not is_secret),
            threads=True,
            reactions=self._settings.reactions and not is_secret,
            buttons=True,
            files=not is_secret,
            typing=handle.assistant and bool(target.thread),
            hears_all=True,
            pace=(Pace(key=channel, seconds=1.0, burst=3), Pace(key=account, seconds=1 / 20, burst=20)),
            show_pace=(
                Pace(key=show, seconds=every, burst=1),
                Pace(key=f"{account}/{method}", seconds=seconds, burst=9),
            ),
            signal_pace=(
                Pace(key=f"{channel}/signal", seconds=1.0, burst=4),
                Pace(key=f"{account}/signal", seconds=1.2, burst=9),
            ),
        )

    def compose(self, target: Target, body: Body) -> tuple[Body, ...]:
        texts = slack_compose.cut(body.text, secret=bool(handle_of(target).response_url), limit=self._growth.text)
        parts = [Body(text=text) for text in texts]
        if body.choices:
            last = parts.pop().text if parts else ""
            parts.append(Body(text=last, choices=body.choices))
        return (*parts, *(Body(files=(file,)) for file in body.files))

    async def listen(self, receive: Receive) -> None:
        with claim(self.name, self._settings.api_url, self._token):
            intake = Intake(self.account, self._settings, self._client, self._sessions, self._host, self._limits)
            await intake.run(receive)

    async def send(self, part: Part) -> Receipt:
        handle = handle_of(part.target)
        if handle.response_url:
            return await self._whisper(part, handle)
        channel, shown = await self._channel(part.target.chat), _shown(part.view)
        if part.body.files:
            if shown:
                await self._streams.drop(shown)
            return await self._uploads.send(part, channel)
        if shown:
            return await self._finish(part, channel, shown)
        if part.kind is PartKind.OPENING and (opened := await self._streams.open(part, channel)):
            return self._receipt(part, opened)
        return await self._post(part, channel)

    async def show(self, view: View, text: str) -> View:
        shown = _shown(view)
        assert shown is not None
        await self._streams.show(shown, text)
        return view

    async def find(self, part: Part, is_taken: Taken) -> Receipt | Absent | Unreadable:
        if handle_of(part.target).response_url:
            return Unreadable(reason="a private answer cannot be read back")
        channel = await self._channel(part.target.chat)
        if part.body.files and not await self._uploads.id_of(part):
            # Its id is noted before it is shared.
            return Absent()

        async def is_it(message: dict[str, Any], since: float) -> bool:
            if part.body.files:
                return await self._uploads.is_it(message, part)
            if await self._seal.proves(message, part, channel):
                return True
            # A stream gets metadata only at its end: an unknown stream without any is the one in doubt.
            if part.kind is not PartKind.OPENING or not await self._is_lost_stream(message, since):
                return False
            return not await is_taken(f"{channel}:{message['ts']}")

        found = await self._readback.find(part.key, channel, part.target.thread, part.age, is_it)
        if not isinstance(found, dict):
            return found
        shown = Shown(channel, str(found["ts"]), part.target.thread, stream="streaming_state" in found)
        if shown.stream and part.kind is PartKind.OPENING:
            await self._streams.adopt(shown)
        return self._receipt(part, shown)

    async def signal(self, target: Target, signal: Signal) -> None:
        handle = handle_of(target)
        if handle.response_url:
            return
        # A sign that replaces another says nothing about the status below a thread.
        if handle.assistant and target.thread and signal not in PASSING:
            await self._signals.work(target.chat, target.thread, on=signal is Signal.TYPING)
        if signal is not Signal.TYPING and self._settings.reactions and target.reply_to:
            await self._signals.react(target.chat, target.reply_to.rpartition(":")[2], signal)

    async def fetch(self, attachment: Attachment) -> Path:
        try:
            handle = msgspec.json.decode(attachment.handle, type=dict[str, str])
        except msgspec.DecodeError as error:
            raise Rejected("this is no file of Slack's") from error
        is_page = attachment.media_type == "text/html"
        try:
            data = await self._client.download(handle.get("url", ""), is_page=is_page)
        except Refused:
            # The file may have moved since; its id stays.
            if not handle.get("id"):
                raise
            told = (await self._client.call("files.info", file=handle["id"])).get("file") or {}
            url = str(told.get("url_private_download") or told.get("url_private") or "")
            data = await self._client.download(url, is_page=is_page)
        return await files.keep(self._host.attachments, attachment.name, data)

    async def close(self) -> None:
        await self._client.close()

    # Messages.

    async def _channel(self, chat: str) -> str:
        """A person's id stands for the direct messages with them."""
        if not chat.startswith(("U", "W")):
            return chat
        if chat not in self._direct:
            opened = await self._client.call("conversations.open", users=chat)
            self._direct[chat] = str(opened["channel"]["id"])
        return self._direct[chat]

    async def _post(self, part: Part, channel: str) -> Receipt:
        if len(render.block(part.body.text)) > self._growth.text:
            raise Unfit(f"Slack takes {self._growth.text} characters")
        said: dict[str, Any] = {
            "channel": channel,
            "thread_ts": part.target.thread or None,
            "metadata": await self._seal.sign(part, channel),
            "unfurl_links": self._settings.unfurl,
            "unfurl_media": self._settings.unfurl,
            "budget": f"{self._key}/{part.target.chat}",
        }
        posted = await self._client.say("chat.postMessage", said, self._wordings(part.body))
        instead = part.kind is PartKind.OPENING and self._streams.may_stream(part.target)
        shown = Shown(channel, str(posted["ts"]), part.target.thread, instead=instead)
        if part.kind is not PartKind.PLAIN:
            self._streams.opened(shown)
        return self._receipt(part, shown)

    def _wordings(self, body: Body) -> Iterator[dict[str, Any]]:
        return slack_compose.wordings(body, mentions=self._settings.mentions)

    def _receipt(self, part: Part, shown: Shown) -> Receipt:
        return _landed(shown, None if part.kind is PartKind.PLAIN else _view(shown))

    async def _whisper(self, part: Part, handle: Handle) -> Receipt:
        """Sends to the person who gave a command; after half an hour Slack takes no such answer any more."""
        if part.body.files:
            raise Rejected("Slack shows files to all, and this answer is for one")
        if self._host.clock.wall() - handle.at >= RESPONSE_SECONDS:
            raise Rejected(TOO_LATE)
        said = slack_compose.message(part.body, mentions=self._settings.mentions)
        budget = f"{self._key}/{part.target.chat}"
        private = {"response_type": "ephemeral", "replace_original": False}
        await self._client.respond(handle.response_url, {**private, **said}, budget=budget)
        return Receipt(ids=())

    # Views.

    async def _finish(self, part: Part, channel: str, shown: Shown) -> Receipt:
        if shown.channel != channel:
            raise ViewLost("what was shown stands elsewhere")
        if await self._streams.finish(shown, part.body, await self._seal.sign(part, channel)):
            return _landed(shown)
        message = await self._readback.read(channel, shown.thread, shown.ts)
        if message and await self._seal.proves(message, part, channel):
            # The answer was finished before, and only the confirmation was lost.
            return _landed(shown)
        await self._streams.drop(shown)
        raise ViewLost("what was shown could not become the answer")

    async def _is_lost_stream(self, message: dict[str, Any], since: float) -> bool:
        if "streaming_state" not in message or payload_of(message):
            return False
        ts = str(message.get("ts"))
        return float(ts) >= since - STREAM_MARGIN and not self._streams.knows(ts) and await self._is_ours(message)

    async def _is_ours(self, message: dict[str, Any]) -> bool:
        if not self._me:
            self._me = str((await self._client.call("auth.test"))["user_id"])
        return message.get("user") == self._me


def _landed(shown: Shown, view: View | None = None) -> Receipt:
    """A person's id leads to another channel, and a reply to a message opens the thread named by its ts."""
    return Receipt(ids=(shown.id,), view=view, chat=shown.channel, opens="" if shown.thread else shown.ts)


def _shown(view: View | None) -> Shown | None:
    return msgspec.json.decode(view.handle, type=Shown) if view else None


def _view(shown: Shown) -> View:
    return View(handle=shown.write(), anchored=True)

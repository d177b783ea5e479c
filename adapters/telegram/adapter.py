"""Telegram as a platform: messages, views as drafts or edits, files, buttons and signals."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path
from typing import Any

import msgspec
from telegram.error import BadRequest, ChatMigrated, TelegramError

from tidings.adapters.shared import files
from tidings.adapters.shared.token_lock import claim
from tidings.adapters.telegram import compose, uploads
from tidings.adapters.telegram.address import Shown, is_group, place_of, question_of, receipt_of, shown_of
from tidings.adapters.telegram.client import (
    GONE,
    NOT_MODIFIED,
    UNREADABLE,
    Client,
    Unanswered,
    is_unknown_method,
    says,
    verdict,
)
from tidings.adapters.telegram.listen import USUAL, Intake, Limits
from tidings.adapters.telegram.parse import ADAPTER, Me, Reader
from tidings.adapters.telegram.render import Rendered
from tidings.adapters.telegram.settings import TelegramAccount
from tidings.adapters.telegram.signals import Signals
from tidings.core import redaction
from tidings.core.adapter import Host, Receive, Taken
from tidings.core.errors import Doubtful, Unreachable, ViewLost
from tidings.core.types import (
    Absent,
    Admission,
    Attachment,
    Body,
    Capabilities,
    Inbound,
    Note,
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

log = logging.getLogger(__name__)

# Shows a stop button below a draft; the draft stays until the message that says it was stopped.
STOPPABLE = {"can_stop": True, "keep_on_stop": True}


class TelegramAdapter:
    name = ADAPTER

    def __init__(
        self,
        account: str,
        settings: TelegramAccount,
        host: Host,
        *,
        limits: Limits = USUAL,
        client: Client | None = None,
        text_units: int = compose.TEXT_UNITS,
    ) -> None:
        self.account = account
        self._text_units = text_units
        self._settings = settings
        self._host = host
        self._token = settings.secret
        redaction.remember(self._token)
        self._client = client or Client(self._token, settings.api_url, settings.proxy)
        self._limits = limits
        # What a server or a chat has turned down once is not tried there again by this process.
        self._takes_rich = True
        self._takes_drafts = True
        self._takes_stops = True
        self._no_drafts: set[str] = set()
        # Whether privacy mode is off; and groups where it hears everything all the same, as an administrator does.
        self._hears_all = False
        self._overheard_in: set[str] = set()
        self._signals = Signals(self._client, reactions=settings.reactions)

    def can(self, target: Target) -> Capabilities:
        group = is_group(target)
        chat, account = f"{self.name}/{self.account}/{target.chat}", f"{self.name}/{self.account}"
        # Telegram asks for one message a second in a chat, twenty a minute in a group, thirty a second in all.
        paces = [Pace(key=chat, seconds=1.0, burst=1), Pace(key=account, seconds=1 / 30, burst=30)]
        if group:
            paces.append(Pace(key=f"{chat}/minute", seconds=4.0, burst=5))
        return Capabilities(
            # A bot has no place of its own: without a chat nothing can be delivered.
            async_delivery=bool(target.chat),
            streaming_edits=True,
            send_proof=SendProof(keyed_for=0, readback=False),
            threads=target.chat.startswith("-100") or bool(target.thread),
            reactions=self._settings.reactions,
            buttons=True,
            files=True,
            typing=True,
            hears_all=self._hears_all or target.chat in self._overheard_in,
            pace=tuple(paces),
            show_pace=(Pace(key=f"{chat}/show", seconds=3.5 if group else 1.2, burst=1),),
            signal_pace=(
                Pace(key=f"{chat}/signal", seconds=1.0, burst=4),
                Pace(key=f"{account}/signal", seconds=1 / 30, burst=30),
            ),
        )

    def compose(self, target: Target, body: Body) -> tuple[Body, ...]:
        texts = compose.cut(body.text, self._text_units, takes_rich=self._takes_rich)
        parts = [*(Body(text=text) for text in texts), *(Body(files=(file,)) for file in body.files)]
        if body.choices and texts:
            parts[len(texts) - 1] = Body(text=texts[-1], choices=body.choices)
        return tuple(parts)

    async def listen(self, receive: Receive) -> None:
        try:
            with claim(self.name, self._settings.api_url, self._token):
                about = await self._client.call("getMe", {}, seconds=self._limits.look_seconds)
                self._hears_all = bool(about.get("can_read_all_group_messages"))
                reader = Reader(self.account, Me(about["id"], about.get("username", "")), self._settings.rule)
                await self._publish_menu()
                log.info("%s@%s listens as @%s", self.name, self.account, about.get("username"))
                await Intake(self._settings, self._client, self._host, reader, self._limits).run(self._noting(receive))
        except TelegramError as error:
            told = verdict(error)
            # Nothing was sent that could be in doubt.
            raise (Unreachable(str(told)) if isinstance(told, Doubtful) else told) from error

    def _noting(self, receive: Receive) -> Receive:
        """Notes the groups where messages come in that do not address the bot."""

        async def receive_and_note(inbound: Inbound, note: Note | None = None) -> Admission:
            if inbound.overheard or not inbound.addressed:
                self._overheard_in.add(inbound.target.chat)
            return await receive(inbound, note)

        return receive_and_note

    async def send(self, part: Part) -> Receipt:
        try:
            if part.body.files:
                return await self._send_file(part)
            shown = shown_of(part.view)
            if shown and shown.message:
                return await self._finish(part, shown)
            if part.kind is PartKind.OPENING and self._may_draft(part.target):
                return await self._open_draft(part)
            return await self._post(part)
        except TelegramError as error:
            raise verdict(error) from error

    async def show(self, view: View, text: str) -> View:
        shown = shown_of(view)
        assert shown is not None
        try:
            if shown.draft:
                await self._draft(shown, text)
            else:
                await self._edit(shown, compose.tail(text, self._text_units), {})
        except TelegramError as error:
            if shown.draft and _refuses_draft(error):
                raise ViewLost(error.message) from error
            raise verdict(error) from error
        return view

    async def find(self, part: Part, is_taken: Taken) -> Receipt | Absent | Unreadable:
        return Unreadable(reason="Telegram does not let a bot read what it has sent")

    async def signal(self, target: Target, signal: Signal) -> None:
        try:
            await self._signals.show(target, signal)
        except TelegramError as error:
            raise verdict(error) from error

    async def fetch(self, attachment: Attachment) -> Path:
        try:
            found = await self._client.call("getFile", {"file_id": attachment.handle})
            data = await self._client.download(found["file_path"])
        except TelegramError as error:
            raise verdict(error) from error
        return await files.keep(self._host.attachments, attachment.name, data)

    async def close(self) -> None:
        await self._client.close()

    async def _post(self, part: Part) -> Receipt:
        call: dict[str, Any] = {**place_of(part.target), "reply_markup": compose.buttons(part.body.choices)}
        answered = question_of(part.target)
        if answered and part.position <= 1 and (is_group(part.target) or part.kind is PartKind.ANCHOR):
            # In a group an answer stands below what it answers, and so does a second copy anywhere, beside the first.
            # Without this flag a deleted question would cost the answer.
            reply = {"message_id": answered, "allow_sending_without_reply": True}
            call["reply_parameters"] = reply
        posted = await self._say("sendMessage", call, part.body.text)
        view = None
        if part.kind is not PartKind.PLAIN:
            shown = Shown(part.target.chat, part.target.thread, message=posted["message_id"])
            view = View(handle=shown.write(), anchored=True)
        return receipt_of(posted, view)

    async def _finish(self, part: Part, shown: Shown) -> Receipt:
        if shown.chat != part.target.chat:
            raise ViewLost("the chat has moved, and what was shown there stayed behind")
        await self._edit(shown, part.body.text, {"reply_markup": compose.buttons(part.body.choices)})
        return Receipt(ids=(str(shown.message),), chat=shown.chat)

    async def _edit(self, shown: Shown, text: str | Rendered, call: dict[str, Any]) -> None:
        try:
            await self._say("editMessageText", {**call, "chat_id": shown.chat, "message_id": shown.message}, text)
        except BadRequest as error:
            # What stands there already is what we wanted.
            if not says(error, NOT_MODIFIED):
                raise

    async def _say(self, method: str, call: dict[str, Any], text: str | Rendered) -> Any:
        """Says it as well as the server lets us: rich, else with entities, else plain."""
        refused: TelegramError | None = None
        for named, words in compose.wordings(
            method, text, takes_rich=self._takes_rich, previews=self._settings.previews
        ):
            try:
                return await self._client.call(named, {**call, **words})
            except TelegramError as error:
                if "rich_message" in words and is_unknown_method(error):
                    self._takes_rich = False
                elif not isinstance(error, BadRequest) or not _may_reword(error, words):
                    raise
                refused = error
        raise refused or AssertionError("there is always a plain wording")

    def _may_draft(self, target: Target) -> bool:
        return self._takes_drafts and not is_group(target) and target.chat not in self._no_drafts

    async def _open_draft(self, part: Part) -> Receipt:
        number = int.from_bytes(hashlib.sha256(part.key.encode()).digest()[:4]) & 0x7FFFFFFF or 1
        shown = Shown(part.target.chat, part.target.thread, draft=number)
        try:
            await self._draft(shown, part.body.text)
        except Unanswered as error:
            # Showing a draft once more is harmless, so there is nothing to doubt.
            raise Unreachable(error.message) from error
        except TelegramError as error:
            if not _refuses_draft(error):
                raise
            return await self._post(part)
        return Receipt(ids=(), view=View(handle=shown.write(), anchored=False))

    async def _draft(self, shown: Shown, text: str) -> None:
        rendered = compose.tail(text, self._text_units)
        place = {"chat_id": shown.chat, "message_thread_id": shown.thread, "draft_id": shown.draft}
        call = {**place, "text": rendered.text, "entities": rendered.entities}
        try:
            if self._takes_stops:
                try:
                    await self._client.call("sendMessageDraft", {**call, **STOPPABLE})
                    return
                except BadRequest as error:
                    if not says(error, STOPPABLE):
                        raise
                    # A Bot API server that does not know the button yet.
                    self._takes_stops = False
            await self._client.call("sendMessageDraft", call)
        except TelegramError as error:
            if is_unknown_method(error):
                self._takes_drafts = False
            elif _refuses_draft(error):
                self._no_drafts.add(shown.chat)
            raise

    async def _send_file(self, part: Part) -> Receipt:
        file = await uploads.load(part.body.files[0])
        call: dict[str, Any] = {**place_of(part.target), "caption": part.body.text[:1024]}
        refused: BadRequest | None = None
        for method, field in file.ways:
            try:
                sent = await self._client.call(method, {**call, field: file.content()})
                return receipt_of(sent)
            except BadRequest as error:
                # What is not the picture or the voice that it looks like is still a file.
                if not says(error, uploads.NOT_WHAT_IT_SEEMS):
                    raise
                refused = error
        raise refused or AssertionError("a document is always tried")

    async def _publish_menu(self) -> None:
        """Publishes the commands that Telegram shows after a slash, only when they have changed."""
        menu = [{"command": item.name, "description": item.help} for item in self._host.menu]
        digest = hashlib.sha256(msgspec.json.encode(menu)).hexdigest()
        if not menu or await self._host.notebook.read("menu") == digest:
            return
        try:
            await self._client.call("setMyCommands", {"commands": menu})
        except BadRequest as error:
            log.warning("Telegram does not take the list of commands: %s", error)
            return
        await self._host.notebook.write("menu", digest)


def _may_reword(error: BadRequest, words: dict[str, Any]) -> bool:
    """Only words that cannot be read are said otherwise; a flood, a closed chat and the like stay what they are."""
    if isinstance(error, ChatMigrated) or says(error, GONE) or says(error, NOT_MODIFIED):
        return False
    return "rich_message" in words and not says(error, ("chat", "thread", "topic", "rights")) or says(error, UNREADABLE)


def _refuses_draft(error: TelegramError) -> bool:
    return is_unknown_method(error) or (isinstance(error, BadRequest) and says(error, ("draft",)))

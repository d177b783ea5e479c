"""The adapter for the paper platform: the contract of a platform, kept over a real socket."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from tests.simulators.paper.client import PaperClient, PaperSettings, TooLong
from tests.simulators.paper.simulator import PaperServer
from tests.simulators.paper.wire import (
    NOT_MODIFIED,
    NOT_STREAMING,
    Ask,
    Button,
    Confirm,
    Event,
    Push,
    Result,
    Upload,
    Wire,
)
from tidings.core.adapter import Host, Receive, Taken
from tidings.core.errors import Misconfigured, RateLimited, Rejected, SendError, Unreachable, Unstored, ViewLost
from tidings.core.failpoints import fail_here
from tidings.core.outbound import splitter
from tidings.core.types import (
    Absent,
    Attachment,
    Audience,
    Body,
    Capabilities,
    Conversation,
    Inbound,
    Kind,
    Part,
    PartKind,
    Quoted,
    Receipt,
    Refusal,
    Refused,
    Sender,
    SendProof,
    Signal,
    Target,
    Unreadable,
    Value,
    View,
)

# Our clock and the platform's may run apart by this much between a send and the question.
MARGIN_SECONDS = 5.0

REFUSED = {reason: f"this was refused: {reason}" for reason in Refusal} | {
    Refusal.NOT_PERMITTED: "only an owner or admin can do this"
}
EMOJI = {
    Signal.SEEN: "👀",
    Signal.WAITING: "⏳",
    Signal.WORKING: "✍",
    Signal.DONE: "✅",
    Signal.FAILED: "❌",
    Signal.NONE: "",
}


class Place(Value, frozen=True, kw_only=True):
    """What a view's handle holds."""

    mode: Literal["message", "draft", "stream"]
    chat: str
    thread: str
    # A message's id or a draft's.
    id: str


def settings_for(paper: PaperServer, **changes: Any) -> PaperSettings:
    """Settings with which an adapter declares exactly what that server is."""
    settings = PaperSettings(address=paper.address, token=paper.token, kind=paper.kind, limit=paper.limit)
    return replace(settings, **changes)


class PaperAdapter:
    def __init__(self, account: str, settings: PaperSettings, host: Host) -> None:
        self.name = settings.name
        self.account = account
        self._settings = settings
        self._host = host
        self._client = PaperClient(account, settings)
        self._limit = settings.limit
        # What each stream holds for certain. A stream we are in doubt about, or which is older than this
        # process, is not in here and is never appended to.
        self._streams: dict[str, str] = {}

    def can(self, target: Target) -> Capabilities:
        kind = self._settings.kind
        pace = tuple(replace(pace, key=self._budget(pace.key, target.chat)) for pace in kind.pace)
        return Capabilities(
            # Without a chat there is nobody to deliver anything to.
            async_delivery=kind.async_delivery and bool(target.chat),
            streaming_edits=kind.streaming != "none",
            send_proof=SendProof(keyed_for=kind.keyed_for, readback=kind.readback),
            threads=kind.threads,
            reactions=kind.reactions,
            buttons=kind.buttons,
            files=kind.files,
            typing=kind.typing,
            hears_all=kind.hears_all,
            pace=pace,
            show_pace=(),
            signal_pace=pace,
        )

    def compose(self, target: Target, body: Body) -> tuple[Body, ...]:
        texts = [Body(text=text) for text in splitter.split(body.text, self._limit)] if body.text else []
        parts = [*texts, *(Body(files=(file,)) for file in body.files)]
        if body.choices and parts:
            last = max(len(texts) - 1, 0)
            parts[last] = replace(parts[last], choices=body.choices)
        return tuple(parts)

    async def listen(self, receive: Receive) -> None:
        try:
            async with self._client.attached() as wire, asyncio.TaskGroup() as group:
                await self._host.reports.reachable()
                lanes: dict[str, asyncio.Task[None]] = {}
                while (line := await wire.read()) is not None:
                    event = msgspec.json.decode(line, type=Push).event
                    before = lanes.get(event.chat)
                    lanes[event.chat] = group.create_task(self._take(event, receive, wire, before))
                raise Unreachable("the stream of events ended")
        except BaseExceptionGroup as group_error:
            # The contract speaks of one error; the rest are its consequences.
            raise group_error.exceptions[0] from None

    async def _take(self, event: Event, receive: Receive, wire: Wire, before: asyncio.Task[None] | None) -> None:
        if before is not None and not before.done():
            await asyncio.wait([before])
        inbound = self._inbound(event)
        while True:
            try:
                admission = await receive(inbound)
                break
            except Unstored:
                await self._host.clock.sleep(self._settings.pause_seconds)
        if isinstance(admission, Refused) and inbound.kind is Kind.PRESSED:
            await self._whisper(inbound, REFUSED[admission.reason])
        fail_here("in.pre_ack")
        try:
            await wire.write(Confirm(confirm=(event.id,)))
        except ConnectionError as error:
            raise Unreachable(f"{event.id} could not be confirmed: {error}") from error
        fail_here("in.post_ack")

    async def _whisper(self, press: Inbound, words: str) -> None:
        """Tells the person who pressed, and nobody else; nothing depends on it."""
        with suppress(SendError):
            await self._client.call("whisper", Ask(chat=press.target.chat, text=words, key=press.sender.id))

    def _inbound(self, event: Event) -> Inbound:
        kind = Kind(event.type)
        command = ""
        if kind is Kind.MESSAGE and event.text.startswith("/"):
            kind, command = Kind.COMMANDED, event.text[1:].split(" ")[0]
        return Inbound(
            key=event.key,
            kind=kind,
            conversation=Conversation(adapter=self.name, account=self.account, chat=event.chat, thread=event.thread),
            target=Target(
                adapter=self.name,
                account=self.account,
                chat=event.chat,
                thread=event.thread,
                reply_to=event.about or event.key,
                audience=Audience.PRIVATE if event.private else Audience.GROUP,
            ),
            sender=Sender(id=event.sender, name=event.sender_name, is_bot=event.sender_is_bot),
            text=event.text,
            attachments=tuple(Attachment(handle=file.id, name=file.name, size=file.size) for file in event.files),
            quoted=Quoted(text=event.quoted) if event.quoted else None,
            addressed=event.addressed,
            group=event.group,
            about=event.about,
            command=command,
            choice=event.choice,
        )

    async def send(self, part: Part) -> Receipt:
        try:
            if part.view is not None:
                return await self._finish(part, self._place(part.view))
            return await self._begin(part)
        except TooLong as error:
            self._limit = min(self._limit, error.limit or self._limit // 2)
            raise
        except RateLimited as error:
            raise self._limited(error, part.target.chat) from error

    async def _begin(self, part: Part) -> Receipt:
        streaming = self._settings.kind.streaming
        ask = await self._ask(part)
        if part.kind is PartKind.PLAIN:
            return Receipt(ids=((await self._client.call("post", ask)).message_id,))
        if streaming == "none":
            raise Rejected("this platform shows nothing that grows")
        if part.kind is PartKind.OPENING and streaming == "drafts":
            # The key names the draft, so that opening it again gives the same one.
            drawn = Ask(chat=ask.chat, thread=ask.thread, text=ask.text, draft_id=part.key)
            await self._client.call("draft", drawn)
            return Receipt(ids=(), view=self._view("draft", part.target, part.key))
        if part.kind is PartKind.OPENING and streaming == "append":
            begun = await self._client.call("stream_start", ask)
            # A repeated key gives the first stream, which may have grown since: its text counts, not ours.
            self._streams[begun.message_id] = begun.text
            return Receipt(ids=(begun.message_id,), view=self._view("stream", part.target, begun.message_id))
        id = (await self._client.call("post", ask)).message_id
        return Receipt(ids=(id,), view=self._view("message", part.target, id))

    async def _finish(self, part: Part, place: Place) -> Receipt:
        ask = await self._ask(part)
        if place.mode == "draft":
            # The platform ends a draft with the next post.
            return Receipt(ids=((await self._client.call("post", ask)).message_id,))
        changed = replace(ask, message_id=place.id, key="", reply_to="")
        if place.mode == "stream":
            if await self._extend("stop", changed):
                return Receipt(ids=(place.id,))
            await self._stop(place, ask.chat)
        await self._client.call("edit", changed, harmless=NOT_MODIFIED)
        return Receipt(ids=(place.id,))

    async def _extend(self, method: Literal["append", "stop"], whole: Ask) -> bool:
        """Sends only what is new; false when the stream does not begin as the text does, or has ended."""
        id = whole.message_id
        shown = self._streams.pop(id, None)
        if shown is None or not whole.text.startswith(shown):
            return False
        rest = whole.text[len(shown) :]
        try:
            if rest or method == "stop":
                await self._client.call(method, replace(whole, text=rest))
        except ViewLost:
            return False
        except (RateLimited, Unreachable):
            self._streams[id] = shown
            raise
        if method == "append":
            self._streams[id] = whole.text
        return True

    async def _stop(self, place: Place, chat: str) -> Result:
        ask = Ask(chat=chat, thread=place.thread, message_id=place.id)
        return await self._client.call("stop", ask, harmless=NOT_STREAMING)

    async def show(self, view: View, text: str) -> View:
        place = self._place(view)
        if len(text) > self._limit:
            text = "…" + text[1 - self._limit :]
        try:
            return await self._grow(view, place, text)
        except RateLimited as error:
            raise self._limited(error, place.chat) from error

    async def _grow(self, view: View, place: Place, text: str) -> View:
        ask = Ask(chat=place.chat, thread=place.thread, text=text)
        if place.mode == "draft":
            await self._client.call("draft", replace(ask, draft_id=place.id))
            return view
        ask = replace(ask, message_id=place.id)
        if place.mode == "stream":
            if await self._extend("append", ask):
                return view
            # What was appended cannot be taken back; from here on the message grows by edits.
            await self._stop(place, place.chat)
            view = View(handle=_handle(replace(place, mode="message")), anchored=True)
        await self._client.call("edit", ask, harmless=NOT_MODIFIED)
        return view

    async def find(self, part: Part, is_taken: Taken) -> Receipt | Absent | Unreadable:
        """Raises Unreachable or RateLimited when it is worth asking again."""
        place = None if part.view is None else self._place(part.view)
        if part.kind is PartKind.OPENING and self._settings.kind.streaming == "drafts":
            return Unreadable(reason="a draft leaves no trace")
        edited = place is not None and place.mode != "draft"
        age = 0.0 if edited else part.age + MARGIN_SECONDS
        ask = Ask(chat=part.target.chat, thread=part.target.thread, age=age)
        try:
            messages = (await self._client.read("history", ask)).messages
        except (Rejected, Misconfigured) as error:
            return Unreadable(reason=str(error))
        for message in messages:
            if place is not None and edited:
                if message.id == place.id and message.text == part.body.text and not message.streaming:
                    return Receipt(ids=(message.id,))
            elif message.key == part.key:
                if part.kind is PartKind.PLAIN:
                    return Receipt(ids=(message.id,))
                mode: Literal["message", "stream"] = "stream" if message.streaming else "message"
                return Receipt(ids=(message.id,), view=self._view(mode, part.target, message.id))
        return Absent()

    async def signal(self, target: Target, signal: Signal) -> None:
        kind = self._settings.kind
        ask = Ask(chat=target.chat, thread=target.thread)
        try:
            if signal is Signal.TYPING and kind.typing:
                await self._client.call("typing", ask)
            elif signal is not Signal.TYPING and kind.reactions and target.reply_to:
                emoji = EMOJI[signal]
                await self._client.call("react", replace(ask, message_id=target.reply_to, emoji=emoji))
        except RateLimited as error:
            raise self._limited(error, target.chat) from error

    async def fetch(self, attachment: Attachment) -> Path:
        result = await self._client.read("fetch", Ask(file=attachment.handle))
        folder = self._settings.downloads or None
        with tempfile.NamedTemporaryFile(prefix="paper-", dir=folder, delete=False) as file:
            file.write(result.data)
        return Path(file.name)

    async def close(self) -> None:
        """Every call has a connection of its own."""

    async def _ask(self, part: Part) -> Ask:
        target = part.target
        try:
            files = [
                Upload(name=file.name, data=await asyncio.to_thread(Path(file.path).read_bytes))
                for file in part.body.files
            ]
        except OSError as error:
            # Nothing was sent yet, so this is no doubt.
            raise Rejected(f"a file cannot be read: {error}") from error
        return Ask(
            chat=target.chat,
            thread=target.thread,
            text=part.body.text,
            reply_to=target.reply_to,
            key=part.key,
            files=tuple(files),
            choices=tuple(Button(id=choice.id, label=choice.label) for choice in part.body.choices),
        )

    def _view(self, mode: Literal["message", "draft", "stream"], target: Target, id: str) -> View:
        place = Place(mode=mode, chat=target.chat, thread=target.thread, id=id)
        # A stream is finished by stop and edit, which may be repeated; a draft by a post, which may not.
        return View(handle=_handle(place), anchored=mode != "draft")

    def _place(self, view: View) -> Place:
        return msgspec.json.decode(view.handle, type=Place)

    def _budget(self, key: str, chat: str) -> str:
        return f"{self.name}@{self.account} {key.replace('{chat}', chat)}"

    def _limited(self, error: RateLimited, chat: str) -> RateLimited:
        """Names the budget by what the platform says is exhausted, where such a budget is declared."""
        shared = error.budget == "account"
        for pace in self._settings.kind.pace:
            if error.budget and ("{chat}" not in pace.key) is shared:
                return RateLimited(error.retry_after, self._budget(pace.key, chat))
        return RateLimited(error.retry_after)


def _handle(place: Place) -> str:
    return msgspec.json.encode(place).decode()

"""The ground truth of the Slack simulator: what really happened, kept where the app cannot reach it."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tests.simulators.shared import truth
from tidings.core.clock import Clock
from tidings.core.types import Value


class Button(Value, frozen=True, kw_only=True):
    # Its action_id.
    id: str
    block: str
    label: str
    value: str = ""
    url: str = ""


class File(Value, frozen=True, kw_only=True):
    id: str
    name: str
    title: str
    type: str
    data: bytes


class Edit(Value, frozen=True, kw_only=True):
    """What stood there from then on."""

    at: float
    text: str
    blocks: tuple[dict[str, Any], ...] = ()


class Message(Value, frozen=True, kw_only=True):
    """One message as it stands now."""

    # "CHANNEL:TS", unique on the whole server.
    id: str
    # The name of the workspace.
    account: str
    channel: str
    ts: str
    # The ts of the thread's first message; empty for what stands in the channel itself.
    thread: str
    # The id of the user, which for an app is that of its bot.
    author: str
    # Empty for what our app wrote; else the author.
    sender: str
    text: str
    at: float
    order: int
    blocks: tuple[dict[str, Any], ...] = ()
    metadata: dict[str, Any] | None = None
    files: tuple[File, ...] = ()
    # file_share, thread_broadcast, bot_message, assistant_app_thread or tombstone.
    subtype: str = ""
    edits: tuple[Edit, ...] = ()
    # Whom it calls: "channel", "here", "everyone", people's and groups' ids; edits only ever add.
    pings: tuple[str, ...] = ()
    unfurl_links: bool | None = None
    unfurl_media: bool | None = None
    # Empty where it never was a stream; else open, stopped, expired or stopped_by_user.
    stream: str = ""
    # How often a stream was appended to.
    appends: int = 0
    # Chunks of a stream that are no text.
    chunks: tuple[dict[str, Any], ...] = ()
    # Whom alone it is shown to.
    whispered_to: str = ""

    @property
    def streaming(self) -> bool:
        return self.stream == "open"


class Effect(truth.Effect, frozen=True, kw_only=True):
    """What was done to a message, or the event that was confirmed.

    An act is post, edit, delete, stream, append, stop, expire, whisper, react, unreact, status, title, prompts,
    session, upload, join, erase or confirm.
    """

    channel: str = ""
    thread: str = ""
    blocks: tuple[dict[str, Any], ...] = ()
    stream: str = ""


class Call(truth.Call, frozen=True, kw_only=True):
    params: dict[str, Any]
    # The status that went back; 0 where none did.
    status: int = 0
    result: dict[str, Any] = {}

    @property
    def channel(self) -> str:
        return str(self.params.get("channel") or self.params.get("channel_id") or "")

    @property
    def thread(self) -> str:
        return str(self.params.get("thread_ts") or "")

    @property
    def text(self) -> str:
        return str(self.params.get("text") or self.params.get("markdown_text") or "")


class Delivery(Value, frozen=True, kw_only=True):
    """One attempt to tell the app of one event, and what came of it."""

    order: int
    # The event's id, and the name of what it is about.
    event: str
    name: str
    account: str
    # events_api, slash_commands or interactive.
    type: str
    # 0 is the first.
    attempt: int
    # Why it is a repetition.
    reason: str
    # By the steady clock.
    now: float
    # Of Socket Mode; by HTTP both are empty.
    envelope: str = ""
    socket: int = 0
    # Empty while it is open; "ok", "timeout", "no socket", "gone", "late" or the status.
    verdict: str = ""
    # From the attempt to its verdict, or to an answer that came too late.
    delay: float = 0.0
    # What came with the answer.
    answer: dict[str, Any] = {}

    @property
    def acked(self) -> bool:
        return self.verdict == "ok"


class Truth(truth.Truth[Effect, Call, Message]):
    """The present state is kept beside the log."""

    effect, call = Effect, Call

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.skew = 0.0
        self.deliveries: list[Delivery] = []
        # (account, name) of what was confirmed, each once, in order of the first confirmation.
        self.confirmed: dict[tuple[str, str], None] = {}
        # By channel and ts, oldest first.
        self.messages: dict[tuple[str, str], Message] = {}
        # By channel and thread: the ts of each reply.
        self.replies: dict[tuple[str, str], dict[str, None]] = {}
        # What only one person sees.
        self.whispers: list[Message] = []
        # By channel and ts: who reacted, by the reaction's name.
        self.reactions: dict[tuple[str, str], dict[str, list[str]]] = {}
        # By channel and thread.
        self.statuses: dict[tuple[str, str], tuple[str, float]] = {}
        self.titles: dict[tuple[str, str], str] = {}
        self.prompts: dict[tuple[str, str], tuple[tuple[str, str], ...]] = {}
        self.sessions: dict[tuple[str, str], str] = {}
        self._last_ts = 0

    def wall(self) -> float:
        """As the platform sees it."""
        return self.clock.wall() + self.skew

    def next_ts(self) -> str:
        """Later than all before it, also when the clock stands still or is set back."""
        self._last_ts = max(self._last_ts + 1, round(self.wall() * 1_000_000))
        return f"{self._last_ts // 1_000_000}.{self._last_ts % 1_000_000:06d}"

    def tell(self, act: str, message: Message) -> None:
        """Logs what was done to a message."""
        self.log(
            act,
            message.account,
            channel=message.channel,
            thread=message.thread,
            message=message.id,
            text=message.text,
            blocks=message.blocks,
            stream=message.stream,
        )

    def keep(self, message: Message) -> Message:
        self.messages[message.channel, message.ts] = message
        if message.thread:
            self.replies.setdefault((message.channel, message.thread), {})[message.ts] = None
        return message

    def drop(self, message: Message) -> None:
        del self.messages[message.channel, message.ts]
        self.replies.get((message.channel, message.thread), {}).pop(message.ts, None)

    def attempted(self, **fields: Any) -> Delivery:
        delivery = Delivery(order=len(self.deliveries), now=self.clock.now(), **fields)
        self.deliveries.append(delivery)
        self.wake()
        return delivery

    def ended(self, delivery: Delivery, verdict: str, answer: dict[str, Any] | None = None) -> Delivery:
        ended = replace(delivery, verdict=verdict, delay=self.clock.now() - delivery.now, answer=answer or {})
        self.deliveries[delivery.order] = ended
        if ended.acked:
            self.confirmed.setdefault((delivery.account, delivery.name))
            self.log("confirm", delivery.account, message=delivery.event, text=delivery.name)
        self.wake()
        return ended

    def sent(self, channel: str | None = None, thread: str | None = None) -> tuple[Message, ...]:
        """What our app wrote and nobody removed, oldest first."""
        return tuple(
            message
            for message in self.messages.values()
            if not message.sender
            and message.subtype not in ("tombstone", "assistant_app_thread")
            and channel in (None, message.channel)
            and thread in (None, message.thread)
        )

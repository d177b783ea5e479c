"""What stands in Slack's channels: posted, changed and removed in one place, and told to the app each time."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tests.simulators.slack.feed import Feeds
from tests.simulators.slack.places import MESSAGE_EVENTS, Channel, Team
from tests.simulators.slack.shapes import changed_event, deleted_event, mention_event, message_event, message_of
from tests.simulators.slack.texts import pings
from tests.simulators.slack.truth import Edit, File, Message, Truth

# A stream ends after this even while it grows.
STREAM_SECONDS = 300.0


class Board:
    """Calls of apps and deeds of people end here; it refuses nothing."""

    def __init__(self, truth: Truth, feeds: Feeds, stream_seconds: float) -> None:
        self.truth = truth
        self.feeds = feeds
        self.stream_seconds = stream_seconds
        # None: a stream may be silent as long as it lives.
        self.idle_seconds: float | None = None
        self._touched: dict[tuple[str, str], float] = {}

    def post(
        self,
        team: Team,
        channel: Channel,
        author: str,
        text: str,
        *,
        thread: str = "",
        blocks: tuple[dict[str, Any], ...] = (),
        metadata: dict[str, Any] | None = None,
        files: tuple[File, ...] = (),
        subtype: str = "",
        stream: str = "",
        link_names: bool = False,
        unfurl_links: bool | None = None,
        unfurl_media: bool | None = None,
        chunks: tuple[dict[str, Any], ...] = (),
        whispered_to: str = "",
        silent: bool = False,
    ) -> Message:
        ts = self.truth.next_ts()
        message = Message(
            id=f"{channel.id}:{ts}",
            account=team.name,
            channel=channel.id,
            ts=ts,
            thread=thread,
            author=author,
            sender="" if author == team.bot.id else author,
            text=text,
            at=self.truth.clock.wall(),
            order=len(self.truth.effects) + 1,
            blocks=blocks,
            metadata=metadata or None,
            files=files,
            subtype=subtype or ("file_share" if files else ""),
            pings=pings(text, blocks, team.names() if link_names else None),
            unfurl_links=unfurl_links,
            unfurl_media=unfurl_media,
            stream=stream,
            chunks=chunks,
            whispered_to=whispered_to,
        )
        if whispered_to:
            self.truth.whispers.append(message)
            self.truth.tell("whisper", message)
            return message
        self.truth.keep(message)
        if not message.sender:
            # A status stands until the app says something.
            self.truth.statuses.pop((channel.id, thread), None)
            self.truth.tell("stream" if stream else "post", message)
        if not silent:
            self._announce(team, channel, message)
        self.truth.wake()
        return message

    def edit(self, team: Team, message: Message, act: str = "edit", *, silent: bool = False, **fields: Any) -> Message:
        before = message_of(self.truth, team, message)
        changed = replace(message, **fields)
        changed = replace(
            changed,
            edits=(*message.edits, Edit(at=self.truth.clock.wall(), text=changed.text, blocks=changed.blocks)),
            pings=tuple(dict.fromkeys((*message.pings, *pings(changed.text, changed.blocks)))),
        )
        self.truth.keep(changed)
        if not changed.sender:
            self.truth.tell(act, changed)
        channel = team.channels[message.channel]
        if not silent:
            event = changed_event(self.truth, team, channel, changed, before, self.truth.next_ts())
            self._tell(team, channel, MESSAGE_EVENTS[channel.kind], event, f"{message.id} changed")
        self.truth.wake()
        return changed

    def remove(self, team: Team, message: Message, *, silent: bool = False) -> None:
        """What has replies leaves a stone in its place, and the thread goes on."""
        before = message_of(self.truth, team, message)
        if "reply_count" in before:
            gone = replace(message, text="This message was deleted.", blocks=(), files=(), subtype="tombstone")
            self.truth.keep(gone)
        else:
            self.truth.drop(message)
        self.truth.tell("erase" if silent else "delete", message)
        channel = team.channels[message.channel]
        if not silent:
            event = deleted_event(channel, before, self.truth.next_ts())
            self._tell(team, channel, MESSAGE_EVENTS[channel.kind], event, f"{message.id} deleted")

    # Streams end by themselves.

    def begin(self, team: Team, message: Message) -> None:
        key = (message.channel, message.ts)
        self._touched[key] = self.truth.clock.now()
        self.truth.clock.call_later(self.stream_seconds, lambda: self.expire(team, key))
        self._watch(team, key)

    def touch(self, message: Message) -> None:
        self._touched[message.channel, message.ts] = self.truth.clock.now()

    def expire(self, team: Team, key: tuple[str, str]) -> None:
        message = self.truth.messages.get(key)
        if message is not None and message.streaming:
            self.edit(team, message, "expire", stream="expired")
            self.set_session(team, message.channel, message.thread, "active")

    def set_session(self, team: Team, channel: str, thread: str, status: str) -> None:
        """Only what shows itself as an agent has sessions."""
        if team.app.view == "agent":
            self.truth.sessions[channel, thread] = status

    def _watch(self, team: Team, key: tuple[str, str]) -> None:
        if self.idle_seconds is None:
            return
        left = self._touched[key] + self.idle_seconds - self.truth.clock.now()
        if left <= 1e-6:
            self.expire(team, key)
        else:
            self.truth.clock.call_later(left, lambda: self._watch(team, key))

    # What the app hears of it.

    def _announce(self, team: Team, channel: Channel, message: Message) -> None:
        event = message_event(self.truth, team, channel, message)
        self._tell(team, channel, MESSAGE_EVENTS[channel.kind], event, message.id)
        if message.sender and channel.kind != "im" and team.bot.id in message.pings:
            mention = mention_event(self.truth, team, channel, message)
            self._tell(team, channel, "app_mention", mention, message.id)

    def _tell(self, team: Team, channel: Channel, kind: str, event: dict[str, Any], name: str) -> None:
        if team.bot.id in channel.members and team.hears(kind):
            self.feeds.tell(team, event, name, channel.id)

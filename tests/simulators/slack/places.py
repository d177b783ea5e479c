"""Slack's places: the app, the workspaces where it is installed, their channels, and who may enter where."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from tests.simulators.slack.texts import Refusal, is_ts
from tests.simulators.slack.truth import Message, Truth

Kind = Literal["channel", "group", "im"]

SCOPES = (
    *("app_mentions:read", "assistant:write", "channels:history", "channels:join", "channels:read", "chat:write"),
    *("commands", "files:read", "files:write", "groups:history", "groups:read", "im:history", "im:read", "im:write"),
    *("reactions:read", "reactions:write", "users:read"),
)
# What an app may subscribe to, and the scope without which it is not told.
EVENTS = {
    "message.channels": "channels:history",
    "message.groups": "groups:history",
    "message.im": "im:history",
    "app_mention": "app_mentions:read",
    "assistant_thread_started": "assistant:write",
    "assistant_thread_context_changed": "assistant:write",
    "agent_session_stopped": "chat:write",
    "agent_session_title_changed": "chat:write",
    # Needs no scope.
    "app_home_opened": "",
}
# How an app shows itself: as an agent, by the assistant's pane as older apps do, or in a workspace that is older still.
View = Literal["agent", "assistant", "neither"]
MESSAGE_EVENTS = {"channel": "message.channels", "group": "message.groups", "im": "message.im"}
_HISTORY = {"channel": "channels:history", "group": "groups:history", "im": "im:history"}
_READ = {"channel": "channels:read", "group": "groups:read", "im": "im:read"}


@dataclass(slots=True)
class App:
    """One app: a way to hear of events, shared by all workspaces where it is installed."""

    name: str
    id: str
    # For Socket Mode.
    token: str
    secret: str
    events: set[str] = field(default_factory=lambda: set(EVENTS))
    # Where signed requests go; empty is Socket Mode.
    url: str = ""
    # The origin under which files are fetched.
    url_of_files: str = ""
    view: View = "assistant"


@dataclass(slots=True)
class User:
    id: str
    name: str
    is_bot: bool = False


@dataclass(slots=True)
class Channel:
    id: str
    name: str
    kind: Kind
    members: list[str] = field(default_factory=list)
    is_archived: bool = False
    # Of a direct message: who talks to the app.
    person: str = ""


class Ids:
    """Ids as Slack's look, unique on the whole server."""

    def __init__(self) -> None:
        self._last: Counter[str] = Counter()

    def next(self, prefix: str) -> str:
        self._last[prefix] += 1
        return f"{prefix}{self._last[prefix]:09d}"


class Team:
    """One workspace as the Web API sees it."""

    def __init__(self, name: str, app: App, ids: Ids, truth: Truth, token: str) -> None:
        self.name = name
        self.app = app
        self.token = token
        self.ids = ids
        self.truth = truth
        self.id = ids.next("T")
        self.domain = f"{name}-team"
        self.scopes: list[str] = list(SCOPES)
        # Empty while the token is good; else the error that tells why it is not.
        self.token_error = ""
        self.bot = User(ids.next("U"), "tidings", is_bot=True)
        self.bot_id = ids.next("B")
        self.users: dict[str, User] = {self.bot.id: self.bot}
        self.channels: dict[str, Channel] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def need(self, scope: str) -> None:
        if scope not in self.scopes:
            raise Refusal("missing_scope", needed=scope, provided=",".join(self.scopes))

    def need_history(self, channel: Channel) -> None:
        self.need(_HISTORY[channel.kind])

    def need_reading(self, channel: Channel) -> None:
        self.need(_READ[channel.kind])

    def hears(self, event: str) -> bool:
        may_hear = EVENTS[event] in ("", *self.scopes)
        return event in self.app.events and may_hear and not self.token_error

    def find(self, named: str) -> Channel | None:
        """By its id, or by its name with or without a hash."""
        if named in self.channels:
            return self.channels[named]
        return next((each for each in self.channels.values() if each.name == named.removeprefix("#") != ""), None)

    def direct(self, user: str) -> Channel:
        """The direct message channel of the app with a person; there is one."""
        known = next((each for each in self.channels.values() if each.person == user), None)
        if known is None:
            known = Channel(self.ids.next("D"), "", "im", [user, self.bot.id], person=user)
            self.channels[known.id] = known
        return known

    def known_direct(self, named: str) -> str:
        """The id of a person's direct message channel, if there is one; else what was asked for."""
        return next((each.id for each in self.channels.values() if each.person == named != ""), named)

    def names(self) -> dict[str, str]:
        return {user.name: user.id for user in self.users.values()}

    # Doors, with the platform's own words on them.

    def look(self, named: str) -> Channel:
        """A channel that the app may know of."""
        if not named:
            raise Refusal("channel_not_found")
        channel = self.channels.get(named)
        if channel is None or (channel.kind != "channel" and self.bot.id not in channel.members):
            raise Refusal("channel_not_found")
        return channel

    def enter(self, named: str) -> Channel:
        """A channel that the app may read and write."""
        channel = self.look(named)
        if self.bot.id not in channel.members:
            raise Refusal("not_in_channel")
        return channel

    def address(self, named: str) -> Channel:
        """Where a new message goes: by id, by name, or by the id of a person, which means the direct message."""
        if named in self.users and not self.users[named].is_bot:
            self.need("im:write")
            return self.direct(named)
        found = self.find(named)
        return self.open_to_posts(self.enter(found.id if found else named))

    @staticmethod
    def open_to_posts(channel: Channel) -> Channel:
        if channel.is_archived:
            raise Refusal("is_archived")
        return channel

    def message(self, channel: Channel, ts: str) -> Message | None:
        return self.truth.messages.get((channel.id, ts))

    def own(self, channel: Channel, ts: str, error: str) -> Message:
        """A message that our app may change."""
        message = self.message(channel, ts)
        if message is None or message.subtype == "tombstone":
            raise Refusal("message_not_found")
        if message.sender:
            raise Refusal(error)
        return message

    def thread(self, channel: Channel, ts: str) -> str:
        """The thread that a call names; empty is the channel itself."""
        if not ts:
            return ""
        if not is_ts(ts):
            raise Refusal("invalid_thread_ts")
        root = self.message(channel, ts)
        if root is None:
            raise Refusal("thread_not_found")
        if root.thread and root.thread != ts:
            raise Refusal("cannot_reply_to_message")
        return ts

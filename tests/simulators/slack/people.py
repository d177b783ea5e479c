"""What people do on Slack: they write, correct, delete, command, press, open the assistant and stop it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.simulators.slack.board import Board
from tests.simulators.slack.feed import Feeds, Happening
from tests.simulators.slack.files import Shelf
from tests.simulators.slack.messages import Messages
from tests.simulators.slack.places import App, Channel, Ids, Kind, Team, User
from tests.simulators.slack.shapes import message_of, rich_text
from tests.simulators.slack.texts import Refusal, buttons
from tests.simulators.slack.truth import Button, Message, Truth


class Desk:
    """What people need of the platform to do what they do."""

    def __init__(self, board: Board, feeds: Feeds, messages: Messages, shelf: Shelf) -> None:
        self.board = board
        self.feeds = feeds
        self.messages = messages
        self.shelf = shelf
        self.origin = ""


class Workspace(Team):
    """`workspace.channel("general")` and `workspace.person("ann")` make what is not there yet."""

    def __init__(self, name: str, app: App, ids: Ids, truth: Truth, token: str, desk: Desk) -> None:
        super().__init__(name, app, ids, truth, token)
        self._desk = desk
        self._people: dict[str, Person] = {}

    def channel(self, name: str, *, private: bool = False, member: bool = True) -> Channel:
        """Everybody in the workspace is a member; the app too, unless told otherwise."""
        found = self.find(name)
        if found is None:
            kind: Kind = "group" if private else "channel"
            found = Channel(self.ids.next("C"), name, kind, [person.id for person in self._people.values()])
            if member:
                found.members.append(self.bot.id)
            self.channels[found.id] = found
        return found

    def person(self, name: str, *, is_bot: bool = False) -> Person:
        """Who is a bot speaks as other apps do."""
        if name not in self._people:
            user = User(self.ids.next("U"), name, is_bot=is_bot)
            self.users[user.id] = user
            self._people[name] = Person(self, user, self._desk)
            for channel in self.channels.values():
                if channel.kind != "im":
                    channel.members.append(user.id)
        return self._people[name]


class Person:
    def __init__(self, workspace: Workspace, user: User, desk: Desk) -> None:
        self.workspace = workspace
        self.user = user
        self._desk = desk

    def __repr__(self) -> str:
        return f"Person({self.user.name!r}, {self.user.id})"

    @property
    def id(self) -> str:
        return self.user.id

    @property
    def direct(self) -> Channel:
        """The direct message channel with the app."""
        return self.workspace.direct(self.id)

    def says(
        self,
        channel: Channel,
        text: str = "",
        *,
        thread: Message | str = "",
        mention: bool = False,
        files: Iterable[tuple[str, bytes]] = (),
        broadcast: bool = False,
    ) -> Message:
        """`mention` puts the app's name in front. A thread is named by a message in it, or by its ts."""
        words = f"<@{self.workspace.bot.id}> {text}" if mention else text
        kept = tuple(self._desk.shelf.put(self.workspace, name, data) for name, data in files)
        blocks = () if self.user.is_bot or not words else (rich_text(words, self.workspace.bot.id),)
        return self._desk.board.post(
            self.workspace,
            channel,
            self.id,
            words,
            thread=self._thread(channel, thread),
            blocks=blocks,
            files=kept,
            subtype="thread_broadcast" if broadcast else "",
        )

    def edits(self, message: Message, text: str) -> Message:
        blocks = (rich_text(text, self.workspace.bot.id),)
        return self._desk.board.edit(self.workspace, self._now(message), text=text, blocks=blocks)

    def deletes(self, message: Message) -> None:
        self._desk.board.remove(self.workspace, self._now(message))

    def reacts(self, message: Message, name: str) -> None:
        found = self.workspace.truth.reactions.setdefault((message.channel, message.ts), {})
        found.setdefault(name, []).append(self.id)
        self.workspace.truth.wake()

    def commands(self, command: str, text: str, channel: Channel) -> Happening:
        """Slack takes no slash commands in threads. The answer, if any, is whispered."""
        happening = {
            "token": "verification-token",
            "team_id": self.workspace.id,
            "team_domain": self.workspace.domain,
            "channel_id": channel.id,
            "channel_name": channel.name or "directmessage",
            "user_id": self.id,
            "user_name": self.user.name,
            "command": command,
            "text": text,
            "api_app_id": self.workspace.app.id,
            "is_enterprise_install": "false",
            "response_url": self._response_url(channel),
            "trigger_id": self.workspace.ids.next("trigger."),
        }
        return self._interacts("slash_commands", happening, channel)

    def presses(self, message: Message, action: str, *, value: str | None = None, forged: bool = False) -> Happening:
        """By the button's action_id, and by its value where several have the same.

        A forged press names what is no button of the message, or no longer.
        """
        here = self._now(message)
        found = [each for each in buttons(here.blocks) if each.id == action and value in (None, each.value)]
        if forged:
            found = [Button(id=action, block="forged", label="?", value=value or "")]
        if not found:
            raise LookupError(f"message {message.id} has no button {action!r}: {buttons(here.blocks)}")
        channel, button = self.workspace.channels[here.channel], found[0]
        place = {"channel_id": channel.id, "message_ts": here.ts}
        ts = self.workspace.truth.next_ts()
        label = {"type": "plain_text", "text": button.label, "emoji": True}
        pressed = {"type": "button", "action_id": action, "block_id": button.block, "text": label, "action_ts": ts}
        payload = {
            "type": "block_actions",
            "user": {"id": self.id, "username": self.user.name, "name": self.user.name, "team_id": self.workspace.id},
            "api_app_id": self.workspace.app.id,
            "token": "verification-token",
            "container": {"type": "message", "is_ephemeral": bool(here.whispered_to), **place}
            | ({"thread_ts": here.thread} if here.thread else {}),
            "trigger_id": self.workspace.ids.next("trigger."),
            "team": {"id": self.workspace.id, "domain": self.workspace.domain},
            "enterprise": None,
            "is_enterprise_install": False,
            "channel": {"id": channel.id, "name": channel.name or "directmessage"},
            "message": message_of(self.workspace.truth, self.workspace, here),
            "state": {"values": {}},
            "response_url": self._response_url(channel, here.ts),
            "actions": [pressed | ({"value": button.value} if button.value else {})],
        }
        return self._interacts("interactive", payload, channel)

    def opens_assistant(self, context: Channel | None = None) -> Message:
        """The first message of a new thread in the assistant's pane; what is said in it follows it."""
        if self.workspace.app.view == "agent":
            raise LookupError("an app that shows itself as an agent has no pane")
        root = self._desk.board.post(
            self.workspace,
            self.direct,
            self.workspace.bot.id,
            "New Assistant Thread",
            subtype="assistant_app_thread",
            silent=True,
        )
        self._assistant("assistant_thread_started", root, context)
        return root

    def opens_messages(self, tab: str = "messages") -> None:
        """Goes to the direct messages with the app, or to another tab of its home."""
        if self.workspace.hears("app_home_opened"):
            event = {
                "type": "app_home_opened",
                "user": self.id,
                "channel": self.direct.id,
                "tab": tab,
                "event_ts": self.workspace.truth.next_ts(),
            }
            self._desk.feeds.tell(self.workspace, event, f"{self.direct.id} {tab} opened", self.direct.id)

    def renames(self, message: Message, title: str) -> Happening | None:
        """Gives a session another name."""
        truth, place = self.workspace.truth, (message.channel, message.thread or message.ts)
        if place not in truth.sessions:
            raise LookupError(f"there is no session in {place}")
        before = truth.titles.get(place)
        truth.titles[place] = title
        if not self.workspace.hears("agent_session_title_changed"):
            return None
        event = {
            "type": "agent_session_title_changed",
            "channel": message.channel,
            "thread_ts": place[1],
            "title": title,
            "user": self.id,
            "team_id": self.workspace.id,
            "event_ts": truth.next_ts(),
            **({"previous_title": before} if before else {}),
        }
        return self._desk.feeds.tell(self.workspace, event, f"{message.channel}:{place[1]} renamed", message.channel)

    def looks_at(self, channel: Channel, assistant: Message) -> None:
        """The pane stays open while the person goes to another channel."""
        self._assistant("assistant_thread_context_changed", assistant, channel)

    def stops(self, message: Message) -> Happening | None:
        """Presses stop: the thread's open streams end, and the app is told if it wants to know."""
        truth, thread = self.workspace.truth, message.thread or message.ts
        open_ones = [
            each
            for each in truth.messages.values()
            if (each.channel, each.thread) == (message.channel, thread) and each.streaming
        ]
        for each in open_ones:
            self._desk.board.edit(self.workspace, each, "stop", stream="stopped_by_user")
        if not self.workspace.hears("agent_session_stopped"):
            return None
        event = {
            "type": "agent_session_stopped",
            "channel": message.channel,
            "thread_ts": thread,
            "user": self.id,
            "streaming_message_ts": [each.ts for each in open_ones],
            "event_ts": truth.next_ts(),
        }
        return self._desk.feeds.tell(self.workspace, event, f"{message.channel}:{thread} stopped", message.channel)

    # How it is done.

    def _now(self, message: Message) -> Message:
        """As it stands now."""
        found = self.workspace.truth.messages.get((message.channel, message.ts))
        whispers = [each for each in self.workspace.truth.whispers if each.id == message.id]
        if found is None and not whispers:
            raise LookupError(f"there is no message {message.id}")
        return found or whispers[0]

    def _thread(self, channel: Channel, thread: Message | str) -> str:
        ts = (thread.thread or thread.ts) if isinstance(thread, Message) else thread
        if ts and (channel.id, ts) not in self.workspace.truth.messages:
            raise LookupError(f"there is no thread {ts} in {channel.id}")
        return ts

    def _response_url(self, channel: Channel, ts: str = "") -> str:
        return f"{self._desk.origin}{self._desk.messages.open_response(self.workspace, channel, self.id, ts)}"

    def _interacts(self, type: str, payload: dict[str, Any], channel: Channel) -> Happening:
        def answered(answer: dict[str, Any]) -> None:
            if type == "slash_commands" and (answer.get("text") or answer.get("blocks")):
                try:
                    self._desk.messages.say(self.workspace, channel, self.id, answer)
                except Refusal as refusal:
                    # The app's fault, of which it would never hear; whoever runs the test does.
                    self.workspace.truth.mishaps.append(refusal)

        id = self.workspace.ids.next("Ix")
        happening = Happening(id, type, payload, id, self.workspace.name, channel.id, answered)
        return self._desk.feeds.put(self.workspace.app, happening)

    def _assistant(self, type: str, root: Message, context: Channel | None) -> None:
        if not self.workspace.hears(type):
            return
        seen = {"channel_id": context.id, "team_id": self.workspace.id, "enterprise_id": None} if context else {}
        event = {
            "type": type,
            "assistant_thread": {
                "user_id": self.id,
                "context": seen,
                "channel_id": root.channel,
                "thread_ts": root.ts,
            },
            "event_ts": self.workspace.truth.next_ts(),
        }
        self._desk.feeds.tell(self.workspace, event, f"{root.id} {type}", root.channel)

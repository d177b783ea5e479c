"""Makes an Inbound of what Slack tells: who said, changed, pressed or asked for what, where, and to whom (pure)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from tidings.adapters.shared.edits import edit_of
from tidings.adapters.slack.address import ADAPTER, Handle, Shown, is_direct
from tidings.adapters.slack.settings import SlackAccount
from tidings.adapters.slack.workspaces import ids_of
from tidings.core.adapter import MenuItem
from tidings.core.types import Attachment, Audience, Conversation, Inbound, Kind, Quoted, Sender, Target

# The subtypes of messages that people write; all others are notes of Slack's own, such as that a person has joined.
SPOKEN = ("", "file_share", "thread_broadcast")
CHANGED, DELETED, TOMBSTONE = "message_changed", "message_deleted", "tombstone"
SLACKBOT = "USLACKBOT"
# A quotation is context, not the message.
QUOTE_CHARACTERS = 1000

_MARKED = re.compile(r"<([^<>\n]+)>")
_COMMAND = re.compile(r"[!/](?P<name>[\w-]+)(?:\s+(?P<rest>.*))?", re.DOTALL)
_US = "\x00"


class Me(NamedTuple):
    """Who we are in a workspace."""

    user: str
    team: str
    name: str = ""
    # Of a whole organisation, where the app was installed for that.
    enterprise: str = ""


class Place(NamedTuple):
    channel: str
    thread: str
    # The message itself, if it is one.
    ts: str = ""

    @property
    def is_private(self) -> bool:
        return is_direct(self.channel)


class Reader:
    """`name_of` gives what is known of a person's name, or nothing, and never waits."""

    def __init__(
        self,
        account: str,
        settings: SlackAccount,
        me: Me,
        menu: Iterable[MenuItem],
        name_of: Callable[[str], str] = lambda user: "",
    ) -> None:
        self._account = account
        self._settings = settings
        self._me = me
        self._runs = {item.name: item.runs for item in menu}
        self._name_of = name_of

    def event(self, payload: Mapping[str, Any]) -> Inbound | None:
        """None for an event that says nothing to the bot. Raises what a strange shape raises."""
        inbound = self._event(payload, payload["event"])
        return _checked(inbound) if inbound is not None else None

    def _event(self, payload: Mapping[str, Any], event: Mapping[str, Any]) -> Inbound | None:
        match event["type"], event.get("subtype") or "":
            case "message" | "app_mention", subtype if subtype in SPOKEN:
                return self._said(event, str(event["channel"]), payload)
            case "message", "message_changed":
                return self._changed(event, payload)
            case "message", "message_deleted":
                return self._deleted(event.get("previous_message") or {}, str(event["deleted_ts"]), event, payload)
            case "agent_session_stopped", _:
                return self._stopped(event, payload)
            case _:
                return None

    def is_silent(self, channel: str) -> bool:
        return not is_direct(channel) and self._settings.rule(channel) == "never"

    # What is said.

    def _said(self, event: Mapping[str, Any], channel: str, payload: Mapping[str, Any]) -> Inbound | None:
        """Whether a thread that does not name us is ours, `addressed` cannot tell: the caller asks who remembers it."""
        if self._is_nobodys(event) or self.is_silent(channel):
            return None
        place = _place(event, channel)
        shared = _shared(event)
        text = self._words(str(event.get("text") or ""))
        passed_on = shared is not None and not text
        attachments = tuple(_files(event))
        forwarded = ""
        if shared is not None and passed_on:
            text, forwarded = self._words(_text_of(shared)), _author(shared)
            attachments += tuple(_files(shared))
        if not text and not attachments:
            return None
        # A forwarded message is never a command.
        command, text = ("", text) if passed_on else self._command(text)
        meant = self._is_meant(event, place, command)
        hears_all = self._settings.rule(channel) == "all"
        return Inbound(
            key=f"{channel}:{place.ts}",
            kind=Kind.COMMANDED if command else Kind.MESSAGE,
            conversation=self._conversation(place),
            target=self._target(place, payload, self._handle(event, place, payload, command)),
            sender=self._sender(str(event["user"]), is_bot=bool(event.get("bot_id"))),
            text=text,
            attachments=attachments,
            quoted=self._quoted(shared) if shared is not None and not passed_on else None,
            forwarded=forwarded,
            addressed=meant or hears_all,
            # A command word is always meant for the bot.
            overheard=hears_all and not (meant or command),
            said=float(place.ts),
            command=command,
        )

    def _changed(self, event: Mapping[str, Any], payload: Mapping[str, Any]) -> Inbound | None:
        """Slack also tells of previews, replies and streams as of changes; only a person's own edit is marked."""
        message, before = event["message"], event.get("previous_message") or {}
        if message.get("subtype") == TOMBSTONE:
            return self._deleted(before, str(message["ts"]), event, payload)
        if "edited" not in message or message.get("text") == before.get("text"):
            return None
        if (message.get("subtype") or "") not in SPOKEN:
            return None
        said = self._said(message, str(event["channel"]), payload)
        if said is None:
            return None
        # An edit that removes our name still changes a message that was for us.
        return edit_of(said, f"event:{payload['event_id']}", was_addressed=self._names_us(before))

    def _deleted(
        self, before: Mapping[str, Any], ts: str, event: Mapping[str, Any], payload: Mapping[str, Any]
    ) -> Inbound | None:
        """A deletion has no sender: Slack does not say who deleted the message."""
        channel = str(event["channel"])
        if self.is_silent(channel) or (before and (self._is_nobodys(before) or before.get("bot_id"))):
            return None
        place = _place({**before, "ts": ts}, channel)
        return Inbound(
            key=f"event:{payload['event_id']}",
            kind=Kind.DELETED,
            about=f"{channel}:{ts}",
            conversation=self._conversation(place),
            target=self._target(place, payload),
            sender=Sender(id="", trusted=True),
            addressed=self._is_meant(before, place, "") or self._settings.rule(channel) == "all",
        )

    def _stopped(self, event: Mapping[str, Any], payload: Mapping[str, Any]) -> Inbound:
        """Slack's stop button acts like /stop, for that one answer if Slack names it."""
        place = Place(str(event["channel"]), str(event["thread_ts"]))
        match event.get("streaming_message_ts"):
            case [str() as ts]:
                about = Shown(place.channel, ts, place.thread, stream=True).write()
            case _:
                about = ""
        return Inbound(
            key=f"event:{payload['event_id']}",
            kind=Kind.COMMANDED,
            about=about,
            conversation=self._conversation(place),
            target=self._target(place, payload),
            sender=self._sender(str(event["user"])),
            text="/stop",
            command="stop",
        )

    # What is asked for.

    def commanded(self, asked: Mapping[str, Any], at: float) -> Inbound:
        """A first word that is no command of ours makes a message of it, which is answered to this person alone."""
        words = self._words(str(asked.get("text") or "")).removeprefix("/").removeprefix("!").strip() or "help"
        command, text = self._command(f"/{words}")
        place = Place(str(asked["channel_id"]), "")
        handle = Handle(response_url=str(asked["response_url"]), at=at)
        return _checked(
            Inbound(
                key=f"command:{asked.get('trigger_id') or _digest(asked)}",
                kind=Kind.COMMANDED if command else Kind.MESSAGE,
                conversation=self._conversation(place),
                target=self._target(place, asked, handle, Audience.ONE),
                sender=self._sender(str(asked["user_id"]), str(asked.get("user_name") or "")),
                text=text if command else words,
                command=command,
            )
        )

    def pressed(self, asked: Mapping[str, Any], at: float) -> Inbound | None:
        """None for what is no button of a message."""
        container = asked.get("container") or {}
        if asked.get("type") != "block_actions" or not asked.get("actions") or "message_ts" not in container:
            return None
        user, ts = asked["user"], str(container["message_ts"])
        channel = str((asked.get("channel") or container).get("id") or container["channel_id"])
        action = asked["actions"][0]
        whispered = bool(container.get("is_ephemeral"))
        thread = str(container.get("thread_ts") or (asked.get("message") or {}).get("thread_ts") or "")
        if not thread and not whispered and not is_direct(channel):
            thread = ts
        place = Place(channel, "" if is_direct(channel) and thread == ts else thread)
        # A press is answered where all can see it; only what one person alone sees stays with them.
        handle = Handle(response_url=str(asked.get("response_url") or ""), at=at) if whispered else Handle()
        return _checked(
            Inbound(
                key=f"action:{asked.get('trigger_id') or _digest(asked)}",
                kind=Kind.PRESSED,
                about=f"{channel}:{ts}",
                conversation=self._conversation(place),
                target=self._target(place, asked, handle, Audience.ONE if whispered else None),
                sender=self._sender(str(user["id"]), str(user.get("name") or user.get("username") or "")),
                choice=str(action["action_id"]),
            )
        )

    # Who and to whom.

    def _is_nobodys(self, message: Mapping[str, Any]) -> bool:
        """Our own, Slack's, or from a webhook, which has no user."""
        user = str(message.get("user") or "")
        return not user or user in (self._me.user, SLACKBOT)

    def _names_us(self, message: Mapping[str, Any]) -> bool:
        text = str(message.get("text") or "")
        return message.get("type") == "app_mention" or f"<@{self._me.user}>" in text or f"<@{self._me.user}|" in text

    def _is_meant(self, message: Mapping[str, Any], place: Place, command: str) -> bool:
        """Whether the message itself addresses us, also where the channel's rule lets us hear everything."""
        if place.is_private or self._names_us(message):
            return True
        is_below_ours = message.get("parent_user_id") == self._me.user
        return is_below_ours and self.counts_in_our_thread(place.channel, command)

    def counts_in_our_thread(self, channel: str, command: str) -> bool:
        """Whether a message in a thread of ours is for us without a mention; a command always is."""
        return bool(command) or self._settings.rule(channel) != "mentioned"

    def _sender(self, user: str, told: str = "", *, is_bot: bool = False) -> Sender:
        return Sender(id=user, name=self._name_of(user) or told, is_bot=is_bot)

    def _handle(self, event: Mapping[str, Any], place: Place, payload: Mapping[str, Any], command: str) -> Handle:
        if command and not self._runs[command]:
            # Its reply is a plain message at once.
            return Handle()
        if place.is_private:
            # The assistant's pane begins threads itself; an agent's session begins with the person's message.
            return Handle(assistant=bool(place.thread))
        team = str(event.get("user_team") or event.get("team") or payload.get("team_id") or "")
        return Handle(team=team, user=str(event["user"]))

    def _conversation(self, place: Place) -> Conversation:
        return Conversation(adapter=ADAPTER, account=self._account, chat=place.channel, thread=place.thread)

    def _server(self, payload: Mapping[str, Any]) -> str:
        """The account's own workspace, also in a channel that others share; an organisation has several."""
        if not self._me.enterprise:
            return self._me.team
        return next((id for id in ids_of(payload) if id and id != self._me.enterprise), self._me.team)

    def _target(
        self,
        place: Place,
        payload: Mapping[str, Any],
        handle: Handle | None = None,
        audience: Audience | None = None,
    ) -> Target:
        return Target(
            adapter=ADAPTER,
            account=self._account,
            chat=place.channel,
            thread=place.thread,
            reply_to=place.ts,
            audience=audience or (Audience.PRIVATE if place.is_private else Audience.GROUP),
            server=self._server(payload),
            handle=(handle or Handle()).write(),
        )

    # Words.

    def _command(self, text: str) -> tuple[str, str]:
        found = _COMMAND.fullmatch(text)
        if found is None or found["name"].lower() not in self._runs:
            return "", text
        name = found["name"].lower()
        return name, f"/{name} {found['rest'] or ''}".rstrip()

    def _words(self, text: str) -> str:
        """As the person saw it: Slack marks people, channels and links, and escapes three characters."""
        rest = _MARKED.sub(lambda found: self._unmarked(found[1]), text.replace(_US, ""))
        if _US in rest:
            # A word of address goes with the comma and the space behind it.
            rest = re.sub(rf"^\s*(?:{_US}[\s,:]*)+", "", rest)
            *before, last = rest.split(_US)
            rest = "".join([*(each.rstrip(" \t") for each in before), last]).strip()
            # A message that is nothing but our name is a message, too.
            rest = rest or f"@{self._me.name}"
        return rest.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&").strip()

    def _unmarked(self, mark: str) -> str:
        what, _, label = mark.partition("|")
        match what[:1]:
            case "@":
                if what[1:] == self._me.user:
                    return _US
                name = label or self._name_of(what[1:])
                return f"@{name}" if name else f"@{what[1:]}"
            case "#":
                return f"#{label or what[1:]}"
            case "!":
                return label or f"@{what[1:].partition('^')[0]}"
            case _:
                address = what.removeprefix("mailto:").removeprefix("tel:")
                is_same = not label or label in address
                return address if is_same else f"{label} ({address})"

    def _quoted(self, shared: Mapping[str, Any]) -> Quoted | None:
        text = self._words(_text_of(shared))
        return Quoted(text=text[:QUOTE_CHARACTERS], sender=_author(shared, "")) if text else None


def time_of(payload: Mapping[str, Any]) -> float:
    """When Slack says that it happened; what says nothing comes first."""
    event = payload.get("event") or {}
    try:
        return float(event.get("event_ts") or event.get("ts") or 0)
    except (TypeError, ValueError):
        return 0.0


def _place(message: Mapping[str, Any], channel: str) -> Place:
    """In a channel each message begins a thread; in private only what stands below another message is in one."""
    ts = str(message["ts"])
    thread = str(message.get("thread_ts") or "")
    if is_direct(channel):
        return Place(channel, "" if thread == ts else thread, ts)
    return Place(channel, thread or ts, ts)


def _shared(event: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Another message that was passed on or linked to."""
    for each in event.get("attachments") or ():
        if each.get("is_share") or each.get("is_msg_unfurl") or each.get("from_url"):
            return dict(each)
    return None


def _text_of(shared: Mapping[str, Any]) -> str:
    return str(shared.get("text") or shared.get("fallback") or "")


def _author(shared: Mapping[str, Any], unknown: str = "somebody") -> str:
    return str(shared.get("author_name") or shared.get("author_subname") or unknown)


def _files(message: Mapping[str, Any]) -> Iterator[Attachment]:
    for file in message.get("files") or ():
        if file.get("mode") == TOMBSTONE:
            continue
        handle = {"url": str(file.get("url_private") or ""), "id": str(file["id"])}
        yield Attachment(
            handle=json.dumps(handle),
            name=str(file.get("name") or file.get("title") or "file"),
            media_type=str(file.get("mimetype") or ""),
            size=int(file.get("size") or 0),
        )


def _digest(asked: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(asked, sort_keys=True, default=str).encode()).hexdigest()[:32]


def _checked(inbound: Inbound) -> Inbound:
    """Raises what a strange shape raises: fields of a wrong type, or half a character, would break the store."""
    return msgspec.json.decode(msgspec.json.encode(inbound), type=Inbound)

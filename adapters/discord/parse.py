"""Makes an Inbound of what Discord tells: who said, changed, pressed or asked for what, where, and to whom (pure)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from tidings.adapters.discord.address import ADAPTER, Handle
from tidings.adapters.discord.directory import NEWS, PRIVATE_THREAD, TEXT, Atlas, Place
from tidings.adapters.discord.settings import DiscordAccount
from tidings.adapters.shared.accounts import Rule
from tidings.adapters.shared.edits import edit_of
from tidings.core.types import Attachment, Audience, Conversation, Inbound, Kind, Quoted, Sender, Target

# What people write; other numbers are Discord's own notes, such as that a member has joined.
PLAIN, REPLY, THREAD_STARTER = 0, 19, 21
SPOKEN = (PLAIN, REPLY, THREAD_STARTER)
FORWARD = 1
COMMAND, COMPONENT = 2, 3
EPHEMERAL = 1 << 6
# A quotation is context, not the message.
QUOTE_CHARACTERS = 1000

_NAMED = re.compile(r"<@(?P<kind>[!&]?)(?P<id>\d+)>")
_COMMAND = re.compile(r"[/!](?P<name>[\w-]+)(?:\s+(?P<rest>.*))?", re.DOTALL)


class Reader:
    def __init__(self, account: str, settings: DiscordAccount, atlas: Atlas, commands: Iterable[str]) -> None:
        self._account = account
        self._settings = settings
        self._atlas = atlas
        self._commands = frozenset(commands)

    def rule(self, place: Place) -> Rule:
        """A rule for a thread counts more than the rule for its channel."""
        if place.channel in self._settings.chats:
            return self._settings.chats[place.channel]
        return self._settings.rule(place.chat)

    def said(self, message: Mapping[str, Any], place: Place) -> Inbound | None:
        """None for what neither a person nor another bot has written. Raises what a strange shape raises."""
        if self._is_nobodys(message) or (message.get("type") or PLAIN) not in SPOKEN:
            return None
        if not place.is_private and self.rule(place) == "never":
            return None
        forwarded = _snapshot(message)
        source = message if forwarded is None else forwarded
        text = self._words(source, place.guild)
        attachments = tuple(_attachments(source, place.channel, str(message["id"])))
        if not text and not attachments:
            return None
        # A forwarded command is not obeyed.
        command, text = ("", text) if forwarded else self._command(text)
        rule = self.rule(place)
        is_named = self._is_named(message, place)
        follows = self._is_reply_to_us(message) or self._atlas.is_ours(place)
        # Where only mentions count, a command may still follow an answer.
        meant = is_named or place.is_private or (follows and (rule != "mentioned" or bool(command)))
        addressed = meant or rule == "all"
        opens = meant and not command and self._settings.threads and place.kind in (TEXT, NEWS)
        return _checked(
            Inbound(
                key=f"{place.channel}:{message['id']}",
                kind=Kind.COMMANDED if command else Kind.MESSAGE,
                conversation=self._conversation(place, str(message["id"]) if opens else ""),
                target=self._target(place, str(message["id"]), opens=opens),
                sender=_sender(message["author"], message.get("member")),
                text=text,
                attachments=attachments,
                quoted=self._quoted(message, place.guild),
                forwarded="somebody" if forwarded else "",
                addressed=addressed,
                # A command word is always meant for the bot.
                overheard=addressed and not (meant or command),
                command=command,
            )
        )

    def edited(self, message: Mapping[str, Any], place: Place) -> Inbound | None:
        """Discord also tells of previews, pins and threads as of changes; only a person's own edit has a time."""
        when = message.get("edited_timestamp")
        said = self.said(message, place) if when and "author" in message else None
        if said is None:
            return None
        return _checked(edit_of(said, f"{said.key}:edited:{when}"))

    def deleted(self, message: str, place: Place) -> Inbound:
        """Discord says that a message was deleted, and never who deleted it."""
        return Inbound(
            key=f"{place.channel}:{message}:deleted",
            kind=Kind.DELETED,
            about=f"{place.channel}:{message}",
            conversation=self._conversation(place),
            target=self._target(place, message),
            sender=Sender(id="", trusted=True),
        )

    def commanded(self, asked: Mapping[str, Any], place: Place, handle: Handle) -> Inbound:
        name = str(asked["data"]["name"])
        values = [str(option["value"]) for option in asked["data"].get("options") or () if "value" in option]
        return _checked(
            Inbound(
                key=f"interaction:{asked['id']}",
                kind=Kind.COMMANDED,
                conversation=self._conversation(place),
                target=self._target(place, "", handle=handle),
                sender=_asker(asked),
                text=" ".join((f"/{name}", *values)),
                command=name,
            )
        )

    def pressed(self, asked: Mapping[str, Any], place: Place, handle: Handle) -> Inbound:
        return _checked(
            Inbound(
                key=f"interaction:{asked['id']}",
                kind=Kind.PRESSED,
                about=str(asked["message"]["id"]),
                conversation=self._conversation(place),
                target=self._target(place, "", handle=handle),
                sender=_asker(asked),
                choice=str(asked["data"]["custom_id"]),
            )
        )

    def _is_nobodys(self, message: Mapping[str, Any]) -> bool:
        """Our own, or from a webhook, whose name and id say nothing about who wrote it."""
        return bool(message.get("webhook_id")) or str(message["author"]["id"]) == self._atlas.me.id

    def _is_named(self, message: Mapping[str, Any], place: Place) -> bool:
        """Mentioned in its words, by a role of ours too; a reply that rings is listed as a mention, and is none."""
        me = self._atlas.me.id
        if any(str(user["id"]) == me for user in message.get("mentions") or ()):
            return not self._is_reply_to_us(message) or _mentions(str(message.get("content") or ""), me)
        return not self._atlas.roles(place.guild).isdisjoint(str(role) for role in message.get("mention_roles") or ())

    def _is_reply_to_us(self, message: Mapping[str, Any]) -> bool:
        me = self._atlas.me.id
        answered = message.get("referenced_message")
        return bool(message.get("type") == REPLY and answered and str(answered["author"]["id"]) == me)

    def _command(self, text: str) -> tuple[str, str]:
        found = _COMMAND.fullmatch(text)
        if found is None or found["name"].lower() not in self._commands:
            return "", text
        name = found["name"].lower()
        return name, f"/{name} {found['rest'] or ''}".rstrip()

    def _words(self, message: Mapping[str, Any], guild: str) -> str:
        """Mentions of us only say whom one speaks to; others are read by their names."""
        content = str(message.get("content") or "")
        if "<@" in content:
            content = self._named(content, message, guild)
        return content.strip() or _saying(message)

    def _named(self, content: str, message: Mapping[str, Any], guild: str) -> str:
        names = {str(user["id"]): _name(user, user.get("member")) for user in message.get("mentions") or ()}
        mine = self._atlas.me
        ours = self._atlas.roles(guild)

        def name(found: re.Match[str]) -> str:
            if found["kind"] == "&":
                return "" if found["id"] in ours else found[0]
            if found["id"] == mine.id:
                return ""
            return f"@{names[found['id']]}" if names.get(found["id"]) else found[0]

        rest = _NAMED.sub(lambda found: name(found) or "\x00", content)
        # A word of address goes with the comma and the space behind it.
        rest = re.sub(r"^\s*(?:\x00[\s,:]*)+", "", rest)
        *before, last = rest.split("\x00")
        rest = "".join([*(each.rstrip(" \t") for each in before), last]).strip()
        # A message of nothing but our name is a message, too.
        return rest or f"@{mine.name}"

    def _quoted(self, message: Mapping[str, Any], guild: str) -> Quoted | None:
        answered = message.get("referenced_message")
        if message.get("type") != REPLY or not answered:
            return None
        files = ", ".join(str(file["filename"]) for file in answered.get("attachments") or ())
        text = self._words(answered, guild) or files
        if not text:
            return None
        return Quoted(text=text[:QUOTE_CHARACTERS], sender=_name(answered["author"], answered.get("member")))

    def _conversation(self, place: Place, opens: str = "") -> Conversation:
        thread = opens or place.thread
        return Conversation(adapter=ADAPTER, account=self._account, chat=place.chat, thread=thread)

    def _target(self, place: Place, message: str, *, opens: bool = False, handle: Handle | None = None) -> Target:
        handle = handle or Handle(opens=opens)
        audience = Audience.PRIVATE if place.is_private else Audience.ONE if handle.ephemeral else Audience.GROUP
        return Target(
            adapter=ADAPTER,
            account=self._account,
            chat=place.chat,
            thread=message if opens else place.thread,
            reply_to=message,
            audience=audience,
            server=place.guild,
            secluded=place.kind == PRIVATE_THREAD,
            handle=handle.write(),
        )


def _mentions(content: str, user: str) -> bool:
    return f"<@{user}>" in content or f"<@!{user}>" in content


def _checked(inbound: Inbound) -> Inbound:
    """Raises for wrong types: such an inbound could break the store, or never be read again."""
    return msgspec.convert(msgspec.to_builtins(inbound), Inbound)


def _snapshot(message: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """A forwarded message comes as a copy, without its author."""
    if (message.get("message_reference") or {}).get("type") != FORWARD:
        return None
    copies = message.get("message_snapshots") or ()
    snapshot: Mapping[str, Any] | None = next((each["message"] for each in copies), None)
    return snapshot


def _saying(message: Mapping[str, Any]) -> str:
    """A sticker, poll or the like is described in words."""
    if stickers := message.get("sticker_items"):
        return " ".join(f"(a sticker: {sticker['name']})" for sticker in stickers)
    if poll := message.get("poll"):
        return f"(a poll: {poll['question'].get('text', '')})"
    return ""


def _attachments(message: Mapping[str, Any], channel: str, id: str) -> Iterator[Attachment]:
    for file in message.get("attachments") or ():
        # Its address is good for a day; by the message a new one can be asked for.
        handle = {"url": str(file["url"]), "channel": channel, "message": id, "id": str(file["id"])}
        yield Attachment(
            handle=json.dumps(handle),
            name=file.get("filename") or "file",
            media_type=str(file.get("content_type") or "").partition(";")[0],
            size=int(file.get("size") or 0),
        )


def _asker(asked: Mapping[str, Any]) -> Sender:
    member = asked.get("member")
    return _sender(member["user"] if member else asked["user"], member)


def _sender(user: Mapping[str, Any], member: Mapping[str, Any] | None) -> Sender:
    return Sender(id=str(user["id"]), name=_name(user, member), is_bot=bool(user.get("bot")))


def _name(user: Mapping[str, Any], member: Mapping[str, Any] | None) -> str:
    nick = member.get("nick") if member else None
    return str(nick or user.get("global_name") or user.get("username") or "")

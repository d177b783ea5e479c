"""Makes an Inbound of an update: who said what, where, to whom, and what hangs on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from tidings.adapters.shared.accounts import Rule
from tidings.adapters.shared.edits import edit_of
from tidings.adapters.telegram.address import Shown
from tidings.core.types import Attachment, Audience, Conversation, Inbound, Kind, Quoted, Sender, Target

ADAPTER = "telegram"
# What we ask the server for; it remembers the last list, so it is said at every start.
WANTED = ("message", "edited_message", "callback_query", "stopped_message_generation")
# A quotation is context, not the message.
QUOTE_CHARACTERS = 1000

# Kinds of files, the richest first: an animation comes as a document, too.
FILES = {
    "animation": "animation.mp4",
    "audio": "audio.mp3",
    "document": "document",
    "photo": "photo.jpg",
    "sticker": "sticker.webp",
    "video": "video.mp4",
    "video_note": "video.mp4",
    "voice": "voice.ogg",
}
# What a person sends that is neither text nor file is said in words.
SAYINGS: Mapping[str, Callable[[dict[str, Any]], str]] = {
    "venue": lambda it: f"(a place: {it['title']}, {it['address']})",
    "location": lambda it: f"(a location: {it['latitude']}, {it['longitude']})",
    "contact": lambda it: f"(a contact: {it['first_name']} {it['phone_number']})",
    "poll": lambda it: f"(a poll: {it['question']})",
    "dice": lambda it: f"(a {it['emoji']}: {it['value']})",
}
# What everybody's message has; the rest of a message without text says what happened in the chat.
UNREAD = ("story", "game", "invoice", "paid_media", "checklist", "giveaway")


class Me(NamedTuple):
    id: int
    username: str


class Reader:
    def __init__(self, account: str, me: Me, rule: Callable[[str], Rule]) -> None:
        self.account = account
        self._me = me
        self._rule = rule

    def read(self, update: dict[str, Any]) -> Inbound | None:
        """None for a message that nobody has written, or that is a command for another bot.

        Raises what a strange shape raises.
        """
        inbound = self._read(update)
        # What has the wrong types could be stored, or break the storing, and would never be read again.
        return msgspec.convert(msgspec.to_builtins(inbound), Inbound) if inbound else None

    def _read(self, update: dict[str, Any]) -> Inbound | None:
        if (press := update.get("callback_query")) is not None:
            return self._pressed(update["update_id"], press)
        if (message := update.get("message")) is not None:
            return self._said(message)
        if (edited := update.get("edited_message")) is not None:
            return self._edited(update["update_id"], edited)
        if (stopped := update.get("stopped_message_generation")) is not None:
            return self._stopped(update["update_id"], stopped)
        return None

    def _said(self, message: dict[str, Any]) -> Inbound | None:
        chat = message["chat"]
        rule = self._rule(str(chat["id"]))
        private = chat["type"] == "private"
        if not private and (rule == "never" or chat["type"] not in ("group", "supergroup")):
            return None
        attachments = tuple(_attachments(message))
        text = _text(message)
        if not text and not attachments:
            return None
        forwarded = _forwarded(message)
        # A forwarded command is not obeyed.
        command, text, mine = ("", text, False) if forwarded else self._command(message, text)
        if command and not mine:
            # It is meant for another bot in the same group.
            return None
        is_answer = rule != "mentioned" and self._is_reply_to_us(message)
        meant = private or mine or is_answer or self._is_mentioned(message)
        addressed = meant or rule == "all"
        return Inbound(
            key=f"{chat['id']}:{message['message_id']}",
            kind=Kind.COMMANDED if command else Kind.MESSAGE,
            conversation=self._conversation(message),
            target=self._target(message, private),
            sender=_sender(message),
            text=text if command else self._without_mention(text),
            attachments=attachments,
            quoted=_quoted(message),
            forwarded=forwarded,
            addressed=addressed,
            overheard=addressed and not meant,
            group=message.get("media_group_id", ""),
            command=command,
        )

    def _edited(self, update: int, message: dict[str, Any]) -> Inbound | None:
        said = self._said(message)
        if said is None:
            return None
        return edit_of(said, f"update:{update}")

    def _pressed(self, update: int, press: dict[str, Any]) -> Inbound | None:
        message = press.get("message")
        if message is None or "data" not in press:
            # A button of an inline message, which no bot of ours writes.
            return None
        private = message["chat"]["type"] == "private"
        return Inbound(
            key=f"update:{update}",
            kind=Kind.PRESSED,
            about=str(message["message_id"]),
            conversation=self._conversation(message),
            target=self._target(message, private),
            sender=_person(press["from"]),
            choice=press["data"],
        )

    def _stopped(self, update: int, stopped: dict[str, Any]) -> Inbound | None:
        """The stop button below a draft acts like /stop, for that one answer."""
        chat = stopped["chat"]
        if chat["type"] != "private":
            return None
        id, thread = str(chat["id"]), str(stopped.get("message_thread_id") or "")
        return Inbound(
            key=f"update:{update}",
            kind=Kind.COMMANDED,
            about=Shown(id, thread, draft=stopped["draft_id"]).write(),
            conversation=Conversation(adapter=ADAPTER, account=self.account, chat=id, thread=thread),
            target=Target(adapter=ADAPTER, account=self.account, chat=id, thread=thread),
            # In private the chat is the person.
            sender=_person(chat),
            text="/stop",
            command="stop",
        )

    def _conversation(self, message: dict[str, Any]) -> Conversation:
        return Conversation(
            adapter=ADAPTER, account=self.account, chat=str(message["chat"]["id"]), thread=_thread(message)
        )

    def _target(self, message: dict[str, Any], private: bool) -> Target:
        return Target(
            adapter=ADAPTER,
            account=self.account,
            chat=str(message["chat"]["id"]),
            thread=_thread(message),
            # With its chat: in another one, where this may have moved to, the number is another message's.
            reply_to=f"{message['chat']['id']}:{message['message_id']}",
            audience=Audience.PRIVATE if private else Audience.GROUP,
        )

    def _command(self, message: dict[str, Any], text: str) -> tuple[str, str, bool]:
        """The command's name, the text without the bot's, and whether it is ours."""
        entities = message.get("entities") or message.get("caption_entities", ())
        first = next(iter(entities), None)
        if first is None or first["type"] != "bot_command" or first["offset"] != 0:
            return "", text, False
        word, rest = text[: first["length"]], text[first["length"] :]
        name, _, bot = word[1:].partition("@")
        mine = not bot or bot.lower() == self._me.username.lower()
        return name.lower(), f"/{name}{rest}", mine

    def _is_reply_to_us(self, message: dict[str, Any]) -> bool:
        answered = message.get("reply_to_message", {})
        return bool(answered.get("from", {}).get("id") == self._me.id and "forum_topic_created" not in answered)

    def _is_mentioned(self, message: dict[str, Any]) -> bool:
        text = message.get("text") or message.get("caption", "")
        entities = message.get("entities") or message.get("caption_entities", ())
        return any(self._is_mention(text, entity) for entity in entities)

    def _is_mention(self, text: str, entity: dict[str, Any]) -> bool:
        if entity["type"] == "text_mention":
            return bool(entity["user"]["id"] == self._me.id)
        if entity["type"] != "mention":
            return False
        # Offsets count UTF-16 units.
        units = text.encode("utf-16-le")
        mention = units[2 * entity["offset"] : 2 * (entity["offset"] + entity["length"])].decode("utf-16-le", "replace")
        return mention.lower() == f"@{self._me.username.lower()}"

    def _without_mention(self, text: str) -> str:
        """A mention at the beginning only says whom one speaks to."""
        mention = f"@{self._me.username}"
        rest = text[len(mention) :]
        if text[: len(mention)].lower() != mention.lower() or rest[:1].isalnum() or rest[:1] == "_":
            return text
        return rest.lstrip(" ,:\n") or text


def place_of(update: dict[str, Any]) -> str:
    """The chat that an update is about; what is about none shares one place."""
    for said in (update.get(kind) for kind in WANTED):
        if isinstance(said, dict):
            message = said.get("message", said)
            chat = message.get("chat") if isinstance(message, dict) else None
            return str(chat.get("id")) if isinstance(chat, dict) else ""
    return ""


def moved_to(update: dict[str, Any]) -> tuple[str, str] | None:
    """A group that has become a supergroup goes on under another id."""
    message = update.get("message")
    if not isinstance(message, dict) or not isinstance(message.get("chat"), dict):
        return None
    if (new := message.get("migrate_to_chat_id")) is not None:
        return str(message["chat"].get("id")), str(new)
    if (old := message.get("migrate_from_chat_id")) is not None:
        return str(old), str(message["chat"].get("id"))
    return None


def _thread(message: dict[str, Any]) -> str:
    """A thread id alone may be a mere reply; only a topic is a conversation of its own."""
    return str(message["message_thread_id"]) if message.get("is_topic_message") else ""


def _text(message: dict[str, Any]) -> str:
    text = message.get("text") or message.get("caption") or ""
    if text:
        return str(text)
    for kind, say in SAYINGS.items():
        if kind in message:
            return say(message[kind])
    return next((f"({kind.replace('_', ' ')}: I cannot read this)" for kind in UNREAD if kind in message), "")


def _attachments(message: dict[str, Any]) -> Iterator[Attachment]:
    for kind, name in FILES.items():
        if kind not in message:
            continue
        # A photo comes in several sizes, the largest last.
        file = message[kind][-1] if kind == "photo" else message[kind]
        yield Attachment(
            handle=file["file_id"],
            name=file.get("file_name") or name,
            media_type=file.get("mime_type", "image/jpeg" if kind == "photo" else ""),
            size=file.get("file_size", 0),
        )
        return


def _quoted(message: dict[str, Any]) -> Quoted | None:
    chosen = message.get("quote", {}).get("text", "")
    answered = message.get("reply_to_message")
    if answered is None:
        # Of what stands in another chat only the chosen words come along.
        return Quoted(text=chosen[:QUOTE_CHARACTERS]) if chosen else None
    if "forum_topic_created" in answered:
        return None
    text = chosen or _text(answered) or _rich(answered)
    if not text:
        text = ", ".join(file.name for file in _attachments(answered))
    return Quoted(text=text[:QUOTE_CHARACTERS], sender=_sender(answered).name) if text else None


def _forwarded(message: dict[str, Any]) -> str:
    """Who wrote what was passed on; empty for words of the sender's own."""
    origin = message.get("forward_origin")
    if origin is None:
        return ""
    if user := origin.get("sender_user"):
        return _person(user).name or "somebody"
    chat = origin.get("sender_chat") or origin.get("chat") or {}
    return str(origin.get("sender_user_name") or chat.get("title") or "somebody")


def _rich(message: dict[str, Any]) -> str:
    """A rich message of ours has no plain text; Telegram quotes it in the source that we sent."""
    rich = message.get("rich_message")
    words = (rich.get("markdown") or rich.get("html")) if isinstance(rich, dict) else ""
    return words if isinstance(words, str) else ""


def _sender(message: dict[str, Any]) -> Sender:
    """A sender who speaks for a chat, such as an anonymous administrator, is known by the chat's id."""
    chat = message.get("sender_chat")
    if chat is not None:
        return Sender(id=str(chat["id"]), name=chat.get("title") or chat.get("username", ""))
    return _person(message["from"])


def _person(user: dict[str, Any]) -> Sender:
    name = " ".join(filter(None, (user.get("first_name"), user.get("last_name"))))
    return Sender(id=str(user["id"]), name=name or user.get("username", ""), is_bot=bool(user.get("is_bot")))

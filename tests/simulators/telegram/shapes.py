"""Telegram's JSON: users, chats, messages and files in the shapes that bots are told."""

from __future__ import annotations

import json
import mimetypes
from pathlib import PurePosixPath
from typing import Any

from tests.simulators.telegram.chats import Bot, Chat, Chats
from tests.simulators.telegram.truth import Button, Entity, File, Message

Json = dict[str, Any]


def user_of(chats: Chats, id: int) -> Json:
    first, last, username = chats.people.get(id, (f"Person {id}", "", ""))
    user: Json = {"id": id, "is_bot": False, "first_name": first, "language_code": "en"}
    return user | {name: value for name, value in (("last_name", last), ("username", username)) if value}


def bot_of(bot: Bot) -> Json:
    return {"id": bot.id, "is_bot": True, "first_name": bot.account, "username": bot.username}


def me_of(bot: Bot) -> Json:
    return bot_of(bot) | {
        "can_join_groups": True,
        "can_read_all_group_messages": bot.reads_all,
        "supports_inline_queries": False,
        "can_connect_to_business": False,
        "has_main_web_app": False,
        "has_topics_enabled": bot.has_topics,
    }


def chat_of(chats: Chats, chat: Chat) -> Json:
    if chat.kind == "private":
        user = user_of(chats, chat.id)
        named: Json = {name: user[name] for name in ("first_name", "last_name", "username") if name in user}
        return {"id": chat.id, "type": "private", **named}
    return {"id": chat.id, "type": chat.kind, "title": chat.title} | ({"is_forum": True} if chat.is_forum else {})


def entity_of(entity: Entity) -> Json:
    shape: Json = {"type": entity.type, "offset": entity.offset, "length": entity.length}
    for name, value in (
        ("url", entity.url),
        ("language", entity.language),
        ("custom_emoji_id", entity.custom_emoji),
    ):
        if value:
            shape[name] = value
    if entity.user:
        shape["user"] = {"id": entity.user, "is_bot": False, "first_name": f"Person {entity.user}"}
    return shape


def keyboard_of(rows: tuple[tuple[Button, ...], ...]) -> Json:
    def shape(button: Button) -> Json:
        return {"text": button.label} | ({"url": button.url} if button.url else {"callback_data": button.id})

    return {"inline_keyboard": [[shape(button) for button in row] for row in rows]}


def file_of(file: File) -> Json:
    # The id is for one bot and may change, the unique one is the same everywhere.
    return {"file_id": file.id, "file_unique_id": f"u{file.id[-8:]}", "file_size": len(file.data)}


def media_of(message: Message) -> Json:
    if message.kind not in ("document", "photo", "voice"):
        return {}
    (file,) = message.files
    shape = file_of(file)
    match message.kind:
        case "photo":
            small = shape | {"file_unique_id": f"s{file.id[-8:]}", "width": 90, "height": 67}
            return {"photo": [small, shape | {"width": 800, "height": 600}]}
        case "voice":
            return {"voice": shape | {"duration": 1, "mime_type": "audio/ogg"}}
        case _:
            mime = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
            return {"document": shape | {"file_name": PurePosixPath(file.name).name, "mime_type": mime}}


def message_of(chats: Chats, chat: Chat, message: Message, *, is_nested: bool = False) -> Json:
    author = user_of(chats, int(message.sender)) if message.sender else bot_of(chats.bot(message.account))
    shape: Json = {
        "message_id": message.message_id,
        "from": author,
        "chat": chat_of(chats, chat),
        "date": int(message.at + chats.skew),
    }
    if message.thread:
        shape |= {"message_thread_id": int(message.thread), "is_topic_message": True}
    elif chat.kind == "supergroup" and message.reply_to:
        # Chains of replies have a thread too, which is no topic.
        shape["message_thread_id"] = _root(chats, chat, message)
    replied = _replied(chats, chat, message)
    if replied is not None and not is_nested:
        shape["reply_to_message"] = message_of(chats, chat, replied, is_nested=True)
    if message.quote:
        shape["quote"] = {"text": message.quote, "position": 0, "is_manual": True}
    if message.edited_at:
        shape["edit_date"] = int(message.edited_at + chats.skew)
    if message.album:
        shape["media_group_id"] = message.album
    if message.rows:
        shape["reply_markup"] = keyboard_of(message.rows)
    return shape | _content(message)


def _content(message: Message) -> Json:
    if message.kind == "service":
        content: Json = json.loads(message.service)
        return content
    if message.kind == "rich":
        return {"rich_message": {message.rich: message.text}}
    entities = [entity_of(entity) for entity in message.entities]
    words = ("text", "entities") if message.kind == "text" else ("caption", "caption_entities")
    return (
        media_of(message)
        | ({words[0]: message.text} if message.text else {})
        | ({words[1]: entities} if entities else {})
    )


def _replied(chats: Chats, chat: Chat, message: Message) -> Message | None:
    if message.reply_to:
        return chats.message(chat, int(message.reply_to.rpartition(":")[2]))
    if message.thread and chat.is_forum and message.kind != "service":
        # In a topic, what answers nothing answers the service message that opened it.
        return chats.message(chat, int(message.thread))
    return None


def _root(chats: Chats, chat: Chat, message: Message) -> int:
    number = message.message_id
    while message.reply_to:
        number = int(message.reply_to.rpartition(":")[2])
        parent = chats.message(chat, number)
        if parent is None:
            break
        message = parent
    return number

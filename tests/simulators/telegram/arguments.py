"""The arguments of calls that come as JSON in a string: keyboards, reactions and commands, read as the server does."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.simulators.telegram.texts import bad
from tests.simulators.telegram.truth import Button

CALLBACK_BYTES = 64
BUTTONS = 100
COMMANDS = 100

SCOPES = {
    "default",
    "all_private_chats",
    "all_group_chats",
    "all_chat_administrators",
    "chat",
    "chat_administrators",
    "chat_member",
}
DEFAULT_SCOPE = '{"type": "default"}'

ACTIONS = {
    "typing",
    "upload_photo",
    "record_video",
    "upload_video",
    "record_voice",
    "upload_voice",
    "record_audio",
    "upload_audio",
    "upload_document",
    "choose_sticker",
    "find_location",
    "record_video_note",
    "upload_video_note",
}
# All that a bot may react with; a check mark is not among them.
REACTIONS = frozenset(
    re.findall(
        r"\S+",
        """
        👍 👎 ❤ 🔥 🥰 👏 😁 🤔 🤯 😱 🤬 😢 🎉 🤩 🤮 💩 🙏 👌 🕊 🤡 🥱 🥴 😍 🐳 ❤️‍🔥
        🌚 🌭 💯 🤣 ⚡ 🍌 🏆 💔 🤨 😐 🍓 🍾 💋 🖕 😈 😴 😭 🤓 👻 👨‍💻 👀 🎃 🙈 😇 😨
        🤝 ✍ 🤗 🫡 🎅 🎄 ☃ 💅 🤪 🗿 🆒 💘 🙉 🦄 😘 💊 🙊 😎 👾 🤷‍♂️ 🤷 🤷‍♀️ 😡
        """,
    )
)


def _load(value: str, what: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        raise bad(f"can't parse {what} JSON object") from None


def read_keyboard(value: str) -> tuple[tuple[Button, ...], ...]:
    """The buttons under a message; other kinds of keyboard are of no account here."""
    if not value:
        return ()
    markup = _load(value, "reply keyboard markup")
    if not isinstance(markup, dict):
        raise bad("object expected as reply markup")
    rows = markup.get("inline_keyboard", [])
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        raise bad('field "inline_keyboard" of the InlineKeyboardMarkup should be an Array of Arrays')
    keyboard = tuple(tuple(map(_read_button, row)) for row in rows if row)
    if sum(map(len, keyboard)) > BUTTONS:
        raise bad("reply markup is too long")
    return keyboard


def _read_button(value: Any) -> Button:
    wrong = "can't parse inline keyboard button: "
    if not isinstance(value, dict):
        raise bad(f"{wrong}InlineKeyboardButton must be an Object")
    label, data, url = value.get("text", ""), value.get("callback_data"), value.get("url")
    if not isinstance(label, str) or not label.strip():
        raise bad(f'{wrong}field "text" must be non-empty')
    if data is None and url is None:
        raise bad(f"{wrong}Text buttons are unallowed in the inline keyboard")
    if data is not None and not 1 <= len(str(data).encode()) <= CALLBACK_BYTES:
        raise bad("BUTTON_DATA_INVALID")
    if url is not None and not re.match(r"(https?://|tg:|[\w-]+\.)", str(url)):
        raise bad("BUTTON_URL_INVALID")
    return Button(id=str(data or ""), label=label, url=str(url or ""))


def read_reaction(value: str) -> str:
    """The one emoji that a bot may set; empty takes it back."""
    types = _load(value or "[]", "reaction types")
    if not isinstance(types, list) or not all(isinstance(type, dict) for type in types):
        raise bad("expected an Array of ReactionType")
    if len(types) > 1:
        raise bad("REACTIONS_TOO_MANY")
    if not types:
        return ""
    if types[0].get("type") != "emoji":
        raise bad("REACTION_INVALID")
    return str(types[0].get("emoji", ""))


def read_scope(value: str) -> str:
    """For whom a menu is, as JSON that is always written the same way."""
    scope = _load(value or DEFAULT_SCOPE, "BotCommandScope")
    if not isinstance(scope, dict) or scope.get("type") not in SCOPES:
        raise bad("can't parse BotCommandScope: Unsupported type specified")
    return json.dumps(scope, sort_keys=True)


def read_commands(value: str) -> tuple[tuple[str, str], ...]:
    commands = _load(value or "[]", "commands")
    if not isinstance(commands, list):
        raise bad("expected an Array of BotCommand")
    if len(commands) > COMMANDS:
        raise bad("BOT_COMMANDS_TOO_MUCH")
    found = []
    for command in commands:
        if not isinstance(command, dict) or not {"command", "description"} <= command.keys():
            raise bad("can't parse BotCommand: expected an Object")
        name, description = str(command["command"]).removeprefix("/"), str(command["description"]).strip()
        if not re.fullmatch(r"[a-z0-9_]{1,32}", name):
            raise bad("BOT_COMMAND_INVALID")
        if not 1 <= len(description) <= 256:
            raise bad("BOT_COMMAND_DESCRIPTION_INVALID")
        found.append((name, description))
    return tuple(found)

"""Every method of the Bot API that the simulator has, and all the ways in which a call is turned away."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from msgspec.structs import replace

from tests.simulators.telegram.arguments import (
    ACTIONS,
    REACTIONS,
    read_commands,
    read_keyboard,
    read_reaction,
    read_scope,
)
from tests.simulators.telegram.chats import Bot, Chat, Chats
from tests.simulators.telegram.files import Shelf, Upload
from tests.simulators.telegram.markup import Marked
from tests.simulators.telegram.rates import Rates
from tests.simulators.telegram.shapes import file_of, me_of, message_of
from tests.simulators.telegram.texts import CAPTION_LIMIT, bad, fit, parse, read_rich, truth_of, whole
from tests.simulators.telegram.truth import DRAFT_SECONDS, Draft, File, Message

NOT_MODIFIED = (
    "message is not modified: specified new message content and reply markup are exactly the same as a current "
    "content and reply markup of the message"
)
QUERY_INVALID = "query is too old and response timeout expired or query ID is invalid"
# A press must be answered within this.
PRESS_SECONDS = 15.0
# A bot may delete its own messages for so long.
DELETE_SECONDS = 48 * 3600.0

Stops = Literal["known", "ignored", "refused"]


@dataclass(slots=True)
class Press:
    account: str
    # By the steady clock.
    until: float
    answer: str | None = None


class Calls:
    """Each call happens whole or not at all."""

    def __init__(self, chats: Chats, shelf: Shelf, rates: Rates) -> None:
        self.chats = chats
        self.truth = chats.truth
        self.clock = chats.clock
        self.shelf = shelf
        self.rates = rates
        # Servers of an older version do not know these methods.
        self.rich = True
        self.drafts = True
        # Whether drafts can be stopped: a server of an older version passes over what it does not know, or refuses it.
        self.stops: Stops = "known"
        # Drafts that a person has stopped, by chat and id; nothing more is shown of them.
        self.stopped: set[tuple[str, str]] = set()
        # By the id of the callback query.
        self.presses: dict[str, Press] = {}
        self._uploads: dict[str, Upload] = {}
        self._methods: dict[str, Callable[[Bot, dict[str, str]], Any]] = {
            "getMe": self._get_me,
            "sendMessage": self._send_message,
            "sendRichMessage": self._send_rich_message,
            "editMessageText": self._edit_message_text,
            "editMessageReplyMarkup": self._edit_message_reply_markup,
            "deleteMessage": self._delete_message,
            "sendChatAction": self._send_chat_action,
            "setMessageReaction": self._set_message_reaction,
            "sendMessageDraft": self._send_message_draft,
            "sendRichMessageDraft": self._send_rich_message_draft,
            "setMyCommands": self._set_my_commands,
            "getMyCommands": self._get_my_commands,
            "answerCallbackQuery": self._answer_callback_query,
            "sendDocument": self._send_document,
            "sendPhoto": self._send_photo,
            "sendVoice": self._send_voice,
            "getFile": self._get_file,
        }

    @property
    def names(self) -> list[str]:
        hidden = set()
        if not self.rich:
            hidden |= {"sendRichMessage", "sendRichMessageDraft"}
        if not self.drafts:
            hidden |= {"sendMessageDraft", "sendRichMessageDraft"}
        return [name for name in self._methods if name not in hidden]

    def perform(self, method: str, bot: Bot, params: dict[str, str], uploads: dict[str, Upload]) -> Any:
        self._uploads = uploads
        return self._methods[method](bot, params)

    def _get_me(self, bot: Bot, params: dict[str, str]) -> Any:
        return me_of(bot)

    # Messages.

    def _send_message(self, bot: Bot, params: dict[str, str]) -> Any:
        if not params.get("text"):
            raise bad("message text is empty")
        marked = parse(params["text"], params.get("parse_mode", ""), params.get("entities", ""))
        return self._post(bot, params, lambda: fit(marked))

    def _send_rich_message(self, bot: Bot, params: dict[str, str]) -> Any:
        rich, source = read_rich(params.get("rich_message", ""))
        return self._post(bot, params, lambda: Marked(source, ()), kind="rich", rich=rich)

    def _send_document(self, bot: Bot, params: dict[str, str]) -> Any:
        return self._send_file(bot, params, "document")

    def _send_photo(self, bot: Bot, params: dict[str, str]) -> Any:
        return self._send_file(bot, params, "photo")

    def _send_voice(self, bot: Bot, params: dict[str, str]) -> Any:
        return self._send_file(bot, params, "voice")

    def _send_file(self, bot: Bot, params: dict[str, str], field: str) -> Any:
        marked = parse(params.get("caption", ""), params.get("parse_mode", ""), params.get("caption_entities", ""))
        kind, file = self.shelf.take(field, params, self._uploads)

        def caption() -> Marked:
            return fit(marked, limit=CAPTION_LIMIT, too_long="message caption is too long", may_be_empty=True)

        return self._post(bot, params, caption, kind=kind, files=(file,))

    def _post(
        self,
        bot: Bot,
        params: dict[str, str],
        text: Callable[[], Marked],
        *,
        kind: str = "text",
        rich: str = "",
        files: tuple[File, ...] = (),
    ) -> Any:
        rows = read_keyboard(params.get("reply_markup", ""))
        chat = self.chats.enter(bot, params)
        replied, quote = self.chats.reply(chat, params)
        thread = self.chats.thread(chat, params)
        if replied is not None and not thread:
            # An answer goes where its question is.
            thread = int(replied.thread or 0)
        marked = text()
        self.rates.admit(bot.account, chat)
        number = self.chats.number(chat)
        place = str(thread or "")
        message = Message(
            id=f"{chat.id}:{number}",
            message_id=number,
            account=bot.account,
            chat=chat.name,
            thread=place,
            text=marked.text,
            entities=marked.entities,
            at=self.clock.wall(),
            order=len(self.truth.effects) + 1,
            kind=kind,
            rich=rich,
            files=files,
            rows=rows,
            reply_to=replied.id if replied else "",
            quote=quote,
            previews=kind == "text" and _unfolds(params),
        )
        self.chats.keep(chat, message)
        chat.last_bot = bot.account
        self.truth.drafts.pop((chat.key, place), None)
        self.truth.tell("post", message)
        return message_of(self.chats, chat, message)

    def _edit_message_text(self, bot: Bot, params: dict[str, str]) -> Any:
        rich = source = ""
        if self.rich and params.get("rich_message"):
            rich, source = read_rich(params["rich_message"])
        elif not params.get("text"):
            raise bad("message text is empty")
        marked = parse(params.get("text", ""), params.get("parse_mode", ""), params.get("entities", ""))
        rows = read_keyboard(params.get("reply_markup", ""))
        chat, message = self._own(bot, params)
        if message.kind not in ("text", "rich"):
            raise bad("there is no text in the message to edit")
        marked = Marked(source, ()) if rich else fit(marked, too_long="MESSAGE_TOO_LONG")
        self.rates.admit(bot.account, chat)
        if (message.text, message.entities, message.rich, message.rows) == (*marked, rich, rows):
            raise bad(NOT_MODIFIED)
        kind = "rich" if rich else "text"
        # An edit that says nothing about them turns them on again.
        previews = not rich and _unfolds(params)
        edited = replace(message, **marked._asdict(), kind=kind, rich=rich, rows=rows, previews=previews)
        return self._edit("edit", chat, edited)

    def _edit_message_reply_markup(self, bot: Bot, params: dict[str, str]) -> Any:
        rows = read_keyboard(params.get("reply_markup", ""))
        chat, message = self._own(bot, params)
        self.rates.admit(bot.account, chat)
        if message.rows == rows:
            raise bad(NOT_MODIFIED)
        return self._edit("markup", chat, replace(message, rows=rows))

    def _edit(self, act: str, chat: Chat, message: Message) -> Any:
        message = replace(message, edited=message.edited + 1, edited_at=self.clock.wall())
        self.chats.keep(chat, message)
        self.truth.tell(act, message)
        return message_of(self.chats, chat, message)

    def _message(self, bot: Bot, params: dict[str, str], what: str) -> tuple[Chat, Message]:
        chat = self.chats.enter(bot, params)
        message = self.chats.message(chat, whole(params, "message_id"))
        if message is None:
            raise bad(f"{what} not found")
        return chat, message

    def _own(self, bot: Bot, params: dict[str, str]) -> tuple[Chat, Message]:
        chat, message = self._message(bot, params, "message to edit")
        if message.sender or message.account != bot.account or message.kind == "service":
            raise bad("message can't be edited")
        return chat, message

    def _delete_message(self, bot: Bot, params: dict[str, str]) -> Any:
        chat, message = self._message(bot, params, "message to delete")
        is_own = not message.sender and message.account == bot.account
        may = is_own or chat.kind == "private" or chat.bots[bot.account] == "administrator"
        if not may or self.clock.wall() - message.at > DELETE_SECONDS:
            raise bad("message can't be deleted")
        del self.truth.messages[chat.key, message.message_id]
        self.truth.tell("delete", replace(message, account=bot.account))
        return True

    # Signs of life.

    def _send_chat_action(self, bot: Bot, params: dict[str, str]) -> Any:
        action = params.get("action", "").lower()
        if action not in ACTIONS:
            raise bad("wrong parameter action in request")
        chat = self.chats.enter(bot, params)
        thread = self.chats.thread(chat, params, may_be_general=True)
        self.truth.log("typing", bot.account, chat=chat.name, thread=str(thread or ""), text=action)
        return True

    def _set_message_reaction(self, bot: Bot, params: dict[str, str]) -> Any:
        emoji = read_reaction(params.get("reaction", ""))
        chat, message = self._message(bot, params, "message to react")
        if emoji and (emoji not in REACTIONS or not chat.reactions):
            raise bad("REACTION_INVALID")
        message = self.chats.keep(chat, replace(message, reaction=emoji))
        self.truth.log("react", bot.account, chat=chat.name, thread=message.thread, message=message.id, text=emoji)
        return True

    def _send_message_draft(self, bot: Bot, params: dict[str, str]) -> Any:
        marked = parse(params.get("text", ""), params.get("parse_mode", ""), params.get("entities", ""))
        return self._draft(bot, params, lambda: fit(marked) if marked.text else marked)

    def _send_rich_message_draft(self, bot: Bot, params: dict[str, str]) -> Any:
        rich, source = read_rich(params.get("rich_message", ""), is_draft=True)
        return self._draft(bot, params, lambda: Marked(source, ()), rich)

    def _draft(self, bot: Bot, params: dict[str, str], text: Callable[[], Marked], rich: str = "") -> Any:
        draft_id = whole(params, "draft_id")
        if not draft_id:
            raise bad("draft_id must be non-zero")
        chat = self.chats.enter(bot, params)
        if chat.kind != "private" or not chat.drafts:
            raise bad("TEXTDRAFT_PEER_INVALID")
        place = str(self.chats.thread(chat, params) or "")
        marked = text()
        can_stop, stays = self._stopping(params)
        self.rates.admit(bot.account, chat)
        if (chat.name, str(draft_id)) in self.stopped:
            return True
        self.truth.drafts[chat.key, place] = Draft(
            account=bot.account,
            chat=chat.name,
            id=str(draft_id),
            text=marked.text,
            entities=marked.entities,
            rich=rich,
            until=self.clock.now() + DRAFT_SECONDS,
            can_stop=can_stop,
            stays=stays,
        )
        self.truth.log(
            "draft",
            bot.account,
            chat=chat.name,
            thread=place,
            message=str(draft_id),
            text=marked.text,
            entities=marked.entities,
            rich=rich,
        )
        return True

    def _stopping(self, params: dict[str, str]) -> tuple[bool, bool]:
        given = [name for name in ("can_stop", "keep_on_stop") if name in params]
        if given and self.stops == "refused":
            raise bad(f'unexpected parameter "{given[0]}"')
        if self.stops != "known":
            return False, False
        return truth_of(params.get("can_stop", "")), truth_of(params.get("keep_on_stop", ""))

    # The rest.

    def _set_my_commands(self, bot: Bot, params: dict[str, str]) -> Any:
        commands = read_commands(params.get("commands", ""))
        scope = read_scope(params.get("scope", ""))
        bot.menus[scope, params.get("language_code", "")] = commands
        self.truth.log("menu", bot.account, text=" ".join(name for name, _ in commands))
        return True

    def _get_my_commands(self, bot: Bot, params: dict[str, str]) -> Any:
        scope = read_scope(params.get("scope", ""))
        menu = bot.menus.get((scope, params.get("language_code", "")), ())
        return [{"command": name, "description": description} for name, description in menu]

    def _answer_callback_query(self, bot: Bot, params: dict[str, str]) -> Any:
        id = params.get("callback_query_id", "")
        press = self.presses.get(id)
        is_late = press is None or press.account != bot.account or press.until < self.clock.now()
        if press is None or is_late or press.answer is not None:
            raise bad(QUERY_INVALID)
        if len(params.get("text", "")) > 200:
            raise bad("MESSAGE_TOO_LONG")
        press.answer = params.get("text", "")
        self.truth.log("answer", bot.account, message=id, text=press.answer)
        return True

    def _get_file(self, bot: Bot, params: dict[str, str]) -> Any:
        file, path = self.shelf.find_path(params.get("file_id", ""))
        return file_of(file) | {"file_path": path}


def _unfolds(params: dict[str, str]) -> bool:
    options = json.loads(params.get("link_preview_options") or "{}")
    if not isinstance(options, dict):
        raise bad("can't parse link preview options JSON object")
    return not options.get("is_disabled", False)

"""Telegram's chats: bots, people, groups, forums and their topics, and who may enter where."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.simulators.telegram.texts import Refusal, bad, truth_of, whole
from tests.simulators.telegram.truth import Message, Truth
from tests.simulators.telegram.updates import Queue
from tidings.core.clock import Clock

# The person who speaks unless the test says who.
PERSON = 7
SUPERGROUPS_BELOW = -1_000_000_000_000
# The first topic of a forum; a bot that names it is refused.
GENERAL = 1

Id = int | str
Kind = Literal["private", "group", "supergroup"]


@dataclass(slots=True)
class Bot:
    account: str
    id: int
    token: str
    username: str
    queue: Queue
    # Privacy mode is off.
    reads_all: bool = False
    # Private chats may have topics.
    has_topics: bool = False
    # By (scope as JSON, language).
    menus: dict[tuple[str, str], tuple[tuple[str, str], ...]] = field(default_factory=dict)
    # Private chats of one account share their message ids.
    last_message: int = 0
    may_set_webhook_at: float = 0.0


@dataclass(slots=True)
class Topic:
    name: str
    is_open: bool = True


@dataclass(slots=True)
class Chat:
    id: int
    # Unlike the id it is another for each bot that talks to the same person.
    key: str
    kind: Kind
    title: str
    bots: dict[str, str] = field(default_factory=dict)
    is_forum: bool = False
    topics: dict[int, Topic] = field(default_factory=dict)
    reactions: bool = True
    drafts: bool = True
    moved_to: int = 0
    last_message: int = 0
    # The bot that wrote last; commands without a name go to it.
    last_bot: str = ""

    @property
    def name(self) -> str:
        return str(self.id)


class Chats:
    """Who exists, and the doors with the platform's own words on them."""

    def __init__(self, truth: Truth, clock: Clock) -> None:
        self.truth = truth
        self.clock = clock
        self.bots: dict[str, Bot] = {}
        self.chats: dict[str, Chat] = {}
        self.skew = 0.0
        # First and last name, and name in the network.
        self.people: dict[int, tuple[str, str, str]] = {}

    def bot(self, account: str) -> Bot:
        return self.bots[account]

    @staticmethod
    def kind_of(id: int) -> Kind:
        if id > 0:
            return "private"
        return "supergroup" if id < SUPERGROUPS_BELOW else "group"

    def _key(self, account: str, id: int) -> str:
        return f"{account}/{id}" if id > 0 else str(id)

    def find(self, account: str, id: int) -> Chat | None:
        chat = self.chats.get(self._key(account, id))
        return chat if chat is not None and account in chat.bots else None

    def get(self, account: str, id: Id) -> Chat:
        chat = self.find(account, int(id))
        if chat is None:
            raise LookupError(f"{account} knows no chat {id}")
        return chat

    def open(self, account: str, id: Id, *, title: str = "") -> Chat:
        """The chat, with this bot in it."""
        number = int(id)
        key = self._key(account, number)
        if key not in self.chats:
            chat = self.chats[key] = Chat(number, key, self.kind_of(number), title or f"Chat {abs(number)}")
            # The first message of a supergroup is its making, and General has that id.
            chat.last_message = GENERAL if chat.kind == "supergroup" else 0
        self.chats[key].bots.setdefault(account, "member")
        return self.chats[key]

    def open_topic(self, chat: Chat, thread: int, name: str = "") -> None:
        if chat.kind == "group":
            raise ValueError("a basic group has no topics: make it a supergroup")
        chat.topics.setdefault(thread, Topic(name or f"Topic {thread}"))
        if chat.kind == "private":
            for account in chat.bots:
                self.bots[account].has_topics = True
        else:
            chat.is_forum = True

    def number(self, chat: Chat) -> int:
        """The id of the next message there."""
        owner = self._owner(chat)
        owner.last_message += 1
        return owner.last_message

    def skip_to(self, chat: Chat, number: int) -> None:
        """Ids up to this one are in use."""
        owner = self._owner(chat)
        owner.last_message = max(owner.last_message, number)

    def _owner(self, chat: Chat) -> Bot | Chat:
        return self.bots[next(iter(chat.bots))] if chat.kind == "private" else chat

    def message(self, chat: Chat, message_id: int) -> Message | None:
        return self.truth.messages.get((chat.key, message_id))

    def keep(self, chat: Chat, message: Message) -> Message:
        self.truth.messages[chat.key, message.message_id] = message
        return message

    # Doors.

    def enter(self, bot: Bot, params: dict[str, str]) -> Chat:
        """The chat a call names, if the bot may write there."""
        named = params.get("chat_id", "").strip()
        if not named:
            raise bad("chat_id is empty")
        chat = self.find(bot.account, whole(params, "chat_id"))
        if chat is None:
            raise bad("chat not found")
        if chat.moved_to:
            raise Refusal(
                400, "Bad Request: group chat was upgraded to a supergroup chat", migrate_to_chat_id=chat.moved_to
            )
        match chat.bots[bot.account]:
            case "blocked":
                raise Refusal(403, "Forbidden: bot was blocked by the user")
            case "kicked":
                raise Refusal(403, f"Forbidden: bot was kicked from the {chat.kind} chat")
            case "left":
                raise Refusal(403, f"Forbidden: bot is not a member of the {chat.kind} chat")
            case _:
                return chat

    def thread(self, chat: Chat, params: dict[str, str], *, may_be_general: bool = False) -> int:
        """The topic a call names; 0 is General, or no topic at all."""
        thread = whole(params, "message_thread_id")
        if thread <= 0:
            return 0
        if chat.is_forum and thread == GENERAL and may_be_general:
            return 0
        if thread not in chat.topics:
            raise bad("message thread not found")
        if not chat.topics[thread].is_open:
            raise bad("TOPIC_CLOSED")
        return thread

    def reply(self, chat: Chat, params: dict[str, str]) -> tuple[Message | None, str]:
        """The message that is answered, and the words quoted from it."""
        wanted = _reply_parameters(params)
        number = wanted.get("message_id")
        if not isinstance(number, int) or number <= 0:
            return None, ""
        message = self.message(chat, number)
        if message is None:
            if truth_of(wanted.get("allow_sending_without_reply", "")):
                return None, ""
            raise bad("message to be replied not found")
        quote = str(wanted.get("quote") or "")
        if quote and quote not in message.text:
            raise bad("QUOTE_TEXT_INVALID")
        return message, quote


def _reply_parameters(params: dict[str, str]) -> dict[str, Any]:
    if not params.get("reply_parameters"):
        return {
            "message_id": whole(params, "reply_to_message_id"),
            "allow_sending_without_reply": params.get("allow_sending_without_reply", ""),
        }
    try:
        value = json.loads(params["reply_parameters"])
    except ValueError:
        raise bad("can't parse reply parameters JSON object") from None
    if not isinstance(value, dict):
        raise bad("object expected as reply parameters")
    return value

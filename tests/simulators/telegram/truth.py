"""The ground truth of the Telegram simulator: what really happened, kept where the bot cannot reach it."""

from __future__ import annotations

from tests.simulators.shared import truth
from tidings.core.clock import Clock
from tidings.core.types import Value

# A draft is gone after this, unless it is shown again.
DRAFT_SECONDS = 30.0


class Entity(Value, frozen=True, kw_only=True):
    """Offset and length count UTF-16 units."""

    type: str
    offset: int
    length: int
    url: str = ""
    language: str = ""
    user: int = 0
    custom_emoji: str = ""


class Button(Value, frozen=True, kw_only=True):
    # What a press sends back; empty where the button is a link.
    id: str
    label: str
    url: str = ""


class File(Value, frozen=True, kw_only=True):
    id: str
    name: str
    data: bytes


class Message(Value, frozen=True, kw_only=True):
    """One message as it stands now; `chat` and `thread` are Telegram's numbers as text."""

    # "CHAT:MESSAGE_ID"; empty for a draft, which has no identity.
    id: str
    message_id: int
    # The bot that wrote it, or whose private chat it is in.
    account: str
    chat: str
    # Empty for General and where there are no topics.
    thread: str
    text: str
    at: float
    order: int
    # text, rich, document, photo, voice or service.
    kind: str = "text"
    entities: tuple[Entity, ...] = ()
    # "markdown" or "html" for a rich message; its source is in `text`.
    rich: str = ""
    files: tuple[File, ...] = ()
    rows: tuple[tuple[Button, ...], ...] = ()
    # The name of the message it answers.
    reply_to: str = ""
    quote: str = ""
    album: str = ""
    reaction: str = ""
    # Whether an address in the text would unfold; anybody who can make the bot say one could have it fetched.
    previews: bool = True
    edited: int = 0
    edited_at: float = 0.0
    # The draft's id.
    key: str = ""
    streaming: bool = False
    # Empty for what the bot wrote.
    sender: str = ""
    # The JSON of a service message.
    service: str = ""

    @property
    def choices(self) -> tuple[Button, ...]:
        return tuple(button for row in self.rows for button in row)


class Effect(truth.Effect, frozen=True, kw_only=True):
    """An act is post, edit, markup, delete, react, typing, draft, answer, menu, erase or confirm.

    `message` is the message's name, the draft's id, the callback query's id, or the update's id for a confirmation.
    """

    chat: str = ""
    thread: str = ""
    entities: tuple[Entity, ...] = ()
    rich: str = ""
    # For a confirmation: the name of what was confirmed.
    key: str = ""


class Call(truth.Call, frozen=True, kw_only=True):
    params: dict[str, str]
    # Names of the files that came along, by field.
    files: dict[str, str]
    # The JSON of the result, or the description of the refusal.
    result: str = ""

    @property
    def chat(self) -> str:
        return self.params.get("chat_id", "")

    @property
    def thread(self) -> str:
        return self.params.get("message_thread_id", "")

    @property
    def text(self) -> str:
        return self.params.get("text", "") or self.params.get("caption", "")


class Draft(Value, frozen=True, kw_only=True):
    account: str
    chat: str
    id: str
    text: str
    entities: tuple[Entity, ...]
    rich: str
    # By the steady clock.
    until: float
    # Whether there is a button below it that stops it, and whether its text stays for a while when it is pressed.
    can_stop: bool = False
    stays: bool = False


class Truth(truth.Truth[Effect, Call, Message]):
    """A message's present state is kept beside the log."""

    effect, call = Effect, Call

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        # (account, name of an update), in order of confirmation.
        self.confirmed: list[tuple[str, str]] = []
        # By the chat's key and the message's id.
        self.messages: dict[tuple[str, int], Message] = {}
        # By the chat's key and the thread.
        self.drafts: dict[tuple[str, str], Draft] = {}
        self.conflicts = 0

    def tell(self, act: str, message: Message) -> None:
        """Logs what was done to a message."""
        self.log(
            act,
            message.account,
            chat=message.chat,
            thread=message.thread,
            message=message.id,
            text=message.text,
            entities=message.entities,
            rich=message.rich,
        )

    def sent(self, chat: str | None = None, thread: str | None = None) -> tuple[Message, ...]:
        """What bots wrote and nobody erased, oldest first."""
        return tuple(
            message
            for message in self.messages.values()
            if not message.sender and chat in (None, message.chat) and thread in (None, message.thread)
        )

    def visible(self, chat: str, thread: str) -> tuple[Message, ...]:
        drafts = [
            Message(
                id="",
                message_id=0,
                account=draft.account,
                chat=chat,
                thread=thread,
                text=draft.text,
                entities=draft.entities,
                rich=draft.rich,
                key=draft.id,
                at=self.clock.wall(),
                order=len(self.effects),
                streaming=True,
            )
            for (_, place), draft in self.drafts.items()
            if (draft.chat, place) == (chat, thread) and draft.until > self.clock.now()
        ]
        return (*self.sent(chat, thread), *drafts)

"""The values that every part of the gateway uses: conversations, targets, inbound messages and deliveries."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from urllib.parse import quote, unquote

import msgspec

from tidings.core.busy import Busy
from tidings.core.errors import Unknown


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """A frozen value that can be stored: `encode` and `decode` are exact inverses."""


def encode(value: msgspec.Struct) -> bytes:
    return msgspec.json.encode(value)


def make_storable(text: str) -> str:
    """Joins surrogate pairs, replaces lone surrogates and drops NUL: the store accepts none of them."""
    text = text.replace("\0", "")
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _escape(name: str) -> str:
    return name if name.isalnum() and name.isascii() else quote(name, safe="@/#+ -._~")


class Conversation(Value, frozen=True, kw_only=True):
    """Where people and a bot talk: each conversation has its own memory, and its messages are handled in order."""

    adapter: str
    account: str
    chat: str
    thread: str = ""
    # Empty, unless each member of a group has a separate conversation with the bot.
    member: str = ""

    @property
    def id(self) -> str:
        parts = (self.adapter, self.account, self.chat, self.thread, self.member)
        return ":".join(_escape(part) for part in parts).rstrip(":")

    @classmethod
    def of(cls, id: str) -> Conversation:
        """The conversation that has this id."""
        adapter, account, chat, thread, member, *_ = (*map(unquote, id.split(":")), "", "", "", "", "")
        return cls(adapter=adapter, account=account, chat=chat, thread=thread, member=member)


# A thread whose name begins like this serves one request and is never continued.
ONCE = "once-"


def is_passing(conversation: str) -> bool:
    """Tells whether a conversation is never continued because it serves one request, task, schedule or card."""
    parts = conversation.split(":")
    made_for_work = parts[0] in (Origin.TASK, Origin.SCHEDULE, Origin.CARD)
    return made_for_work or (len(parts) > 3 and parts[3].startswith(ONCE))


class Audience(StrEnum):
    PRIVATE = "private"
    GROUP = "group"
    # One person inside a group, such as an ephemeral answer.
    ONE = "one"


class Target(Value, frozen=True, kw_only=True):
    """Where a delivery goes; the target is fixed when the inbound message is accepted."""

    adapter: str
    account: str = "main"
    chat: str = ""
    thread: str = ""
    reply_to: str = ""
    audience: Audience = Audience.PRIVATE
    # The server (guild) or workspace that the chat belongs to; empty where the platform has none.
    server: str = ""
    # Whether only some people of the chat see this thread.
    secluded: bool = False
    # What the platform needs for a reply; core never reads or logs a handle, and a handle may expire.
    handle: str = ""

    @property
    def lane(self) -> str:
        """The name of the queue for this target: deliveries in one lane are sent in the order of their creation."""
        return ":".join(_escape(part) for part in (self.adapter, self.account, self.chat, self.thread)).rstrip(":")

    @property
    def at(self) -> str:
        """The adapter and account that send to this target, as `adapter@account`."""
        return f"{self.adapter}@{self.account}"

    def lasting(self) -> Target:
        """This target without the parts that expire: the handle, and the message to reply to."""
        return msgspec.structs.replace(self, reply_to="", handle="")

    def __str__(self) -> str:
        adapter = self.adapter if self.account == "main" else f"{self.adapter}@{self.account}"
        return ":".join(part for part in (adapter, _escape(self.chat), _escape(self.thread)) if part)


def parse_target(text: str) -> Target:
    """Reads `adapter[@account][:chat[:thread]]`."""
    adapter, *rest = text.strip().split(":")
    name, _, account = adapter.partition("@")
    if not name or len(rest) > 2:
        raise Unknown(f"{text!r} is not a target; write platform:CHAT, platform:CHAT:THREAD or console")
    chat, thread = ([unquote(part) for part in rest] + ["", ""])[:2]
    return Target(adapter=name, account=account or "main", chat=chat, thread=thread)


class Kind(StrEnum):
    MESSAGE = "message"
    EDITED = "edited"
    DELETED = "deleted"
    PRESSED = "pressed"
    COMMANDED = "commanded"


class Origin(StrEnum):
    PERSON = "person"
    TASK = "task"
    SCHEDULE = "schedule"
    CARD = "card"


class Sender(Value, frozen=True, kw_only=True):
    """Who sent a message: `id` never changes on its platform, `name` is only for display."""

    id: str
    name: str = ""
    is_bot: bool = False
    # The owner, who sits at this machine.
    trusted: bool = False
    # The id of the key under which a client named this sender; the sender may never do more than the key's holder.
    key: str = ""


class Attachment(Value, frozen=True, kw_only=True):
    """A file that came with a message; the adapter fetches the file by its `handle`."""

    handle: str
    name: str = ""
    media_type: str = ""
    size: int = 0


class Quoted(Value, frozen=True, kw_only=True):
    text: str
    sender: str = ""


class Given(Value, frozen=True, kw_only=True):
    """History and instructions that a client sent with its request; the client's history replaces the stored one."""

    history: tuple[Entry, ...] | None = None
    instructions: str = ""


class Asker(Value, frozen=True, kw_only=True):
    """A person who asked for work that starts or ends later, and the chat where that person asked."""

    conversation: Conversation
    target: Target
    sender: Sender
    # The conversation of the chat itself, where the person asked in a continued one, and where that one has its chat.
    began: Conversation | None = None
    place: Target | None = None


def asker(
    conversation: Conversation,
    target: Target,
    sender: Sender,
    began: Conversation | None = None,
    place: Target | None = None,
) -> Asker:
    return Asker(conversation=conversation, target=target.lasting(), sender=sender, began=began, place=place)


class Errand(Value, frozen=True, kw_only=True):
    """The task, firing or card that a run works for when no person waits; its sender reports the run's end."""

    # The task, the firing or the card.
    id: str
    # How many errands lie between this one and a person.
    depth: int = 1
    # The tools that this errand may use; None means all tools of the bot.
    tools: tuple[str, ...] | None = None
    # The model requests that this errand may make; 0 means the bot's own limit.
    requests: int = 0
    # The name of its folder below the workspaces; empty means a folder of its own.
    workspace: str = ""
    # The person who first asked, however often the work was passed on; None means the owner (command line or key).
    asker: Asker | None = None
    # The run that waits for the end of this one; empty if none does.
    caller: str = ""


class Inbound(Value, frozen=True, kw_only=True):
    """One event from a platform.

    `key` identifies the message, not the event that announced it. Edited, Deleted and Pressed events have keys of
    their own and name the message in `about`; a stop of one answer names its view in `about`, and a message with
    a mode of its own (`busy`) may name the running run that it is for.
    """

    key: str
    conversation: Conversation
    target: Target
    sender: Sender
    # The conversation of the chat itself, where the chat goes on with another one.
    began: Conversation | None = None
    # Where that other conversation has its own chat, whose rules choose the bot.
    place: Target | None = None
    kind: Kind = Kind.MESSAGE
    origin: Origin = Origin.PERSON
    text: str = ""
    attachments: tuple[Attachment, ...] = ()
    quoted: Quoted | None = None
    # The author of a forwarded text.
    forwarded: str = ""
    # In a group: was the bot mentioned, replied to or commanded?
    addressed: bool = True
    # The bot hears everything in this group or listens to this sender, and nothing else makes this message one to it:
    # the bot may stay silent.
    overheard: bool = False
    # When the message was sent, by the platform's clock, where messages may overtake each other; otherwise 0.
    said: float = 0.0
    # Messages of one album share a group and become one run.
    group: str = ""
    # The message is complete as it came: it does not wait for more of its sender.
    whole: bool = False
    # The sender waits for a run of this message alone: it never joins another one.
    alone: bool = False
    # What the sender wants for this message while a run goes on; empty means what the chat or the settings say.
    busy: Busy | None = None
    # The messages that this one was put together from, if there are several; its text and files hold all of them.
    parts: tuple[Inbound, ...] = ()
    # The bot that the sender asked for by name; empty means the default.
    bot: str = ""
    given: Given | None = None
    follows: str = ""
    # A known key with another digest is refused as a conflict.
    digest: str = ""
    # The run ends when its client disconnects.
    attended: bool = False
    # The client waits for the whole answer in one piece, so a question to people must be answered soon.
    impatient: bool = False
    # Whether everything about this message is erased once its run is over.
    forget: bool = False
    about: str = ""
    command: str = ""
    choice: str = ""
    errand: Errand | None = None

    @property
    def asker(self) -> Asker | None:
        """The person this work is for: the sender, or the person behind an errand."""
        if self.errand:
            return self.errand.asker
        return asker(self.conversation, self.target, self.sender, self.began, self.place)

    @property
    def argument(self) -> str:
        """The text after the command's name, on the same line or below."""
        return " ".join(self.text.split(maxsplit=1)[1:]).strip()

    @property
    def in_full(self) -> str:
        """The text together with the message it replies to and the names of its attachments, each labelled."""
        lines = [f"(Forwarded from {self.forwarded}:)\n{self.text}" if self.forwarded else self.text]
        if self.quoted:
            who = f" to {self.quoted.sender}" if self.quoted.sender else ""
            lines.insert(0, f"(In reply{who}: “{self.quoted.text}”)")
        if self.attachments:
            lines.append(f"(Attached: {', '.join(file.name or 'a file' for file in self.attachments)})")
        return "\n".join(filter(None, lines))


class Author(StrEnum):
    PERSON = "person"
    BOT = "bot"
    NOTICE = "notice"


class Entry(Value, frozen=True, kw_only=True):
    """One line of a conversation's history."""

    author: Author
    text: str
    run: str = ""
    at: float = 0.0
    # For a notice: what caused it, in words.
    source: str = ""


class Pace(Value, frozen=True, kw_only=True):
    """A rate budget: one call every `seconds` on average, `burst` at once; calls with the same key share a budget."""

    key: str
    seconds: float
    burst: int


class SendProof(Value, frozen=True, kw_only=True):
    """How a doubtful send can be settled: by repeating its key, or else by reading the chat back."""

    # For how many seconds a repeated key is harmless; 0 means that the platform has no keys.
    keyed_for: float
    readback: bool


class Capabilities(Value, frozen=True, kw_only=True):
    """What a platform can do at one target; there are no defaults, so every adapter answers every question."""

    # Can a message be sent after the turn has ended?
    async_delivery: bool
    # Can a growing answer be shown in place?
    streaming_edits: bool
    send_proof: SendProof
    threads: bool
    reactions: bool
    buttons: bool
    files: bool
    typing: bool
    # Is the bot shown messages in a group that do not address it, as far as is known?
    hears_all: bool
    # Every budget that one message to this target uses.
    pace: tuple[Pace, ...]
    # Budgets that opening, growing or finishing a view uses in addition.
    show_pace: tuple[Pace, ...]
    # Budgets that a signal uses instead; in a budget shared with messages, a signal leaves room for one message.
    signal_pace: tuple[Pace, ...]


class File(Value, frozen=True, kw_only=True):
    path: str
    name: str


class Choice(Value, frozen=True, kw_only=True):
    id: str
    label: str


class Body(Value, frozen=True, kw_only=True):
    text: str = ""
    files: tuple[File, ...] = ()
    choices: tuple[Choice, ...] = ()


class View(Value, frozen=True, kw_only=True):
    """What a person sees of a run that is not finished."""

    # The adapter's own name for the view: a message id, a draft id, a stream.
    handle: str
    # Finishing an anchored view twice is harmless.
    anchored: bool


class PartKind(StrEnum):
    PLAIN = "plain"
    # Opens a view, which may be a temporary draft.
    OPENING = "opening"
    # Opens a view that must be a message, so that finishing it can be repeated.
    ANCHOR = "anchor"


class Part(Value, frozen=True, kw_only=True):
    """One message of a delivery, as handed to `Adapter.send`."""

    # A key belongs to one body: a changed body gets a new key.
    key: str
    kind: PartKind
    target: Target
    body: Body
    position: int
    count: int
    # The view to finish in place; None means to send a new message.
    view: View | None = None
    # Seconds since the first attempt: how far to read back, by the platform's clock.
    age: float = 0.0


class Receipt(Value, frozen=True, kw_only=True):
    """Proof that the platform accepted a message; `ids` are the platform's own message ids.

    Where `readback` is declared there is exactly one id, and no other message of the account has that id.
    """

    ids: tuple[str, ...]
    view: View | None = None
    # The chat that the message landed in, if its id differs from the target's.
    chat: str = ""
    # The thread that a reply to this message opens; empty where replies stay in the same conversation.
    opens: str = ""


class Absent(Value, frozen=True, kw_only=True):
    """The message was looked for by reading back, and is not there."""


class Unreadable(Value, frozen=True, kw_only=True):
    """The platform could not be read back, so the send stays in doubt."""

    reason: str


class Signal(StrEnum):
    """What a person is shown while they wait: typing, or one sign on their message, which replaces the one before."""

    TYPING = "typing"
    # The message was accepted, and its answer is not there at once.
    SEEN = "seen"
    # The message waits for its turn.
    WAITING = "waiting"
    # The run of the message is at work.
    WORKING = "working"
    # The answer has arrived.
    DONE = "done"
    FAILED = "failed"
    # There will be no answer, on purpose: the sign is taken away.
    NONE = "none"


class Stored(Value, frozen=True, kw_only=True):
    run: str


class Duplicate(Value, frozen=True, kw_only=True):
    run: str


class Ignored(Value, frozen=True, kw_only=True):
    pass


class Refusal(StrEnum):
    """Why a message was refused; an adapter may answer each reason in its platform's own way."""

    NOT_ADMITTED = "not admitted"
    # The sender is known, but their role does not permit this.
    NOT_PERMITTED = "not permitted"
    BUSY = "busy"
    TOO_LONG = "too long"
    # The message is for a run that has ended.
    ENDED = "the run has ended"
    CONFLICT = "this key was used for another message"
    # The sender, the chat, the bot or the gateway has used up what it may use.
    ALLOWANCE = "allowance"


class Refused(Value, frozen=True, kw_only=True):
    reason: Refusal
    # Whether the sender gets an answer in a delivery to the target, so that the adapter need not give one.
    told: bool = False
    # For an allowance: what is used up and when it goes on, and the seconds until then.
    words: str = ""
    seconds: float = 0.0


Admission = Stored | Duplicate | Ignored | Refused


class Note(Value, frozen=True, kw_only=True):
    """An entry for the adapter's notebook, stored in the same transaction as the message."""

    name: str
    value: str


class DeliveryState(StrEnum):
    WAITING = "waiting"
    HELD = "held"
    DOUBTFUL = "doubtful"
    DELIVERED = "delivered"
    DEAD = "dead"


class Delivery(Value, frozen=True, kw_only=True):
    """A delivery as the desk reports it: its target, state and receipts."""

    id: str
    target: Target
    state: DeliveryState
    reason: str
    cause: str
    receipts: tuple[Receipt, ...]


def workspace_name(conversation: Conversation) -> Path:
    """The name of a conversation's folder: unique, and safe on every file system."""
    return workspace_of(conversation.id)


def workspace_of(conversation: str) -> Path:
    """The same by the conversation's id."""
    return Path(quote(conversation, safe="-_@.").replace(".", "%2E"))

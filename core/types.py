"""The nouns that every part speaks: conversations, targets, what comes in and what we owe."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from urllib.parse import quote, unquote

import msgspec

from tidings.core.errors import Unknown


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """A frozen value that can be stored: `encode` and `decode` are exact inverses."""


def encode(value: msgspec.Struct) -> bytes:
    return msgspec.json.encode(value)


def mend(text: str) -> str:
    """Joins surrogates that belong together, marks those that are alone and drops NUL: no store could take them."""
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
    """The unit of memory and order."""

    adapter: str
    account: str
    chat: str
    thread: str = ""
    # Empty unless each member of a group has a memory of their own.
    member: str = ""

    @property
    def id(self) -> str:
        parts = (self.adapter, self.account, self.chat, self.thread, self.member)
        return ":".join(_escape(part) for part in parts).rstrip(":")


# The prefix of a thread that is used once.
ONCE = "once-"


def is_passing(conversation: str) -> bool:
    """Is this a conversation that is never continued: of one request, a task, a schedule or a card?"""
    parts = conversation.split(":")
    made_for_work = parts[0] in (Origin.TASK, Origin.SCHEDULE, Origin.CARD)
    return made_for_work or (len(parts) > 3 and parts[3].startswith(ONCE))


class Audience(StrEnum):
    PRIVATE = "private"
    GROUP = "group"
    # One person inside a group, such as an ephemeral answer.
    ONE = "one"


class Target(Value, frozen=True, kw_only=True):
    """Where a delivery goes; fixed when the inbound is accepted."""

    adapter: str
    account: str = "main"
    chat: str = ""
    thread: str = ""
    reply_to: str = ""
    audience: Audience = Audience.PRIVATE
    # Opaque to core, may expire, never logged.
    handle: str = ""

    @property
    def lane(self) -> str:
        """Deliveries with the same lane go out in order of creation."""
        return ":".join(_escape(part) for part in (self.adapter, self.account, self.chat, self.thread)).rstrip(":")

    @property
    def at(self) -> str:
        """The account that it goes through."""
        return f"{self.adapter}@{self.account}"

    def lasting(self) -> Target:
        """The same place without what expires: the handle, and the message that is replied to."""
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
    """`id` is the platform's immutable id; a name is only for showing."""

    id: str
    name: str = ""
    is_bot: bool = False
    # The adapter itself has proved who this is, such as the owner at the local console.
    trusted: bool = False


class Attachment(Value, frozen=True, kw_only=True):
    """A file that came in; `handle` is what the adapter needs to fetch it."""

    handle: str
    name: str = ""
    media_type: str = ""
    size: int = 0


class Quoted(Value, frozen=True, kw_only=True):
    text: str
    sender: str = ""


class Given(Value, frozen=True, kw_only=True):
    """History and instructions that a client brought along; with a history, the stored one is not read."""

    history: tuple[Entry, ...] | None = None
    instructions: str = ""


class Asker(Value, frozen=True, kw_only=True):
    """A person who asked for work that begins or ends later, and where they asked."""

    conversation: Conversation
    target: Target
    sender: Sender


def asker(conversation: Conversation, target: Target, sender: Sender) -> Asker:
    return Asker(conversation=conversation, target=target.lasting(), sender=sender)


class Errand(Value, frozen=True, kw_only=True):
    """What a run without a person works for; whoever sent it is told of its end, in place of a plain answer."""

    # The task, the firing or the card.
    id: str
    # How many errands stand between it and a person.
    depth: int = 1
    # What it may use of the bot's tools; None is all of them.
    tools: tuple[str, ...] | None = None
    # Requests to a model that it may make; 0 leaves it to the bot's own limit.
    requests: int = 0
    # The folder it works in, by its name below the workspaces; empty is one of its own.
    workspace: str = ""
    # The person whom it is for, however often it was handed on; None is the owner at the command line or with a key.
    asker: Asker | None = None


class Inbound(Value, frozen=True, kw_only=True):
    """One thing that came from a platform.

    `key` is the identity of the message, not of the event that announced it. Edited, Deleted and
    Pressed have keys of their own and name the message in `about`; a stop of one answer names its view there.
    """

    key: str
    conversation: Conversation
    target: Target
    sender: Sender
    kind: Kind = Kind.MESSAGE
    origin: Origin = Origin.PERSON
    text: str = ""
    attachments: tuple[Attachment, ...] = ()
    quoted: Quoted | None = None
    # Who wrote the text, where it was only passed on.
    forwarded: str = ""
    # In a group: was the bot mentioned, replied to or commanded?
    addressed: bool = True
    # When it was said, by the platform's own clock, where messages may overtake each other on their way; else 0.
    said: float = 0.0
    # Rows of one album share a group and become one run.
    group: str = ""
    # The bot that was asked for by name; empty means the default.
    bot: str = ""
    given: Given | None = None
    follows: str = ""
    # A known key with another digest is refused as a conflict.
    digest: str = ""
    # The run ends with its connection.
    attended: bool = False
    # Whether everything about it is erased once it is over.
    forget: bool = False
    about: str = ""
    command: str = ""
    choice: str = ""
    errand: Errand | None = None

    @property
    def asker(self) -> Asker | None:
        """The person whom this is for: its sender, or the person whom an errand is done for."""
        return self.errand.asker if self.errand else asker(self.conversation, self.target, self.sender)

    @property
    def argument(self) -> str:
        """What stands behind the command's name, on the same line or below it."""
        return " ".join(self.text.split(maxsplit=1)[1:]).strip()

    @property
    def in_full(self) -> str:
        """The text with what it answers and what is attached, each labelled as what it is."""
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
    # For a notice: what it comes from, in words.
    source: str = ""


class Pace(Value, frozen=True, kw_only=True):
    """A budget: one call every `seconds` on average, `burst` at once. Calls that name the same key share it."""

    key: str
    seconds: float
    burst: int


class SendProof(Value, frozen=True, kw_only=True):
    """How a doubtful send is settled; both may hold, the key first."""

    # Seconds for which repeating a key is harmless; 0 means that there is no key.
    keyed_for: float
    readback: bool


class Capabilities(Value, frozen=True, kw_only=True):
    """What a platform can do at one target. No defaults: every adapter answers every question."""

    # Can we push a message after the turn has ended?
    async_delivery: bool
    # Can a growing answer be shown in place?
    streaming_edits: bool
    send_proof: SendProof
    threads: bool
    reactions: bool
    buttons: bool
    files: bool
    typing: bool
    # Every budget that a message to this target draws on.
    pace: tuple[Pace, ...]
    # What opening, growing and finishing a view draws on besides.
    show_pace: tuple[Pace, ...]
    # What a signal draws on instead; where it shares a budget with messages, it leaves room for one.
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

    # Opaque to core: a message id, a draft id, a stream.
    handle: str
    # Finishing it twice is harmless.
    anchored: bool


class PartKind(StrEnum):
    PLAIN = "plain"
    # Opens a view; may be an ephemeral draft.
    OPENING = "opening"
    # Opens a view that must be a message, so that finishing it can be repeated.
    ANCHOR = "anchor"


class Part(Value, frozen=True, kw_only=True):
    """One message of a delivery, as handed to `Adapter.send`."""

    # Bound to the body: another body has another key.
    key: str
    kind: PartKind
    target: Target
    body: Body
    position: int
    count: int
    # Finish this in place instead of sending anew.
    view: View | None = None
    # Seconds since the first attempt: how far to read back by the platform's clock.
    age: float = 0.0


class Receipt(Value, frozen=True, kw_only=True):
    """The platform took it; `ids` are its own message ids.

    With `readback` declared there is exactly one id, and no other message of the account has it.
    """

    ids: tuple[str, ...]
    view: View | None = None
    # The chat that it landed in, if its id differs from the target's.
    chat: str = ""
    # The thread that a reply to it opens; empty where a reply stays in the same conversation.
    opens: str = ""


class Absent(Value, frozen=True, kw_only=True):
    """Read back, and it is not there."""


class Unreadable(Value, frozen=True, kw_only=True):
    """Nobody can tell."""

    reason: str


class Signal(StrEnum):
    TYPING = "typing"
    SEEN = "seen"
    DONE = "done"
    FAILED = "failed"


class Stored(Value, frozen=True, kw_only=True):
    run: str


class Duplicate(Value, frozen=True, kw_only=True):
    run: str


class Ignored(Value, frozen=True, kw_only=True):
    pass


class Refusal(StrEnum):
    """Why somebody was turned away; an adapter may answer each in its platform's own way."""

    NOT_ADMITTED = "not admitted"
    BUSY = "busy"
    TOO_LONG = "too long"
    CONFLICT = "this key was used for another message"


class Refused(Value, frozen=True, kw_only=True):
    reason: Refusal


Admission = Stored | Duplicate | Ignored | Refused


class Note(Value, frozen=True, kw_only=True):
    """A line for the adapter's notebook that commits with the message."""

    name: str
    value: str


class DeliveryState(StrEnum):
    WAITING = "waiting"
    HELD = "held"
    DOUBTFUL = "doubtful"
    DELIVERED = "delivered"
    DEAD = "dead"


class Delivery(Value, frozen=True, kw_only=True):
    """What we owe a target, as one can ask about it."""

    id: str
    target: Target
    state: DeliveryState
    reason: str
    cause: str
    receipts: tuple[Receipt, ...]


def workspace_name(conversation: Conversation) -> Path:
    """A folder name of its own for each conversation, safe on every file system."""
    return Path(quote(conversation.id, safe="-_@.").replace(".", "%2E"))

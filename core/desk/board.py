"""The board as one can ask about it: cards, what becomes of them, and whoever works on one."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

import msgspec

from tidings.core.types import Asker, Conversation, Sender, Target


class CardState(StrEnum):
    # A person has to look first.
    TRIAGE = "triage"
    # Its parents are not done yet.
    TODO = "todo"
    READY = "ready"
    RUNNING = "running"
    BLOCKED = "blocked"
    REVIEW = "review"
    DONE = "done"
    ARCHIVED = "archived"


class Block(StrEnum):
    """Why a card does not go on; it says who has to do what."""

    # These a worker may say.
    NEEDS_INPUT = "needs_input"
    CAPABILITY = "capability"
    TRANSIENT = "transient"
    BUDGET = "budget"
    APPROVAL = "approval"
    # These are found out by whoever supervises it.
    PROTOCOL = "protocol"
    PROVIDER = "provider"
    INTERRUPTED = "interrupted"
    HANG = "hang"
    STOPPED = "stopped"
    NOT_RUNNABLE = "not_runnable"
    # The only one that ends by itself: when its parents are done.
    DEPENDENCY = "dependency"

    @property
    def phrase(self) -> str:
        """As people read it."""
        return _PHRASES[self]


_PHRASES = {
    Block.NEEDS_INPUT: "needs an answer",
    Block.CAPABILITY: "lacks a tool or a right",
    Block.TRANSIENT: "a passing trouble",
    Block.BUDGET: "its budget is used up",
    Block.APPROVAL: "needs an approval",
    Block.PROTOCOL: "no verdict",
    Block.PROVIDER: "the bot or its model failed",
    Block.INTERRUPTED: "was interrupted",
    Block.HANG: "was silent for too long",
    Block.STOPPED: "was stopped",
    Block.NOT_RUNNABLE: "nobody can work on it",
    Block.DEPENDENCY: "waits for another card",
}

# What a worker may say of itself.
BY_WORKER = (Block.NEEDS_INPUT, Block.CAPABILITY, Block.TRANSIENT, Block.BUDGET, Block.APPROVAL)


class Ending(StrEnum):
    """How an attempt ended."""

    COMPLETE = "complete"
    BLOCKED = "blocked"
    REVIEW = "review"
    # Without a verdict, and the card is tried again.
    RETRY = "retry"
    ARCHIVED = "archived"


class NewCard(msgspec.Struct, frozen=True):
    title: str
    body: str = ""
    # A bot or a worker of the settings; empty is the bot that answers in the chat where the card is made.
    assignee: str = ""
    parents: tuple[str, ...] = ()
    # The higher, the sooner.
    priority: int = 0
    # A folder below the workspaces, for cards that share one; empty is one of its own.
    workspace: str = ""
    # Requests to a model in one attempt; 0 leaves it to the bot's own limit.
    budget: int = 0
    # Nobody works on it before a person has let it go.
    triage: bool = False
    # The same card is made once, however often it is asked for.
    key: str = ""


class Remark(msgspec.Struct, frozen=True):
    by: str
    text: str
    at: float


class CardFile(msgspec.Struct, frozen=True):
    """A file in a workspace, by its path, or something elsewhere, by its address."""

    name: str
    place: str
    by: str = ""


def is_link(text: str) -> bool:
    return text.startswith(("https://", "http://")) and len(text.split()) == 1


def link_to(address: str, name: str = "", by: str = "") -> CardFile:
    """Something elsewhere, called by the last part of its address if it has no name."""
    return CardFile(name or address.rstrip("/").rpartition("/")[2] or address, address, by)


class Attempt(msgspec.Struct, frozen=True):
    number: int
    # Empty for a process.
    run: str
    started: float
    ended: float | None
    # None while it goes on.
    ending: Ending | None
    # Of a block.
    kind: str
    reason: str
    # What was done and what is open, in the worker's own words.
    notes: str
    # Where all that it said can be read.
    log: str


class Happening(msgspec.Struct, frozen=True):
    what: str
    words: str
    by: str
    at: float


class CardLine(msgspec.Struct, frozen=True):
    """A card in a list."""

    id: str
    title: str
    assignee: str
    state: CardState
    priority: int
    # Of a blocked card, or of one that a person has to look at.
    block: Block | None
    reason: str
    parents: tuple[str, ...]
    changed: float


class Card(msgspec.Struct, frozen=True):
    """Times are by the wall clock."""

    id: str
    title: str
    body: str
    assignee: str
    state: CardState
    block: Block | None
    reason: str
    priority: int
    workspace: str
    budget: int
    summary: str
    created: float
    changed: float
    by: str
    parents: tuple[CardLine, ...]
    children: tuple[CardLine, ...]
    remarks: tuple[Remark, ...]
    files: tuple[CardFile, ...]
    attempts: tuple[Attempt, ...]
    watchers: tuple[str, ...]
    happenings: tuple[Happening, ...]


class Board(msgspec.Struct, frozen=True):
    """How many cards are in each state, and some of them."""

    counts: dict[CardState, int]
    cards: tuple[CardLine, ...]


class Hand(msgspec.Struct, frozen=True):
    """Who asks, and where that one is told of it."""

    name: str
    # None where nobody can be told later.
    target: Target | None = None
    conversation: Conversation | None = None
    sender: Sender | None = None
    # Only a person lets a card go on that a person was asked to look at.
    is_person: bool = True
    # Whoever asks reads the answer where they would be told of it: once is enough.
    is_answered: bool = False
    # The bot that answers in this chat; empty is the default bot.
    bot: str = ""
    # The person whom the work is for; None is the owner.
    asker: Asker | None = None

    @property
    def is_owner(self) -> bool:
        """The owner: the command line, an admin key, or a person whose identity the platform itself has proved."""
        proved = self.is_person and self.sender is not None and self.sender.trusted
        return self.conversation is None or proved


class Order(msgspec.Struct, frozen=True):
    """One thing that somebody wants of the board: the same by chat, tool, API and command line."""

    # list, add, show, comment, attach, unblock, done, block, link, archive, watch or unwatch.
    verb: str
    id: str = ""
    # A comment, the reason of a block, the summary of what is done, or what to know when it goes on.
    text: str = ""
    # The other card of a link, or a state to list.
    other: str = ""
    new: NewCard | None = None
    # Where a watcher is told; empty is here.
    target: str = ""
    # A link, or a file that was taken over already.
    file: CardFile | None = None
    # Of a block.
    kind: Block = Block.NEEDS_INPUT
    # The same comment is written once, however often it is sent under one key.
    key: str = ""


class Answer(msgspec.Struct, frozen=True):
    """What came of an order: words for a person, and the card as it is now; None for an order about no single card."""

    words: str
    card: Card | None


class BoardDesk(Protocol):
    """Raises Unknown for a card that is not there, Unkeepable for what the board does not allow."""

    async def get(self, id: str) -> Card: ...

    async def all(self, states: tuple[CardState, ...], limit: int, *, assignee: str = "") -> Board:
        """Without states all but the archived; what is worked on first, then by priority."""
        ...

    async def obey(self, order: Order, hand: Hand) -> Answer:
        """Raises Unsupported too, for a watcher that cannot be told later. Archiving a card ends its worker."""
        ...

    async def heartbeat(self, note: str) -> None:
        """Of the card that the current session works on, as all that follow; raises Fenced when it no longer does."""
        ...

    async def complete(self, summary: str, artifacts: tuple[CardFile, ...]) -> Card: ...

    async def block(self, kind: Block, reason: str, notes: str) -> Card: ...

    async def request_review(self, summary: str) -> Card: ...

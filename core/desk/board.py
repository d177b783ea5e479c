"""Requests about the board: cards, their attempts, and orders that change them."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

import msgspec

from tidings.core.types import Asker, Conversation, Sender, Target


class CardState(StrEnum):
    # A person must look at the card first.
    TRIAGE = "triage"
    # The card's parents are not done yet.
    TODO = "todo"
    READY = "ready"
    RUNNING = "running"
    BLOCKED = "blocked"
    REVIEW = "review"
    DONE = "done"
    ARCHIVED = "archived"


class Block(StrEnum):
    """Why a card is blocked; the kind tells who has to do what."""

    # A worker may report these.
    NEEDS_INPUT = "needs_input"
    CAPABILITY = "capability"
    TRANSIENT = "transient"
    BUDGET = "budget"
    APPROVAL = "approval"
    # The board's supervisor detects these.
    PROTOCOL = "protocol"
    PROVIDER = "provider"
    INTERRUPTED = "interrupted"
    HANG = "hang"
    STOPPED = "stopped"
    NOT_RUNNABLE = "not_runnable"
    # The only block that ends by itself: when the card's parents are done.
    DEPENDENCY = "dependency"

    @property
    def phrase(self) -> str:
        """The kind of block in words for people."""
        return _PHRASES[self]


_PHRASES = {
    Block.NEEDS_INPUT: "needs an answer",
    Block.CAPABILITY: "lacks a tool or a right",
    Block.TRANSIENT: "temporary trouble",
    Block.BUDGET: "its budget is used up",
    Block.APPROVAL: "needs an approval",
    Block.PROTOCOL: "no verdict",
    Block.PROVIDER: "the bot or its model failed",
    Block.INTERRUPTED: "was interrupted",
    Block.HANG: "was silent for too long",
    Block.STOPPED: "was stopped",
    Block.NOT_RUNNABLE: "has no available worker",
    Block.DEPENDENCY: "waits for another card",
}

# The kinds that a worker may report.
BY_WORKER = (Block.NEEDS_INPUT, Block.CAPABILITY, Block.TRANSIENT, Block.BUDGET, Block.APPROVAL)


class Ending(StrEnum):
    """How an attempt at a card ended."""

    COMPLETE = "complete"
    BLOCKED = "blocked"
    REVIEW = "review"
    # The attempt ended without a verdict, and the card is tried again.
    RETRY = "retry"
    ARCHIVED = "archived"


class NewCard(msgspec.Struct, frozen=True):
    title: str
    body: str = ""
    # The name of a bot or a worker in the settings; empty means the bot that answers in the card's chat.
    assignee: str = ""
    parents: tuple[str, ...] = ()
    # Cards with a higher priority are started first.
    priority: int = 0
    # The name of a folder below the workspaces that several cards may share; empty means a folder of its own.
    workspace: str = ""
    # The model requests of one attempt; 0 means the bot's own limit.
    budget: int = 0
    # A card in triage is not started before a person releases it.
    triage: bool = False
    # Repeated requests with the same key make one card.
    key: str = ""


class Remark(msgspec.Struct, frozen=True):
    by: str
    text: str
    at: float


class CardFile(msgspec.Struct, frozen=True):
    """A file of a card: `place` is a path in a workspace or a web address."""

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
    # Empty when the worker is a process.
    run: str
    started: float
    ended: float | None
    # None while the attempt is in progress.
    ending: Ending | None
    # The kind of block, if the attempt ended blocked.
    kind: str
    reason: str
    # The worker's own words about what is done and what is open.
    notes: str
    # Where the whole output of the attempt can be read.
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
    # Set for a blocked card and for a card that a person must look at.
    block: Block | None
    reason: str
    parents: tuple[str, ...]
    changed: float


class Card(msgspec.Struct, frozen=True):
    """A card with all its details; times are by the wall clock."""

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
    """The number of cards in each state, and a list of some cards."""

    counts: dict[CardState, int]
    cards: tuple[CardLine, ...]


class Hand(msgspec.Struct, frozen=True):
    """Who gives an order to the board, and where that person or bot can be told about it."""

    name: str
    # None where no message can be sent later.
    target: Target | None = None
    conversation: Conversation | None = None
    sender: Sender | None = None
    # Only a person may release a card that waits for a person.
    is_person: bool = True
    # The answer to the order appears in the same chat as notices would, so no notice is sent there as well.
    is_answered: bool = False
    # The bot that answers in this chat; empty means the default bot.
    bot: str = ""
    # The person this work is for; None means the owner.
    asker: Asker | None = None

    @property
    def is_owner(self) -> bool:
        """True for the command line, an admin key, or a person whose identity the adapter itself has proved."""
        proved = self.is_person and self.sender is not None and self.sender.trusted
        return self.conversation is None or proved

    @property
    def memory(self) -> Conversation | None:
        """The conversation that remembers news of a card; None in a continued talk, where they count as they arrive."""
        return None if self.asker and self.asker.began else self.conversation


class Order(msgspec.Struct, frozen=True):
    """One request to the board, the same from chat, tool, API and command line."""

    # list, add, show, comment, attach, unblock, done, block, link, archive, watch or unwatch.
    verb: str
    id: str = ""
    # A comment, the reason for a block, a summary of finished work, or a remark for the next attempt.
    text: str = ""
    # The second card of a link, or the state to list.
    other: str = ""
    new: NewCard | None = None
    # Where a watcher gets notices; empty means the chat of the order.
    target: str = ""
    # A web address, or a file that was already copied.
    file: CardFile | None = None
    # The kind of block.
    kind: Block = Block.NEEDS_INPUT
    # Repeated comments with the same key are stored once.
    key: str = ""


class Answer(msgspec.Struct, frozen=True):
    """The result of an order: words for a person, and the card as it is now, if the order is about one card."""

    words: str
    card: Card | None


class BoardDesk(Protocol):
    """Raises Unknown for a card that does not exist, Unkeepable for a request that the board does not allow."""

    async def get(self, id: str) -> Card: ...

    async def all(self, states: tuple[CardState, ...], limit: int, *, assignee: str = "") -> Board:
        """Cards in these states, or all that are not archived; cards in progress first, then by priority."""
        ...

    async def obey(self, order: Order, hand: Hand) -> Answer:
        """Carries out an order; archiving a card ends its worker.

        Raises Unsupported for a watcher that cannot get messages later.
        """
        ...

    async def heartbeat(self, note: str) -> None:
        """Renews the lease of the session's card; raises Fenced, as the calls below, if the session has lost it."""
        ...

    async def complete(self, summary: str, artifacts: tuple[CardFile, ...]) -> Card: ...

    async def block(self, kind: Block, reason: str, notes: str) -> Card: ...

    async def request_review(self, summary: str) -> Card: ...

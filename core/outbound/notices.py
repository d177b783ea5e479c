"""Adds a delivered notice to the memory of every conversation that it landed in, once in each."""

from __future__ import annotations

from typing import NamedTuple

from tidings.core.memory import handovers, history
from tidings.core.store.store import Transaction
from tidings.core.types import Author, Body, Conversation, Receipt, Target


class Notice(NamedTuple):
    """A notice for the memory; `source` names its sender in words, which a model reads as a label beside the text."""

    delivery: str
    source: str
    body: Body

    @property
    def text(self) -> str:
        names = ", ".join(file.name for file in self.body.files)
        return "\n".join(filter(None, (self.body.text, f"(Files: {names})" if names else "")))


def land(tx: Transaction, notice: Notice, target: Target, receipt: Receipt, wall: float) -> None:
    """Adds a notice to the conversation that goes on where it landed and the one that a reply opens."""
    chat = _origin(tx, target, receipt.chat or target.chat)
    threads = {target.thread, receipt.opens or target.thread}
    for thread in sorted(threads):
        place = Conversation(adapter=target.adapter, account=target.account, chat=chat, thread=thread)
        remember(tx, handovers.continued(tx, place.id), notice, wall)


def remember(tx: Transaction, conversation: str, notice: Notice, wall: float) -> None:
    """Stores a notice as such, never as a person's words, and once per delivery, even if several parts land here."""
    if tx.one("SELECT 1 FROM history WHERE run = ? AND conversation = ?", notice.delivery, conversation):
        return
    known = tx.one("SELECT generation FROM conversations WHERE id = ?", conversation)
    # A conversation without messages gets its first generation with the first message.
    generation = known["generation"] if known else 1
    history.remember(
        tx, conversation, generation, Author.NOTICE, notice.text, notice.delivery, wall, source=notice.source
    )


def _origin(tx: Transaction, target: Target, chat: str) -> str:
    """The first id of a chat that has moved, found by any of its ids."""
    row = tx.one(
        "SELECT origin FROM aliases WHERE adapter = ? AND account = ? AND moved_to = ?"
        " UNION SELECT origin FROM aliases WHERE adapter = ? AND account = ? AND chat = ?",
        *(target.adapter, target.account, chat) * 2,
    )
    return str(row["origin"]) if row else chat

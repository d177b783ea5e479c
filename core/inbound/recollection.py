"""Takes the last exchange out of a conversation's memory, for good or to try it again."""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from core.inbound import inbox
from core.store.database import Transaction
from core.types import Inbound, Kind, Origin

TITLE_CHARACTERS = 80


class TakenBack(NamedTuple):
    """The message of the exchange; without one, the words that say why nothing was taken back."""

    message: Inbound | None
    words: str


def take_back(tx: Transaction, conversation: str, purpose: str) -> TakenBack:
    """Marks the exchange as undone, and memory is what it was before it; the history stays readable."""
    if inbox.live_run(tx, conversation) or inbox.waiting_in(tx, conversation):
        return TakenBack(None, "I am still at work here. Send /stop first, or wait until I have answered.")
    memory = tx.one("SELECT generation FROM conversations WHERE id = ?", conversation)
    last = _last_exchange(tx, conversation, memory["generation"]) if memory else None
    if memory is None or last is None:
        return TakenBack(None, f"There is nothing here to {purpose}.")
    seq, message = last
    # Whatever ran after it without a person has seen it, and goes with it.
    tx.execute(
        "UPDATE inbox SET undone = 1 WHERE conversation = ? AND kind = 'message' AND generation = ?"
        " AND state = 'done' AND seq >= ?",
        conversation,
        memory["generation"],
        seq,
    )
    tx.execute(
        "UPDATE history SET undone = 1 WHERE conversation = ? AND generation = ? AND run IN"
        " (SELECT run FROM inbox WHERE conversation = ? AND kind = 'message' AND undone = 1 AND seq >= ?)",
        conversation,
        memory["generation"],
        conversation,
        seq,
    )
    restore(tx, conversation, memory["generation"])
    return TakenBack(message, f"Taken back: “{_title(message)}”. I no longer know of it, nor of what came of it.")


def restore(tx: Transaction, conversation: str, generation: int) -> None:
    """What is remembered of a generation is what its newest run left that still counts."""
    tx.execute(
        "UPDATE conversations SET checkpoint = (SELECT i.checkpoint FROM inbox i WHERE i.conversation = ?"
        " AND i.kind = 'message' AND i.generation = ? AND i.state = 'done' AND i.undone = 0"
        " AND i.checkpoint IS NOT NULL ORDER BY i.seq DESC LIMIT 1) WHERE id = ? AND generation = ?",
        conversation,
        generation,
        conversation,
        generation,
    )


def again(taken: Inbound, command: Inbound) -> Inbound:
    """The same message as a new one; its key is the command's, so that a command told twice is one run."""
    return replace(
        taken,
        key=f"retry by {command.key}",
        kind=Kind.MESSAGE,
        target=command.target,
        sender=command.sender,
        # It is whole, nobody gave its key, and it ends with no connection.
        group="",
        digest="",
        attended=False,
    )


def _last_exchange(tx: Transaction, conversation: str, generation: int) -> tuple[int, Inbound] | None:
    """The newest run that a person's message made and that is still remembered."""
    sql = (
        "SELECT seq, run FROM inbox WHERE conversation = ? AND kind = 'message' AND generation = ?"
        " AND state = 'done' AND undone = 0 AND (? = 0 OR seq < ?) ORDER BY seq DESC LIMIT 1"
    )
    before = 0
    while row := tx.one(sql, conversation, generation, before, before):
        message, before = inbox.message_of(tx, row["run"]), row["seq"]
        if message.origin is Origin.PERSON:
            return before, message
    return None


def _title(message: Inbound) -> str:
    """Its beginning, on one line."""
    line = " ".join((message.text or message.in_full).split())
    return line if len(line) <= TITLE_CHARACTERS else f"{line[: TITLE_CHARACTERS - 1]}…"

"""Removes the last exchange from a conversation's memory, for good or to try it again."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from tidings.core.inbound import inbox
from tidings.core.memory import conversations, history, talks
from tidings.core.store.store import Transaction
from tidings.core.types import Inbound, Kind, Origin

TITLE_CHARACTERS = 80


class TakenBack(NamedTuple):
    """The message of an undone exchange; without a message, `words` say why nothing was undone."""

    message: Inbound | None
    words: str


NOT_YOURS = "The last message here is somebody else's. They can {purpose} it, and so can an owner or admin."


def take_back(
    tx: Transaction, conversation: str, purpose: str, may: Callable[[Inbound], bool] = lambda message: True
) -> TakenBack:
    """Marks the last exchange as undone and restores the memory from before it; the history stays readable."""
    if inbox.live_run(tx, conversation) or inbox.waiting_in(tx, conversation):
        return TakenBack(None, "I am still working on an answer. Send /stop first, or wait for it.")
    memory = tx.one("SELECT generation FROM conversations WHERE id = ?", conversation)
    last = _last_exchange(tx, conversation, memory["generation"]) if memory else None
    if memory is None or last is None:
        return TakenBack(None, f"There is nothing here to {purpose}.")
    runs, message = last
    if not may(message):
        return TakenBack(None, NOT_YOURS.format(purpose=purpose))
    for run in runs:
        # The checkpoint of an undone run is never restored.
        tx.execute("UPDATE inbox SET undone = 1, checkpoint = NULL WHERE run = ?", run)
        history.take_back(tx, run)
        talks.renew_title(tx, conversation, memory["generation"], run)
    conversations.restore_checkpoint(tx, conversation, memory["generation"])
    return TakenBack(message, f"Undone: “{_title(message)}”. I have forgotten that message and my answer.")


def again(taken: Inbound, command: Inbound) -> Inbound:
    """The same message as a new one; its key comes from the command, so that a repeated command makes one run."""
    return replace(
        taken,
        key=f"retry by {command.key}",
        kind=Kind.MESSAGE,
        target=command.target,
        sender=command.sender,
        began=command.began,
        place=command.place,
        bot=taken.bot or command.bot,
        # The new message is no album, has no client's digest and does not end with a connection.
        group="",
        parts=(),
        digest="",
        # Somebody waits for it now, and not for the run that it was once meant for.
        overheard=False,
        busy=None,
        about="",
        attended=False,
    )


def _last_exchange(tx: Transaction, conversation: str, generation: int) -> tuple[list[str], Inbound] | None:
    """The last ended run of a person's message that is still remembered, and all runs that ended after it.

    Later runs have seen that message, so they are undone with it. The history is ordered by when runs ended, which
    may differ from the order in which messages arrived.
    """
    sql = (
        "SELECT h.seq, h.run FROM history h JOIN inbox i ON i.run = h.run WHERE h.conversation = ?"
        " AND h.generation = ? AND h.undone = 0 AND (? = 0 OR h.seq < ?) ORDER BY h.seq DESC LIMIT 1"
    )
    before, runs = 0, list[str]()
    while row := tx.one(sql, conversation, generation, before, before):
        before = row["seq"]
        if row["run"] in runs[-1:]:
            continue
        runs.append(row["run"])
        message = inbox.message_of(tx, row["run"], steered=True)
        if message.origin is Origin.PERSON:
            return runs, message
    return None


def _title(message: Inbound) -> str:
    """The beginning of a message, on one line."""
    line = " ".join((message.text or message.in_full).split())
    return line if len(line) <= TITLE_CHARACTERS else f"{line[: TITLE_CHARACTERS - 1]}…"

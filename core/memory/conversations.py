"""The row of each conversation: its generation, and the checkpoint that its bot remembers it by."""

from __future__ import annotations

from tidings.core.memory import talks
from tidings.core.store.store import Transaction

# The run that ended last comes first: runs may end in another order than their messages arrived.
NEWEST_END = "ended DESC, seq DESC"


def members_of(conversation: str) -> tuple[str, str]:
    """The two ids between which all conversations of single members lie, in the same chat and thread."""
    # An id has five parts; empty ones at its end are left out.
    missing = 4 - conversation.count(":")
    if missing <= 0:
        return conversation, conversation
    first = conversation + ":" * missing
    return first, f"{first[:-1]};"


def add(tx: Transaction, conversation: str) -> None:
    """Adds the row of a conversation that has none yet."""
    tx.execute("INSERT INTO conversations (id) VALUES (?) ON CONFLICT (id) DO NOTHING", conversation)


def begin_generation(tx: Transaction, conversation: str) -> None:
    """Starts a new generation: the history stays readable, but the next run starts without it."""
    tx.execute(
        "INSERT INTO conversations (id, generation, latest) VALUES (?, 2, 2) ON CONFLICT (id)"
        " DO UPDATE SET generation = conversations.latest + 1, latest = conversations.latest + 1, checkpoint = NULL",
        conversation,
    )


def generation_of(tx: Transaction, conversation: str) -> int:
    row = tx.one("SELECT generation FROM conversations WHERE id = ?", conversation)
    return int(row["generation"]) if row else 1


def return_to(tx: Transaction, conversation: str, generation: int) -> None:
    """Makes an earlier or later generation the current one, with the memory that it ended with."""
    tx.execute(
        "UPDATE conversations SET generation = ?, checkpoint = NULL WHERE id = ? AND latest >= ?",
        *(generation, conversation, generation),
    )
    restore_checkpoint(tx, conversation, generation)


def keep_checkpoint(tx: Transaction, conversation: str, generation: int, run: str) -> None:
    """Makes a run's last checkpoint that of its generation; a run without a checkpoint changes nothing."""
    tx.execute(
        "UPDATE conversations SET checkpoint = (SELECT coalesce(inbox.checkpoint, conversations.checkpoint)"
        " FROM inbox WHERE run = ?) WHERE id = ? AND generation = ?",
        run,
        conversation,
        generation,
    )


def restore_checkpoint(tx: Transaction, conversation: str, generation: int) -> None:
    """Restores a generation's memory to the checkpoint of its newest remaining run."""
    tx.execute(
        "UPDATE conversations SET checkpoint = (SELECT i.checkpoint FROM inbox i WHERE i.conversation = ?"
        " AND i.kind = 'message' AND i.generation = ? AND i.state = 'done' AND i.undone = 0"
        f" AND i.checkpoint IS NOT NULL ORDER BY {NEWEST_END} LIMIT 1) WHERE id = ? AND generation = ?",
        conversation,
        generation,
        conversation,
        generation,
    )


def drop_checkpoint(tx: Transaction, conversation: str) -> None:
    tx.execute("UPDATE conversations SET checkpoint = NULL WHERE id = ? AND checkpoint IS NOT NULL", conversation)


def begin_forgetting(tx: Transaction, conversation: str, now: float) -> None:
    """Hides everything said so far from the bot at once; the erasure removes it when nothing works on it any more."""
    add(tx, conversation)
    begin_generation(tx, conversation)
    tx.execute("UPDATE conversations SET forgotten = ?, forgotten_to = generation - 1 WHERE id = ?", now, conversation)
    tx.execute("DELETE FROM preferences WHERE conversation = ?", conversation)
    talks.remove(tx, conversation)


def to_forget(tx: Transaction) -> list[tuple[str, float]]:
    """Conversations that are being forgotten, and since when."""
    rows = tx.all("SELECT id, forgotten FROM conversations WHERE forgotten IS NOT NULL ORDER BY id")
    return [(row["id"], row["forgotten"]) for row in rows]


def end_forgetting(tx: Transaction, conversation: str) -> None:
    """Removes the history from before; what was said since then stays."""
    tx.execute(
        "DELETE FROM history WHERE conversation = ? AND generation <="
        " (SELECT forgotten_to FROM conversations WHERE id = ?)",
        conversation,
        conversation,
    )
    tx.execute("UPDATE conversations SET forgotten = NULL WHERE id = ?", conversation)


def remove(tx: Transaction, conversation: str) -> None:
    """Removes the memory of a conversation that is never continued."""
    tx.execute("DELETE FROM history WHERE conversation = ?", conversation)
    tx.execute("DELETE FROM preferences WHERE conversation = ?", conversation)
    talks.remove(tx, conversation)
    tx.execute("DELETE FROM conversations WHERE id = ?", conversation)

"""The row of each conversation: its generation, and the checkpoint that its bot remembers it by."""

from __future__ import annotations

from tidings.core.store.store import Transaction

# The run that ended last comes first: runs may end in another order than their messages arrived.
NEWEST_END = "ended DESC, seq DESC"


def add(tx: Transaction, conversation: str) -> None:
    """Adds the row of a conversation that has none yet."""
    tx.execute("INSERT INTO conversations (id) VALUES (?) ON CONFLICT (id) DO NOTHING", conversation)


def begin_generation(tx: Transaction, conversation: str) -> None:
    """Starts a new generation: the history stays readable, but the next run starts without it."""
    tx.execute(
        "INSERT INTO conversations (id, generation) VALUES (?, 2) ON CONFLICT (id)"
        " DO UPDATE SET generation = conversations.generation + 1, checkpoint = NULL",
        conversation,
    )


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


def remove(tx: Transaction, conversation: str) -> None:
    """Removes the memory of a conversation that is never continued."""
    tx.execute("DELETE FROM history WHERE conversation = ?", conversation)
    tx.execute("DELETE FROM preferences WHERE conversation = ?", conversation)
    tx.execute("DELETE FROM conversations WHERE id = ?", conversation)

"""One row for each conversation: its generation, and what its bot remembers of it."""

from __future__ import annotations

from tidings.core.store.store import Transaction

# The run that ended last comes first: runs do not always end in the order in which their messages came in.
NEWEST_END = "ended DESC, seq DESC"


def add(tx: Transaction, conversation: str) -> None:
    """Adds the row of a conversation that has none yet."""
    tx.execute("INSERT INTO conversations (id) VALUES (?) ON CONFLICT (id) DO NOTHING", conversation)


def begin_generation(tx: Transaction, conversation: str) -> None:
    """The history stays readable; the next run starts without it."""
    tx.execute(
        "INSERT INTO conversations (id, generation) VALUES (?, 2) ON CONFLICT (id)"
        " DO UPDATE SET generation = conversations.generation + 1, checkpoint = NULL",
        conversation,
    )


def keep_checkpoint(tx: Transaction, conversation: str, generation: int, run: str) -> None:
    """The last checkpoint of a run becomes its generation's; a run without one leaves the memory as it was."""
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
    """Removes all that is remembered of a conversation that can no longer be named or continued."""
    tx.execute("DELETE FROM history WHERE conversation = ?", conversation)
    tx.execute("DELETE FROM preferences WHERE conversation = ?", conversation)
    tx.execute("DELETE FROM conversations WHERE id = ?", conversation)

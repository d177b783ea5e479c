"""Notes about or for one person, kept across all their conversations on a platform."""

from __future__ import annotations

from core.desk import Remembered
from core.errors import Unkeepable
from core.store.database import Transaction
from core.types import mend

# The oldest give way to the newest.
NOTES = 500
NOTE_CHARACTERS = 2000


def keep(tx: Transaction, person: str, text: str, at: float) -> bool:
    """False when it is known already; raises Unkeepable with a sentence for whoever wrote it."""
    text = mend(text).strip()
    if not text:
        raise Unkeepable("an empty note cannot be kept; say what to remember")
    if len(text) > NOTE_CHARACTERS:
        raise Unkeepable(f"a note has at most {NOTE_CHARACTERS:,} characters, and this one has {len(text):,}")
    is_new = tx.execute(
        "INSERT INTO notes (person, text, at) VALUES (?, ?, ?) ON CONFLICT (person, text) DO NOTHING", person, text, at
    )
    if is_new:
        tx.execute(
            "DELETE FROM notes WHERE person = ? AND seq NOT IN"
            " (SELECT seq FROM notes WHERE person = ? ORDER BY seq DESC LIMIT ?)",
            person,
            person,
            NOTES,
        )
    return bool(is_new)


def find(tx: Transaction, person: str, words: str, limit: int) -> list[Remembered]:
    """Those with any of the words in whatever case, or all for no words; the newest first."""
    # Compared here, since the database folds the case of ASCII letters alone; a person's notes are few.
    wanted = mend(words).casefold().split()
    rows = tx.all("SELECT text, at FROM notes WHERE person = ? ORDER BY seq DESC", person)
    found = [
        Remembered(row["text"], row["at"])
        for row in rows
        if not wanted or any(word in row["text"].casefold() for word in wanted)
    ]
    return found[: max(limit, 0)]

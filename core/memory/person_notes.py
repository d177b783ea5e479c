"""A bot's notes about a person, kept across all conversations of that person and all linked identities."""

from __future__ import annotations

from typing import NamedTuple

from tidings.core.desk.runs import Remembered
from tidings.core.errors import Unkeepable
from tidings.core.store.store import Transaction
from tidings.core.types import make_storable

# The limit of notes for one person and bot; new notes replace the oldest.
NOTES = 500
NOTE_CHARACTERS = 2000


class Reader(NamedTuple):
    """The person that a bot talks to, and whether the chat is private."""

    bot: str
    # The identity, as adapter:sender.
    person: str
    private: bool
    # The person's other identities: their notes are found too.
    others: tuple[str, ...] = ()


def keep(tx: Transaction, about: Reader, text: str, at: float) -> bool:
    """Stores a note; false when it is already known. Raises Unkeepable with a sentence for its author."""
    text = make_storable(text).strip()
    if not text:
        raise Unkeepable("an empty note cannot be kept; say what to remember")
    if len(text) > NOTE_CHARACTERS:
        raise Unkeepable(f"a note has at most {NOTE_CHARACTERS:,} characters, and this one has {len(text):,}")
    is_new = tx.count(
        "INSERT INTO notes (bot, person, text, private, at) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (person, bot, text) DO NOTHING",
        *(about.bot, about.person, text, int(about.private), at),
    )
    if is_new:
        tx.execute(
            "DELETE FROM notes WHERE person = ? AND bot = ? AND seq NOT IN"
            " (SELECT seq FROM notes WHERE person = ? AND bot = ? ORDER BY seq DESC LIMIT ?)",
            *(about.person, about.bot, about.person, about.bot, NOTES),
        )
    elif not about.private:
        # A note that is made again in a group is no longer private.
        tx.execute(
            "UPDATE notes SET private = 0 WHERE person = ? AND bot = ? AND text = ?", about.person, about.bot, text
        )
    return bool(is_new)


def find(tx: Transaction, about: Reader, words: str, limit: int) -> list[Remembered]:
    """Finds notes with any of the words, ignoring case, or all notes for no words; newest first.

    In a group, notes from private chats are not found.
    """
    # The database ignores case only in ASCII, so notes are compared here; a person has few.
    wanted = make_storable(words).casefold().split()
    rows = [
        row
        for identity in (about.person, *about.others)
        for row in tx.all(
            "SELECT seq, text, at FROM notes WHERE person = ? AND bot IN (?, '') AND private <= ? ORDER BY seq DESC",
            *(identity, about.bot, int(about.private)),
        )
    ]
    # Two identities may have the same note.
    found = {
        row["text"]: Remembered(row["text"], row["at"])
        for row in sorted(rows, key=lambda row: int(row["seq"]), reverse=True)
        if not wanted or any(word in row["text"].casefold() for word in wanted)
    }
    return list(found.values())[: max(limit, 0)]


def forget(tx: Transaction, identity: str) -> None:
    """Removes every bot's notes about this identity."""
    tx.execute("DELETE FROM notes WHERE person = ?", identity)

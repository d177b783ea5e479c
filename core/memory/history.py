"""The history of conversations, entry by entry: add, read in pages, undo."""

from __future__ import annotations

import msgspec

from tidings.core.desk.runs import ConversationLine, HistoryLine
from tidings.core.memory import conversations as conversation_rows
from tidings.core.people import names
from tidings.core.people.people import People
from tidings.core.store.store import Row, Transaction
from tidings.core.types import Audience, Author, Conversation, Entry, Inbound, Target

# Larger than the number of any message.
NEVER = 2**62
# How many entries an agent without a memory of its own gets; the rest stays readable in the store.
RECALLED_ENTRIES = 100


def remember(
    tx: Transaction,
    conversation: str,
    generation: int,
    author: Author,
    text: str,
    run: str,
    at: float,
    source: str = "",
) -> None:
    tx.execute(
        "INSERT INTO history (conversation, generation, author, text, run, at, source) VALUES (?, ?, ?, ?, ?, ?, ?)",
        conversation,
        generation,
        author,
        text,
        run,
        at,
        source,
    )


def recall(tx: Transaction, conversation: str, generation: int) -> tuple[Entry, ...]:
    """The newest entries of a generation, oldest first, without undone ones."""
    rows = tx.all(
        "SELECT author, text, run, at, source FROM history WHERE conversation = ? AND generation = ? AND undone = 0"
        " ORDER BY seq DESC LIMIT ?",
        conversation,
        generation,
        RECALLED_ENTRIES,
    )
    return tuple(map(entry_of, reversed(rows)))


def entry_of(row: Row) -> Entry:
    return Entry(author=Author(row["author"]), text=row["text"], run=row["run"], at=row["at"], source=row["source"])


def take_back(tx: Transaction, run: str) -> None:
    """Hides the entries of a run from agents; people can still read them."""
    tx.execute("UPDATE history SET undone = 1 WHERE run = ?", run)


def erase(tx: Transaction, run: str) -> None:
    """Removes the entries of a run, of a task's end or of a notice."""
    tx.execute("DELETE FROM history WHERE run = ?", run)


def conversations(
    tx: Transaction, adapter: str, chat: str, limit: int, before: int, ahead: float, member: str = ""
) -> list[ConversationLine]:
    """Lists conversations by their newest message; the ids of one chat are adjacent, so a range finds them."""
    rows = _of_chat(tx, adapter, chat, limit, before, member) if chat else _of_all(tx, adapter, limit, before)
    return [_conversation(tx, row, ahead) for row in rows]


def _of_chat(tx: Transaction, adapter: str, chat: str, limit: int, before: int, member: str) -> list[Row]:
    first = Conversation(adapter=adapter, account="main", chat=chat).id
    # Ids with a member end like this; a thread may have the same name, but its id has one colon less.
    whole = Conversation(adapter=adapter, account="main", chat=chat, member=member).id
    end = whole.removeprefix(f"{first}:") if member else ""
    return tx.all(
        "SELECT conversation, newest FROM listing WHERE (conversation = ? OR (conversation > ? AND conversation < ?))"
        " AND (? = '' OR (substr(conversation, length(conversation) - length(?) + 1) = ?"
        " AND length(conversation) - length(replace(conversation, ':', '')) = ?))"
        " AND (? = 0 OR newest < ?) ORDER BY newest DESC LIMIT ?",
        first,
        f"{first}:",
        f"{first};",
        end,
        end,
        end,
        whole.count(":"),
        before,
        before,
        limit,
    )


def _of_all(tx: Transaction, adapter: str, limit: int, before: int) -> list[Row]:
    """Reads back from the newest message and stops after a page, however many conversations there are."""
    first = f"{Conversation(adapter=adapter, account='', chat='').id}:" if adapter else ""
    return tx.all(
        "SELECT conversation, newest FROM listing WHERE newest < ? AND substr(conversation, 1, ?) = ?"
        " ORDER BY newest DESC LIMIT ?",
        before or NEVER,
        len(first),
        first,
        limit,
    )


def _conversation(tx: Transaction, row: Row, ahead: float) -> ConversationLine:
    found = tx.one(
        "SELECT accepted, (SELECT count(*) FROM inbox WHERE kind = 'message' AND conversation = ?)"
        " + (SELECT pruned FROM listing WHERE conversation = ?) AS messages FROM inbox WHERE seq = ?",
        row["conversation"],
        row["conversation"],
        row["newest"],
    )
    assert found is not None, "it was found a moment ago"
    return ConversationLine(row["newest"], row["conversation"], found["messages"], found["accepted"] + ahead)


def memory(tx: Transaction, conversation: str, before: str, limit: int) -> tuple[Entry, ...]:
    rows = tx.all(
        "SELECT author, text, run, at, source FROM history WHERE conversation = ? AND undone = 0 AND seq <"
        " (SELECT min(seq) FROM history WHERE run = ?) ORDER BY seq DESC LIMIT ?",
        conversation,
        before,
        limit,
    )
    return tuple(entry_of(row) for row in reversed(rows))


def history(tx: Transaction, conversation: str, limit: int, after: int) -> list[HistoryLine]:
    rows = tx.all(
        "SELECT seq, author, text, run, at, source, undone FROM history WHERE conversation = ? AND seq > ?"
        " ORDER BY seq LIMIT ?",
        conversation,
        after,
        limit,
    )
    return [HistoryLine(row["seq"], entry_of(row), bool(row["undone"])) for row in rows]


def knows(tx: Transaction, conversation: str) -> bool:
    return tx.one("SELECT 1 FROM conversations WHERE id = ?", conversation) is not None


def is_spoken_in(tx: Transaction, conversation: str) -> bool:
    """Tells whether there is this conversation, or one of a single member in the same chat and thread."""
    row = tx.one(
        "SELECT 1 FROM conversations WHERE id = ? OR (id > ? AND id < ?) LIMIT 1",
        conversation,
        *conversation_rows.members_of(conversation),
    )
    return row is not None


def is_known(tx: Transaction, target: Target) -> bool:
    """Tells whether a person has written to us in that chat or in one of its threads."""
    place = _place(target)
    row = tx.one(
        "SELECT 1 FROM conversations WHERE id = ? OR (id > ? AND id < ?) LIMIT 1", place, f"{place}:", f"{place};"
    )
    return row is not None


def newest(tx: Transaction, target: Target) -> Inbound | None:
    """The newest message to us in that chat; None if retention has removed all of them."""
    row = tx.one(
        "SELECT i.message FROM listing l JOIN inbox i ON i.seq = l.newest WHERE l.conversation = ?", _place(target)
    )
    return msgspec.json.decode(row["message"], type=Inbound) if row else None


def is_closed(tx: Transaction, target: Target, people: People) -> bool:
    """Tells whether this is the private chat of a person who may no longer talk: nothing is sent there by itself.

    A group may have other members, so it is never closed by one of them.
    """
    if not target.chat or people.admits(target):
        return False
    last = newest(tx, target) or _last_closed(tx, target)
    if last is not None:
        return last.target.audience is Audience.PRIVATE and bool(people.lapsed(last.asker))
    # Nobody is admitted under the id of this chat, so a known one is blocked.
    return any(map(people.is_known, names.names_of(target)))


def _last_closed(tx: Transaction, target: Target) -> Inbound | None:
    """The last command or refused message there, for a person who has only ever written commands."""
    row = tx.one(
        "SELECT message FROM inbox WHERE conversation = ? AND state = 'closed' ORDER BY seq DESC LIMIT 1",
        _place(target),
    )
    return msgspec.json.decode(row["message"], type=Inbound) if row else None


def _place(target: Target) -> str:
    return Conversation(adapter=target.adapter, account=target.account, chat=target.chat, thread=target.thread).id

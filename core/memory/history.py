"""What one can ask about: a run, the conversations, what was said in one; nothing here changes anything."""

from __future__ import annotations

import msgspec

from tidings.core.desk.runs import ConversationLine, HistoryLine, Run
from tidings.core.errors import Unknown
from tidings.core.inbound import inbox
from tidings.core.runs import journal
from tidings.core.store.store import Row, Transaction
from tidings.core.types import Conversation, Entry, Inbound, Target

# No message has such a number.
NEVER = 2**62


def run(tx: Transaction, id: str, ahead: float) -> Run:
    """`ahead` is what the wall clock shows more than steady time."""
    row = tx.one(
        "SELECT run, message, state, accepted, ended, stop_asked, forget FROM inbox"
        " WHERE run = ? AND kind = 'message' AND state IN ('waiting', 'running', 'done')",
        id,
    )
    if row is None:
        raise Unknown(f"there is no run {id}")
    return Run(
        id=row["run"],
        message=msgspec.json.decode(row["message"], type=Inbound),
        state=row["state"],
        accepted=row["accepted"] + ahead,
        ended=None if row["ended"] is None else row["ended"] + ahead,
        stop_asked=row["stop_asked"] is not None,
        forgotten=bool(row["forget"]),
        outcome=journal.outcome(tx, id),
        void=journal.void(tx, id),
    )


def conversations(
    tx: Transaction, adapter: str, chat: str, limit: int, before: int, ahead: float, member: str = ""
) -> list[ConversationLine]:
    """Each by its newest message; the ids of one chat lie next to each other, so one range holds them."""
    rows = _of_chat(tx, adapter, chat, limit, before, member) if chat else _of_all(tx, adapter, limit, before)
    return [_conversation(tx, row, ahead) for row in rows]


def _of_chat(tx: Transaction, adapter: str, chat: str, limit: int, before: int, member: str) -> list[Row]:
    first = Conversation(adapter=adapter, account="main", chat=chat).id
    # How the ids of a member end; a thread may be called the same, but then there is one colon less.
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
    """Walks back from the newest message and stops after a page, however many conversations there are."""
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
    return tuple(inbox.entry_of(row) for row in reversed(rows))


def history(tx: Transaction, conversation: str, limit: int, after: int) -> list[HistoryLine]:
    rows = tx.all(
        "SELECT seq, author, text, run, at, source, undone FROM history WHERE conversation = ? AND seq > ?"
        " ORDER BY seq LIMIT ?",
        conversation,
        after,
        limit,
    )
    return [HistoryLine(row["seq"], inbox.entry_of(row), bool(row["undone"])) for row in rows]


def knows(tx: Transaction, conversation: str) -> bool:
    return tx.one("SELECT 1 FROM conversations WHERE id = ?", conversation) is not None


def is_known(tx: Transaction, target: Target) -> bool:
    """Has somebody spoken to us there, or in a thread of that chat?"""
    place = _place(target)
    row = tx.one(
        "SELECT 1 FROM conversations WHERE id = ? OR (id > ? AND id < ?) LIMIT 1", place, f"{place}:", f"{place};"
    )
    return row is not None


def newest(tx: Transaction, target: Target) -> Inbound | None:
    """The newest message to us there; None if all of them are gone."""
    row = tx.one(
        "SELECT i.message FROM listing l JOIN inbox i ON i.seq = l.newest WHERE l.conversation = ?", _place(target)
    )
    return msgspec.json.decode(row["message"], type=Inbound) if row else None


def _place(target: Target) -> str:
    return Conversation(adapter=target.adapter, account=target.account, chat=target.chat, thread=target.thread).id

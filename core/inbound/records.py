"""What one can ask about: a run, the conversations, what was said in one; nothing here changes anything."""

from __future__ import annotations

import msgspec

from core.desk import ConversationLine, HistoryLine, Run
from core.errors import Unknown
from core.runs import journal
from core.store.database import Transaction
from core.types import Author, Conversation, Entry, Inbound, Target


def run(tx: Transaction, id: str, ahead: float) -> Run:
    """`ahead` is what the wall clock shows more than steady time."""
    row = tx.one(
        "SELECT run, message, state, accepted, ended, stop_asked FROM inbox"
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
        outcome=journal.outcome(tx, id),
        void=journal.void(tx, id),
    )


def conversations(
    tx: Transaction, adapter: str, chat: str, limit: int, before: int, ahead: float
) -> list[ConversationLine]:
    """Each by its newest message; the ids of one chat lie next to each other, so one range holds them."""
    first = Conversation(adapter=adapter, account="main", chat=chat).id if chat else adapter
    where = "AND (i.conversation = ? OR (i.conversation > ? AND i.conversation < ?))" if first else ""
    values = (first, f"{first}:", f"{first};") if first else ()
    rows = tx.all(
        "SELECT i.conversation AS id, max(i.seq) AS newest, count(*) AS messages, max(i.accepted) AS updated"
        f" FROM inbox i WHERE i.kind = 'message' {where}"
        " GROUP BY i.conversation HAVING (? = 0 OR max(i.seq) < ?) ORDER BY newest DESC LIMIT ?",
        *values,
        before,
        before,
        limit,
    )
    return [ConversationLine(row["newest"], row["id"], row["messages"], row["updated"] + ahead) for row in rows]


def history(tx: Transaction, conversation: str, limit: int, after: int) -> list[HistoryLine]:
    rows = tx.all(
        "SELECT seq, author, text, run, at FROM history WHERE conversation = ? AND seq > ? ORDER BY seq LIMIT ?",
        conversation,
        after,
        limit,
    )
    return [
        HistoryLine(row["seq"], Entry(author=Author(row["author"]), text=row["text"], run=row["run"], at=row["at"]))
        for row in rows
    ]


def knows(tx: Transaction, conversation: str) -> bool:
    return tx.one("SELECT 1 FROM conversations WHERE id = ?", conversation) is not None


def is_known(tx: Transaction, target: Target) -> bool:
    """Has somebody spoken to us there, or in a thread of that chat?"""
    place = Conversation(adapter=target.adapter, account=target.account, chat=target.chat, thread=target.thread).id
    row = tx.one(
        "SELECT 1 FROM conversations WHERE id = ? OR (id > ? AND id < ?) LIMIT 1", place, f"{place}:", f"{place};"
    )
    return row is not None

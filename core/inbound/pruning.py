"""Removes old runs with their journals; a run that stays for its conversation loses only its journal."""

from __future__ import annotations

from tidings.core.desk.deliveries import Pruned
from tidings.core.inbound import approval_rows
from tidings.core.memory import conversations, history
from tidings.core.outbound import view_rows
from tidings.core.runs import journal
from tidings.core.store.pruning import EVENTS, LOOKED_AT, REMOVED, Slice, Terms, counted
from tidings.core.store.store import Row, Transaction
from tidings.core.types import is_passing

# The newest messages of every conversation stay, however old: people can undo them, and the conversation stays listed.
KEPT_MESSAGES = 10


def old_runs(tx: Transaction, after: int | str, terms: Terms) -> Slice:
    """Walks over runs in the order of their arrival."""
    page = tx.all(
        "SELECT seq, run, kind, state, conversation, accepted, ended, joined FROM inbox"
        " WHERE seq > ? ORDER BY seq LIMIT ?",
        after,
        LOOKED_AT,
    )
    wanted = _wanted_runs(tx)
    pruned, handled = Pruned(), 0
    for row in page:
        if pruned.runs >= REMOVED or pruned.events >= EVENTS:
            return Slice(row["seq"] - 1, pruned)
        handled += row["accepted"] < max(terms.runs, terms.journals)
        if row["run"] in wanted or row["joined"] in wanted:
            continue
        if _may_go(tx, row, terms):
            pruned += _remove_run(tx, row, terms)
        elif row["state"] == "done" and row["ended"] < terms.journals:
            pruned += Pruned(events=journal.trim(tx, row["run"], rehearsal=terms.rehearsal))
    # Rows are in order of time, so a page without an old row is the last.
    return Slice(page[-1]["seq"] if len(page) == LOOKED_AT and handled else None, pruned)


def _wanted_runs(tx: Transaction) -> set[str]:
    """Runs that open tasks and firings belong to."""
    rows = tx.all(
        "SELECT run FROM tasks WHERE state IN ('waiting', 'running')"
        " UNION SELECT work FROM tasks WHERE state IN ('waiting', 'running')"
        " UNION SELECT run FROM firings WHERE state IN ('waiting', 'running')"
    )
    return {row["run"] for row in rows if row["run"]}


def _may_go(tx: Transaction, row: Row, terms: Terms) -> bool:
    if row["state"] not in ("done", "closed") or (row["ended"] or row["accepted"]) >= terms.runs:
        # The later rows of an album are removed with the first.
        return False
    if row["kind"] == "message" and row["state"] == "done" and _is_remembered(tx, row, terms):
        return False
    return not tx.one(
        "SELECT 1 FROM deliveries WHERE run = ? AND kind = 'final' AND state IN ('waiting', 'held', 'doubtful')"
        " UNION ALL SELECT 1 FROM deliveries WHERE run = ? AND kind = 'opening'"
        " AND state IN ('waiting', 'held', 'doubtful')",
        row["run"],
        row["run"],
    )


def _is_remembered(tx: Transaction, row: Row, terms: Terms) -> bool:
    """Tells whether a run is among the last of its conversation, which a person may still undo or look for."""
    if is_passing(row["conversation"]):
        return False
    newest = tx.all(
        "SELECT seq, accepted FROM inbox WHERE conversation = ? AND kind = 'message' AND state <> 'joined'"
        " ORDER BY seq DESC LIMIT ?",
        row["conversation"],
        KEPT_MESSAGES,
    )
    return bool(newest) and row["seq"] >= newest[-1]["seq"] and newest[0]["accepted"] >= terms.history


def _remove_run(tx: Transaction, row: Row, terms: Terms) -> Pruned:
    later = tx.all("SELECT run FROM inbox WHERE joined = ?", row["run"]) if row["kind"] == "message" else []
    events = counted(tx.one("SELECT count(*) AS n FROM journal WHERE run = ?", row["run"]))
    passing = is_passing(row["conversation"])
    said = counted(tx.one("SELECT count(*) AS n FROM history WHERE run = ?", row["run"])) if passing else 0
    if not terms.rehearsal:
        if passing:
            # The conversation of this run is never continued.
            history.erase(tx, row["run"])
        journal.erase(tx, row["run"])
        approval_rows.erase(tx, row["run"])
        view_rows.remove(tx, row["run"])
        tx.execute("DELETE FROM inbox WHERE run = ? OR joined = ?", row["run"], row["run"])
        if row["kind"] == "message":
            _count_out(tx, row["conversation"], 1 + len(later))
    return Pruned(runs=1 + len(later), events=events, history=said)


def _count_out(tx: Transaction, conversation: str, messages: int) -> None:
    """Counts removed messages, and removes a conversation without messages from the list."""
    tx.execute("UPDATE listing SET pruned = pruned + ? WHERE conversation = ?", messages, conversation)
    if tx.one("SELECT 1 FROM inbox WHERE conversation = ? AND kind = 'message' LIMIT 1", conversation):
        return
    if is_passing(conversation):
        leave_nothing(tx, conversation)
    else:
        tx.execute("DELETE FROM listing WHERE conversation = ?", conversation)


def leave_nothing(tx: Transaction, conversation: str) -> None:
    """Removes everything stored about a conversation without messages."""
    tx.execute("DELETE FROM listing WHERE conversation = ?", conversation)
    conversations.remove(tx, conversation)

"""The inbox: stores each message once, lets it be claimed in order per conversation, and stores its outcome."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from tidings.core.agent import Checkpoint, Outcome, OutcomeKind, Usage, Verdict
from tidings.core.allowances.allowances import Start
from tidings.core.errors import Fenced
from tidings.core.failpoints import fail_here
from tidings.core.inbound import approval_rows, joining
from tidings.core.inbound.joining import MayJoin
from tidings.core.memory import conversations, history, preferences, talks
from tidings.core.outbound import view_rows
from tidings.core.people import names
from tidings.core.runs import journal, transcript
from tidings.core.runs.transcript import NOTHING, Said
from tidings.core.store import wakeups
from tidings.core.store.store import Row, Transaction
from tidings.core.types import Author, Entry, Inbound, Kind, Origin, Quoted, View, encode, workspace_name

# How many runs of a conversation keep their checkpoints, so that they can be undone.
KEPT_CHECKPOINTS = 10
# The next waiting message of a conversation: first a run that goes on after a verdict. The clocks of two platforms
# that write into it are never compared. The account is chosen by the order and not by a condition, for which the
# database would go through the whole account.
NEXT = (
    "ORDER BY CASE WHEN goes_on = 1 THEN 0 ELSE 1 END,"
    " CASE WHEN (adapter, account) = (SELECT adapter, account FROM inbox WHERE conversation = ?"
    " AND state = 'waiting' ORDER BY seq LIMIT 1) THEN 0 ELSE 1 END, said, seq LIMIT 1"
)


class Claim(NamedTuple):
    """A claimed run: no other run of its conversation starts until it is finished."""

    run: str
    inbound: Inbound
    attempt: int
    fence: int
    generation: int
    history: tuple[Entry, ...]
    checkpoint: bytes | None
    view: View | None
    journalled: int
    # When the message was accepted, and when this process began to work on it; 0 if it has not.
    accepted: float = 0.0
    began: float = 0.0
    preferences: Mapping[str, str] = {}
    # The answers to the run's questions so far.
    verdicts: tuple[Verdict, ...] = ()
    # For a run that goes on after a verdict: what it said before.
    said: Said | None = None
    # Whether messages may have been handed to the run while it was at work.
    followed: bool = False
    # What the run has reserved of allowances, and what it had used by its last checkpoint.
    reservation: bytes | None = None
    used: Usage | None = None

    def ended(self, kind: OutcomeKind, reason: str) -> Outcome:
        """The outcome of a run that ends without being run any more; what it said before a verdict still stands."""
        said = self.said or NOTHING
        return Outcome(kind, reason, said.text, self.used, said.files)


# Decides whether a run starts, and what it reserves; None if it must not start now.
Weigh = Callable[[Transaction, str, Inbound], Start | None]


class Known(NamedTuple):
    run: str
    digest: str


def find(tx: Transaction, inbound: Inbound) -> Known | None:
    row = tx.one(
        "SELECT coalesce(joined, run) AS run, digest FROM inbox WHERE adapter = ? AND account = ? AND key = ?",
        inbound.target.adapter,
        inbound.target.account,
        inbound.key,
    )
    return Known(row["run"], row["digest"]) if row else None


def find_about(tx: Transaction, change: Inbound) -> Known | None:
    """The message that an edit or a deletion is about."""
    return find(tx, msgspec.structs.replace(change, key=change.about))


def put(tx: Transaction, inbound: Inbound, run: str, now: float, burst: float = 0.0) -> str:
    """Stores a message and returns its run, which is an earlier one if the message joins a run that waits.

    `burst` is for how many seconds the message waits for more of its sender.
    """
    conversations.add(tx, inbound.conversation.id)
    place = joining.find_place(tx, inbound, now, burst)
    _insert(tx, inbound, run, "joined" if place.run else "waiting", now, place.ready, place.run)
    if place.run:
        announce_waiting(tx, inbound, run, now)
    return place.run or run


def announce_waiting(tx: Transaction, inbound: Inbound, run: str, now: float) -> None:
    """Announces a message that this transaction did not claim, so that its person sees that it waits."""
    tx.announce(wakeups.MessageStored(run, inbound, now))


def put_unclaimed(tx: Transaction, inbound: Inbound, run: str, now: float) -> None:
    """Stores a message that this transaction does not claim, and announces its conversation."""
    if put(tx, inbound, run, now) == run:
        announce_waiting(tx, inbound, run, now)
    announce_next(tx, inbound.conversation.id)


def announce_next(tx: Transaction, conversation: str) -> None:
    """Announces the oldest waiting message of a free conversation; in a busy one, the end of its run does that."""
    if live_run(tx, conversation) is None and (due := next_due(tx, conversation)) is not None:
        tx.announce(due)


def put_closed(tx: Transaction, inbound: Inbound, run: str, now: float, reason: str) -> None:
    """Stores a message that never becomes a run, so that a repetition is recognised."""
    if inbound.kind in (Kind.COMMANDED, Kind.MESSAGE):
        talks.note_owner(tx, inbound)
    _insert(tx, inbound, run, "closed", now, now, None, reason)


def _insert(
    tx: Transaction,
    inbound: Inbound,
    run: str,
    state: str,
    now: float,
    ready: float,
    joined: str | None,
    reason: str = "",
) -> None:
    tx.execute(
        "INSERT INTO inbox (run, adapter, account, key, kind, conversation, album, joined, state, message, digest,"
        " accepted, ready, reason, said, forget, attended, sender)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        run,
        inbound.target.adapter,
        inbound.target.account,
        inbound.key,
        inbound.kind,
        inbound.conversation.id,
        inbound.group,
        joined,
        state,
        encode(inbound),
        inbound.digest,
        now,
        ready,
        reason,
        inbound.said,
        int(inbound.forget and state == "waiting"),
        int(inbound.attended),
        names.name_of(inbound.target, inbound.sender),
    )
    if inbound.kind is Kind.MESSAGE:
        tx.execute(
            "INSERT INTO listing (conversation, newest) SELECT conversation, seq FROM inbox WHERE run = ?"
            " ON CONFLICT (conversation) DO UPDATE SET newest = excluded.newest",
            run,
        )


def waiting_in(tx: Transaction, conversation: str) -> int:
    return measure_queue(tx, conversation)[0]


def waiting_runs(tx: Transaction, conversation: str) -> list[str]:
    rows = tx.all("SELECT run FROM inbox WHERE conversation = ? AND state = 'waiting' ORDER BY seq", conversation)
    return [row["run"] for row in rows]


def measure_queue(tx: Transaction, conversation: str) -> tuple[int, int]:
    """How many messages wait in a conversation, and the number of the newest row of the inbox."""
    row = tx.one(
        "SELECT count(*) AS n, (SELECT max(seq) FROM inbox) AS newest FROM inbox"
        " WHERE conversation = ? AND state = 'waiting'",
        conversation,
    )
    return (int(row["n"]), int(row["newest"] or 0)) if row else (0, 0)


def next_due(tx: Transaction, conversation: str) -> wakeups.Conversation | None:
    """The wake-up for the conversation's oldest waiting message; None without one."""
    row = tx.one(
        f"SELECT ready, message FROM inbox WHERE conversation = ? AND state = 'waiting' {NEXT}",
        conversation,
        conversation,
    )
    if row is None:
        return None
    return wakeups.Conversation(conversation, row["ready"], msgspec.json.decode(row["message"], type=Inbound))


def live_run(tx: Transaction, conversation: str) -> str | None:
    """The run that is at work in a conversation, or that waits for an answer."""
    row = tx.one("SELECT run FROM inbox WHERE conversation = ? AND state = 'running'", conversation)
    return str(row["run"]) if row else None


def claim(
    tx: Transaction,
    conversation: str,
    now: float,
    may_collect: MayJoin,
    weigh: Weigh = lambda tx, run, inbound: Start(),
) -> Claim | None:
    """Claims the oldest waiting message if the conversation is free, the message is due, and `weigh` lets it start.

    `may_collect` tells whether a message that came while another run was at work may share the run of another one.
    """
    row = tx.one(
        "SELECT run, message, attempt, fence, generation, accepted, ready, checkpoint, album, goes_on, mode, followed,"
        " reservation, usage FROM inbox"
        f" WHERE conversation = ? AND state = 'waiting' {NEXT}",
        conversation,
        conversation,
    )
    if row is None or row["ready"] > now or live_run(tx, conversation) is not None:
        return None
    said, reservation = msgspec.json.decode(row["message"], type=Inbound), row["reservation"]
    # A run that began before keeps what it has reserved.
    if not row["attempt"] and reservation is None:
        started = weigh(tx, row["run"], said)
        if started is None:
            return None
        reservation = started.reservation
    memory = tx.one("SELECT generation, checkpoint FROM conversations WHERE id = ?", conversation)
    assert memory is not None, "a waiting message always has its conversation"
    # A repeated run keeps the generation in which it first started, even if a newer one has begun.
    generation = row["generation"] if row["attempt"] else memory["generation"]
    # Waiting for a verdict is no failed attempt.
    attempt = row["attempt"] + (0 if row["goes_on"] else 1)
    tx.execute(
        "UPDATE inbox SET state = 'running', attempt = ?, fence = fence + 1, generation = ?, goes_on = 0,"
        " reservation = ? WHERE run = ?",
        *(attempt, generation, reservation, row["run"]),
    )
    collected = row["mode"] == "collect" and attempt == 1 and joining.collect(tx, conversation, row, may_collect)
    inbound = joining.put_together(tx, row, followed=collected or bool(row["followed"]))
    tx.announce(wakeups.RunBegan(row["run"], inbound, row["accepted"]))
    given = inbound.given.history if inbound.given else None
    # A repeated run continues from its own checkpoint, otherwise from the last one of its generation.
    checkpoint = row["checkpoint"] or (memory["checkpoint"] if given is None else None)
    return Claim(
        run=row["run"],
        inbound=inbound,
        attempt=attempt,
        fence=row["fence"] + 1,
        generation=generation,
        history=history.recall(tx, conversation, generation) if given is None else given,
        checkpoint=checkpoint,
        # A run that never started has shown nothing.
        view=view_rows.find(tx, row["run"]) if row["attempt"] else None,
        journalled=journal.last(tx, row["run"]) if row["attempt"] else 0,
        accepted=row["accepted"],
        preferences=preferences.read(tx, conversation),
        verdicts=approval_rows.verdicts(tx, row["run"]) if row["attempt"] else (),
        said=transcript.said(tx, row["run"]) if row["goes_on"] else None,
        followed=bool(row["followed"]),
        reservation=reservation,
        used=_used(row),
    )


def _used(row: Row) -> Usage | None:
    return msgspec.json.decode(row["usage"], type=Usage) if row["usage"] else None


def let_rest(tx: Transaction, run: str, conversation: str, until: float) -> None:
    """Lets a waiting message wait for longer; what follows it in its conversation waits behind it."""
    tx.execute("UPDATE inbox SET ready = ? WHERE run = ? AND state = 'waiting'", until, run)
    if (due := next_due(tx, conversation)) is not None:
        tx.announce(due)


def give_back(tx: Transaction, claimed: Claim) -> None:
    """Sets a claimed run that never started back to waiting; recovery ends one that was asked to stop."""
    goes_on = int(claimed.said is not None)
    tx.execute(
        "UPDATE inbox SET state = 'waiting', attempt = ?, goes_on = ?"
        " WHERE run = ? AND fence = ? AND state = 'running' AND stop_asked IS NULL",
        *(claimed.attempt - 1 + goes_on, goes_on, claimed.run, claimed.fence),
    )


def let_ask(tx: Transaction, claimed: Claim, question: str) -> None:
    """Lets a run wait for the answer to a question; it stays the live one of its conversation. Raises Fenced."""
    asked = tx.count(
        "UPDATE inbox SET asking = ? WHERE run = ? AND fence = ? AND state = 'running'",
        *(question, claimed.run, claimed.fence),
    )
    if asked != 1:
        raise Fenced(f"{claimed.run} was already settled by another worker")


def go_on(tx: Transaction, run: str, conversation: str) -> None:
    """Lets a run go on after a verdict, before all that waits in its conversation."""
    tx.execute(
        "UPDATE inbox SET state = 'waiting', asking = '', goes_on = 1, ready = 0 WHERE run = ? AND state = 'running'",
        run,
    )
    announce_next(tx, conversation)


def asking_claim(tx: Transaction, run: str) -> Claim | None:
    """A claim for ending a run that waits for an answer; None for any other run."""
    row = tx.one("SELECT * FROM inbox WHERE run = ? AND state = 'running' AND asking <> ''", run)
    return claim_of(tx, row)._replace(said=transcript.said(tx, run)) if row else None


def asking_page(tx: Transaction, after: int, limit: int) -> list[Row]:
    """Runs that wait for an answer, each with its number and message, from a number on."""
    return tx.all(
        "SELECT seq, run, message FROM inbox WHERE asking <> '' AND seq > ? ORDER BY seq LIMIT ?", after, limit
    )


def asking_to_stop(tx: Transaction) -> list[tuple[str, str]]:
    """Runs that were asked to stop while they waited for an answer, or before they went on after one."""
    rows = tx.all("SELECT run, stop_asked FROM inbox WHERE stop_asked IS NOT NULL AND (asking <> '' OR goes_on = 1)")
    return [(row["run"], row["stop_asked"]) for row in rows]


def asking_attended(tx: Transaction) -> list[str]:
    """Runs that wait for an answer and end when their client disconnects."""
    return [row["run"] for row in tx.all("SELECT run FROM inbox WHERE asking <> '' AND attended = 1")]


def going_on(tx: Transaction, conversation: str) -> str | None:
    """The run that is about to go on after a verdict."""
    row = tx.one(
        "SELECT run FROM inbox WHERE conversation = ? AND state = 'waiting' AND goes_on = 1 LIMIT 1", conversation
    )
    return str(row["run"]) if row else None


def question_of(tx: Transaction, conversation: str) -> str:
    """The question that the conversation's live run waits for; empty if there is none."""
    row = tx.one("SELECT asking FROM inbox WHERE conversation = ? AND state = 'running'", conversation)
    return str(row["asking"]) if row else ""


def let_wait(tx: Transaction, run: str, conversation: str) -> None:
    """Sets a run that was cut off back to waiting; writes of its old process are refused."""
    tx.execute("UPDATE inbox SET state = 'waiting', fence = fence + 1, goes_on = 0 WHERE run = ?", run)
    announce_next(tx, conversation)


def message_of(tx: Transaction, run: str, *, steered: bool = False) -> Inbound:
    """The message of a run with all that joined it before it began, or also with what steered it afterwards."""
    found = find_message(tx, run, steered=steered)
    assert found is not None, "a run is a row"
    return found


def find_message(tx: Transaction, run: str, *, steered: bool = False) -> Inbound | None:
    """As `message_of`, or None; `steered` adds what was handed to the run while it was at work."""
    row = tx.one("SELECT run, message, album, followed FROM inbox WHERE run = ?", run)
    return joining.put_together(tx, row, steered=steered) if row else None


def finish(tx: Transaction, claimed: Claim, outcome: Outcome, now: float) -> None:
    """Stores the outcome, which never changes again; raises Fenced when the run is no longer ours."""
    done = tx.count(
        "UPDATE inbox SET state = 'done', generation = ?, outcome = ?, reason = ?, usage = ?, ended = ?, asking = ''"
        " WHERE run = ? AND fence = ? AND state IN ('running', 'waiting')",
        claimed.generation,
        outcome.kind,
        outcome.reason,
        encode(outcome.usage) if outcome.usage else None,
        now,
        claimed.run,
        claimed.fence,
    )
    if done != 1:
        raise Fenced(f"{claimed.run} was already settled by another worker")


def keep_memory(tx: Transaction, claimed: Claim, outcome: Outcome, at: float) -> None:
    """Adds the exchange to the history, and makes the run's last checkpoint that of its generation."""
    conversation, run = claimed.inbound.conversation.id, claimed.run
    said = Author.PERSON if claimed.inbound.origin is Origin.PERSON else Author.NOTICE
    history.remember(tx, conversation, claimed.generation, said, claimed.inbound.in_full, run, at)
    for each in joining.steered(tx, run) if claimed.followed else ():
        history.remember(tx, conversation, claimed.generation, said, each.in_full, run, at)
    if outcome.text:
        history.remember(tx, conversation, claimed.generation, Author.BOT, outcome.text, run, at)
    if outcome.reason:
        history.remember(tx, conversation, claimed.generation, Author.NOTICE, outcome.reason, run, at)
    talks.keep(tx, claimed.inbound, claimed.generation, run, at)
    conversations.keep_checkpoint(tx, conversation, claimed.generation, run)
    # Checkpoints can be large, so only the newest are kept; undoing more continues from the history instead.
    tx.execute(
        "UPDATE inbox SET checkpoint = NULL WHERE seq = (SELECT seq FROM inbox WHERE conversation = ?"
        " AND kind = 'message' AND state = 'done' AND checkpoint IS NOT NULL"
        f" ORDER BY {conversations.NEWEST_END} LIMIT 1 OFFSET ?)",
        conversation,
        KEPT_CHECKPOINTS,
    )


def keep_checkpoint(tx: Transaction, run: str, checkpoint: Checkpoint, after: int) -> None:
    """Stores a checkpoint with the usage so far; `after` is the number of the last event before it."""
    tx.execute(
        "UPDATE inbox SET checkpoint = ?, checkpoint_after = ?, usage = coalesce(?, usage) WHERE run = ?",
        *(checkpoint.data, after, encode(checkpoint.usage) if checkpoint.usage else None, run),
    )


def ask_stop(tx: Transaction, run: str, by: str) -> bool:
    """Asks a run to stop; false for one that has ended or never began."""
    asked = tx.count(
        "UPDATE inbox SET stop_asked = coalesce(stop_asked, ?) WHERE run = ?"
        " AND (state = 'running' OR (state = 'waiting' AND goes_on = 1))",
        *(by, run),
    )
    if asked:
        fail_here("cancel.requested")
        tx.announce(wakeups.StopAsked(run, by))
    return bool(asked)


def is_shown_in(tx: Transaction, run: str, handle: str) -> bool:
    """Tells whether this is the view of the run's growing answer."""
    view = view_rows.find(tx, run)
    return view is not None and view.handle == handle


def stop_asked(tx: Transaction, run: str) -> str | None:
    return stop_and_reservation(tx, run)[0]


def stop_and_reservation(tx: Transaction, run: str) -> tuple[str | None, bytes | None]:
    """Who asked the run to stop, and what it holds of allowances by now."""
    row = tx.one("SELECT stop_asked, reservation FROM inbox WHERE run = ?", run)
    return (row["stop_asked"], row["reservation"]) if row else (None, None)


def reservation_at_work(tx: Transaction, run: str) -> tuple[bytes | None, Usage | None]:
    """What a run at work holds of allowances, and what it had used by its last checkpoint."""
    row = tx.one("SELECT reservation, usage FROM inbox WHERE run = ? AND state = 'running'", run)
    return (row["reservation"], _used(row)) if row else (None, None)


def keep_reservation(tx: Transaction, run: str, reservation: bytes) -> None:
    tx.execute("UPDATE inbox SET reservation = ? WHERE run = ?", reservation, run)
    tx.announce(wakeups.Loosened(run, reservation))


def amend(tx: Transaction, change: Inbound) -> Row | None:
    """Corrects a waiting message; returns the row of a deleted one, which must be cancelled.

    A message that a run at work has heard can no longer be changed.
    """
    row = tx.one(
        "SELECT m.run, m.message, m.fence, m.joined, m.album FROM inbox m"
        " JOIN inbox w ON w.run = coalesce(m.joined, m.run)"
        " WHERE m.adapter = ? AND m.account = ? AND m.key = ? AND w.state = 'waiting'"
        " AND NOT EXISTS (SELECT 1 FROM inbox r"
        " WHERE r.run = w.heard_by AND r.fence = w.heard_fence AND r.state = 'running')",
        change.target.adapter,
        change.target.account,
        change.about,
    )
    if row is None:
        return None
    if change.kind is Kind.DELETED and row["joined"] is None:
        if not joining.is_whole_album(tx, row["run"], row["album"]):
            joining.hand_over(tx, row["run"])
        return row
    if change.kind is Kind.DELETED:
        tx.execute("UPDATE inbox SET state = 'closed', joined = NULL, reason = 'deleted' WHERE run = ?", row["run"])
        return None
    message = msgspec.json.decode(row["message"], type=Inbound)
    quoted: Quoted | None = change.quoted or message.quoted
    corrected = msgspec.structs.replace(message, text=change.text, quoted=quoted)
    tx.execute("UPDATE inbox SET message = ? WHERE run = ?", encode(corrected), row["run"])
    return None


def waiting_claim(tx: Transaction, run: str) -> Claim | None:
    """A claim for ending a run that waits: it never ran, was cut off, or goes on after a verdict."""
    row = tx.one(
        "SELECT inbox.*, conversations.generation AS current FROM inbox JOIN conversations ON id = conversation"
        " WHERE run = ? AND state = 'waiting'",
        run,
    )
    if row is None:
        return None
    claimed = claim_of(tx, row)
    if row["goes_on"]:
        return claimed._replace(said=transcript.said(tx, run))
    return claimed._replace(generation=row["current"])


def claim_of(tx: Transaction, row: Row) -> Claim:
    """A claim for ending a run, which needs neither history nor checkpoint; `row` has all columns."""
    return Claim(
        run=row["run"],
        inbound=joining.put_together(tx, row),
        attempt=row["attempt"],
        fence=row["fence"],
        generation=row["generation"],
        history=(),
        checkpoint=None,
        view=None,
        journalled=journal.last(tx, row["run"]),
        followed=bool(row["followed"]),
        reservation=row["reservation"],
        used=_used(row),
        accepted=row["accepted"],
    )


def busy_conversations(tx: Transaction) -> list[str]:
    """Free conversations with a waiting message, by the age of that message."""
    rows = tx.all(
        "SELECT w.conversation FROM (SELECT min(seq) AS seq FROM inbox WHERE state = 'waiting'"
        " GROUP BY conversation) AS oldest JOIN inbox w ON w.seq = oldest.seq WHERE NOT EXISTS"
        " (SELECT 1 FROM inbox r WHERE r.conversation = w.conversation AND r.state = 'running') ORDER BY w.seq"
    )
    return [row["conversation"] for row in rows]


def open_runs(tx: Transaction) -> list[str]:
    """The runs that a task works on, or worked on when its process died."""
    rows = tx.all("SELECT run FROM inbox WHERE state = 'running' AND asking = '' ORDER BY seq")
    return [row["run"] for row in rows]


def asked_to_stop(tx: Transaction) -> list[tuple[str, str]]:
    """Running runs that were asked to stop, each with the name of who asked."""
    rows = tx.all(
        "SELECT run, stop_asked FROM inbox WHERE state = 'running' AND asking = '' AND stop_asked IS NOT NULL"
    )
    return [(row["run"], row["stop_asked"]) for row in rows]


def waiting_attended(tx: Transaction) -> list[str]:
    """Waiting runs that end when their client disconnects."""
    return [row["run"] for row in tx.all("SELECT run FROM inbox WHERE state = 'waiting' AND attended = 1")]


def open_workspaces(tx: Transaction) -> set[str]:
    """The workspaces of running and waiting runs; works with a store of any version."""
    found: set[str] = set()
    rows = tx.all(
        "SELECT message FROM inbox WHERE state = 'waiting' UNION ALL SELECT message FROM inbox WHERE state = 'running'"
    )
    for row in rows:
        inbound = msgspec.json.decode(row["message"], type=Inbound)
        found.add(str(workspace_name(inbound.conversation)))
        if inbound.errand and inbound.errand.workspace:
            found.add(inbound.errand.workspace)
    return found


def count_open(tx: Transaction) -> int:
    """Counts runs that wait, that are at work, and that wait for an answer."""
    row = tx.one("SELECT count(*) AS n FROM inbox WHERE state = 'running'")
    return count_waiting(tx) + (int(row["n"]) if row else 0)


def count_waiting(tx: Transaction) -> int:
    row = tx.one("SELECT count(*) AS n FROM inbox WHERE state = 'waiting'")
    return int(row["n"]) if row else 0


def count_waiting_of(tx: Transaction, sender: str) -> int:
    """Counts the waiting messages of one identity."""
    row = tx.one("SELECT count(*) AS n FROM inbox WHERE sender = ? AND sender <> '' AND state = 'waiting'", sender)
    return int(row["n"]) if row else 0

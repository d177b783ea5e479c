"""Seeded bugs on the way in: at the door, in the session, in a run's end and after a restart."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import ContextVar, Token
from sqlite3 import Connection
from typing import Any

import msgspec

from tests.chaos.mutation_seams import later, swap
from tidings.core import context
from tidings.core.adapter import Receive
from tidings.core.agent import Ended, Outcome, ToolFinished
from tidings.core.context import Session
from tidings.core.desk.runs import Numbered, Remembered
from tidings.core.gateway.gateway import Gateway
from tidings.core.inbound import door, inbox, joining, recovery, undo
from tidings.core.inbound.commands import Commands, Obeyed
from tidings.core.inbound.dispatcher import Dispatcher
from tidings.core.inbound.door import Door
from tidings.core.inbound.inbox import Claim
from tidings.core.inbound.settlement import Ending, Settlement
from tidings.core.inbound.slots import Slot
from tidings.core.inbound.undo import TakenBack
from tidings.core.memory import person_notes
from tidings.core.outbound import outbox
from tidings.core.outbound.courier import Courier, Reserved
from tidings.core.outbound.outbox import Head, Owed
from tidings.core.people import audit
from tidings.core.runs import journal
from tidings.core.runs.journal import Journal
from tidings.core.runs.runner import Interrupt
from tidings.core.store import sqlite
from tidings.core.store.sqlite import SqliteTransaction
from tidings.core.store.store import Transaction
from tidings.core.types import Admission, Capabilities, Duplicate, Inbound, Note, Stored, Target


def acknowledge_before_commit() -> None:
    """The platform is told "taken" while the message is only in memory."""
    real = Door.receive_for

    def receive_for(self: Door, adapter: str, account: str) -> Receive:
        receive = real(self, adapter, account)

        async def store(inbound: Inbound, note: Note | None) -> None:
            await receive(inbound, note)

        async def hasty(inbound: Inbound, note: Note | None = None) -> Admission:
            later(store(inbound, note))
            return Stored(run="")

        return hasty

    swap(Door, "receive_for", receive_for)


def delivery_in_second_transaction() -> None:
    """The run is closed first, and what we owe for it is written afterwards."""

    def write(self: Courier, owed: Owed) -> None:
        later(self._store.insist(lambda tx: outbox.put(tx, owed, self._clock.now())))

    def put(self: Courier, tx: Transaction, owed: Owed, reserved: Reserved | None) -> Head | None:
        loop = self._store._loop  # type: ignore[attr-defined]
        loop.call_soon_threadsafe(write, self, owed)
        return None

    swap(Courier, "put", put)


def dedupe_only_in_memory() -> None:
    """What was taken is remembered by this process alone, and nothing in the schema forbids a second row."""
    real = Door._take

    def take(self: Door, tx: Transaction, inbound: Inbound, reserved: bool) -> door._Taken:
        known: dict[tuple[str, str, str], str] = vars(self).setdefault("_known", {})
        place = (inbound.target.adapter, inbound.target.account, inbound.key)
        if place in known:
            return door._Taken(Duplicate(run=known[place]))
        if inbox.find(tx, inbound) is not None:
            inbound = msgspec.structs.replace(inbound, key=f"{inbound.key} again")
        taken = real(self, tx, inbound, reserved)
        known[place] = taken.admission.run if isinstance(taken.admission, Stored) else ""
        return taken

    swap(Door, "_take", take)


class _Rooted:
    """A session that stays behind when its task enters a thread."""

    def __init__(self) -> None:
        self._var: ContextVar[tuple[int, Session]] = ContextVar("rooted")

    def get(self, *default: Any) -> Any:
        thread, session = self._var.get((0, None))
        if thread == threading.get_ident():
            return session
        if default:
            return default[0]
        raise LookupError

    def set(self, session: Session) -> Token[tuple[int, Session]]:
        return self._var.set((threading.get_ident(), session))

    def reset(self, token: Token[tuple[int, Session]]) -> None:
        self._var.reset(token)


def session_not_bound_in_a_thread() -> None:
    """A tool that works in a thread does not know for whom."""
    swap(context, "_session", _Rooted())


def promise_where_nothing_can_be_pushed() -> None:
    """A report is promised over an interface that can never deliver it."""

    def require(self: Session, ability: str) -> None:
        return None

    swap(Session, "require", require)


def terminal_event_twice() -> None:
    """A run's end is written once by whoever ran it and once more by whoever tidied up."""
    real = journal.write

    def write(tx: Transaction, run: str, entries: list[Numbered], person: str) -> None:
        real(tx, run, entries, person)
        if entries and isinstance(entries[-1].event, Ended):
            last = entries[-1]
            # Under another kind, since the schema itself would refuse it.
            tx.execute(
                "INSERT INTO journal (run, seq, kind, event, at) VALUES (?, ?, 'event', ?, ?)",
                run,
                last.seq + 1,
                msgspec.json.encode(last.event),
                last.at,
            )

    swap(journal, "write", write)


def effect_repeated_after_restart() -> None:
    """A tool that was at work when the process died is run again."""

    def unknown_tool(entries: list[Numbered], checkpoint_after: int) -> str:
        return ""

    swap(recovery, "_unknown_tool", unknown_tool)


def retries_crowd_out_the_memory() -> None:
    """What was taken back counts among the memories that are kept."""
    real = undo.take_back

    def take_back(
        tx: Transaction, conversation: str, purpose: str, may: Callable[[Inbound], bool] = lambda message: True
    ) -> TakenBack:
        sql = "SELECT run, checkpoint FROM inbox WHERE conversation = ? AND checkpoint IS NOT NULL"
        kept = tx.all(sql, conversation)
        taken = real(tx, conversation, purpose, may)
        for row in kept:
            tx.execute("UPDATE inbox SET checkpoint = ? WHERE run = ?", row["checkpoint"], row["run"])
        return taken

    swap(undo, "take_back", take_back)


def undone_by_arrival() -> None:
    """The exchange that came in last is taken for the last one."""

    def last_exchange(tx: Transaction, conversation: str, generation: int) -> tuple[list[str], Inbound] | None:
        sql = "SELECT run FROM inbox WHERE conversation = ? AND generation = ? AND state = 'done' ORDER BY seq DESC"
        row = tx.one(sql, conversation, generation)
        return ([row["run"]], inbox.message_of(tx, row["run"])) if row else None

    swap(undo, "_last_exchange", last_exchange)


def crash_loop_for_ever() -> None:
    """A message that kills the process is tried again at every start."""
    swap(recovery, "ATTEMPTS", 1_000_000)


def sweeper_only_at_boot() -> None:
    """What is forgotten in a live process waits for the next restart."""

    async def sweep(self: Gateway) -> None:
        await asyncio.Event().wait()

    swap(Gateway, "_sweep", sweep)


def forget_the_run_that_follows() -> None:
    """The next message is claimed with the end of the run before, and known only once its run begins."""
    real = Dispatcher._settle

    async def settle(
        self: Dispatcher, claimed: Claim, journal: Journal, outcome: Outcome, can: Capabilities, slot: Slot
    ) -> Claim | None:
        following = await real(self, claimed, journal, outcome, can, slot)
        if following is None:
            return None
        # As if it were new: a stop that came meanwhile is gone.
        self._live[following.run] = Interrupt()
        await asyncio.sleep(0)
        self._live[following.run] = Interrupt()
        return following

    swap(Dispatcher, "_settle", settle)


def claim_while_stopping() -> None:
    """A gateway that stops takes the next message, and runs it no more."""

    def claim(self: Dispatcher, tx: Transaction, conversation: str) -> Claim | None:
        return inbox.claim(tx, conversation, self._clock.now(), self._busy.may_collect)

    async def keep(self: Dispatcher, claimed: Claim | None) -> Claim | None:
        return claimed

    swap(Dispatcher, "claim", claim)
    swap(Dispatcher, "_keep", keep)


def anybody_completes_an_album() -> None:
    """Whoever writes next in a group ends the album that somebody else is sending."""

    def is_by(message: Inbound, inbound: Inbound) -> bool:
        return True

    swap(joining, "_is_by", is_by)


def a_units_fault_is_the_stores() -> None:
    """An OSError of a command passes for a full disk: everybody in the same commit is told to come again."""
    real = sqlite._perform

    def perform(connection: Connection, transaction: SqliteTransaction, job: sqlite._Job) -> sqlite._Done:
        done = real(connection, transaction, job)
        if isinstance(done.error, OSError):
            raise done.error
        return done

    swap(sqlite, "_perform", perform)


def notes_follow_an_errand_anywhere() -> None:
    """Private is what was asked for in private, wherever the answer goes."""
    from tidings.core.gateway import desk

    def places(session: Session) -> tuple[Target, Target]:
        asked = session.asker.target if session.asker else session.target
        return asked, asked

    swap(desk, "_places", places)


def retry_lends_its_rights() -> None:
    """Whoever has a message answered again is taken for its author."""

    def retry(self: Commands, tx: Transaction, inbound: Inbound) -> Obeyed:
        taken = undo.take_back(tx, inbound.conversation.id, "try again")
        return Obeyed(again=undo.again(taken.message, inbound)) if taken.message else Obeyed(taken.words)

    swap(Commands, "_retry", retry)


def audit_after_the_effect() -> None:
    """What a tool did is written down when it has done it, and a crash in between leaves no trace."""
    write_now, write_event = audit.write, journal.write
    held: list[tuple[str, str, str, float, str]] = []

    def write_later(tx: Transaction, actor: str, action: str, object: str, wall: float, detail: str = "") -> None:
        if action == "tool":
            held.append((actor, action, object, wall, detail))
        else:
            write_now(tx, actor, action, object, wall, detail)

    def write(tx: Transaction, run: str, entries: list[Numbered], person: str) -> None:
        write_event(tx, run, entries, person)
        if any(isinstance(entry.event, ToolFinished) for entry in entries):
            for line in held:
                write_now(tx, *line)
            held.clear()

    swap(audit, "write", write_later)
    swap(journal, "write", write)


def settlement_audits_nobody() -> None:
    """Only what the journal itself has stored is audited."""
    real = Settlement._close

    def close(self: Settlement, tx: Transaction, ending: Ending) -> Outcome:
        newest = tx.one("SELECT coalesce(max(seq), 0) AS seq FROM audit")
        outcome = real(self, tx, ending)
        tx.execute("DELETE FROM audit WHERE seq > ?", newest["seq"] if newest else 0)
        return outcome

    swap(Settlement, "_close", close)


def notes_shown_to_everybody() -> None:
    """What was noted in private is recalled before others."""
    real = person_notes.find

    def find(tx: Transaction, about: person_notes.Reader, words: str, limit: int) -> list[Remembered]:
        return real(tx, about._replace(private=True), words, limit)

    swap(person_notes, "find", find)

"""Delegation: another agent works on a task in a run and memory of its own; its end is reported."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from tidings.core import context, ids
from tidings.core.agent import Ended, Outcome, OutcomeKind
from tidings.core.clock import Clock
from tidings.core.context import Session
from tidings.core.desk.runs import Numbered
from tidings.core.desk.work import Delegated, Goal, Manner, TaskState
from tidings.core.errors import Lagged, Overdrawn
from tidings.core.inbound import inbox
from tidings.core.inbound.inbox import Claim
from tidings.core.inbound.slots import Slots
from tidings.core.settings import Work
from tidings.core.store.store import Store, Transaction
from tidings.core.types import Conversation, Errand, Inbound, Origin, workspace_name
from tidings.core.work.tasks import rows as task_rows
from tidings.core.work.tasks.rows import End, New

Follow = Callable[[str, int], AsyncIterator[Numbered]]
Stop = Callable[[str, str], Awaitable[bool]]

# The adapter name of a task's own conversation; no platform has this name.
ADAPTER = "task"
STATES = {
    OutcomeKind.COMPLETED: TaskState.SUCCEEDED,
    OutcomeKind.HALTED: TaskState.FAILED,
    OutcomeKind.FAILED: TaskState.FAILED,
    OutcomeKind.CANCELLED: TaskState.CANCELLED,
}


class Delegation:
    def __init__(self, store: Store, clock: Clock, settings: Work, slots: Slots, follow: Follow, stop: Stop) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings
        self._slots = slots
        self._follow = follow
        self._stop = stop

    async def begin(self, goal: Goal) -> Delegated:
        session = context.current()
        return await self._store.write(lambda tx: self.put(tx, session, goal))

    async def finish(self, begun: Delegated) -> Outcome:
        with self._slots.lent(context.current().run):
            try:
                return await self._end_of(begun.run)
            except asyncio.CancelledError:
                # The caller no longer waits for the result.
                await asyncio.shield(self._stop(begun.run, "the caller"))
                raise

    async def _end_of(self, run: str) -> Outcome:
        seen = 0
        while True:
            try:
                async for entry in self._follow(run, seen):
                    seen = entry.seq
                    if isinstance(entry.event, Ended):
                        return entry.event
            except Lagged:
                continue

    def put(self, tx: Transaction, session: Session, goal: Goal) -> Delegated:
        """Stores the task and its message in one transaction; refuses it before anything starts."""
        if goal.manner in (Manner.TELL, Manner.WAKE):
            session.require("async_delivery")
        if row := task_rows.known(tx, goal.key):
            return Delegated(row["id"], row["work"])
        depth = (session.errand.depth if session.errand else 0) + 1
        if depth > self._settings.depth:
            raise Overdrawn(
                f"work is already delegated {self._settings.depth} deep, which is the limit; do it yourself"
            )
        if task_rows.open_of(tx, session.conversation.id, task_rows.DELEGATE) >= self._settings.delegates:
            raise Overdrawn(
                f"the limit of {self._settings.delegates} background agents is reached; wait for one, or cancel one"
            )
        if goal.manner is Manner.WAKE:
            task_rows.check_wake(tx, session.conversation.id)
        run = ids.new("run")
        new = New(
            task_rows.DELEGATE,
            goal.title or goal.text,
            goal.text,
            goal.manner or Manner.NOTHING,
            state=TaskState.RUNNING,
            work=run,
            key=goal.key,
        )
        task = task_rows.begin(tx, session, new, self._clock.now())
        inbox.put_unclaimed(tx, self._message(session, goal, task, depth), run, self._clock.now())
        return Delegated(task, run)

    def _message(self, session: Session, goal: Goal, task: str, depth: int) -> Inbound:
        # An agent that works for an errand shares its folder with the agents it delegates to.
        shared = session.errand.workspace if session.errand else ""
        errand = Errand(
            id=task,
            depth=depth,
            tools=goal.tools,
            requests=goal.requests,
            workspace=shared or str(Path(workspace_name(session.conversation))),
            asker=session.asker,
            caller=session.run if goal.manner is None else "",
        )
        return Inbound(
            key=f"task/{task}",
            conversation=Conversation(adapter=ADAPTER, account="main", chat=task),
            target=session.target,
            sender=session.sender,
            origin=Origin.TASK,
            text=goal.text,
            # The agent is always the bot that the rules chose for this chat.
            bot=session.bot,
            place=session.place,
            # Only a task that its caller waits for ends together with the caller.
            attended=goal.manner is None,
            errand=errand,
        )


def end_run(tx: Transaction, claimed: Claim, outcome: Outcome, *, clock: Clock) -> None:
    """Ends the task that a run was for, in the transaction that ends the run."""
    assert claimed.inbound.errand is not None
    row = task_rows.find(tx, claimed.inbound.errand.id)
    words = told(row["title"], outcome)
    end = End(STATES[outcome.kind], outcome.reason, words, outcome.text, outcome.files)
    task_rows.end(tx, row, end, clock)


def told(title: str, outcome: Outcome) -> str:
    """The report of a delegated task: its title, how it ended, and its answer."""
    reason = outcome.reason.rstrip(".")
    match outcome.kind:
        case OutcomeKind.COMPLETED:
            first = f"✓ “{title}” is done."
        case OutcomeKind.HALTED:
            first = f"⚠ “{title}” was halted: {reason or 'a limit was reached'}."
        case OutcomeKind.FAILED:
            first = f"⚠ “{title}” failed: {reason or 'something went wrong'}."
        case OutcomeKind.CANCELLED:
            first = f"“{title}” was cancelled{f': {reason}' if reason else ''}."
    said = outcome.text.strip()
    if outcome.kind is OutcomeKind.COMPLETED and not said and not outcome.files:
        said = "(There was no answer.)"
    return "\n\n".join(filter(None, (first, said)))

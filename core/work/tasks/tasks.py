"""Background tasks: kinds of work that agents register, and requests about any task."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextvars import Context
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tidings.core import context
from tidings.core.agent import Outcome
from tidings.core.background import Background
from tidings.core.clock import Timer
from tidings.core.desk.work import Delegated, Goal, Manner, Task, TaskState
from tidings.core.errors import Unknown
from tidings.core.failpoints import fail_here
from tidings.core.inbound.abilities import NOTHING, Can
from tidings.core.part import Part
from tidings.core.redaction import one_line, plain
from tidings.core.store.essentials import Essentials
from tidings.core.store.store import Row, Transaction
from tidings.core.store.wakeups import TaskDue, TaskStopAsked
from tidings.core.types import Audience, Conversation, Sender, Target, workspace_name
from tidings.core.work.mandates import Mandates
from tidings.core.work.tasks import rows as task_rows
from tidings.core.work.tasks.delegation import Delegation
from tidings.core.work.tasks.rows import End, New

log = logging.getLogger(__name__)

# Other parts run tasks of these kinds; all other kinds are registered by agents and run here.
ELSEWHERE = (task_rows.DELEGATE, task_rows.PROCESS)
# Ends a task of one kind; the text says who asked for it.
Stop = Callable[[Row, str], Coroutine[Any, Any, None]]


class TaskKind(NamedTuple):
    """A kind of work that a bot may start: a function from an argument to the text of a notice."""

    name: str
    work: Callable[[str], Awaitable[str]]
    # A resumable task starts again after a crash; any other is reported as lost.
    resumable: bool


class Tasks(Part):
    def __init__(
        self,
        essentials: Essentials,
        can: Can,
        delegation: Delegation,
        kinds: Iterable[TaskKind],
        workspaces: Path,
        stops: Mapping[str, Stop],
        mandates: Mandates,
    ) -> None:
        """`stops` ends tasks that other parts run, by kind."""
        self._store = store = essentials.store
        self._clock = essentials.clock
        self._can = can
        self._delegation = delegation
        self._kinds = {kind.name: kind for kind in kinds}
        self._workspaces = workspaces
        self._stops = stops
        self._mandates = mandates
        self._open: dict[str, Timer | asyncio.Task[None]] = {}
        # A request to end a task is stored, so the next sweep tries again after a fault.
        self._ending = Background(log, "a task could not be ended")
        self._stopping = False
        mandates.subscribe(self._end_all_lapsed)
        store.wakeups.subscribe(TaskDue, lambda due: self._expect(due.task, due.at))
        store.wakeups.subscribe(TaskStopAsked, self._stop_asked)

    def _stop_asked(self, due: TaskStopAsked) -> None:
        self._ending.begin(self._end_asked(due.task))

    async def recover(self) -> None:
        await self._store.insist(self._take_up_all)

    async def start(self) -> None:
        await self.sweep()
        # People may have been removed while no gateway ran.
        self._end_all_lapsed()

    async def sweep(self) -> None:
        """Gives every waiting task its timer, and ends every task that was asked to stop."""

        def unit(tx: Transaction) -> tuple[list[Row], list[Row]]:
            self._take_up_all(tx)
            waiting = tx.all(f"SELECT id, due FROM tasks WHERE {task_rows.OPEN} AND state = 'waiting'")
            return waiting, tx.all(f"SELECT * FROM tasks WHERE stop_asked IS NOT NULL AND {task_rows.OPEN}")

        waiting, asked = await self._store.insist(unit)
        for row in waiting:
            self._expect(row["id"], row["due"])
        for row in asked:
            self._ending.begin(self._end(row))

    def _take_up_all(self, tx: Transaction) -> None:
        """A task that no process works on any more runs again, or is reported as lost."""
        for row in tx.all(f"SELECT * FROM tasks WHERE {task_rows.OPEN} AND state = 'running'"):
            if row["id"] not in self._open and row["kind"] not in ELSEWHERE:
                self._take_up(tx, row)

    def _take_up(self, tx: Transaction, row: Row) -> None:
        kind = self._kinds.get(row["kind"])
        if kind and kind.resumable:
            tx.execute("UPDATE tasks SET state = 'waiting' WHERE id = ?", row["id"])
            return
        words = f"⚠ The background task {_name(row)} was lost in a restart; it did not report an end."
        task_rows.end(tx, row, End(TaskState.LOST, "the gateway restarted", words), self._clock)

    async def stop(self, patience: float) -> None:
        self._stopping = True
        for waiting in self._open.values():
            waiting.cancel()
        running = [task for task in self._open.values() if isinstance(task, asyncio.Task)]
        await asyncio.gather(*running, return_exceptions=True)
        await self._ending.drain()

    async def begin(self, kind: str, argument: str, after: float) -> str:
        """Starts a task; refuses it where its end could not be reported."""
        session = context.current()
        session.require("async_delivery")
        if kind not in self._kinds:
            raise Unknown(f"there is no kind of background task named {kind!r}")
        now = self._clock.now()
        new = New(kind, argument, argument, due=now + max(after, 0.0))
        task = await self._store.write(lambda tx: task_rows.begin(tx, session, new, now))
        fail_here("bg.promised")
        return task

    async def delegate(self, goal: Goal) -> Delegated:
        return await self._delegation.begin(goal)

    async def finish(self, begun: Delegated) -> Outcome:
        return await self._delegation.finish(begun)

    async def all(self, conversation: str, limit: int) -> list[Task]:
        return await self._store.read(lambda tx: task_rows.all_of(tx, conversation, limit, self._clock.ahead))

    async def get(self, id: str) -> Task:
        return await self._store.read(lambda tx: task_rows.task_of(task_rows.find(tx, id), self._clock.ahead))

    async def cancel(self, id: str, by: str) -> bool:
        return await self._store.write(lambda tx: task_rows.ask_stop(tx, id, by))

    async def _end_asked(self, task: str) -> None:
        row = await self._store.read(
            lambda tx: tx.one(f"SELECT * FROM tasks WHERE id = ? AND stop_asked IS NOT NULL AND {task_rows.OPEN}", task)
        )
        if row is not None:
            await self._end(row)

    async def _end(self, row: Row) -> None:
        stop: Stop = self._stops.get(row["kind"], self._end_own)
        await stop(row, row["stop_asked"])

    async def _end_own(self, row: Row, by: str) -> None:
        working = self._open.get(row["id"])
        if isinstance(working, asyncio.Task):
            working.cancel()
            return
        if working is not None:
            working.cancel()
            self._open.pop(row["id"], None)
        end = _cancelled(row, by)
        await self._store.insist(lambda tx: task_rows.end(tx, row, end, self._clock))

    def _expect(self, task: str, due: float) -> None:
        if task not in self._open and not self._stopping:
            wait = max(due - self._clock.now(), 0.0)
            self._open[task] = self._clock.call_later(wait, lambda: self._launch(task))

    def _launch(self, task: str) -> None:
        # A task binds the session from its row and never inherits one.
        self._open[task] = asyncio.create_task(self._run(task), context=Context())

    async def _run(self, task: str) -> None:
        try:
            row = await self._store.insist(lambda tx: self._claim(tx, task))
            fail_here("bg.spawned")
            if row is not None:
                end = await self._work(row)
                fail_here("bg.pre_notify")
                await self._store.insist(lambda tx: task_rows.end(tx, row, end, self._clock))
        finally:
            self._open.pop(task, None)

    def _claim(self, tx: Transaction, task: str) -> Row | None:
        """Claims a task; cancels it instead if its person is no longer admitted, and tells the owner."""
        row = task_rows.find(tx, task)
        why = self._mandates.lapsed(task_rows.asker_of(row))
        if not why:
            return task_rows.claim(tx, task, self._clock.now())
        end = End(TaskState.CANCELLED, why, f"{_name(row)} was cancelled: {why}.")
        task_rows.end(tx, row, end, self._clock)
        self._mandates.tell(tx, f"{_name(row)} (task) did not run", why, f"lapsed/{task}")
        return None

    def _end_all_lapsed(self) -> None:
        """Stops tasks of people who were removed from the access list."""
        self._ending.begin(self._end_lapsed())

    async def _end_lapsed(self) -> None:
        rows = await self._store.read(lambda tx: tx.all(f"SELECT * FROM tasks WHERE {task_rows.OPEN}"))
        for row in rows:
            if row["state"] == TaskState.RUNNING and self._mandates.lapsed(task_rows.asker_of(row)):
                await self._store.insist(lambda tx, row=row: self._stop_lapsed(tx, row))  # type: ignore[misc]

    def _stop_lapsed(self, tx: Transaction, row: Row) -> None:
        """Stops a task; a person who may not even talk any more gets no notice of it, which would contain output."""
        if not task_rows.ask_stop(tx, row["id"], "the owner"):
            return
        target = msgspec.json.decode(row["target"], type=Target)
        is_notice = row["manner"] == Manner.TELL and target.audience is Audience.PRIVATE
        if is_notice and self._mandates.is_gone(task_rows.asker_of(row)):
            task_rows.silence(tx, row["id"])

    async def _work(self, row: Row) -> End:
        """Runs a task; every exception of the task becomes a notice here."""
        kind = self._kinds.get(row["kind"])
        if kind is None:
            words = f"⚠ The background task {_name(row)} cannot run: its kind no longer exists."
            return End(TaskState.LOST, "unknown kind", words)
        try:
            with context.bind(self._session(row)):
                words = plain(await kind.work(row["argument"])) or "(no text)"
        except asyncio.CancelledError:
            if self._stopping:
                raise
            asked = await self._store.read(lambda tx: task_rows.find(tx, row["id"])["stop_asked"])
            if asked:
                return _cancelled(row, asked)
            words = f"⚠ The background task {_name(row)} failed: it was cancelled."
            return End(TaskState.FAILED, "it was cancelled", words)
        except (Exception, SystemExit) as error:
            log.warning("task %s failed: %s", row["id"], error, exc_info=True)
            reason = one_line(str(error) or type(error).__name__)
            words = f"⚠ The background task {_name(row)} failed: {reason.rstrip('.')}."
            return End(TaskState.FAILED, reason, words)
        return End(TaskState.SUCCEEDED, "", words, words)

    def _session(self, row: Row) -> context.Session:
        target = msgspec.json.decode(row["target"], type=Target)
        conversation = msgspec.json.decode(row["conversation"], type=Conversation)
        person, permissions = self._mandates.person_of(task_rows.asker_of(row))
        began, place = task_rows.origin_of(row)
        return context.Session(
            run=row["run"],
            conversation=conversation,
            sender=msgspec.json.decode(row["sender"], type=Sender),
            bot=row["bot"],
            target=target,
            can=self._can(target) or NOTHING,
            workspace=self._workspaces / workspace_name(conversation),
            person=person,
            permissions=permissions,
            began=began,
            place=place,
        )


def _name(row: Row) -> str:
    return f"“{row['title'] or row['kind']}”"


def _cancelled(row: Row, by: str) -> End:
    return End(TaskState.CANCELLED, f"stopped by {by}", f"{_name(row)} was cancelled by {by}.")

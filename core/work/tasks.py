"""Background tasks: a row with its target, and when the work ends one transaction closes it and tells."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextvars import Context
from pathlib import Path
from typing import NamedTuple

import msgspec

from core import context, ids
from core.clock import Clock, Timer
from core.errors import Unknown
from core.failpoints import fail_here
from core.inbound import inbox
from core.inbound.dispatcher import NOTHING
from core.outbound import outbox
from core.outbound.courier import Courier
from core.outbound.outbox import Class, Owed
from core.redaction import one_line, plain
from core.store.database import Row, Store, Transaction
from core.types import Author, Body, Conversation, Sender, Target, encode, workspace_name

log = logging.getLogger(__name__)


class TaskKind(NamedTuple):
    """Work that a bot may begin: given its argument, it ends in the text of a notice."""

    name: str
    work: Callable[[str], Awaitable[str]]
    # Started again after a crash; any other is reported as lost.
    resumable: bool


class Tasks:
    def __init__(
        self, store: Store, clock: Clock, courier: Courier, kinds: Iterable[TaskKind], workspaces: Path
    ) -> None:
        self._store = store
        self._clock = clock
        self._courier = courier
        self._kinds = {kind.name: kind for kind in kinds}
        self._workspaces = workspaces
        self._open: dict[str, Timer | asyncio.Task[None]] = {}
        self._stopping = False

    async def start(self) -> None:
        """After recovery, before anything is sent: whoever is owed a notice of a lost task gets it first."""
        await self.sweep()

    async def sweep(self) -> None:
        """What nobody works on any more runs again, or is reported as lost; what waits gets its timer."""

        def unit(tx: Transaction) -> tuple[list[Row], list[str]]:
            left = [row for row in tx.all("SELECT * FROM tasks WHERE state = 'running'") if row["id"] not in self._open]
            for row in left:
                self._take_up(tx, row)
            lanes = [msgspec.json.decode(row["target"], type=Target).lane for row in left]
            return tx.all("SELECT id, due FROM tasks WHERE state = 'waiting'"), lanes

        rows, lanes = await self._store.insist(unit)
        for row in rows:
            self._expect(row["id"], row["due"])
        for lane in lanes:
            self._courier.wake(lane)

    def _take_up(self, tx: Transaction, row: Row) -> None:
        kind = self._kinds.get(row["kind"])
        if kind and kind.resumable:
            tx.execute("UPDATE tasks SET state = 'waiting' WHERE id = ?", row["id"])
        else:
            words = f"The background task “{row['kind']}” was lost in a restart; it did not report an end."
            self._close(tx, row, "lost", "the gateway restarted", words)

    async def stop(self) -> None:
        self._stopping = True
        for waiting in self._open.values():
            waiting.cancel()
        running = [task for task in self._open.values() if isinstance(task, asyncio.Task)]
        await asyncio.gather(*running, return_exceptions=True)

    async def begin(self, kind: str, argument: str, after: float) -> str:
        """Promise or refuse: accepted only where the current interface can be told later."""
        session = context.current()
        session.require("async_delivery")
        if kind not in self._kinds:
            raise Unknown(f"there is no kind of background task named {kind!r}")
        task, now = ids.new("task"), self._clock.now()
        due = now + max(after, 0.0)

        def unit(tx: Transaction) -> None:
            tx.execute(
                "INSERT INTO tasks (id, kind, argument, state, run, bot, conversation, sender, target, due, created)"
                " VALUES (?, ?, ?, 'waiting', ?, ?, ?, ?, ?, ?, ?)",
                task,
                kind,
                argument,
                session.run,
                session.bot,
                encode(session.conversation),
                encode(session.sender),
                encode(session.target),
                due,
                now,
            )

        await self._store.write(unit)
        fail_here("bg.promised")
        self._expect(task, due)
        return task

    def _expect(self, task: str, due: float) -> None:
        if task not in self._open:
            wait = max(due - self._clock.now(), 0.0)
            self._open[task] = self._clock.call_later(wait, lambda: self._launch(task))

    def _launch(self, task: str) -> None:
        # A task rebinds the session from its row; it never inherits one.
        self._open[task] = asyncio.create_task(self._run(task), context=Context())

    async def _run(self, task: str) -> None:
        try:
            row = await self._store.insist(lambda tx: _claim(tx, task))
            fail_here("bg.spawned")
            if row is not None:
                state, reason, words = await self._work(row)
                fail_here("bg.pre_notify")
                await self._store.insist(lambda tx: self._close(tx, row, state, reason, words))
                self._courier.wake(msgspec.json.decode(row["target"], type=Target).lane)
        finally:
            self._open.pop(task, None)

    async def _work(self, row: Row) -> tuple[str, str, str]:
        """The seam where a task's fault becomes a notice."""
        kind = self._kinds.get(row["kind"])
        if kind is None:
            return "lost", "unknown kind", f"The background task “{row['kind']}” can no longer be run."
        try:
            with context.bind(self._session(row)):
                words = plain(await kind.work(row["argument"])) or "(no text)"
        except asyncio.CancelledError:
            if self._stopping:
                raise
            return "failed", "it was cancelled", f"⚠ The background task “{row['kind']}” failed: it was cancelled."
        except (Exception, SystemExit) as error:
            log.warning("task %s failed: %s", row["id"], error, exc_info=True)
            reason = one_line(str(error) or type(error).__name__)
            return "failed", reason, f"⚠ The background task “{row['kind']}” failed: {reason}."
        return "succeeded", "", words

    def _session(self, row: Row) -> context.Session:
        target = msgspec.json.decode(row["target"], type=Target)
        conversation = msgspec.json.decode(row["conversation"], type=Conversation)
        return context.Session(
            run=row["run"],
            conversation=conversation,
            sender=msgspec.json.decode(row["sender"], type=Sender),
            bot=row["bot"],
            target=target,
            can=self._courier.can(target) or NOTHING,
            workspace=self._workspaces / workspace_name(conversation),
        )

    def _close(self, tx: Transaction, row: Row, state: str, reason: str, words: str) -> None:
        """The task's end, its notice and the conversation's memory of it are one transaction."""
        now = self._clock.now()
        closed = tx.execute(
            "UPDATE tasks SET state = ?, reason = ?, ended = ? WHERE id = ? AND state IN ('waiting', 'running')",
            state,
            reason,
            now,
            row["id"],
        )
        if not closed:
            return
        target = msgspec.json.decode(row["target"], type=Target)
        conversation = msgspec.json.decode(row["conversation"], type=Conversation)
        outbox.put(tx, Owed(ids.new("dlv"), Class.REPLY, target, Body(text=words), None, row["id"]), now)
        generation = tx.one("SELECT generation FROM conversations WHERE id = ?", conversation.id)
        if generation:
            inbox.remember(
                tx,
                conversation.id,
                generation["generation"],
                Author.NOTICE,
                words,
                row["run"],
                self._clock.wall(),
            )


def _claim(tx: Transaction, task: str) -> Row | None:
    tx.execute("UPDATE tasks SET state = 'running' WHERE id = ? AND state = 'waiting'", task)
    return tx.one("SELECT * FROM tasks WHERE id = ? AND state = 'running'", task)

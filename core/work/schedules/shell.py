"""Runs scheduled commands: a few at once, each in its own folder, and each firing at most once."""

from __future__ import annotations

import asyncio
import logging
import shutil
from contextvars import Context
from pathlib import Path

from tidings.core import context
from tidings.core.agent import Outcome, OutcomeKind
from tidings.core.clock import Clock
from tidings.core.desk.fence import Fence
from tidings.core.desk.work import Plan
from tidings.core.errors import Unfenced
from tidings.core.inbound.abilities import HEADLESS
from tidings.core.roles import OWNER, Permission
from tidings.core.settings import Work
from tidings.core.store.store import Row, Store, Transaction
from tidings.core.store.wakeups import CommandDue
from tidings.core.types import Errand, Sender, workspace_name
from tidings.core.work.processes import foreground
from tidings.core.work.processes.enclosed import limited
from tidings.core.work.schedules import rows as schedule_rows
from tidings.core.work.wording import fenced

log = logging.getLogger(__name__)

# How many scheduled commands run at once, so that they do not overload the machine.
AT_ONCE = 4
OUTPUT_BYTES = 20_000
# How much of the end of an output is reported.
TOLD_CHARACTERS = 3_000
INTERRUPTED = "interrupted by a restart; whether it took effect is unknown"


class ScheduledShell:
    def __init__(self, store: Store, clock: Clock, settings: Work, workspaces: Path, fence: Fence) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings
        self._workspaces = workspaces
        self._fence = fence
        # Running commands by schedule; each schedule runs one at a time.
        self._working: dict[str, asyncio.Task[None]] = {}
        # Schedules that became due again while their last command was ending.
        self._again: set[str] = set()
        self._places = asyncio.Semaphore(AT_ONCE)
        self._stopped = False
        store.wakeups.subscribe(CommandDue, lambda due: self._work_on(due.schedule))

    async def recover(self) -> None:
        """Commands that a dead process ran are told as interrupted."""
        await self._store.insist(self._interrupt)

    def _interrupt(self, tx: Transaction) -> None:
        for row in tx.all(f"SELECT id FROM firings WHERE {schedule_rows.OPEN} AND state = 'running' AND run = ''"):
            schedule_rows.end(tx, row["id"], Outcome(OutcomeKind.FAILED, INTERRUPTED, ""), self._clock)

    async def sweep(self) -> None:
        rows = await self._store.insist(
            lambda tx: tx.all(
                f"SELECT DISTINCT schedule FROM firings WHERE {schedule_rows.OPEN} AND state = 'waiting' AND run = ''"
            )
        )
        for row in rows:
            self._work_on(row["schedule"])

    @property
    def busy(self) -> bool:
        return bool(self._working)

    def pause(self) -> None:
        """Starts no more commands."""
        self._stopped = True

    async def stop(self) -> None:
        """Cuts off running commands, which are reported at the next start."""
        self.pause()
        for task in self._working.values():
            task.cancel()
        await asyncio.gather(*self._working.values(), return_exceptions=True)

    def _work_on(self, schedule: str) -> None:
        if schedule in self._working:
            self._again.add(schedule)
        elif not self._stopped:
            task = self._working[schedule] = asyncio.create_task(self._work(schedule), context=Context())
            task.add_done_callback(lambda task: self._left(schedule, task))

    def _left(self, schedule: str, task: asyncio.Task[None]) -> None:
        self._working.pop(schedule, None)
        if not task.cancelled() and (error := task.exception()):
            log.error("a scheduled command failed: %r", error, exc_info=error)
        elif schedule in self._again:
            self._again.discard(schedule)
            self._work_on(schedule)

    async def _work(self, schedule: str) -> None:
        while await self._work_once(schedule):
            continue

    async def _work_once(self, schedule: str) -> bool:
        async with self._places:
            # Other commands may have gone first, and the gateway may be stopping by now.
            row = None if self._stopped else await self._store.insist(lambda tx: self._claim(tx, schedule))
            if row is None:
                return False
            outcome = await self._run(row)
        await self._store.insist(lambda tx: schedule_rows.end(tx, row["id"], outcome, self._clock))
        return True

    def _claim(self, tx: Transaction, schedule: str) -> Row | None:
        """Marks a firing as running before its command starts, so that it is never started twice."""
        row = tx.one(
            f"SELECT * FROM firings WHERE schedule = ? AND {schedule_rows.OPEN} AND state = 'waiting' AND run = ''"
            " ORDER BY due, instant LIMIT 1",
            schedule,
        )
        if row is not None:
            started = self._clock.wall()
            tx.execute("UPDATE firings SET state = 'running', started = ? WHERE id = ?", started, row["id"])
        return row

    async def _run(self, row: Row) -> Outcome:
        plan, seconds, memory = (
            schedule_rows.plan_of(row),
            self._settings.command_seconds,
            self._settings.process_memory_bytes,
        )
        session = self._session(row, plan)
        try:
            await asyncio.to_thread(session.workspace.mkdir, parents=True, exist_ok=True)
            shell = await asyncio.to_thread(shutil.which, "bash") or "sh"
            with context.bind(session):
                command = limited((shell, "-c", plan.command), memory)
                words = context.child_environment()
                enclosed = await self._fence.around(command, session.workspace, words)
                ended = await foreground.run(enclosed, seconds, OUTPUT_BYTES)
        except Unfenced as error:
            return Outcome(OutcomeKind.FAILED, str(error), "")
        except OSError as error:
            return Outcome(OutcomeKind.FAILED, f"the command could not be started: {error.strerror}", "")
        text = _shown(ended.output)
        if ended.code is None:
            return Outcome(OutcomeKind.FAILED, f"the command was ended after {seconds:g} s", text)
        if ended.code:
            return Outcome(OutcomeKind.FAILED, f"exit code {ended.code}", text)
        return Outcome(OutcomeKind.COMPLETED, "", text)

    def _session(self, row: Row, plan: Plan) -> context.Session:
        conversation = schedule_rows.conversation_of(row["schedule"])
        return context.Session(
            run=row["id"],
            conversation=conversation,
            sender=Sender(id="owner"),
            bot="",
            target=plan.target,
            can=HEADLESS,
            workspace=self._workspaces / workspace_name(conversation),
            # Only the owner can plan a command.
            person=OWNER,
            permissions=frozenset(Permission),
            errand=Errand(id=row["id"]),
        )


def _shown(output: str) -> str:
    """The end of an output."""
    tail = output.strip("\n")
    if len(tail) > TOLD_CHARACTERS:
        tail = "…\n" + tail[-TOLD_CHARACTERS:].partition("\n")[2]
    return fenced(tail) if tail.strip() else ""

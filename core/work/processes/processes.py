"""Background processes: they survive a restart of the gateway, which watches them again and reports their end."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
from contextlib import suppress
from contextvars import copy_context
from pathlib import Path

import msgspec

from tidings.core import context
from tidings.core.background import Background
from tidings.core.clock import Clock, ended_within
from tidings.core.context import Session
from tidings.core.desk.fence import Enclosed, Fence
from tidings.core.desk.work import Launch, Log, Manner, Task, TaskState
from tidings.core.errors import Overdrawn, Unkeepable, Unknown
from tidings.core.failpoints import fail_here
from tidings.core.part import Part
from tidings.core.redaction import plain
from tidings.core.settings import Work
from tidings.core.store.store import Row, Store, Transaction
from tidings.core.work.processes import foreground, identity, patterns, report
from tidings.core.work.processes.enclosed import own, written
from tidings.core.work.processes.folder import Matches, Order, ProcessFolder
from tidings.core.work.processes.report import Case
from tidings.core.work.tasks import rows as task_rows
from tidings.core.work.tasks.rows import End, New

log = logging.getLogger(__name__)

MOST_PATTERNS = 10
PATTERN_CHARACTERS = 200
# Patterns are compiled in a process with a much shorter limit; a busy machine may start that process late.
READING_SECONDS = 20.0
PATTERN_WORDS_BYTES = 4_000
# How often the output is checked for matching lines.
LOOK_SECONDS = 1.0
# Matches within this time are reported together.
MATCH_SECONDS = 10.0
MOST_MATCH_NOTICES = 20
# How much of the output a row keeps: more than any notice shows.
TAIL_BYTES = 20_000
# A keeper that takes longer to end is stuck.
STUCK_SECONDS = 20.0
# A killed process may just have started a child, so killing is repeated.
KILLING_ROUNDS = 5
# How long the output of ended processes stays readable, and of how many.
KEPT_SECONDS = 7 * 86_400.0
KEPT_FOLDERS = 50
REMOVED_AT_ONCE = 100
REMOVING_SECONDS = 600.0

JOINED = "SELECT tasks.*, processes.* FROM tasks JOIN processes ON processes.task = tasks.id"


class Processes(Part):
    def __init__(self, store: Store, clock: Clock, settings: Work, home: Path, fence: Fence) -> None:
        self.fence = fence
        self._store = store
        self._clock = clock
        self._settings = settings
        self._folder = home / "processes"
        # A process that could not be watched is still open, so the next sweep tries again.
        self._watching = Background(log, "a process could not be watched")
        self._starting = Background(log, "", lambda error: log.info("a process was not started: %r", error))
        self._asked: dict[str, float] = {}
        self._removed_at = -REMOVING_SECONDS

    async def recover(self) -> None:
        """Ends processes that the store does not know, such as after an older database was put back."""
        known = await self._store.read(lambda tx: {row["task"] for row in tx.all("SELECT task FROM processes")})
        if self._folder.is_dir():
            await asyncio.to_thread(self._remove_strays, known)

    async def start(self) -> None:
        """Watches what went on meanwhile, and tells of what ended meanwhile."""
        await self.sweep()

    async def sweep(self) -> None:
        rows = await self._store.read(lambda tx: tx.all(f"{JOINED} WHERE {task_rows.OPEN}"))
        for row in rows:
            # A process that is just being started has no id yet.
            if row["id"] not in self._watching and (row["pid"] is not None or not self._starting):
                self._watch(row["id"])
        if self._clock.now() - self._removed_at >= REMOVING_SECONDS:
            self._removed_at = self._clock.now()
            await self._remove_old()

    async def stop(self, patience: float) -> None:
        """Stops watching; the processes continue."""
        await self._starting.drain()
        await self._watching.close()

    async def launch(self, launch: Launch) -> str:
        session = context.current()
        if launch.manner is not Manner.NOTHING or launch.patterns:
            session.require("async_delivery")
        await _check(launch)
        enclosed = await self.fence.around(launch.command, launch.folder, launch.environment)
        # The caller may be cancelled; a stored task is started all the same.
        return await asyncio.shield(
            self._starting.begin(self._begin(session, launch, enclosed), context=copy_context())
        )

    async def _begin(self, session: Session, launch: Launch, enclosed: Enclosed) -> str:
        task, is_new = await self._store.write(lambda tx: self._put(tx, session, launch))
        if not is_new:
            return task
        fail_here("bg.promised")
        folder = self._folder_of(task)
        try:
            await asyncio.to_thread(folder.prepare, self._order(launch, enclosed))
            pid, go = folder.start(enclosed.environment)
        except OSError as error:
            # The caller gets the error at once.
            reason = f"the command could not be started: {error.strerror}"
            await self._store.insist(lambda tx: self._refuse(tx, task, reason))
            raise
        try:
            fail_here("bg.spawned")
            birth = identity.born(pid)
            await self._store.write(
                lambda tx: tx.execute("UPDATE processes SET pid = ?, born = ? WHERE task = ?", pid, birth, task)
            )
            fail_here("bg.pid")
            # A keeper that is already gone is noticed when it is watched.
            with suppress(BrokenPipeError):
                os.write(go, b"!")
            fail_here("bg.go")
        finally:
            # Without the byte, the keeper does not start the command.
            os.close(go)
        self._watch(task)
        return task

    def _put(self, tx: Transaction, session: Session, launch: Launch) -> tuple[str, bool]:
        if row := task_rows.known(tx, launch.key):
            return row["id"], False
        if task_rows.open_of(tx, session.conversation.id, task_rows.PROCESS) >= self._settings.processes:
            most = self._settings.processes
            raise Overdrawn(f"the limit of {most} background processes is reached here; wait for one, or end one")
        if launch.manner is Manner.WAKE:
            task_rows.check_wake(tx, session.conversation.id)
        new = New(task_rows.PROCESS, launch.title, launch.title, launch.manner, state=TaskState.RUNNING, key=launch.key)
        task = task_rows.begin(tx, session, new, self._clock.now())
        tx.execute("INSERT INTO processes (task, patterns) VALUES (?, ?)", task, msgspec.json.encode(launch.patterns))
        return task, True

    def _refuse(self, tx: Transaction, task: str, reason: str) -> None:
        """Ends a task whose command was never started, without a notice."""
        task_rows.silence(tx, task)
        task_rows.end(tx, task_rows.find(tx, task), End(TaskState.FAILED, reason, ""), self._clock)

    def _order(self, launch: Launch, enclosed: Enclosed) -> Order:
        most = self._settings.process_seconds
        return Order(
            command=list(enclosed.command),
            folder=str(enclosed.folder),
            patterns=launch.patterns,
            seconds=min(launch.seconds or most, most),
            output=self._settings.process_output_bytes,
            memory=self._settings.process_memory_bytes,
            wall=written(enclosed),
        )

    def _folder_of(self, task: str) -> ProcessFolder:
        return ProcessFolder(self._folder / task)

    def _watch(self, task: str) -> None:
        if task not in self._watching:
            self._watching.begin(self._attend(task), key=task)

    async def _attend(self, task: str) -> None:
        row = await self._store.read(lambda tx: tx.one(f"{JOINED} WHERE id = ? AND {task_rows.OPEN}", task))
        if row is None:
            return
        if row["pid"] is not None and msgspec.json.decode(row["patterns"]):
            await self._look_on(row)
        elif row["pid"] is not None:
            await identity.until_gone(row["pid"], row["born"])
        await self._close(task)

    async def _look_on(self, row: Row) -> None:
        gone = asyncio.create_task(identity.until_gone(row["pid"], row["born"]))
        try:
            while not await ended_within(self._clock, gone, LOOK_SECONDS):
                await self._tell_matches(row["id"])
            gone.result()
        finally:
            gone.cancel()
            await asyncio.wait({gone})

    async def _tell_matches(self, task: str) -> None:
        row = await self._store.read(lambda tx: tx.one(f"{JOINED} WHERE id = ? AND {task_rows.OPEN}", task))
        if row is None or row["matched"] >= MOST_MATCH_NOTICES:
            return
        if row["matched"] and self._clock.now() - row["matched_at"] < MATCH_SECONDS:
            return
        found = await asyncio.to_thread(self._folder_of(task).matches, row["scanned"])
        if found.end == row["scanned"]:
            return
        words = report.matched(row["title"], found, is_last=row["matched"] + 1 == MOST_MATCH_NOTICES)

        def unit(tx: Transaction) -> None:
            # A match is reported only once, and never after the process's end was reported.
            told = tx.count(
                "UPDATE processes SET scanned = ?, matched = matched + 1, matched_at = ? WHERE task = ? AND scanned = ?"
                f" AND EXISTS (SELECT 1 FROM tasks WHERE id = processes.task AND {task_rows.OPEN})",
                found.end,
                self._clock.now(),
                task,
                row["scanned"],
            )
            if told:
                task_rows.tell(tx, row, words, self._clock, f"match/{task}/{row['scanned']}")

        await self._store.insist(unit)

    async def _close(self, task: str) -> None:
        """Stores and reports once how a process ended."""
        row = await self._store.read(lambda tx: tx.one(f"{JOINED} WHERE id = ?", task))
        assert row is not None
        case = await self._case(row)
        fail_here("bg.pre_notify")

        def unit(tx: Transaction) -> None:
            now = task_rows.find(tx, task)
            asked = case._replace(stopped_by=now["stop_asked"] or "")
            begun = row["pid"] is not None
            end = report.ended(asked, self._settings) if begun else End(*report.unbegun(now["title"]))
            task_rows.end(tx, now, end, self._clock)

        await self._store.insist(unit)
        self._asked.pop(task, None)

    async def _case(self, row: Row) -> Case:
        folder = self._folder_of(row["id"])
        status = await asyncio.to_thread(folder.status)
        is_here = identity.is_from_this_boot(row["born"])
        if status is None and (is_here or row["pid"] is None):
            await asyncio.to_thread(_end_all, row["id"], row["pid"])
        rest = Matches([], [], 0)
        if row["matched"] < MOST_MATCH_NOTICES:
            rest = await asyncio.to_thread(folder.matches, row["scanned"])
        output = await asyncio.to_thread(folder.log, -TAIL_BYTES, TAIL_BYTES)
        seconds = status.seconds if status else self._clock.now() - row["started"]
        return Case(row["title"], Manner(row["manner"]), status, "", seconds, is_here, output.text, rest)

    async def end(self, row: Row, by: str) -> None:
        """Asks a process and its descendants to end; a second call kills those that are left."""
        found = await self._store.read(lambda tx: tx.one(f"{JOINED} WHERE id = ?", row["id"]))
        if found is None or found["pid"] is None:
            return
        now = self._clock.now()
        is_stuck = now - self._asked.setdefault(row["id"], now) > STUCK_SECONDS
        identity.tell(found["pid"], found["born"], signal.SIGKILL if is_stuck else signal.SIGTERM)

    async def log(self, id: str, start: int, limit: int) -> Log:
        row = await self._find(id)
        folder = self._folder_of(id)
        if row["ended"] is not None and not folder.path.exists():
            data = row["output"].encode()
            first = max(len(data) + start, 0) if start < 0 else min(start, len(data))
            data = data[first : first + limit]
            return Log(text=data.decode("utf-8", "replace"), start=first, end=first + len(data))
        found = await asyncio.to_thread(folder.log, start, limit)
        return Log(text=plain(found.text), start=found.start, end=found.end)

    async def feed(self, id: str, text: str, *, end: bool) -> None:
        row = await self._find(id)
        if row["ended"] is not None:
            raise Unknown("it has ended")
        await self._folder_of(id).feed(text, end=end)
        if end:
            # The signal makes the keeper read its input, and is harmless if the keeper is not ready.
            process = await self._store.read(lambda tx: tx.one("SELECT * FROM processes WHERE task = ?", id))
            if process and process["pid"] is not None:
                identity.tell(process["pid"], process["born"], signal.SIGCHLD)

    async def wait(self, id: str, seconds: float) -> Task:
        await self._find(id)
        if watching := self._watching.get(id):
            await ended_within(self._clock, watching, seconds)
        return task_rows.task_of(await self._find(id), self._clock.ahead)

    async def _find(self, id: str) -> Row:
        row = await self._store.read(lambda tx: task_rows.find(tx, id))
        if row["kind"] != task_rows.PROCESS:
            raise Unknown(f"{id} is not a process")
        return row

    async def _remove_old(self) -> None:
        ended = await self._store.read(
            lambda tx: tx.all(
                "SELECT task, ended FROM (SELECT task, (SELECT ended FROM tasks WHERE id = task) AS ended"
                " FROM processes) AS known WHERE ended IS NOT NULL ORDER BY ended DESC"
            )
        )
        oldest = self._clock.now() - KEPT_SECONDS
        old = [row["task"] for place, row in enumerate(ended) if place >= KEPT_FOLDERS or row["ended"] < oldest]
        for task in old[-REMOVED_AT_ONCE:]:
            await asyncio.to_thread(self._folder_of(task).remove)
            await self._store.insist(lambda tx, task=task: remove(tx, task))  # type: ignore[misc]

    def _remove_strays(self, known: set[str]) -> None:
        """Removes processes without a row, such as after an older database was restored."""
        if self._folder.exists():
            for folder in self._folder.iterdir():
                if folder.name not in known:
                    _end_all(folder.name, None)
                    ProcessFolder(folder).remove()


async def _check(launch: Launch) -> None:
    if launch.patterns and launch.manner is Manner.NOTHING:
        raise Unkeepable("matching lines are reported, so the end must be reported too; ask for that")
    if len(launch.patterns) > MOST_PATTERNS:
        raise Unkeepable(f"at most {MOST_PATTERNS} patterns can be watched at once")
    for pattern in launch.patterns:
        if not pattern or len(pattern) > PATTERN_CHARACTERS:
            raise Unkeepable(f"a pattern has between 1 and {PATTERN_CHARACTERS} characters")
    if not launch.patterns:
        return
    # Compiling a pattern may take seconds and would block the event loop.
    program = identity.program(patterns.__file__, json.dumps(launch.patterns))
    enclosed = own(program, Path("/"), context.child_environment())
    ended = await foreground.run(enclosed, READING_SECONDS, PATTERN_WORDS_BYTES)
    if ended.code == patterns.BAD:
        raise Unkeepable(ended.output.strip())
    if ended.code != 0:
        raise Unkeepable("the patterns could not be compiled; try again, or use simpler ones")


def remove(tx: Transaction, task: str) -> None:
    tx.execute("DELETE FROM processes WHERE task = ?", task)


def _end_all(task: str, keeper: int | None) -> None:
    for _ in range(KILLING_ROUNDS):
        if not identity.end_all_of(task, keeper):
            return

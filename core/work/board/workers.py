"""Worker processes: starts them, handles their reports, warns them before their time is up, and ends them."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from contextvars import Context
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tidings.core.clock import HOP_SECONDS, Clock, Timer
from tidings.core.desk.board import BY_WORKER, Block, CardFile
from tidings.core.errors import Fenced, TidingsError, Unkeepable
from tidings.core.settings import Board
from tidings.core.store.store import Store, Transaction
from tidings.core.work.board import artifacts, verdicts
from tidings.core.work.board import cards as card_rows
from tidings.core.work.board import rules as board_rules
from tidings.core.work.board.brief import Briefing
from tidings.core.work.board.cards import Moment
from tidings.core.work.board.rules import Hold
from tidings.core.work.board.verdicts import Verdict
from tidings.core.work.board.worker_process import Said, Worker
from tidings.core.work.processes import identity

log = logging.getLogger(__name__)

# The share of its time after which a worker is warned.
NEARLY = 0.8
# How long a worker may take to exit after its verdict.
LEAVING_SECONDS = 5.0


class Job(NamedTuple):
    hold: Hold
    command: tuple[str, ...]
    briefing: Briefing
    records: Path


# Called when a worker process has ended, inside a transaction.
Gone = Callable[[Transaction, Hold, Verdict, str], None]


class Workers:
    def __init__(self, store: Store, clock: Clock, settings: Board, home: Path, gone: Gone) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings
        self._home = home
        self._gone = gone
        self._working: dict[tuple[int, int], asyncio.Task[None]] = {}
        self._stopping = False

    @property
    def at_work(self) -> tuple[tuple[int, int], ...]:
        """Running workers, each by its card and attempt."""
        return tuple(self._working)

    async def idle(self) -> None:
        """Returns when no worker runs any more."""
        while self._working:
            await asyncio.wait(self._working.values())

    def begin(self, job: Job) -> None:
        if self._stopping:
            # The card was claimed just before the stop, and is put back.
            return
        key = (job.hold.card, job.hold.attempt)
        # The worker must not inherit the caller's session.
        task = asyncio.create_task(self._work(job), context=Context())
        self._working[key] = task
        task.add_done_callback(lambda task: self._ended(key, task))

    def end(self, card: int, attempt: int) -> None:
        if task := self._working.get((card, attempt)):
            task.cancel()

    async def stop(self) -> None:
        """Cuts off all workers; the next start finds their cards, and tries again if no effect would be repeated."""
        self._stopping = True
        for task in self._working.values():
            task.cancel()
        await asyncio.gather(*self._working.values(), return_exceptions=True)
        # No process of a worker may be left when the gateway has stopped.
        await identity.endings.drain()

    def _ended(self, key: tuple[int, int], task: asyncio.Task[None]) -> None:
        self._working.pop(key, None)
        if not task.cancelled() and (error := task.exception()):
            # The lease expires, and then the card is taken back.
            log.error("the worker of card #%d failed in the gateway: %r", key[0], error, exc_info=error)

    async def _work(self, job: Job) -> None:
        try:
            verdict, notes = await self._attempt(job)
        except Fenced:
            return
        await self._store.insist(lambda tx: self._gone(tx, job.hold, verdict, notes))

    async def _attempt(self, job: Job) -> tuple[Verdict, str]:
        worker = Worker(job.command, Path(job.briefing.workspace), _environment(job), job.records)
        try:
            pid = await worker.start()
        except OSError as error:
            return Verdict(Block.NOT_RUNNABLE, f"{job.command[0]} cannot be started: {error.strerror}", False), ""
        # The worker starts only after its process id is stored, so that it can always be ended.
        try:
            await self._store.insist(lambda tx: _keep_pid(tx, job.hold, pid, worker.born))
        except BaseException:
            await worker.close()
            raise
        watch = _Watch(self._clock, self._settings.worker_seconds, worker)
        working = asyncio.create_task(worker.work(job.briefing, lambda said: self._hear(job, said, watch)))
        watch.task = working
        try:
            code = await working
        except asyncio.CancelledError:
            if not watch.is_over:
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)
                raise
            code = None
        finally:
            watch.cancel()
        if watch.is_over == "time":
            seconds = f"{self._settings.worker_seconds:g}"
            reason = f"the worker reached its time limit of {seconds} s; its log is {job.records}{worker.log_trouble}"
            return Verdict(Block.BUDGET, reason, False), worker.last_words
        return verdicts.of_process(code, worker.last_words, f"{job.records}{worker.log_trouble}"), ""

    async def _hear(self, job: Job, said: Said, watch: _Watch) -> dict[str, Any]:
        """Handles a line of the worker, which also renews its lease; a refusal is answered with its reason."""
        moment = Moment.of(self._clock)
        try:
            files = await asyncio.to_thread(self._take, job, said)
            await self._store.insist(lambda tx: self._write(tx, job, said, files, moment))
        except Fenced as error:
            watch.leave(0.0)
            return {"ok": False, "error": str(error), "stop": True}
        except TidingsError as error:
            return {"ok": False, "error": str(error)}
        if said.do in ("complete", "block", "review"):
            watch.leave(LEAVING_SECONDS)
        return {"ok": True}

    def _take(self, job: Job, said: Said) -> tuple[CardFile, ...]:
        """Copies the files now, because the worker may change them before they are sent."""
        places = {"attach": (said.place or said.name,), "complete": said.artifacts}.get(said.do, ())
        kept = self._home / "attachments" / "outgoing" / f"card-{job.hold.card}"
        by, workspace = f"attempt {job.hold.attempt}", Path(job.briefing.workspace)
        return tuple(artifacts.take(place, workspace, kept, by) for place in places)

    def _write(self, tx: Transaction, job: Job, said: Said, files: tuple[CardFile, ...], at: Moment) -> None:
        hold = job.hold
        board_rules.renew(tx, hold, self._settings.lease_seconds, at)
        match said.do:
            case "heartbeat":
                if said.note:
                    card_rows.beat(tx, hold.card, said.note, f"attempt {hold.attempt}", at)
            case "comment":
                card_rows.comment(tx, hold.card, f"attempt {hold.attempt}", said.text, at)
            case "attach":
                for file in files:
                    card_rows.attach(tx, hold.card, msgspec.structs.replace(file, name=said.name or file.name))
            case "effect":
                tx.execute("UPDATE card_attempts SET effect = 1 WHERE card = ? AND number = ?", hold.card, hold.attempt)
            case "complete":
                board_rules.complete(tx, hold, said.summary, files, at)
            case "block":
                if said.kind not in BY_WORKER:
                    raise Unkeepable(f"{said.kind!r} is not a kind of block; there are: {', '.join(BY_WORKER)}")
                board_rules.block(tx, hold, Block(said.kind), said.reason, said.notes, at)
            case "review":
                board_rules.review(tx, hold, said.summary, at)
            case _:
                raise Unkeepable(f"there is no command {said.do!r} here")


class _Watch:
    """Measures one worker's time; time in which the machine sleeps does not count."""

    def __init__(self, clock: Clock, seconds: float, worker: Worker) -> None:
        self._clock = clock
        self.task: asyncio.Task[int | None] | None = None
        # Why the worker was ended: its time was up, or it did not exit after its verdict.
        self.is_over = ""
        note = {"note": f"{seconds * (1 - NEARLY):g} of {seconds:g} s are left: report what is done and what is open."}
        self._duties: list[tuple[float, Callable[[], None]]] = [
            (seconds * NEARLY, lambda: worker.tell(note)),
            (seconds, lambda: self._end("time")),
        ]
        self._spent = 0.0
        self._leaving: Timer | None = None
        self._timer = self._wait()

    def leave(self, seconds: float) -> None:
        self._leaving = self._clock.call_later(seconds, lambda: self._end("left"))

    def _wait(self) -> Timer:
        """Waits in short steps; a step that takes much too long means that the machine slept."""
        began, hop = self._clock.now(), min(self._duties[0][0] - self._spent, HOP_SECONDS)

        def arrive() -> None:
            self._spent += min(self._clock.now() - began, hop + HOP_SECONDS)
            while self._duties and self._spent >= self._duties[0][0]:
                self._duties.pop(0)[1]()
            if self._duties:
                self._timer = self._wait()

        return self._clock.call_later(hop, arrive)

    def _end(self, why: str) -> None:
        self.is_over = self.is_over or why
        if self.task is not None:
            self.task.cancel()

    def cancel(self) -> None:
        self._timer.cancel()
        if self._leaving is not None:
            self._leaving.cancel()


def _keep_pid(tx: Transaction, hold: Hold, pid: int, born: str) -> None:
    # Raises Fenced if the card was archived since it was claimed; then its worker must not start.
    board_rules.held(tx, hold)
    tx.execute(
        "UPDATE card_attempts SET pid = ?, born = ? WHERE card = ? AND number = ?",
        pid,
        born,
        hold.card,
        hold.attempt,
    )


def _environment(job: Job) -> dict[str, str]:
    """The worker's environment, without any secret of the gateway."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": job.briefing.workspace,
        "LANG": os.environ.get("LANG", "C.UTF-8"),
        "TIDINGS_CARD": job.briefing.card,
        "TIDINGS_CARD_ATTEMPT": str(job.briefing.attempt),
        "TIDINGS_CARD_WORKSPACE": job.briefing.workspace,
    }

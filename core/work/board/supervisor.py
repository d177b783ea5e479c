"""The board's supervisor: starts workers on ready cards, renews leases, and gives a verdict if a worker gave none."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from contextvars import Context
from pathlib import Path
from typing import NamedTuple

import msgspec

from tidings.core import ids
from tidings.core.clock import Timer
from tidings.core.desk.board import Block, Hand
from tidings.core.errors import Unstored
from tidings.core.inbound import inbox
from tidings.core.inbound.bots import Bots
from tidings.core.memory import conversations
from tidings.core.part import Part
from tidings.core.settings import Board
from tidings.core.store.essentials import Essentials
from tidings.core.store.store import Row, Transaction
from tidings.core.store.wakeups import BoardChanged
from tidings.core.types import Conversation, Errand, Inbound, Origin, Sender, Target
from tidings.core.work.board import brief as board_brief
from tidings.core.work.board import card_news
from tidings.core.work.board import cards as card_rows
from tidings.core.work.board import rules as board_rules
from tidings.core.work.board.brief import Briefing, Parent
from tidings.core.work.board.cards import Moment
from tidings.core.work.board.conclusions import Conclusions
from tidings.core.work.board.permissions import Permissions
from tidings.core.work.board.rules import Claimed, Hold
from tidings.core.work.board.verdicts import Verdict
from tidings.core.work.board.workers import Job, Workers
from tidings.core.work.mandates import Mandates
from tidings.core.work.processes import identity, launcher
from tidings.core.work.tasks import rows as task_rows

log = logging.getLogger(__name__)

# Stops a run; the second argument names who asked.
Stop = Callable[[str, str], Awaitable[bool]]

BOARD = Hand("the board", is_person=False)


class _Round(NamedTuple):
    """The result of one check of the board."""

    jobs: list[Job]
    # Attempts whose workers have lost their cards.
    fenced: list[Row]
    # When to check again; None when no card runs or waits.
    next: float | None


class BoardSupervisor(Part):
    def __init__(
        self,
        essentials: Essentials,
        settings: Board,
        stop_run: Stop,
        bots: Bots,
        home: Path,
        mandates: Mandates,
        conclusions: Conclusions,
    ) -> None:
        self._store = store = essentials.store
        self._clock = clock = essentials.clock
        self._conclusions = conclusions
        self._settings = settings
        self._stop_run = stop_run
        self._permissions = Permissions(settings, bots)
        self._home = home
        self._mandates = mandates
        self._workers = Workers(store, clock, settings, home, conclusions.end_process)
        self._timer: Timer | None = None
        # When the board is checked next.
        self._due: float | None = None
        self._looking: asyncio.Task[None] | None = None
        self._again = False
        # Nothing starts before the workers of a dead process have been ended.
        self._stopped = True
        store.wakeups.subscribe(BoardChanged, lambda due: self.wake())
        mandates.subscribe(self.wake)

    @property
    def moment(self) -> Moment:
        return Moment.of(self._clock)

    async def recover(self) -> None:
        """Ends the workers that a dead process began, and concludes their attempts."""
        left = await self._store.insist(_open_processes)
        await asyncio.gather(*(_see_off(row["pid"], row["born"]) for row in left if row["pid"] is not None))
        for row in left:
            await self._store.insist(lambda tx, row=row: self._lost(tx, row))  # type: ignore[misc]

    async def start(self) -> None:
        self._stopped = False
        await self.sweep()

    async def sweep(self) -> None:
        await self.look()

    async def stop(self, patience: float) -> None:
        self._stopped = True
        if self._timer:
            self._timer.cancel()
        if self._looking:
            await asyncio.gather(self._looking, return_exceptions=True)
        await self._workers.stop()
        try:
            await self._store.write(self._leave)
        except Unstored as error:
            # The next start finds these cards, and counts an attempt.
            log.warning("running cards could not be put back: %s", error)

    def wake(self) -> None:
        """Checks the board soon, because a card may be ready."""
        if self._stopped:
            return
        if self._looking is not None:
            self._again = True
            return
        self._looking = asyncio.create_task(self.look(), context=Context())
        self._looking.add_done_callback(self._looked)

    def _looked(self, task: asyncio.Task[None]) -> None:
        self._looking = None
        if not task.cancelled() and (error := task.exception()):
            # The next sweep checks again.
            log.error("the board could not be checked: %r", error, exc_info=error)
        elif self._again:
            self._again = False
            self.wake()

    async def look(self) -> None:
        if self._stopped:
            return
        at_work = self._workers.at_work
        looked = await self._store.insist(lambda tx: self._look(tx, at_work))
        for job in looked.jobs:
            self._workers.begin(job)
        for row in looked.fenced:
            await self.end(row, "the board")
        if self._timer:
            self._timer.cancel()
            self._timer = None
        self._due = looked.next
        if looked.next is not None and not self._stopped:
            self._timer = self._clock.call_later(max(looked.next - self._clock.now(), 0.0), self.wake)

    async def end(self, attempt: Row, by: str) -> None:
        """Ends the worker of an attempt, which can already write nothing more."""
        if attempt["run"]:
            await self._stop_run(attempt["run"], by)
        else:
            self._workers.end(attempt["card"], attempt["number"])

    def _look(self, tx: Transaction, at_work: Collection[tuple[int, int]]) -> _Round:
        at = self.moment
        _renew_runs(tx, at.now + self._settings.lease_seconds)
        if self._due is not None and at.now - self._due > self._settings.heartbeat_seconds:
            self._listen_longer(tx, at)
        fenced = [*_archived_runs(tx), *_archived_processes(tx, at_work), *self._take_back(tx, at)]
        self._set_aside(tx, at)
        self._take_back_lapsed(tx, at, fenced)
        jobs: list[Job] = []
        running = tx.one("SELECT count(*) AS n FROM cards WHERE state = 'running'")
        free = max(self._settings.parallel - (running["n"] if running else 0), 0)
        self._set_aside_lapsed(tx, free, at)
        for claimed in board_rules.claim(tx, free, self._settings.lease_seconds, at):
            brief = self._brief(tx, claimed, at)
            if claimed.card["assignee"] in self._settings.workers:
                jobs.append(self._job(tx, claimed, brief))
            else:
                self._put_run(tx, claimed, brief, at)
        return _Round(jobs, fenced, self._next(tx, at))

    def _listen_longer(self, tx: Transaction, at: Moment) -> None:
        """Renews every lease after the machine slept or we could not check: workers could not report meanwhile."""
        lease = at.now + self._settings.lease_seconds
        if tx.count("UPDATE cards SET lease = ? WHERE state = 'running' AND lease < ?", lease, lease):
            log.info("the board was not checked for a while; each card at work gets one more lease")

    def _take_back(self, tx: Transaction, at: Moment) -> list[Row]:
        """Takes cards back from workers whose lease has expired."""
        fenced = []
        for card in tx.all("SELECT * FROM cards WHERE state = 'running' AND lease <= ?", at.now):
            attempt = board_rules.open_attempt(tx, card["id"])
            assert attempt is not None, "a running card has an attempt"
            silent = f"the worker was silent for {self._settings.lease_seconds:g} s; its log is {_log_of(attempt)}"
            kind = Block.INTERRUPTED if attempt["run"] else Block.HANG
            self._conclusions.conclude(tx, attempt, Verdict(kind, silent, True), "")
            fenced.append(attempt)
        return fenced

    def _set_aside(self, tx: Transaction, at: Moment) -> None:
        """Blocks ready cards whose assignee no longer exists, instead of letting them wait for ever."""
        roster = self._permissions.roster
        for row in tx.all("SELECT DISTINCT assignee FROM cards WHERE state = 'ready'"):
            if row["assignee"] in roster:
                continue
            why = card_news.not_runnable(row["assignee"], roster)
            for card in tx.all("SELECT id FROM cards WHERE state = 'ready' AND assignee = ?", row["assignee"]):
                board_rules.set_aside(tx, str(card["id"]), Block.NOT_RUNNABLE, why, BOARD, at)

    def _take_back_lapsed(self, tx: Transaction, at: Moment, fenced: list[Row]) -> None:
        """Stops running cards of people who were removed from the access list."""
        for card in tx.all("SELECT * FROM cards WHERE state = 'running'"):
            attempt = board_rules.open_attempt(tx, card["id"])
            if attempt is not None and (why := self._mandates.lapsed(task_rows.asker_of(card))):
                hold = Hold(card["id"], attempt["number"], attempt["fence"])
                board_rules.block(tx, hold, Block.STOPPED, why, "", at)
                self._tell_lapsed(tx, card, why)
                fenced.append(attempt)

    def _set_aside_lapsed(self, tx: Transaction, free: int, at: Moment) -> None:
        """Blocks ready cards of people who were removed from the access list."""
        while lapsed := [
            (card, why)
            for card in board_rules.ready(tx, free, at)
            if (why := self._mandates.lapsed(task_rows.asker_of(card)))
        ]:
            for card, why in lapsed:
                board_rules.set_aside(tx, str(card["id"]), Block.STOPPED, why, BOARD, at)
                self._tell_lapsed(tx, card, why)

    def _tell_lapsed(self, tx: Transaction, card: Row, why: str) -> None:
        what = (
            f"“{card['title']}” (card #{card['id']}) {'was stopped' if card['state'] == 'running' else 'did not run'}"
        )
        self._mandates.tell(tx, what, why, f"lapsed/card/{card['id']}")

    def _next(self, tx: Transaction, at: Moment) -> float | None:
        row = tx.one(
            "SELECT (SELECT min(due) FROM cards WHERE state = 'ready' AND due > ?) AS due,"
            " (SELECT min(lease) FROM cards WHERE state = 'running') AS lease",
            at.now,
        )
        assert row is not None
        beat = None if row["lease"] is None else min(row["lease"], at.now + self._settings.heartbeat_seconds)
        return min((moment for moment in (row["due"], beat) if moment is not None), default=None)

    def _brief(self, tx: Transaction, claimed: Claimed, at: Moment) -> Briefing:
        card = card_rows.card(tx, str(claimed.hold.card), at.ahead)
        parents = []
        for row in card_rows.parents(tx, claimed.hold.card):
            files = tx.all("SELECT name, place FROM card_files WHERE card = ? ORDER BY place", row["id"])
            names = tuple(f"{file['name']}: {file['place']}" for file in files)
            parents.append(Parent(str(row["id"]), row["title"], row["summary"], names))
        return board_brief.of(
            card, claimed.hold.attempt, tuple(parents), str(self._home / "workspaces" / card.workspace)
        )

    def _put_run(self, tx: Transaction, claimed: Claimed, brief: Briefing, at: Moment) -> None:
        """Stores the run of a claimed card in the same transaction as the claim."""
        hold, card, run = claimed.hold, claimed.card, ids.new("run")
        conversation = Conversation(adapter=card_rows.ADAPTER, account="main", chat=str(hold.card))
        sender = msgspec.json.decode(card["sender"], type=Sender) if card["sender"] else Sender(id="board")
        message = Inbound(
            key=f"card/{hold.card}/{hold.attempt}",
            conversation=conversation,
            target=Target(adapter=card_rows.ADAPTER, chat=str(hold.card)),
            sender=sender,
            origin=Origin.CARD,
            text=board_brief.text(brief),
            bot=card["assignee"],
            errand=Errand(
                id=str(hold.card),
                requests=card["budget"],
                workspace=Path(brief.workspace).name,
                asker=task_rows.asker_of(card),
            ),
        )
        # Notes of earlier attempts are in the briefing; their conversation would only mislead.
        conversations.begin_generation(tx, conversation.id)
        inbox.put_unclaimed(tx, message, run, at.now)
        tx.execute(
            "UPDATE card_attempts SET run = ?, log = ? WHERE card = ? AND number = ?", run, run, hold.card, hold.attempt
        )

    def _job(self, tx: Transaction, claimed: Claimed, brief: Briefing) -> Job:
        hold = claimed.hold
        records = self._home / "board" / str(hold.card) / f"attempt-{hold.attempt}.log"
        tx.execute(
            "UPDATE card_attempts SET log = ? WHERE card = ? AND number = ?", str(records), hold.card, hold.attempt
        )
        return Job(hold, self._settings.workers[claimed.card["assignee"]], brief, records)

    def _lost(self, tx: Transaction, attempt: Row) -> None:
        verdict = Verdict(
            Block.INTERRUPTED, f"interrupted by a restart of the gateway; its log is {_log_of(attempt)}", True
        )
        self._conclusions.conclude(tx, attempt, verdict, "")

    def _leave(self, tx: Transaction) -> None:
        """Puts running cards back when the gateway stops; the attempt does not count."""
        at = self.moment
        for attempt in _open_processes(tx):
            if not attempt["effect"]:
                hold = Hold(attempt["card"], attempt["number"], attempt["fence"])
                board_rules.put_back(tx, hold, Block.INTERRUPTED, "the gateway was stopped", "", at.now, at)
                tx.execute("UPDATE cards SET tries = tries - 1 WHERE id = ?", attempt["card"])


async def _see_off(pid: int, birth: str) -> None:
    """Waits until the launcher of a dead gateway has ended all its processes; kills its group if it is stuck."""
    try:
        async with asyncio.timeout(launcher.ENDING_SECONDS):
            await identity.until_gone(pid, birth)
    except TimeoutError:
        log.error("the launcher %d does not end; its group is killed", pid)
        identity.kill_group(pid, birth)


def _open_processes(tx: Transaction) -> list[Row]:
    return tx.all("SELECT * FROM card_attempts WHERE ended IS NULL AND run = ''")


def _archived_runs(tx: Transaction) -> list[Row]:
    """Attempts whose card was archived while their run was open."""
    return tx.all(
        "SELECT a.* FROM inbox i JOIN card_attempts a ON a.run = i.run WHERE i.state = 'running'"
        " AND i.conversation >= 'card:' AND i.conversation < 'card;' AND a.run <> '' AND a.ending = 'archived'"
        " UNION ALL SELECT a.* FROM inbox i JOIN card_attempts a ON a.run = i.run WHERE i.state = 'waiting'"
        " AND i.conversation >= 'card:' AND i.conversation < 'card;' AND a.run <> '' AND a.ending = 'archived'"
    )


def _archived_processes(tx: Transaction, at_work: Collection[tuple[int, int]]) -> list[Row]:
    """Attempts whose card was archived while their process was running."""
    archived = "SELECT * FROM card_attempts WHERE card = ? AND number = ? AND ending = 'archived'"
    return [row for card, number in at_work if (row := tx.one(archived, card, number))]


def _renew_runs(tx: Transaction, lease: float) -> None:
    """Renews the leases of open runs, which the dispatcher and recovery take care of."""
    tx.execute(
        "UPDATE cards SET lease = ? WHERE state = 'running' AND EXISTS (SELECT 1 FROM card_attempts a JOIN inbox i"
        " ON i.run = a.run WHERE a.card = cards.id AND a.ended IS NULL AND i.state IN ('waiting', 'running'))",
        lease,
    )


def _log_of(attempt: Row) -> str:
    return str(attempt["log"])

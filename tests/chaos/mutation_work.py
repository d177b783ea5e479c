"""Seeded bugs in work that ends later: promises that are broken, kept twice or kept elsewhere, and work done twice."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

import msgspec

from tests.chaos.mutation_seams import swap
from tidings.core import ids
from tidings.core.agent import JournalEvent, Outcome
from tidings.core.clock import Clock
from tidings.core.context import Session
from tidings.core.desk.runs import Numbered
from tidings.core.desk.work import Log, Plan
from tidings.core.inbound import answer
from tidings.core.operations import retention
from tidings.core.operations.retention import Place, Step
from tidings.core.outbound import homes, notices, outbox
from tidings.core.outbound.notices import Notice
from tidings.core.outbound.outbox import Owed
from tidings.core.runs import journal
from tidings.core.store.pruning import Terms
from tidings.core.store.store import Row, Transaction
from tidings.core.types import Author, Body, File, Inbound, Receipt, Target
from tidings.core.work.processes import identity
from tidings.core.work.processes.folder import ProcessFolder
from tidings.core.work.processes.processes import Processes
from tidings.core.work.schedules import rows as schedule_rows
from tidings.core.work.schedules import when as schedule_when
from tidings.core.work.schedules.firing import FiringLoop
from tidings.core.work.schedules.shell import ScheduledShell
from tidings.core.work.schedules.when import When
from tidings.core.work.tasks import rows as task_rows
from tidings.core.work.tasks.tasks import Tasks


def notice_without_its_key() -> None:
    """Whoever asks a second time is told a second time."""

    def put_once(tx: Transaction, owed: Owed, now: float) -> str:
        outbox.put(tx, owed._replace(key=""), now)
        return owed.id

    swap(outbox, "put_once", put_once)


def promise_where_nobody_can_be_told() -> None:
    def require(self: Session, ability: str) -> None:
        return

    swap(Session, "require", require)


def woken_and_silent() -> None:
    """Who was woken by news has nothing to say of them, and nobody hears of them."""

    def body_of(run: str, inbound: Inbound, outcome: Outcome, *, shown: bool = False) -> Body:
        return Body(text=outcome.text.strip() or "(no answer)", files=outcome.files)

    swap(answer, "body_of", body_of)


def adopted_by_number_alone() -> None:
    """Whoever has the number now is taken for the process that had it."""
    until_gone, tell = identity.until_gone, identity.tell

    async def wait(pid: int, birth: str) -> None:
        await until_gone(pid, identity.born(pid))

    def signal(pid: int, birth: str, number: int) -> bool:
        return tell(pid, identity.born(pid), number)

    swap(identity, "until_gone", wait)
    swap(identity, "tell", signal)


def begins_before_it_is_known() -> None:
    """The command runs before its number is stored."""
    real = ProcessFolder.start

    def start(self: ProcessFolder, environment: Mapping[str, str]) -> tuple[int, int]:
        pid, go = real(self, environment)
        os.write(go, b"!")
        return pid, go

    swap(ProcessFolder, "start", start)


def instant_fired_again() -> None:
    """What has been fired is not asked: an instant that comes again runs again."""
    begin = schedule_rows.begin

    def first_unfired(self: FiringLoop, tx: Transaction, row: Row, when: When) -> float | None:
        return when.after(self._clock.wall())

    def begin_again(
        tx: Transaction, schedule: str, plan: Plan, instant: float, due: float, clock: Clock, late: bool
    ) -> str:
        while tx.one("SELECT 1 FROM firings WHERE schedule = ? AND instant = ?", schedule, instant):
            instant += 0.001
        return begin(tx, schedule, plan, instant, due, clock, late)

    swap(FiringLoop, "_first_unfired", first_unfired)
    swap(schedule_rows, "begin", begin_again)


def cut_off_command_runs_again() -> None:
    def interrupt(self: ScheduledShell, tx: Transaction) -> None:
        tx.execute("UPDATE firings SET state = 'waiting' WHERE state = 'running' AND run = ''")

    swap(ScheduledShell, "_interrupt", interrupt)


def job_answers_whoever_wrote_last() -> None:
    real = schedule_rows._tell

    def tell(
        tx: Transaction, firing: str, plan: Plan, where: Target, words: str, clock: Clock, files: tuple[File, ...] = ()
    ) -> None:
        row = tx.one("SELECT message FROM inbox WHERE conversation NOT LIKE 'schedule:%' ORDER BY seq DESC LIMIT 1")
        last = msgspec.json.decode(row["message"], type=Inbound).target if row else where
        real(tx, firing, plan, last, words, clock, files)

    swap(schedule_rows, "_tell", tell)


def lost_and_not_told() -> None:
    def take_up(self: Tasks, tx: Transaction, row: Row) -> None:
        tx.execute("UPDATE tasks SET state = 'lost', ended = ? WHERE id = ?", self._clock.now(), row["id"])

    swap(Tasks, "_take_up", take_up)


def polling_uses_up_the_notice() -> None:
    """Who has looked at a task is taken for one who knows how it ended."""
    real = Processes.log

    async def log(self: Processes, id: str, start: int, limit: int) -> Log:
        await self._store.write(lambda tx: tx.execute("UPDATE tasks SET manner = 'nothing' WHERE id = ?", id))
        return await real(self, id, start, limit)

    swap(Processes, "log", log)


def notice_as_a_persons_words() -> None:
    real = notices.remember

    def remember(tx: Transaction, conversation: str, notice: Notice, wall: float) -> None:
        real(tx, conversation, notice, wall)
        tx.execute("UPDATE history SET author = ? WHERE run = ?", Author.PERSON, notice.delivery)

    swap(notices, "remember", remember)


def notice_remembered_where_it_was_addressed() -> None:
    """What the platform says of where it landed is not read."""
    real = notices.land

    def land(tx: Transaction, notice: Notice, target: Target, receipt: Receipt, wall: float) -> None:
        real(tx, notice, target, msgspec.structs.replace(receipt, chat=""), wall)

    swap(notices, "land", land)


def reply_without_the_post_above_it() -> None:
    """The thread that a reply opens begins without the post."""
    real = notices.land

    def land(tx: Transaction, notice: Notice, target: Target, receipt: Receipt, wall: float) -> None:
        real(tx, notice, target, msgspec.structs.replace(receipt, opens=""), wall)

    swap(notices, "land", land)


def notice_remembered_for_each_part() -> None:
    real = notices.remember

    def remember(tx: Transaction, conversation: str, notice: Notice, wall: float) -> None:
        real(tx, conversation, notice._replace(delivery=ids.new("dlv")), wall)

    swap(notices, "remember", remember)


def alert_where_the_trouble_is() -> None:
    def elsewhere(
        tx: Transaction, about: str, fallback: Target | None, is_down: Callable[[str], bool]
    ) -> Target | None:
        return homes.all_of(tx).get(about, fallback)

    swap(homes, "elsewhere", elsewhere)


def end_of_a_failure_is_silent() -> None:
    """Only what went well is told."""
    real = task_rows.end

    def end(tx: Transaction, row: Row, how: task_rows.End, clock: Clock) -> None:
        real(tx, row, how._replace(words=how.words if how.state == "succeeded" else ""), clock)

    swap(task_rows, "end", end)


def unknown_entry_breaks_the_reader() -> None:
    decode = msgspec.json.Decoder(JournalEvent).decode

    def entry(run: str, row: Row) -> Numbered | None:
        return Numbered(row["seq"], decode(row["event"]), row["at"])

    swap(journal, "_entry", entry)


def minutes_of_an_hour_are_an_interval() -> None:
    """What is due at each twenty minutes of an hour is skipped with the hour, and doubled with it."""

    def spelled_out(cron: str) -> str:
        return cron

    swap(schedule_when, "_spelled_out", spelled_out)


def history_counts_anew() -> None:
    """When all was pruned, the numbers begin again, and whoever reads on misses what they stand for."""
    real = retention.step

    def step(tx: Transaction, place: Place, terms: Terms) -> Step:
        done = real(tx, place, terms)
        tx.execute("DELETE FROM history WHERE conversation = ''")
        return done

    swap(retention, "step", step)

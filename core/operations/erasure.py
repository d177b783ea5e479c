"""Erases runs at a client's request: text, events and files, once the run and its deliveries have ended.

The request is stored with the run, so it survives a crash. One row without text stays until retention removes it, so
that a repeated request does not run twice.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from tidings.core.clock import Clock
from tidings.core.inbound import approval_rows, forgetting, inbox
from tidings.core.inbound import pruning as inbound_pruning
from tidings.core.memory import conversations, history, talks
from tidings.core.operations import old_files
from tidings.core.outbound import pruning as outbound_pruning
from tidings.core.outbound import view_rows
from tidings.core.part import Part
from tidings.core.runs import journal
from tidings.core.store.store import Row, Store, Transaction
from tidings.core.types import Inbound, is_passing, workspace_name, workspace_of
from tidings.core.work.processes import processes
from tidings.core.work.schedules import rows as schedule_rows
from tidings.core.work.tasks import rows as task_rows

log = logging.getLogger(__name__)

# How long an ended run stays readable for a repeated request; after the client's request, a run is erased at once.
PATIENCE_SECONDS = 60.0
# How many runs one sweep looks at, and how many it erases.
LOOKED_AT, AT_ONCE = 200, 20


class Erasure(Part):
    def __init__(self, store: Store, clock: Clock, home: Path, is_followed: Callable[[str], bool]) -> None:
        """`is_followed` tells whether a reader follows the events of a run."""
        self._store = store
        self._clock = clock
        self._home = home
        self._is_followed = is_followed

    async def forget(self, run: str) -> None:
        """Erases a run, or marks it for later if it still works or has readers; raises Unknown."""
        await self._store.insist(lambda tx: forgetting.ask(tx, run))
        await self._erase(run)

    async def sweep(self) -> None:
        since = self._clock.now() - PATIENCE_SECONDS
        for run in await self._store.insist(lambda tx: wanted(tx, since)):
            await self._erase(run)
        for conversation, before in await self._store.insist(forgettable):
            await self._erase_conversation(conversation, before)

    async def _erase_conversation(self, conversation: str, before: float) -> None:
        """Removes what is left of a conversation once all its runs are erased."""
        tasks = await self._store.insist(lambda tx: [each["id"] for each in _tasks_of(tx, conversation)])
        outputs = [self._home / "processes" / task for task in tasks]
        for path in (self._home / "workspaces" / workspace_of(conversation), *outputs):
            await asyncio.to_thread(_remove, path)
        await self._store.insist(lambda tx: erase_conversation(tx, conversation, before))

    async def _erase(self, run: str) -> None:
        if self._is_followed(run) or not await self._store.insist(lambda tx: is_over(tx, run)):
            return
        # Files are removed first: after a crash in between, the row still tells that they must go.
        for path in await self._store.insist(lambda tx: files_of(tx, run, self._home)):
            await asyncio.to_thread(_remove, path)
        await self._store.insist(lambda tx: erase(tx, run) if is_over(tx, run) else None)


def wanted(tx: Transaction, since: float) -> list[str]:
    """Runs marked for erasure that ended before `since` and are over."""
    rows = tx.all(
        "SELECT run FROM inbox WHERE forget = 1 AND state = 'done' AND ended < ? ORDER BY seq LIMIT ?", since, LOOKED_AT
    )
    return [row["run"] for row in rows if is_over(tx, row["run"])][:AT_ONCE]


def is_over(tx: Transaction, run: str) -> bool:
    """Tells whether the run, its tasks and its deliveries have ended, and no live run can still remember it."""
    row = tx.one("SELECT conversation FROM inbox WHERE run = ? AND state = 'done' AND forget = 1", run)
    return row is not None and _has_ended(tx, row["conversation"], run)


def _has_ended(tx: Transaction, conversation: str, run: str) -> bool:
    if inbox.live_run(tx, conversation) is not None:
        return False
    if any(each["state"] not in ("delivered", "dead") for each in _deliveries(tx, run)):
        return False
    for task in _tasks(tx, conversation, run):
        if task["ended"] is None:
            return False
        # The run that did the task may have started work of its own, which must end too.
        work = tx.one("SELECT conversation FROM inbox WHERE run = ?", task["work"]) if task["work"] else None
        if work is not None and not _has_ended(tx, work["conversation"], task["work"]):
            return False
    return True


def erase(tx: Transaction, run: str) -> None:
    row = _row(tx, run)
    conversation, generation = row["conversation"], row["generation"]
    for task in _tasks(tx, conversation, run):
        _erase_task(tx, task)
    for delivery in (*_deliveries(tx, run), *approval_rows.deliveries(tx, run)):
        outbound_pruning.remove(tx, delivery["id"])
    view_rows.remove(tx, run)
    journal.erase(tx, run)
    approval_rows.forget(tx, run)
    history.erase(tx, run)
    talks.renew_title(tx, conversation, generation, run)
    talks.drop_empty(tx, conversation, generation)
    # Later checkpoints may contain the run, so memory returns to the last one before it; the history supplies the rest.
    forgetting.drop_checkpoints(tx, conversation, generation, row["seq"])
    conversations.restore_checkpoint(tx, conversation, generation)
    for part in (row, *tx.all("SELECT run, message FROM inbox WHERE joined = ?", run)):
        forgetting.empty(tx, part)
    if is_passing(conversation) and not _others(tx, conversation, run):
        inbound_pruning.leave_nothing(tx, conversation)


def forgettable(tx: Transaction) -> list[tuple[str, float]]:
    """Conversations to forget in which nothing is left to erase run by run, and nothing works or is on its way."""
    return [
        (conversation, before) for conversation, before in conversations.to_forget(tx) if _is_quiet(tx, conversation)
    ]


def _is_quiet(tx: Transaction, conversation: str) -> bool:
    return (
        not forgetting.is_asked(tx, conversation)
        and inbox.live_run(tx, conversation) is None
        and all(task["ended"] is not None for task in _tasks_of(tx, conversation))
        and not schedule_rows.is_at_work(tx, conversation)
        and (_has_member(conversation) or not outbound_pruning.is_on_its_way(tx, conversation))
    )


def erase_conversation(tx: Transaction, conversation: str, before: float) -> None:
    """Erases commands, replies, notices, tasks, schedules and memory from before."""
    if not _is_quiet(tx, conversation):
        return
    forgetting.empty_closed(tx, conversation, before)
    if not _has_member(conversation):
        # In a private chat, everything that was ever sent was for this person.
        outbound_pruning.remove_from_lane(tx, conversation, before)
    for task in _tasks_of(tx, conversation):
        _erase_task(tx, task)
    for run in schedule_rows.erase(tx, conversation):
        forgetting.mark(tx, run)
    conversations.end_forgetting(tx, conversation)
    if not _others(tx, conversation, ""):
        inbound_pruning.leave_nothing(tx, conversation)


def _has_member(conversation: str) -> bool:
    return conversation.count(":") > 3


def _erase_task(tx: Transaction, task: Row) -> None:
    if task["work"] and tx.one("SELECT 1 FROM inbox WHERE run = ? AND state = 'done'", task["work"]):
        erase(tx, task["work"])
    # The history keeps the notice about a task under the task's id.
    history.erase(tx, task["id"])
    processes.remove(tx, task["id"])
    task_rows.remove(tx, task["id"])


def files_of(tx: Transaction, run: str, home: Path) -> list[Path]:
    """Files of a run: copies for sending, output of its commands, and the workspace if no other run uses it."""
    row, outcome = _row(tx, run), journal.outcome(tx, run)
    handed = [Path(file.path) for file in outcome.files] if outcome else []
    found = [path for path in handed if home / old_files.ATTACHMENTS in path.parents]
    for task in _tasks(tx, row["conversation"], run):
        found.append(home / "processes" / task["id"])
        if task["work"] and tx.one("SELECT 1 FROM inbox WHERE run = ?", task["work"]):
            found += files_of(tx, task["work"], home)
    if is_passing(row["conversation"]) and not _others(tx, row["conversation"], run):
        place = msgspec.json.decode(row["message"], type=Inbound).conversation
        found.append(home / "workspaces" / workspace_name(place))
    return found


def _row(tx: Transaction, run: str) -> Row:
    row = tx.one("SELECT seq, run, conversation, generation, message FROM inbox WHERE run = ?", run)
    assert row is not None, "a run is a row"
    return row


def _deliveries(tx: Transaction, run: str) -> list[Row]:
    return tx.all(
        "SELECT id, state FROM deliveries WHERE run = ? AND kind = 'final'"
        " UNION ALL SELECT id, state FROM deliveries WHERE run = ? AND kind = 'opening'",
        run,
        run,
    )


def _tasks(tx: Transaction, owner: str, run: str) -> list[Row]:
    return tx.all("SELECT id, work, ended FROM tasks WHERE owner = ? AND run = ?", owner, run)


def _tasks_of(tx: Transaction, owner: str) -> list[Row]:
    return tx.all("SELECT id, work, ended FROM tasks WHERE owner = ?", owner)


def _others(tx: Transaction, conversation: str, run: str) -> bool:
    """Tells whether the conversation has another run."""
    other = "SELECT 1 FROM inbox WHERE conversation = ? AND kind = 'message' AND run <> ? AND reason <> ? LIMIT 1"
    return tx.one(other, conversation, run, forgetting.FORGOTTEN) is not None


def _remove(path: Path) -> None:
    """Removes a file or folder, if it still exists."""
    try:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
    except (OSError, RecursionError):
        _force(path)
    if path.exists():
        log.warning("%s cannot be removed; remove it by hand", path)


def _force(path: Path) -> None:
    """Removes folders that a command has closed or nested more deeply than Python can follow."""
    for order in (("chmod", "-R", "u+rwX"), ("rm", "-rf")):
        with suppress(OSError):
            subprocess.run([*order, "--", str(path)], stderr=subprocess.DEVNULL, check=False)

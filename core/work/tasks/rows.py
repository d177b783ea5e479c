"""The rows of tasks: a task ends once, and its end, notice and memory are stored in one transaction."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from tidings.core import ids
from tidings.core.clock import Clock
from tidings.core.context import Session
from tidings.core.desk.work import Manner, Task, TaskState
from tidings.core.errors import Overdrawn, Unknown
from tidings.core.inbound import inbox
from tidings.core.memory import ownership
from tidings.core.outbound import notices, outbox
from tidings.core.outbound.outbox import Class, Owed
from tidings.core.redaction import one_line, plain
from tidings.core.store.steady_time import Lag
from tidings.core.store.store import Row, Transaction
from tidings.core.store.wakeups import TaskDue, TaskStopAsked
from tidings.core.types import Asker, Body, Conversation, File, Inbound, Origin, Sender, Target, encode, workspace_name

# The built-in kinds of tasks; all others are registered by agents.
DELEGATE, PROCESS = "delegate", "process"
TITLE_CHARACTERS = 120
# How much of an answer or output a row keeps.
OUTPUT_CHARACTERS = 20_000
# How many turns in a row tasks may start in a conversation without a message from a person.
TURNS_ALONE = 10
OPEN = "state IN ('waiting', 'running')"


class New(NamedTuple):
    """A task that starts; its owner is the current session."""

    kind: str
    title: str
    argument: str = ""
    manner: Manner = Manner.TELL
    due: float = 0.0
    state: TaskState = TaskState.WAITING
    work: str = ""
    key: str = ""


class End(NamedTuple):
    """How a task ended, and the words to report; without words, nothing is reported."""

    state: TaskState
    reason: str
    words: str
    output: str = ""
    files: tuple[File, ...] = ()


def begin(tx: Transaction, session: Session, new: New, now: float) -> str:
    task = ids.new("task")
    tx.execute(
        "INSERT INTO tasks (id, kind, title, argument, manner, state, run, bot, conversation, owner, sender, target,"
        " due, created, started, work, key, asker) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        task,
        new.kind,
        plain(one_line(new.title))[:TITLE_CHARACTERS],
        new.argument,
        new.manner,
        new.state,
        session.run,
        session.bot,
        encode(session.conversation),
        session.conversation.id,
        encode(session.sender),
        encode(session.target),
        max(new.due, now),
        now,
        now if new.state is TaskState.RUNNING else None,
        new.work,
        new.key,
        encode(session.asker) if session.asker else None,
    )
    if new.state is TaskState.WAITING:
        tx.announce(TaskDue(task, max(new.due, now)))
    return task


def known(tx: Transaction, key: str) -> Row | None:
    return tx.one("SELECT * FROM tasks WHERE key = ? AND key <> ''", key) if key else None


def find(tx: Transaction, task: str) -> Row:
    row = tx.one("SELECT * FROM tasks WHERE id = ?", task)
    if row is None:
        raise Unknown(f"there is no task {task}")
    return row


def asker_of(row: Row) -> Asker | None:
    """The person that a task or card works for."""
    return msgspec.json.decode(row["asker"], type=Asker) if row["asker"] else None


def origin_of(row: Row) -> tuple[Conversation | None, Target | None]:
    """The conversation of the chat itself and the place of the other, for a task that was begun in a continued one."""
    asker = asker_of(row)
    return (asker.began, asker.place) if asker and asker.conversation.id == row["owner"] else (None, None)


def open_of(tx: Transaction, owner: str, kind: str) -> int:
    row = tx.one(f"SELECT count(*) AS n FROM tasks WHERE owner = ? AND kind = ? AND {OPEN}", owner, kind)
    return int(row["n"]) if row else 0


def check_wake(tx: Transaction, owner: str) -> None:
    """Raises Overdrawn when tasks have continued a conversation too often without a person, to limit its cost."""
    rows = tx.all(
        "SELECT message FROM inbox WHERE conversation = ? AND kind = 'message' ORDER BY seq DESC LIMIT ?",
        owner,
        TURNS_ALONE,
    )
    alone = [msgspec.json.decode(row["message"], type=Inbound).origin is Origin.TASK for row in rows]
    if len(alone) == TURNS_ALONE and all(alone):
        raise Overdrawn(f"tasks have continued this conversation {TURNS_ALONE} times; wait for the person")


def ask_stop(tx: Transaction, id: str, by: str) -> bool:
    """Stores that a task shall stop, which survives a restart; false for a task that has ended."""
    find(tx, id)
    asked = tx.count(f"UPDATE tasks SET stop_asked = coalesce(stop_asked, ?) WHERE id = ? AND {OPEN}", by, id)
    if asked:
        tx.announce(TaskStopAsked(id))
    return bool(asked)


def claim(tx: Transaction, task: str, now: float) -> Row | None:
    tx.execute("UPDATE tasks SET state = 'running', started = ? WHERE id = ? AND state = 'waiting'", now, task)
    return tx.one("SELECT * FROM tasks WHERE id = ? AND state = 'running'", task)


def end(tx: Transaction, row: Row, how: End, clock: Clock) -> None:
    """Ends a task; a second call finds it ended and reports nothing."""
    ended = tx.count(
        f"UPDATE tasks SET state = ?, reason = ?, output = ?, ended = ? WHERE id = ? AND {OPEN}",
        how.state,
        one_line(how.reason),
        plain(how.output)[-OUTPUT_CHARACTERS:],
        clock.now(),
        row["id"],
    )
    if ended:
        tell(tx, row, how.words, clock, f"end/{row['id']}", how.files)


def tell(tx: Transaction, row: Row, words: str, clock: Clock, key: str, files: tuple[File, ...] = ()) -> None:
    """Reports on a task where it was started, in the promised way; a key is reported only once."""
    manner = Manner(row["manner"])
    if manner is Manner.NOTHING or not words:
        return
    target = msgspec.json.decode(row["target"], type=Target)
    conversation = msgspec.json.decode(row["conversation"], type=Conversation)
    words = plain(words)
    memory = ownership.memory_of(tx, asker_of(row), conversation.id)
    if manner is Manner.WAKE and memory != conversation.id:
        # The person lost the conversation, and a turn there would answer from somebody else's memory.
        manner = Manner.TELL
        tx.execute("UPDATE tasks SET manner = ? WHERE id = ?", manner, row["id"])
    if manner is Manner.WAKE:
        # The next turn works in the same folder, and can attach the files from there.
        names = plain(", ".join(file.name for file in files))
        words = f"{words}\n\n(Files: {names})" if names else words
        _wake(tx, row, conversation, target, words, clock, key)
        return
    source = f"the task “{row['title'] or row['kind']}”"
    body = Body(text=words, files=files)
    owed = Owed(ids.new("dlv"), Class.REPLY, target, body, None, row["id"], key, source=source)
    if outbox.put_once(tx, owed, clock.now()) == owed.id:
        # The notice becomes part of the memory even if it never arrives.
        notices.remember(tx, memory, owed.notice, clock.wall())


def _wake(
    tx: Transaction, row: Row, conversation: Conversation, target: Target, words: str, clock: Clock, key: str
) -> None:
    """Adds the report as a message to the conversation, and the bot's answer to it is sent."""
    began, place = origin_of(row)
    message = Inbound(
        key=key,
        conversation=conversation,
        target=target,
        sender=msgspec.json.decode(row["sender"], type=Sender),
        began=began,
        place=place,
        origin=Origin.TASK,
        text=words,
        bot=row["bot"],
    )
    if inbox.find(tx, message) is None:
        inbox.put_unclaimed(tx, message, ids.new("run"), clock.now())


def postpone(tx: Transaction, lag: Lag) -> None:
    """Moves tasks started while steady time was late, so that they keep their due times."""
    tx.execute(
        "UPDATE tasks SET due = due + ? WHERE state IN ('waiting', 'running') AND state = 'waiting' AND created > ?",
        lag.seconds,
        lag.since,
    )


def open_workspaces(tx: Transaction) -> set[str]:
    """The workspaces of conversations with open tasks; works with a store of any version."""
    rows = tx.all(f"SELECT conversation FROM tasks WHERE {OPEN}")
    return {str(workspace_name(msgspec.json.decode(row["conversation"], type=Conversation))) for row in rows}


def silence(tx: Transaction, task: str) -> None:
    """Makes a task end without a report."""
    tx.execute("UPDATE tasks SET manner = 'nothing' WHERE id = ?", task)


def remove(tx: Transaction, task: str) -> None:
    tx.execute("DELETE FROM tasks WHERE id = ?", task)


def all_of(tx: Transaction, owner: str, limit: int, ahead: float) -> list[Task]:
    return [task_of(row, ahead) for row in rows_of(tx, owner, limit)]


def rows_of(tx: Transaction, owner: str, limit: int) -> list[Row]:
    """Tasks of one conversation, or of all if `owner` is empty: open ones, then ended ones, newest first."""
    rows = tx.all(
        f"SELECT * FROM tasks WHERE {OPEN} AND (? = '' OR owner = ?) ORDER BY created DESC, id LIMIT ?",
        owner,
        owner,
        limit,
    )
    left = limit - len(rows)
    if owner:
        ended = f"SELECT * FROM tasks WHERE owner = ? AND NOT {OPEN} ORDER BY created DESC LIMIT ?"
        return [*rows, *tx.all(ended, owner, left)]
    return [*rows, *tx.all(f"SELECT * FROM tasks WHERE NOT {OPEN} ORDER BY created DESC LIMIT ?", left)]


def task_of(row: Row, ahead: float) -> Task:
    """`ahead` turns steady time into wall time."""
    return Task(
        id=row["id"],
        kind=row["kind"],
        title=row["title"] or row["kind"],
        state=TaskState(row["state"]),
        reason=row["reason"],
        manner=Manner(row["manner"]),
        conversation=row["owner"],
        target=msgspec.json.decode(row["target"], type=Target),
        created=row["created"] + ahead,
        started=None if row["started"] is None else row["started"] + ahead,
        ended=None if row["ended"] is None else row["ended"] + ahead,
        output=row["output"],
        run=row["work"],
        asker=asker_of(row),
    )

"""The commands /bg, /tasks and /sethome."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from tidings.core.clock import Clock
from tidings.core.context import Session
from tidings.core.desk.work import Goal, Manner, TaskState
from tidings.core.errors import Overdrawn, Unsupported
from tidings.core.inbound.commands import Command, Obeyed
from tidings.core.outbound import homes
from tidings.core.people import audit
from tidings.core.people.people import People
from tidings.core.roles import Permission
from tidings.core.store.store import Row, Transaction
from tidings.core.types import Capabilities, Inbound
from tidings.core.work.tasks import rows as task_rows
from tidings.core.work.tasks.delegation import Delegation
from tidings.core.work.tasks.tasks import Tasks
from tidings.core.work.wording import lasting, short, whispered

LISTED = 15
SHOWN_CHARACTERS = 2_000
HOW_BG = "Say what to do, for example: /bg find out why the build is slow"
NO_BG = "I cannot do that in the background, because I could not send the result here later. Just ask me."
NOT_YOURS = "Somebody else began “{title}”. They can end it, and so can an owner or admin."
WORDS = {
    TaskState.SUCCEEDED: "done",
    TaskState.FAILED: "failed",
    TaskState.CANCELLED: "cancelled",
    TaskState.LOST: "lost",
}


class TaskCommands:
    def __init__(
        self,
        clock: Clock,
        tasks: Tasks,
        delegation: Delegation,
        can: Callable[[Inbound], Capabilities],
        people: People,
    ) -> None:
        self._clock = clock
        self._tasks = tasks
        self._delegation = delegation
        self._can = can
        self._people = people

    def commands(self) -> tuple[Command, ...]:
        return (
            Command(
                "bg", "do something in the background and report here: /bg PROMPT", self._bg, Permission.WORK, runs=True
            ),
            Command(
                "tasks",
                "list background tasks; /tasks ID shows one, /tasks cancel ID ends one",
                self._look,
                Permission.WORK,
            ),
            Command("sethome", "send gateway alerts here", self._set_home, Permission.HOME, runs=True),
        )

    def _bg(self, tx: Transaction, inbound: Inbound) -> Obeyed:
        prompt = inbound.argument
        if not prompt:
            return Obeyed(HOW_BG)
        session = Session(
            run="",
            conversation=inbound.conversation,
            sender=inbound.sender,
            bot=inbound.bot,
            target=inbound.target,
            can=self._can(inbound),
            workspace=Path(),
            person=self._people.find(inbound),
            permissions=frozenset(),
            began=inbound.began,
            place=inbound.place,
        )
        try:
            begun = self._delegation.put(tx, session, Goal(prompt, prompt, Manner.TELL))
        except Unsupported:
            return Obeyed(whispered(inbound, "bg") or NO_BG)
        except Overdrawn as error:
            return Obeyed(f"Not now: {error}.")
        words = f"I am working on it in the background and will report here. /tasks cancel {short(begun.task)} ends it."
        return Obeyed(words)

    def _look(self, tx: Transaction, inbound: Inbound) -> Obeyed:
        match inbound.argument.split():
            case []:
                return Obeyed(self._list(tx, inbound.conversation.id))
            case [("cancel" | "stop" | "kill"), *ids]:
                return self._cancel(tx, inbound, " ".join(ids))
            case [*ids]:
                found = _find(tx, inbound.conversation.id, " ".join(ids))
                return Obeyed(self._shown(found) if not isinstance(found, str) else found)

    def _cancel(self, tx: Transaction, inbound: Inbound, id: str) -> Obeyed:
        found = _find(tx, inbound.conversation.id, id)
        if isinstance(found, str):
            return Obeyed(found)
        person = self._people.find(inbound)
        if not self._people.may(person, Permission.OTHERS) and not self._people.is_own(
            task_rows.asker_of(found), person
        ):
            return Obeyed(NOT_YOURS.format(title=found["title"] or found["kind"]))
        if not task_rows.ask_stop(tx, found["id"], inbound.sender.name or inbound.sender.id):
            return Obeyed(f"“{found['title']}” has already ended: {WORDS[TaskState(found['state'])]}.")
        # A task with a promised notice reports its end by that notice.
        promised = found["manner"] != Manner.NOTHING
        words = f"Ending “{found['title']}”" + ("; I report when it has ended." if promised else ".")
        return Obeyed(words)

    def _list(self, tx: Transaction, owner: str) -> str:
        rows = task_rows.rows_of(tx, owner, LISTED)
        if not rows:
            return "There are no background tasks here. /bg PROMPT starts one."
        working = [self._line(row) for row in rows if row["ended"] is None]
        ended = [self._line(row) for row in rows if row["ended"] is not None]
        parts = [
            "\n".join(["Running:", *working]) if working else "No background task is running.",
            "\n".join(["Ended:", *ended]) if ended else "",
            "/tasks ID shows one, /tasks cancel ID ends one.",
        ]
        return "\n\n".join(filter(None, parts))

    def _line(self, row: Row) -> str:
        return f"• {short(row['id'])} “{row['title'] or row['kind']}” ({row['kind']}): {self._how(row)}"

    def _how(self, row: Row) -> str:
        now, state = self._clock.now(), TaskState(row["state"])
        if state is TaskState.WAITING:
            return f"starts in {lasting(row['due'] - now)}"
        if state is TaskState.RUNNING:
            asked = ", asked to end" if row["stop_asked"] else ""
            return f"for {lasting(now - (row['started'] or row['created']))}{asked}"
        reason = f": {row['reason']}" if row["reason"] else ""
        return f"{WORDS[state]}{reason}, {lasting(now - (row['ended'] or now))} ago"

    def _shown(self, row: Row) -> str:
        lines = [f"“{row['title'] or row['kind']}” ({row['kind']} {short(row['id'])}): {self._how(row)}"]
        if row["output"]:
            tail = row["output"][-SHOWN_CHARACTERS:]
            lines.append(("… " if len(tail) < len(row["output"]) else "") + tail)
        return "\n\n".join(lines)

    def _set_home(self, tx: Transaction, inbound: Inbound) -> Obeyed:
        if not self._can(replace(inbound, target=homes.as_home(inbound.target))).async_delivery:
            return Obeyed("This chat cannot be a home, because I cannot send messages here later.")
        home = homes.as_home(inbound.target)
        homes.choose(tx, home, self._clock.now())
        audit.write(tx, self._people.find(inbound).id, "home", str(home), self._clock.wall())
        words = f"Gateway alerts and `tidings notify {home.adapter}` are now sent here ({home})."
        return Obeyed(words)


def _find(tx: Transaction, owner: str, id: str) -> Row | str:
    """The task of this conversation whose id begins like this, or a sentence that says why there is none."""
    wanted = id.strip().lower().removeprefix("task_")
    rows = tx.all(
        "SELECT * FROM tasks WHERE owner = ? AND substr(id, 6, length(?)) = ? AND ? <> ''"
        " ORDER BY created DESC LIMIT 2",
        owner,
        wanted,
        wanted,
        wanted,
    )
    if len(rows) == 1:
        return rows[0]
    if rows:
        return f"Several tasks begin with {wanted}; write more of the id."
    return f"There is no task {id.strip() or '(which?)'} here. /tasks lists them."

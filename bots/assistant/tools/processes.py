"""Lists, reads, feeds and ends the background commands of a conversation."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from tidings.bots.assistant.tools.tool import Arguments, Occasion, Result, ToolError, define, may_change
from tidings.core import context
from tidings.core.agent import Effect
from tidings.core.desk.work import Task
from tidings.core.errors import Overdrawn, Unknown
from tidings.core.roles import Permission
from tidings.core.work.tasks import rows as task_rows
from tidings.core.work.wording import lasting

MOST_LISTED = 20
MOST_KNOWN = 200
TAIL_BYTES = 2_000
USUAL_BYTES = 8_000
MOST_BYTES = 20_000
MOST_WAIT_SECONDS = 300.0
# How long a killed process may take to write its last output.
KILLING_SECONDS = 10.0
INPUT_CHARACTERS = 30_000

LOOKING = (
    "Looks at the commands that terminal runs in the background of this conversation. list: all of them. "
    "poll: the state of one, and the end of its output. log: its output from a byte on. wait: until it has ended, or "
    "some seconds. A promised notice of its end arrives all the same."
)
ACTING = (
    "Acts on a command that terminal runs in the background of this conversation. send: a line for its standard "
    "input. kill: ends it with all that it has started. A promised notice of its end arrives all the same."
)

NOT_THEIRS = "Nothing was done: somebody else began “{title}”. They can end it, and so can an owner or admin."


class Look(Arguments, frozen=True):
    action: Literal["list", "poll", "log", "wait"]
    id: Annotated[str, Meta(description="As terminal or list named it; not needed for list.")] = ""
    start: Annotated[
        int, Meta(description="For log: the byte to begin at; a negative one counts from the end.")
    ] = -USUAL_BYTES
    limit: Annotated[int, Meta(ge=1, le=MOST_BYTES, description="For log: how many bytes.")] = USUAL_BYTES
    seconds: Annotated[float, Meta(ge=0, le=MOST_WAIT_SECONDS, description="For wait.")] = 60.0


class Act(Arguments, frozen=True):
    action: Literal["send", "kill"]
    id: Annotated[str, Meta(description="As terminal or process named it.")]
    text: Annotated[str, Meta(max_length=INPUT_CHARACTERS, description="For send.")] = ""
    newline: Annotated[bool, Meta(description="For send: ends the text with a new line.")] = True
    end: Annotated[bool, Meta(description="For send: closes the input after it.")] = False


async def look(asked: Look, occasion: Occasion) -> Result:
    if asked.action == "list":
        return await _list(occasion)
    task = await _find(asked.id.strip(), occasion)
    match asked.action:
        case "poll":
            return await _told(task, occasion)
        case "log":
            return await _log(task, asked, occasion)
        case "wait":
            return await _told(await occasion.desk.processes.wait(task.id, asked.seconds), occasion)


async def act(asked: Act, occasion: Occasion) -> Result:
    task = await _find(asked.id.strip(), occasion)
    if not may_change(task.asker, occasion):
        raise ToolError(NOT_THEIRS.format(title=task.title))
    match asked.action:
        case "send":
            return await _send(task, asked, occasion)
        case "kill":
            return await _kill(task, occasion)


async def _own(occasion: Occasion) -> list[Task]:
    """The process with this id, if it belongs to this conversation; other processes are unknown here."""
    tasks = await occasion.desk.tasks.all(context.current().conversation.id, MOST_KNOWN)
    return [task for task in tasks if task.kind == task_rows.PROCESS]


async def _find(id: str, occasion: Occasion) -> Task:
    if not id:
        raise ToolError("Say which process, by its id; list names them.")
    name = id.removeprefix("task_")
    found = [task for task in await _own(occasion) if task.id.removeprefix("task_").startswith(name)]
    if len(found) != 1:
        raise ToolError(f"{'Several processes begin with' if found else 'There is no process'} {id} here.")
    return found[0]


async def _list(occasion: Occasion) -> Result:
    own = await _own(occasion)
    lines = [f"- {task.id}: {_how(task)}: {task.title}" for task in own[:MOST_LISTED]]
    if len(own) > MOST_LISTED:
        lines.append(f"- and {len(own) - MOST_LISTED} older ones")
    return Result("\n".join(lines) or "No command has run in the background here.")


def _how(task: Task) -> str:
    if task.ended is None:
        return task.state.value
    return f"{task.state.value} after {lasting(task.ended - task.created)} ({task.reason})"


async def _told(task: Task, occasion: Occasion) -> Result:
    log = await occasion.desk.processes.log(task.id, -TAIL_BYTES, TAIL_BYTES)
    return Result(f"{task.id} is {_how(task)}.\n\n{_output(log.text)}\n\n(It has written {log.end:,} bytes.)")


async def _log(task: Task, asked: Look, occasion: Occasion) -> Result:
    log = await occasion.desk.processes.log(task.id, asked.start, asked.limit)
    return Result(f"Bytes {log.start} to {log.end}; go on with start={log.end}.\n\n{_output(log.text)}")


def _output(text: str) -> str:
    return text.rstrip("\n") or "(no output)"


async def _send(task: Task, asked: Act, occasion: Occasion) -> Result:
    text = asked.text + "\n" if asked.newline and (asked.text or not asked.end) else asked.text
    try:
        await occasion.desk.processes.feed(task.id, text, end=asked.end)
    except (Unknown, Overdrawn) as error:
        raise ToolError(f"That was not sent: {error}.") from error
    return Result("Sent, and its input is closed." if asked.end else "Sent.")


async def _kill(task: Task, occasion: Occasion) -> Result:
    if not await occasion.desk.tasks.cancel(task.id, context.current().bot):
        return Result(f"It had ended already: {_how(task)}.")
    task = await occasion.desk.processes.wait(task.id, KILLING_SECONDS)
    return Result("It was asked to end and still runs; look again soon." if task.is_open else f"It is {_how(task)}.")


# Two tools, so that a restart while the model only looks repeats no effect.
TOOLS = (
    define("process", LOOKING, Look, Effect.PURE, Permission.WORK, look, untrusted=True),
    define("process_control", ACTING, Act, Effect.EFFECT, Permission.WORK, act, untrusted=True),
)

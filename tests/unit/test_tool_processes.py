"""The terminal's promises and the tool that looks after processes: what is asked of the desk, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.worlds.builders import conversation, target
from tests.worlds.fakes import FakeDesk, FakeProcesses
from tests.worlds.tool_bench import in_session, use
from tidings.bots.assistant.tools import processes, terminal
from tidings.bots.assistant.tools.tool import ToolError
from tidings.core import context
from tidings.core.agent import Effect
from tidings.core.context import Session
from tidings.core.desk.work import Launch, Log, Manner, Task, TaskState
from tidings.core.errors import Overdrawn, Unkeepable
from tidings.core.settings import Work
from tidings.core.types import Errand
from tidings.core.work.processes import report
from tidings.core.work.processes.folder import Matches, Status
from tidings.core.work.processes.processes import MOST_PATTERNS, _check
from tidings.core.work.processes.report import Case
from tidings.core.work.wording import lasting

NOWHERE = Matches([], [], 0)


class Background(FakeProcesses):
    """Remembers what it was asked to launch, and launches nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.launched: list[Launch] = []
        self.fault: Exception | None = None

    async def launch(self, launch: Launch) -> str:
        if self.fault:
            raise self.fault
        self.launched.append(launch)
        return f"task_{len(self.launched)}"

    async def log(self, id: str, start: int, limit: int) -> Log:
        return Log(text="the end\n", start=0, end=8)


class Known:
    def __init__(self, *tasks: Task) -> None:
        self.tasks = tasks

    async def all(self, conversation: str, limit: int) -> list[Task]:
        return [task for task in self.tasks if task.conversation == conversation]


class Desk(FakeDesk):
    def __init__(self, *tasks: Task) -> None:
        super().__init__()
        self.processes = Background()
        self.tasks = Known(*tasks)


def task(id: str, *, kind: str = "process", chat: str = "1") -> Task:
    return Task(
        id=id,
        kind=kind,
        title="make all",
        state=TaskState.RUNNING,
        reason="",
        manner=Manner.TELL,
        conversation=conversation(chat).id,
        target=target(chat),
        created=100.0,
        started=100.0,
        ended=None,
        output="",
        run="",
    )


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with in_session(tmp_path / "1") as session:
        yield session


async def run(desk: Desk, **arguments: Any) -> str:
    return (await use(terminal.tools(), "terminal", desk, command="make all", **arguments)).text


async def refused(desk: Desk, **arguments: Any) -> str:
    with pytest.raises(ToolError) as caught:
        await run(desk, **arguments)
    assert desk.processes.launched == []
    return str(caught.value)


@pytest.mark.parametrize(
    ("asked", "manner", "told"),
    [
        ({}, Manner.NOTHING, "No notice follows when it ends"),
        ({"notify_on_complete": False}, Manner.NOTHING, "No notice follows when it ends"),
        ({"notify_on_complete": True}, Manner.TELL, "This conversation is told when it ends"),
        ({"notify_on_complete": "true"}, Manner.TELL, "This conversation is told when it ends"),
        ({"notify_on_complete": "tell"}, Manner.TELL, "This conversation is told when it ends"),
        ({"notify_on_complete": "wake"}, Manner.WAKE, "You get a message here when it ends"),
        ({"watch_patterns": ["a", "b"]}, Manner.TELL, "This conversation is told when it ends"),
        ({"watch_patterns": ["a"], "notify_on_complete": "wake"}, Manner.WAKE, "You get a message"),
    ],
)
async def test_what_is_promised_is_what_was_asked_for(
    session: Session, asked: dict[str, Any], manner: Manner, told: str
) -> None:
    desk = Desk()
    assert (await run(desk, background=True, seconds=5000, **asked)).startswith(
        f"It runs in the background as task_1. {told}"
    )
    (launch,) = desk.processes.launched
    assert (launch.manner, launch.patterns) == (manner, tuple(asked.get("watch_patterns", ())))
    assert (launch.command[1:], launch.seconds, launch.folder) == (("-c", "make all"), 5000, session.workspace)
    assert (launch.key, launch.environment) == ("terminal/call_1", context.child_environment())


async def test_an_errand_leaves_nothing_behind(session: Session) -> None:
    with context.bind(replace(session, errand=Errand(id="task_1"))):
        for asked in ({}, {"notify_on_complete": True}, {"watch_patterns": ["a"]}):
            assert await refused(Desk(), background=True, **asked) == terminal.HEADLESS


async def test_where_nobody_can_be_told_only_silence_is_promised(tmp_path: Path) -> None:
    with in_session(tmp_path, async_delivery=False):
        for asked in ({"notify_on_complete": True}, {"notify_on_complete": "wake"}, {"watch_patterns": ["a"]}):
            assert await refused(Desk(), background=True, **asked) == terminal.UNTOLD
        assert "No notice follows when it ends" in await run(Desk(), background=True)


async def test_a_promise_without_a_background_is_a_mistake(session: Session) -> None:
    for asked in ({"notify_on_complete": True}, {"watch_patterns": ["a"]}):
        assert "are for background=true" in await refused(Desk(), **asked)
    assert "needs background=true" in await refused(Desk(), seconds=301)


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (Overdrawn("too many"), "Nothing was started: too many."),
        (Unkeepable("too odd"), "Nothing was started: too odd."),
        (OSError(28, "disk full"), "The command could not be started: disk full."),
    ],
)
async def test_what_the_desk_refuses_is_a_sentence(session: Session, fault: Exception, sentence: str) -> None:
    desk = Desk()
    desk.processes.fault = fault
    assert await refused(desk, background=True) == sentence


@pytest.mark.parametrize(
    ("patterns", "manner"),
    [
        (("(",), Manner.TELL),
        (("",), Manner.TELL),
        (("x" * 201,), Manner.TELL),
        (("x",) * (MOST_PATTERNS + 1), Manner.TELL),
        (("x",), Manner.NOTHING),
    ],
)
async def test_patterns_that_could_not_be_kept_are_refused(
    session: Session, patterns: tuple[str, ...], manner: Manner
) -> None:
    with pytest.raises(Unkeepable):
        await _check(Launch(("true",), "true", Path("/"), {}, manner, patterns))


async def test_patterns_are_read_elsewhere_and_what_takes_long_to_read_is_refused(session: Session) -> None:
    costly = tuple("(?i)" + "[\0-\U0010ffff]" * (38 - number) for number in range(MOST_PATTERNS))

    with pytest.raises(Unkeepable, match="takes too long to read"):
        await _check(Launch(("true",), "true", Path("/"), {}, Manner.TELL, costly))
    await _check(Launch(("true",), "true", Path("/"), {}, Manner.TELL, ("^(a+)+$", "fi.e")))


def test_looking_after_processes_is_declared_as_what_it_is() -> None:
    looks, acts = processes.TOOLS
    assert (looks.effect, looks.untrusted, looks.schema["required"]) == (Effect.PURE, True, ["action"])
    assert (acts.effect, acts.untrusted, acts.schema["required"]) == (Effect.EFFECT, True, ["action", "id"])


async def test_only_processes_of_this_conversation_are_there(session: Session) -> None:
    desk = Desk(task("task_ab1"), task("task_ab2"), task("task_cd1", kind="delegate"), task("task_ef1", chat="2"))
    listed = (await use(processes.TOOLS, "process", desk, action="list")).text
    assert listed == "- task_ab1: running: make all\n- task_ab2: running: make all"
    polled = (await use(processes.TOOLS, "process", desk, action="poll", id="ab2")).text
    assert polled == "task_ab2 is running.\n\nthe end\n\n(It has written 8 bytes.)"
    for id, why in (("ab", "Several"), ("", "Say which"), ("cd1", "no process"), ("task_ef1", "no process")):
        with pytest.raises(ToolError, match=why):
            await use(processes.TOOLS, "process_control", desk, action="kill", id=id)


def case(status: Status | None, **more: Any) -> Case:
    known = Case("make all", Manner.TELL, status, "", 75.0, True, "one\ntwo\n", NOWHERE)
    return known._replace(**more)


@pytest.mark.parametrize(
    ("known", "state", "words"),
    [
        (case(Status("exited", 0, 75, 0)), "succeeded", "✓ “make all” has ended after 1 min 15 s with exit code 0."),
        (case(Status("exited", 2, 75, 0)), "failed", "⚠ “make all” has failed after 1 min 15 s with exit code 2."),
        (
            case(Status("exited", 137, 75, 0)),
            "failed",
            "⚠ “make all” has failed after 1 min 15 s with exit code 137 (SIGKILL).",
        ),
        (
            case(Status("time", None, 75, 0)),
            "failed",
            "⚠ “make all” was ended after 1 min 15 s: it reached its time limit.",
        ),
        (
            case(Status("told", None, 75, 0)),
            "failed",
            "⚠ “make all” was ended after 1 min 15 s: it was asked to end from outside this conversation.",
        ),
        (
            case(Status("told", None, 75, 0), stopped_by="Ann"),
            "cancelled",
            "“make all” was cancelled after 1 min 15 s.",
        ),
        (
            case(Status("exited", 0, 75, 0), stopped_by="Ann"),
            "succeeded",
            "✓ “make all” has ended after 1 min 15 s with exit code 0.",
        ),
        (
            case(Status("the disk is full", None, 75, 0)),
            "failed",
            "⚠ “make all” was ended after 1 min 15 s: the disk is full.",
        ),
        (case(None), "lost", "⚠ “make all” was lost: its keeper was killed. How it ended is unknown."),
        (
            case(None, is_from_this_boot=False),
            "lost",
            "⚠ “make all” was lost: the machine was restarted. How it ended is unknown.",
        ),
        (case(None, stopped_by="Ann"), "cancelled", "“make all” was cancelled after 1 min 15 s."),
    ],
)
def test_each_end_has_its_words(known: Case, state: str, words: str) -> None:
    end = report.ended(known, Work())
    assert (end.state, end.words) == (state, f"{words}\n\nThe end of its output:\n```\none\ntwo\n```")
    assert report.ended(known, Work(notices="short")).words == words


def test_nothing_in_an_output_closes_its_fence_and_a_long_one_is_cut() -> None:
    told = report.ended(case(Status("exited", 0, 1, 0), output="```\nx\n````"), Work()).words
    assert told.endswith("\n`````\n```\nx\n````\n`````")
    long = report.ended(case(Status("exited", 0, 1, 0), output="x" * 5000 + "\nlast"), Work()).words
    assert (len(long) < 1_700, long.endswith("xx\nlast\n```")) == (True, True)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-1, "0 s"), (0.04, "0 s"), (59.9, "1 min"), (61, "1 min 1 s"), (7260, "2 h 1 min"), (90_000, "1 d 1 h")],
)
def test_durations_are_read_at_a_glance(seconds: float, words: str) -> None:
    assert lasting(seconds) == words

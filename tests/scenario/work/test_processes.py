"""Commands in the background: told once and in their place, watched, adopted after any end of the gateway, or lost."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.mutants import VARIABLE
from tests.simulators.paper.simulator import Kind
from tests.simulators.provider.simulator import Call, ProviderServer, Say
from tests.worlds.assistant import assistant
from tests.worlds.tool_bench import in_session, use
from tests.worlds.world import KEYED, Gate, OwnedClock, World
from tidings.bots.assistant.tools import processes, terminal
from tidings.bots.assistant.tools.tool import ToolError
from tidings.core.agent import Event, Finished, TextDelta, Turn
from tidings.core.desk.work import Manner, Task, TaskState
from tidings.core.errors import Unknown
from tidings.core.store.sqlite import DATABASE
from tidings.core.types import Author
from tidings.core.work.processes import identity

ROOT = Path(__file__).resolve().parents[3]
PATIENCE_SECONDS = 30.0
TOOLS = (*terminal.tools(), *processes.TOOLS)
BACKGROUND = {"background": True, "notify_on_complete": True}


class Hands:
    """Uses the tool that the message names, with its arguments, and says what came of it."""

    def __init__(self, gate: Gate | None = None) -> None:
        self.gate = gate
        self.turns: list[Turn] = []

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        self.turns.append(turn)
        tool, _, written = turn.message.text.partition(" ")
        try:
            if written.startswith("{"):
                told = (await use(TOOLS, tool, turn.desk, key=turn.message.key, **json.loads(written))).text
            else:
                told = f"I heard: {turn.message.text}"
        except ToolError as error:
            told = f"refused: {error}"
        if self.gate:
            await self.gate.wait()
        yield TextDelta(told)
        yield Finished()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    left = [folder.name for folder in (tmp_path / "processes").glob("*") if identity.end_all_of(folder.name, None)]
    assert left == [], "something still ran unowned"


def call(tool: str, **arguments: Any) -> str:
    return f"{tool} {json.dumps(arguments)}"


async def answered(world: World, text: str, **place: str) -> str:
    """What the bot answered at once."""
    key = world.paper.says(text, **place)
    return (await world.outcome(await stored(world, key))).text


async def stored(world: World, key: str) -> str:
    await world.eventually(lambda: world.rows("SELECT 1 FROM inbox WHERE key = ?", key))
    return key


async def begun(world: World, command: str, *, thread: str = "", **arguments: Any) -> str:
    told = await answered(world, call("terminal", command=command, **{**BACKGROUND, **arguments}), thread=thread)
    found = re.search(r"task_\w+", told)
    assert found, told
    return found[0]


async def ended(world: World, task: str) -> Task:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (found := await world.gateway.desk.processes.wait(task, 1.0)).is_open:
            continue
    return found


def notices(world: World, *, thread: str | None = None) -> list[str]:
    return [text for text in world.paper.posts_in("1", thread) if text.startswith(("✓", "⚠", "“"))]


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        # Another process can tell only by being looked at.
        while True:
            if holds():
                return
            await asyncio.sleep(0.01)


async def until_written(path: Path, text: str = "") -> str:
    await until(lambda: path.exists() and path.read_text().endswith(f"{text}\n"))
    return path.read_text()


def keeper_of(world: World, task: str) -> int:
    (row,) = world.rows("SELECT pid FROM processes WHERE task = ?", task)
    return int(row["pid"])


def is_alive(process: int) -> bool:
    return bool(identity.born(process))


async def until_gone(*numbers: int) -> None:
    await until(lambda: not any(is_alive(number) for number in numbers))


async def test_its_end_is_told_once_in_the_thread_it_was_begun_in(home: Path) -> None:
    """A8."""
    async with World(home, Hands()) as world:
        task = await begun(world, "echo 'made of `ticks`'; read line; echo $line >&2; exit 3", thread="a")
        assert await answered(world, "hello", thread="b") == "I heard: hello"
        await world.gateway.desk.processes.feed(task, "the end\n", end=False)
        await world.paper.until(lambda paper: notices(world))
        await world.settled()
        (told,) = notices(world)
        assert notices(world, thread="a") == [told]
        assert re.match(r"⚠ “echo 'made of .*” has failed after \d+ s with exit code 3\.\n\n", told)
        assert told.endswith("The end of its output:\n```\nmade of `ticks`\nthe end\n```")
        assert (await world.gateway.desk.tasks.get(task)).state is TaskState.FAILED


async def test_it_is_told_while_the_turn_that_began_it_still_runs(home: Path) -> None:
    """A9."""
    gate = Gate()
    async with World(home, Hands(gate)) as world:
        world.paper.says(call("terminal", command="echo quick", **BACKGROUND))
        await gate.reached()
        await world.paper.until(lambda paper: notices(world))
        assert world.runs()[0]["state"] == "running"
        gate.open()
        await world.settled()
        assert len(notices(world)) == 1


async def test_looking_at_it_does_not_use_up_its_notice(home: Path) -> None:
    """A10."""
    async with World(home, Hands()) as world:
        task = await begun(world, "echo out; read line; exit 4")
        await until_written(home / "processes" / task / "log")
        for action in ("poll", "wait", "log") * 2:
            assert "out" in await answered(world, call("process", action=action, id=task, seconds=0))
        await answered(world, call("process_control", action="send", id=task, end=True))
        await ended(world, task)
        for action in ("poll", "wait", "log"):
            assert "out" in await answered(world, call("process", action=action, id=task))
        assert "failed after" in await answered(world, call("process", action="list"))
        await world.restart()
        await world.settled()
        assert len(notices(world)) == 1


async def test_a_notice_is_no_persons_word_and_starts_no_turn(home: Path) -> None:
    """A12."""
    hands = Hands()
    async with World(home, hands) as world:
        task = await begun(world, "true")
        await ended(world, task)
        await world.settled()
        assert len(world.runs()) == 1
        await answered(world, "what was that?")
        history = hands.turns[-1].history
        assert [entry.author for entry in history if "exit code 0" in entry.text] == [Author.NOTICE]
        assert "It wrote nothing." in history[-1].text


async def test_one_who_asked_to_be_woken_goes_on_with_what_it_wrote(home: Path) -> None:
    hands = Hands()
    async with World(home, hands) as world:
        await begun(world, "echo result 42", notify_on_complete="wake", thread="a")
        await world.paper.until(lambda paper: len(paper.posts) == 2)
        await world.settled()
        woken = hands.turns[1].message
        assert (woken.origin, woken.target.thread, "result 42" in woken.text) == ("task", "a", True)
        assert len(world.paper.posts_in("1", "a")) == 2
        assert len(hands.turns) == 2


async def found_lines(world: World, task: str, count: int) -> None:
    """A real process takes real time: an owned clock that ran meanwhile would be hours ahead of it."""
    matches = world.home / "processes" / task / "matches"
    await world.eventually(lambda: matches.exists() and len(matches.read_text().splitlines()) >= count)


async def test_lines_that_are_waited_for_are_told_once_and_gathered(home: Path) -> None:
    """A11."""
    async with World(home, Hands(), clock=OwnedClock()) as world:
        wanted = "echo ERROR one; read go; for n in 2 3 4 5 6 7 8; do echo WARN $n; done; read go; echo ERROR last"
        task = await begun(world, wanted, watch_patterns=["ERROR", "WARN .*"])
        matches = home / "processes" / task / "matches"
        await found_lines(world, task, 1)
        await world.until(lambda: any(post.startswith("🔎") for post in world.posts))
        await world.gateway.desk.processes.feed(task, "\n", end=False)
        await found_lines(world, task, 8)
        await world.until(lambda: sum(post.startswith("🔎") for post in world.posts) == 2)
        found = world.rows("SELECT created FROM deliveries WHERE key LIKE 'match/%' ORDER BY seq")
        assert found[1]["created"] - found[0]["created"] >= 10
        first, second = (post for post in world.posts if post.startswith("🔎"))
        assert first.endswith("wrote:\n```\nERROR one\n```")
        assert second.endswith("\n```\nWARN 2\nWARN 3\nWARN 4\nWARN 5\nWARN 6\n```\n… and 2 more such lines.")
        await world.gateway.desk.processes.feed(task, "\n", end=False)
        # Its end comes before the next look.
        await until_gone(keeper_of(world, task))
        await world.until(lambda: notices(world))
        assert "since the last notice:\n```\nERROR last\n```" in notices(world)[0]
        assert len(matches.read_text().splitlines()) == 9
        await world.clock.advance(60)
        assert (len([post for post in world.posts if post.startswith("🔎")]), len(notices(world))) == (2, 1)


async def test_a_match_after_a_restart_is_told_and_none_of_those_before_it(home: Path) -> None:
    async with World(home, Hands(), clock=OwnedClock()) as world:
        task = await begun(world, "echo ERROR one; read go; echo ERROR two; read go", watch_patterns=["ERROR"])
        await found_lines(world, task, 1)
        await world.until(lambda: world.posts[-1].endswith("```\nERROR one\n```"))
        await world.crash()
        await world.start()
        await world.gateway.desk.processes.feed(task, "\n", end=False)
        await found_lines(world, task, 2)
        await world.until(lambda: world.posts[-1].endswith("```\nERROR two\n```"))
        assert len(world.posts) == 3
        await world.gateway.desk.processes.feed(task, "", end=True)
        await world.until(lambda: notices(world))


async def test_a_pattern_that_would_take_forever_is_given_up_and_the_gateway_goes_on(home: Path) -> None:
    async with World(home, Hands()) as world:
        command = f"echo {'a' * 60}b; echo fine; read line"
        task = await begun(world, command, watch_patterns=["^(a+)+$", "fi.e"])
        await world.paper.until(lambda paper: any("is no longer checked" in post for post in paper.posts))
        await world.paper.until(lambda paper: any("🔎" in post and "\nfine\n" in post for post in paper.posts), 30)
        await world.gateway.desk.tasks.cancel(task, "me")
        await ended(world, task)


async def test_where_nobody_can_be_told_a_promise_is_refused_before_anything_starts(home: Path) -> None:
    async with World(home, Hands(), kind=Kind(async_delivery=False)) as world:
        witness = home / "witness"
        for promise in ({"notify_on_complete": True}, {"notify_on_complete": "wake"}, {"watch_patterns": ["x"]}):
            told = await answered(world, call("terminal", command=f"echo > {witness}", background=True, **promise))
            assert told == f"refused: {terminal.UNTOLD}"
        assert (world.rows("SELECT * FROM tasks"), witness.exists()) == ([], False)
        told = await answered(world, call("terminal", command=f"echo done | tee {witness}", background=True))
        assert "No notice follows when it ends: check on it with the tool process." in told
        assert await until_written(witness) == "done\n"
        (task,) = world.rows("SELECT id FROM tasks")
        assert "succeeded" in await answered(world, call("process", action="wait", id=task["id"]))


async def test_a_call_that_is_made_again_has_started_it_once(home: Path) -> None:
    async with World(home, Hands(), work={"processes": 1}) as world:
        witness = home / "witness"
        wish = {"command": f"echo x >> {witness}; read line", **BACKGROUND}
        first = await answered(world, call("terminal", **wish))
        await until_written(witness)
        refused = await answered(world, call("terminal", **wish))
        assert refused.startswith("refused: Nothing was started: the limit of 1 background processes is reached here")
        row = world.rows("SELECT id, key FROM tasks")[0]
        with in_session(home / "work"):
            again = await use(TOOLS, "terminal", world.gateway.desk, key=row["key"].removeprefix("terminal/"), **wish)
        assert again.text == first
        await world.gateway.desk.tasks.cancel(row["id"], "me")
        await ended(world, row["id"])
        assert witness.read_text() == "x\n"


async def test_one_conversation_knows_nothing_of_anothers_processes(home: Path) -> None:
    async with World(home, Hands()) as world:
        task = await begun(world, "read line")
        for action in ("poll", "log", "wait", "send", "kill"):
            tool = "process_control" if action in ("send", "kill") else "process"
            told = await answered(world, call(tool, action=action, id=task), chat="2")
            assert told == f"refused: There is no process {task} here."
        assert "No command" in await answered(world, call("process", action="list"), chat="2")
        assert "running" in await answered(world, call("process", action="poll", id=task[5:12]))
        assert "It is cancelled after" in await answered(world, call("process_control", action="kill", id=task))
        assert "It had ended already" in await answered(world, call("process_control", action="kill", id=task))
        await world.paper.until(lambda paper: any("was cancelled after" in post for post in paper.posts))


async def test_what_is_sent_arrives_and_the_input_can_end(home: Path) -> None:
    async with World(home, Hands()) as world:
        task = await begun(world, "cat; echo over")
        assert await answered(world, call("process_control", action="send", id=task, text="one")) == "Sent."
        told = await answered(
            world, call("process_control", action="send", id=task, text="two", newline=False, end=True)
        )
        assert told == "Sent, and its input is closed."
        assert (await ended(world, task)).output == "one\ntwoover\n"
        refused = await answered(world, call("process_control", action="send", id=task, text="three"))
        assert refused == "refused: That was not sent: it has ended."


async def test_a_log_is_read_on_from_where_one_was(home: Path) -> None:
    async with World(home, Hands()) as world:
        task = await begun(world, "printf 'aé€😀'; read line; echo more")
        await world.eventually(lambda: (home / "processes" / task / "log").stat().st_size == 10)
        read, start = "", 0
        for _ in range(4):
            log = await world.gateway.desk.processes.log(task, start, 4)
            read, start = read + log.text, log.end
        assert (read, start) == ("aé€😀", 10)
        await world.gateway.desk.processes.feed(task, "", end=True)
        await ended(world, task)
        assert (await world.gateway.desk.processes.log(task, -5, 100)).text == "more\n"
        assert (await world.gateway.desk.processes.log(task, 999, 100)).text == ""
        with pytest.raises(Unknown):
            await world.gateway.desk.processes.log("task_none", 0, 10)


async def test_it_has_limits_of_time_output_and_memory(home: Path) -> None:
    limits = {"process_output_bytes": 10_000, "process_memory_bytes": 500_000_000}
    async with World(home, Hands(), work=limits) as world:
        slow = await begun(world, "sleep 600 & echo begun; wait", seconds=1)
        loud = await begun(world, "yes")
        large = await begun(world, f"{sys.executable} -S -c 'bytes(10**9)'")
        found = [await ended(world, task) for task in (loud, large, slow)]
        assert [task.state for task in found] == [TaskState.FAILED] * 3
        assert [task.reason for task in found] == [
            *("it wrote more than 10,000 bytes", "exit code 1", "it reached its time limit"),
        ]
        assert (home / "processes" / loud / "log").stat().st_size == 10_000
        assert "MemoryError" in found[1].output


async def test_it_has_its_own_session_a_small_environment_and_nothing_of_ours(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S31, C1."""
    monkeypatch.setenv("OPENAI_API_KEY", "canary-4711")
    async with World(home, Hands()) as world:
        task = await begun(world, "env; ls /proc/self/fd | wc -l; ulimit -c; kill -TERM 0; sleep 600")
        output = (await ended(world, task)).output
        assert "canary" not in output
        assert {"TIDINGS_SESSION_CONVERSATION=paper:main:1", f"{identity.MARK}={task}"} <= set(output.split("\n"))
        assert output.split("\n")[-3:] == ["4", "0", ""]
        assert "(SIGTERM)" in (await world.gateway.desk.tasks.get(task)).reason
        assert (home / "processes" / task).stat().st_mode & 0o777 == 0o700


async def test_nothing_that_it_started_is_left_when_it_ends(home: Path) -> None:
    async with World(home, Hands()) as world:
        task = await begun(world, "setsid sh -c 'trap \"\" TERM; sleep 600' & nohup sleep 600 & echo $!; sleep 0.2")
        number = int((await ended(world, task)).output.split()[0])
        assert not is_alive(number)


async def test_how_much_is_told_is_the_owners_choice(home: Path) -> None:
    async with World(home, Hands(), work={"notices": "short"}) as world:
        await ended(world, await begun(world, "true"))
        await ended(world, await begun(world, "echo why; false"))
        await world.settled()
        good, bad = notices(world)
        assert re.fullmatch(r"✓ “true” has ended after \S+ s with exit code 0\.", good)
        assert ("why" in bad.splitlines(), "exit code 1" in bad) == (False, True)


async def test_one_whose_keeper_is_killed_is_told_as_lost_and_its_family_is_gone(home: Path) -> None:
    async with World(home, Hands()) as world:
        witness = home / "witness"
        task = await begun(world, f"setsid sleep 600 & a=$!; sleep 600 & echo $$ $a $! > {witness}; wait")
        family = [int(word) for word in (await until_written(witness)).split()]
        os.kill(keeper_of(world, task), signal.SIGKILL)
        found = await ended(world, task)
        assert (found.state, found.reason) == (TaskState.LOST, "its keeper was killed")
        await until_gone(*family)
        await world.settled()
        assert len(notices(world)) == 1


async def test_what_ended_while_nobody_was_there_is_told_at_the_next_start(home: Path) -> None:
    async with World(home, Hands()) as world:
        witness = home / "witness"
        task = await begun(world, f"echo x >> {witness}; read line; exit 5", thread="a")
        keeper = keeper_of(world, task)
        await until_written(witness)
        folder = home / "processes" / task
        await world.crash()
        (folder / "input.end").touch()
        os.kill(keeper, signal.SIGCHLD)
        await until_gone(keeper)
        await world.start()
        await world.paper.until(lambda paper: notices(world))
        await world.restart()
        assert ["exit code 5" in text for text in notices(world, thread="a")] == [True]
        assert witness.read_text() == "x\n"


async def test_another_process_with_its_number_is_left_alone(home: Path) -> None:
    async with World(home, Hands()) as world:
        task = await begun(world, "sleep 600")
        await world.end()
        keeper = keeper_of(world, task)
        os.kill(keeper, signal.SIGKILL)
        await until_gone(keeper)
        with subprocess.Popen(["sleep", "600"], start_new_session=True) as innocent:
            try:
                change(world, "UPDATE processes SET pid = ?", innocent.pid)
                await world.start()
                assert (await ended(world, task)).state is TaskState.LOST
                await world.settled()
                assert (innocent.poll(), len(notices(world))) == (None, 1)
            finally:
                innocent.kill()


def change(world: World, sql: str, *values: object) -> None:
    with closing(sqlite3.connect(world.home / DATABASE)) as connection, connection:
        connection.execute(sql, values)


async def test_after_a_reboot_it_is_lost_and_said_so(home: Path) -> None:
    async with World(home, Hands()) as world:
        task = await begun(world, "sleep 600")
        await world.end()
        keeper = keeper_of(world, task)
        os.kill(keeper, signal.SIGKILL)
        await until_gone(keeper)
        change(world, "UPDATE processes SET born = 'another-boot/17'")
        await world.start()
        assert (await ended(world, task)).reason == "the machine was restarted"


async def test_what_no_row_knows_is_ended_at_the_next_start(home: Path) -> None:
    """An older database was put back: what was begun since then runs unowned otherwise."""
    async with World(home, Hands()) as world:
        task = await begun(world, "sleep 600")
        await world.end()
        keeper = keeper_of(world, task)
        change(world, "DELETE FROM processes")
        change(world, "DELETE FROM tasks")
        await world.start()
        await until_gone(keeper)
        assert list((home / "processes").iterdir()) == []


async def test_one_that_was_asked_to_end_and_is_stuck_is_killed(home: Path) -> None:
    async with World(home, Hands(), clock=OwnedClock()) as world:
        witness = home / "witness"
        task = await begun(world, f"echo $$ > {witness}; sleep 600")
        child = int(await until_written(witness))
        os.kill(keeper_of(world, task), signal.SIGSTOP)
        await world.gateway.desk.tasks.cancel(task, "me")
        await world.until(lambda: notices(world))
        assert (await world.gateway.desk.tasks.get(task)).state is TaskState.CANCELLED
        await until_gone(child)


async def test_what_it_wrote_is_kept_for_a_week(home: Path) -> None:
    async with World(home, Hands()) as world:
        old, young = [await begun(world, "echo words") for _ in range(2)]
        for task, days in ((old, 8), (young, 6)):
            await ended(world, task)
            change(world, "UPDATE tasks SET ended = ended - ? WHERE id = ?", days * 86_400.0, task)
        await world.restart()
        assert [folder.name for folder in (home / "processes").iterdir()] == [young]
        assert (await world.gateway.desk.processes.log(old, -4, 10)).text == "rds\n"
        assert (await world.gateway.desk.processes.log(young, 0, 10)).text == "words\n"


async def test_a_model_begins_a_command_ends_its_turn_and_goes_on_when_it_is_woken(home: Path) -> None:
    wish = {"command": "read line; echo built $line", "background": True, "notify_on_complete": "wake"}
    async with ProviderServer() as provider:
        provider.script(Call("terminal", wish), Say("I begin."), Say("It is built."))
        async with World(home, assistant(provider, tools=("terminal",))) as world:
            world.paper.says("build it", thread="a")
            await world.paper.until(lambda paper: paper.posts[-1:] == ["I begin."])
            (task,) = await world.gateway.desk.tasks.all("", 10)
            await world.gateway.desk.processes.feed(task.id, "all of it\n", end=False)
            await world.paper.until(lambda paper: paper.posts[-1:] == ["It is built."])
            await world.settled()
            assert world.paper.posts_in("1", "a") == ["I begin.", "It is built."]
        assert any("built all of it" in line.text for line in provider.requests[-1].lines)
        assert any(f"It runs in the background as {task.id}" in line.text for line in provider.requests[1].lines)


async def test_what_cannot_be_started_is_refused_and_promises_nothing(home: Path) -> None:
    async with World(home, Hands()) as world:
        (home / "processes").write_text("in the way")
        told = await answered(world, call("terminal", command="true", **BACKGROUND))
        assert told.startswith("refused: The command could not be started: ")
        (task,) = await world.gateway.desk.tasks.all("", 10)
        assert (task.state, task.manner) == (TaskState.FAILED, Manner.NOTHING)
        assert notices(world) == []
        (home / "processes").unlink()


GATEWAY = """
import asyncio, json, os, sys
from pathlib import Path
from tidings.bots.assistant.tools import terminal
from tidings.core.gateway.gateway import Gateway
from tidings.core.gateway.options import Team
from tidings.core.settings import Core, Terminal
from tests.worlds.fakes import FakeLocal, FakeServer
from tests.worlds.tool_bench import in_session, use

if os.environ.get("TIDINGS_MUTANT"):
    from tests.chaos import mutants
    mutants.become(os.environ["TIDINGS_MUTANT"])

async def main(home, command):
    settings = Core(terminal=Terminal(backend="local"))
    async with Gateway(home, settings, [], Team({"bot": None}, "bot"), FakeLocal(), FakeServer()) as gateway:
        with in_session(home / "work"):
            asked = {"command": command, "background": True, "notify_on_complete": True}
            await use(terminal.tools(), "terminal", gateway.desk, **asked)
        print("begun", flush=True)
        await asyncio.sleep(600)

asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
"""


@pytest.mark.parametrize("point", ["bg.promised", "bg.spawned", "bg.pid", "bg.go", ""])
async def test_a_killed_gateway_leaves_nothing_unowned_and_the_next_starts_nothing_twice(
    home: Path, point: str
) -> None:
    witness = home / "witness"
    command = f"echo x >> {witness}; echo out; read line; exit 3"
    kept = {name: value for name, value in os.environ.items() if name == VARIABLE or not name.startswith("TIDINGS_")}
    with subprocess.Popen(
        [sys.executable, "-c", GATEWAY, str(home), command],
        cwd=ROOT,
        env={**kept, "PYTHONPATH": str(ROOT), "TIDINGS_FAILPOINT": f"{point}:1" if point else ""},
        stdout=subprocess.PIPE,
        text=True,
    ) as gateway:
        try:
            assert gateway.stdout is not None
            said = await asyncio.to_thread(gateway.stdout.readline)
            assert said == ("" if point else "begun\n")
        finally:
            gateway.kill()
    begins = point in ("bg.go", "")
    if point in ("bg.spawned", "bg.pid"):
        # The keeper has had all the time it wants to begin by mistake.
        await until(lambda: witness.exists() or [*home.glob("processes/*/status.json")])
    async with World(home, Hands(), kind=KEYED) as world:
        (row,) = world.rows("SELECT id, state FROM tasks")
        if begins:
            await until_written(witness)
            assert (await world.gateway.desk.tasks.get(row["id"])).state is TaskState.RUNNING
            await world.gateway.desk.processes.feed(row["id"], "", end=True)
        await world.paper.until(lambda paper: paper.posts)
        await world.restart()
        await world.settled()
        (told,) = world.posts
        assert ("exit code 3" if begins else "so it did nothing") in told
        assert (witness.read_text() if witness.exists() else "") == ("x\n" if begins else "")

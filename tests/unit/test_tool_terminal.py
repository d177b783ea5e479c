"""Commands in the workspace: bounded in time and output, without our secrets, and nothing is left of them."""

import asyncio
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.worlds.tool_bench import in_session, use
from tidings.bots.assistant.tools import terminal
from tidings.bots.assistant.tools.tool import ToolError
from tidings.core.agent import Effect
from tidings.core.work.processes import foreground, identity

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 30.0


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Path]:
    """It does not exist yet, as for a new conversation."""
    with in_session(tmp_path / "workspaces" / "1") as session:
        yield session.workspace


async def run(command: str, **arguments: float) -> str:
    async with asyncio.timeout(PATIENCE_SECONDS):
        return (await use(terminal.tools(), "terminal", command=command, **arguments)).text


def output(text: str) -> str:
    told, _, fence = text.partition("\n\n")[2].rpartition("\n\n(Fence: ")
    assert fence == "none: a command can do what the gateway can.)"
    return told


def is_alive(process: int) -> bool:
    return Path(f"/proc/{process}").exists()


class Witness:
    """A pipe that a process opens: what is said there comes at once, and its end is the end of all who had it."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(path)
        # For both directions, so that opening waits for nobody; the end comes when we let go of our own writer.
        self._writer = os.open(path, os.O_RDWR)
        self._reader = os.open(path, os.O_RDONLY)

    async def word(self) -> str:
        return (await asyncio.to_thread(self._read)).decode().strip()

    async def gone(self) -> bool:
        os.close(self._writer)
        while await asyncio.to_thread(self._read):
            continue
        os.close(self._reader)
        return True

    def _read(self) -> bytes:
        ready, _, _ = select.select([self._reader], [], [], PATIENCE_SECONDS)
        assert ready, "nothing was heard of it, and it is still there"
        return os.read(self._reader, 1000)


def test_it_is_declared_as_what_it_is() -> None:
    (tool,) = terminal.tools()
    assert (tool.effect, tool.untrusted) == (Effect.EFFECT, True)
    assert tool.schema["required"] == ["command"]


async def test_a_command_runs_in_the_workspace_and_tells_its_code(workspace: Path) -> None:
    told = await run("pwd; echo oops >&2; exit 3")
    assert re.match(r"Exit code 3 after \d+\.\d s\.\n\n", told)
    assert output(told) == f"{workspace}\noops"
    assert output(await run("true")) == "(no output)"
    assert "Exit code 137 " in await run("kill -9 $$")


async def test_the_child_has_the_session_and_none_of_our_secrets(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "canary-4711")
    monkeypatch.setenv("TIDINGS_BOT__API_KEY", "canary-4711")
    told = output(await run("env"))
    names = {line.partition("=")[0] for line in told.split("\n")}
    assert "canary" not in told
    assert "TIDINGS_SESSION_RUN=run_1" in told
    assert f"HOME={workspace}" in told
    assert {name for name in names if not name.startswith("TIDINGS_SESSION_")} <= {
        *("PATH", "HOME", "LANG", "PWD", "OLDPWD", "SHLVL", "_", "LC_CTYPE")
    }


async def test_nothing_can_be_typed_and_no_descriptor_is_handed_on(workspace: Path) -> None:
    assert output(await run("cat; readlink /proc/self/fd/0; ls /proc/self/fd | wc -l")) == "/dev/null\n4"


async def test_signals_are_as_a_shell_expects_them(workspace: Path) -> None:
    assert "Exit code 0 " in await run("trap 'exit 0' TERM; kill -TERM 0; exit 1")
    assert output(await run("yes | head -1; echo ${PIPESTATUS[0]}")) == "y\n141"
    assert output(await run("ulimit -c")) == "0"


async def test_a_hundred_megabytes_stay_bounded_and_are_counted(workspace: Path) -> None:
    told = output(await run("echo first; head -c 100000000 /dev/zero | tr '\\0' x; echo; echo last"))
    assert told.startswith("first\nxxx")
    assert told.endswith("xxx\nlast")
    assert len(told) < terminal.OUTPUT_BYTES + 100
    left_out = re.search(r"\[\.\.\. ([\d,]+) bytes left out \.\.\.\]", told)
    assert left_out
    assert int(left_out[1].replace(",", "")) == 100_000_000 + len("first\n\nlast\n") - terminal.OUTPUT_BYTES


def test_an_excerpt_never_holds_more_than_it_keeps() -> None:
    excerpt = foreground.Excerpt(10)
    for letter in b"abcdefghijklmnopqrstuvwxyz":
        excerpt.add(bytes([letter]))
    assert excerpt.text() == "abcde\n[... 16 bytes left out ...]\nvwxyz"
    whole = foreground.Excerpt(10)
    whole.add("abé".encode()[:3])
    whole.add("abé".encode()[3:] + b"fghij")
    assert whole.text() == "abéfghij"


async def test_bytes_that_are_no_text_are_replaced(workspace: Path) -> None:
    assert output(await run("printf 'caf\\351'")) == "caf\N{REPLACEMENT CHARACTER}"


async def test_what_takes_too_long_is_ended_and_its_words_are_kept(workspace: Path) -> None:
    told = await run("echo begun; sleep 600; echo never", seconds=1)
    assert told.startswith("The command did not end within 1 s")
    assert output(told) == "begun"


async def test_more_time_than_there_is_cannot_be_asked_for(workspace: Path) -> None:
    with pytest.raises(ToolError, match="the arguments are wrong"):
        await run("true", seconds=301)


async def test_a_child_that_ignores_signals_and_its_grandchild_are_killed(workspace: Path) -> None:
    told = output(await run("trap '' TERM INT HUP; (trap '' TERM; sleep 600) & echo $!; echo $$; sleep 600", seconds=1))
    grandchild, shell = map(int, told.split("\n"))
    assert not is_alive(shell)
    assert not is_alive(grandchild)


async def test_what_runs_in_the_background_ends_with_its_command(workspace: Path) -> None:
    told = output(await run("sleep 600 & echo $!; nohup sleep 600 >/dev/null 2>&1 & echo $!"))
    assert [is_alive(int(line)) for line in told.split("\n")] == [False, False]


@pytest.mark.skipif(sys.platform != "linux", reason="Only there orphans can be found.")
async def test_even_a_daemon_in_a_session_of_its_own_is_found(workspace: Path) -> None:
    daemon = "setsid sh -c '(trap \"\" TERM; echo $$; touch here; exec sleep 600) & echo $!' & wait"
    told = output(await run(f"{daemon}; until [ -e here ]; do sleep 0.01; done"))
    assert [is_alive(int(line)) for line in told.split("\n")] == [False, False]


async def test_a_command_that_kills_its_keeper_is_ended_all_the_same(workspace: Path) -> None:
    witness = Witness(workspace / "witness")
    await run("exec 9>witness; sleep 600 & kill -9 $PPID; sleep 600")
    assert await witness.gone()


async def test_a_cancelled_command_leaves_no_process(workspace: Path) -> None:
    witness = Witness(workspace / "witness")
    running = asyncio.create_task(run("trap '' TERM; sleep 600 & echo $$ $! > witness; wait; sleep 600"))
    processes = [int(word) for word in (await witness.word()).split()]
    assert all(is_alive(process) for process in processes)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not any(is_alive(process) for process in processes)


async def test_one_that_is_cancelled_twice_leaves_none_either(workspace: Path) -> None:
    witness = Witness(workspace / "witness")
    running = asyncio.create_task(run("trap '' TERM; exec 9>witness; echo here >&9; sleep 600"))
    assert await witness.word() == "here"
    running.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await witness.gone()
    await identity.endings.drain()


async def test_one_that_is_cancelled_before_it_began_never_begins(workspace: Path) -> None:
    for turns in range(12):
        running = asyncio.create_task(run(f": {workspace}; sleep 600"))
        for _ in range(turns):
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    listed = subprocess.run(["ps", "-ww", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(workspace) not in listed


GATEWAY = """
import asyncio, sys
from pathlib import Path
from tidings.bots.assistant.tools import terminal
from tests.worlds.tool_bench import in_session, use

async def main():
    with in_session(Path(sys.argv[1])):
        await use(terminal.tools(), "terminal", command="trap '' TERM; exec 9>witness; echo here >&9; sleep 600 & wait")

asyncio.run(main())
"""


async def test_a_killed_gateway_leaves_no_process(workspace: Path) -> None:
    witness = Witness(workspace / "witness")
    gateway = subprocess.Popen([sys.executable, "-c", GATEWAY, str(workspace)], cwd=ROOT)
    try:
        assert await witness.word() == "here"
    finally:
        gateway.send_signal(signal.SIGKILL)
        gateway.wait()
    assert await witness.gone()


async def test_others_go_on_while_a_command_runs(workspace: Path) -> None:
    witness = Witness(workspace / "witness")
    running = asyncio.create_task(run("echo ready > witness; read line < answer; echo $line"))
    os.mkfifo(workspace / "answer")
    assert await witness.word() == "ready"
    answer = os.open(workspace / "answer", os.O_RDWR)
    os.write(answer, b"hello\n")
    assert output(await running) == "hello"
    os.close(answer)


@pytest.mark.parametrize("command", ["echo a\0b", "x" * 200_000])
async def test_what_no_system_could_start_is_a_sentence(workspace: Path, command: str) -> None:
    with pytest.raises(ToolError):
        await run(command)

"""Tools of MCP servers, real ones: what they say arrives, what they claim is not believed, and none holds up a turn."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.contract.agents import session_of
from tests.worlds.fakes import FakeClock, FakeDesk
from tidings.bots.assistant.settings import McpServer
from tidings.bots.assistant.tools import mcp
from tidings.bots.assistant.tools.mcp import McpServers, Patience, tool_name
from tidings.bots.assistant.tools.tool import Occasion, Tool, ToolError
from tidings.core import context
from tidings.core.agent import Effect
from tidings.core.errors import NoSession

ROOT = Path(__file__).resolve().parents[2]
OCCASION = Occasion(FakeDesk(), "key")
# It takes Python seconds to bring up a server of the library; where only the process matters, a plain one will do.
COMMAND = (sys.executable, "-m", "tests.simulators.tools.mcp_server")
PLAIN = (sys.executable, "-m", "tests.simulators.tools.mcp_plain")
# They share one server, and nobody else needs the library's client, so one process runs them all.
pytestmark = pytest.mark.xdist_group("mcp")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "server.log"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """One server by HTTP for all who only ask it something: Python takes seconds to bring one up."""
    command = [*COMMAND, "--log", str(tmp_path_factory.mktemp("shared") / "log"), "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdin=DEVNULL, stdout=PIPE) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.kill()


# A busy machine is slow to start Python; where a test is about patience, it says so.
PATIENT = Patience(turn=20.0)


def started(log: Path, *more: str, by: tuple[str, ...] = PLAIN, **settings: Any) -> McpServer:
    env = {"PYTHONPATH": str(ROOT), **settings.pop("env", {})}
    return McpServer(command=(*by, "--log", str(log), *more), env=env, **settings)


def bad(log: Path, then: str) -> McpServer:
    """No server at all: a program that says that it was started, and then does something else."""
    script = f"import os, sys, time; print('{{\"pid\": %d}}' % os.getpid(), file=open(sys.argv[1], 'a')); {then}"
    return McpServer(command=(sys.executable, "-S", "-c", script, str(log)))


HANGS = "time.sleep(1000)"


def at(port: int, **settings: Any) -> McpServer:
    return McpServer(url=f"http://127.0.0.1:{port}/mcp", **settings)


def notes(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def pids(log: Path) -> list[int]:
    return [note["pid"] for note in notes(log) if "pid" in note]


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


async def eventually(holds: Callable[[], object]) -> None:
    """For what only a file or the kernel knows, which tell nobody when it changes."""
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline, "never"
        await asyncio.sleep(0.01)


@asynccontextmanager
async def connected(
    clock: FakeClock | None = None, patience: Patience = PATIENT, **servers: McpServer
) -> AsyncIterator[McpServers]:
    before = asyncio.all_tasks()
    found = McpServers(servers, clock=clock, patience=patience)
    try:
        yield found
    finally:
        await found.close()
    assert asyncio.all_tasks() == before, "it left tasks behind"


@asynccontextmanager
async def listening(log: Path, port: int = 0) -> AsyncIterator[tuple[int, asyncio.subprocess.Process]]:
    """The server by HTTP, and its port."""
    command = [*COMMAND, "--log", str(log), "--port", str(port)]
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdin=DEVNULL, stdout=PIPE)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(20):
            line = await process.stdout.readline()
        yield int(line), process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def tools_of(servers: McpServers, name: str = "sim") -> dict[str, Tool]:
    return {tool.name: tool for tool in (await servers.tools())[name]}


async def call(servers: McpServers, tool: str, **arguments: Any) -> str:
    found = (await tools_of(servers))[f"sim__{tool}"]
    return (await found.act(json.dumps(arguments), OCCASION)).text


async def process_of(servers: McpServers) -> dict[str, int]:
    told: dict[str, int] = json.loads(await call(servers, "process"))
    return told


# What a server offers, and what is believed of it.


async def test_a_server_that_is_started_by_a_command_offers_its_tools(log: Path) -> None:
    async with connected(sim=started(log, by=COMMAND)) as servers:
        tools = await tools_of(servers)
        add = tools["sim__add"]
        assert add.description == "Adds two numbers, and claims that it only looks."
        assert add.schema["type"] == "object"
        assert set(add.schema["properties"]) == {"a", "b"}
        assert add.untrusted
        assert (await add.act('{"a": 2, "b": 3}', OCCASION)).text == "5"
        assert servers.failures() == {}
        await servers.tools()
    assert len(pids(log)) == 1


async def test_a_server_at_an_address_offers_its_tools_and_gets_its_headers(log: Path) -> None:
    async with AsyncExitStack() as stack:
        port, _ = await stack.enter_async_context(listening(log))
        there = at(port, headers={"Authorization": "Bearer of news"})
        servers = await stack.enter_async_context(connected(sim=there))
        assert await call(servers, "add", a=2, b=3) == "5"
    assert {note["authorization"] for note in notes(log) if "authorization" in note} == {"Bearer of news"}


async def test_only_the_settings_say_what_a_tool_does(shared: int) -> None:
    """The server says that `add` only reads; that is a stranger's claim."""
    there = at(shared, pure=("table",), idempotent=("say.it/loud",), allow=("die", "say.it/loud"))
    async with connected(sim=there) as servers:
        tools = await tools_of(servers)
        loud = tool_name("sim", "say.it/loud")
        assert tools["sim__add"].effect is Effect.EFFECT
        assert tools["sim__table"].effect is Effect.PURE
        assert tools[loud].effect is Effect.IDEMPOTENT
        assert servers.allowed() == {"sim": frozenset({"sim__die", loud})}


async def test_a_name_that_no_model_takes_is_changed_and_still_finds_its_tool(shared: int) -> None:
    async with connected(sim=at(shared)) as servers:
        tool = (await tools_of(servers))[tool_name("sim", "say.it/loud")]
        assert (await tool.act('{"words": "hear"}', OCCASION)).text == "HEAR"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a", "b__c"), ("a__b", "c")),
        (("a", "_b"), ("a_", "b")),
        (("a", "b.c"), ("a", "b/c")),
        (("a", "x" * 80), ("a", "x" * 81)),
        (("a", "b.c"), ("a", tool_name("a", "b.c")[3:])),
    ],
)
def test_no_two_tools_share_a_name(one: tuple[str, str], other: tuple[str, str]) -> None:
    names = [tool_name(*one), tool_name(*other)]
    assert names[0] != names[1]
    assert all(mcp._UNFIT.search(name) is None and len(name) <= 64 for name in names)


# What comes back.


async def test_what_is_no_text_is_told_in_words(shared: int) -> None:
    async with connected(sim=at(shared)) as servers:
        assert await call(servers, "picture") == "a red dot:\n(image: image/png, about 102 bytes, not shown)"
        assert json.loads(await call(servers, "table")) == {"rows": [1, 2]}


async def test_a_flood_is_cut(shared: int) -> None:
    async with connected(sim=at(shared)) as servers:
        text = await call(servers, "flood", characters=100_000)
    assert text.startswith("x" * 40_000 + "\n(cut here: 60000 more characters)")


async def test_what_a_tool_calls_an_error_is_one(shared: int) -> None:
    async with connected(sim=at(shared)) as servers:
        with pytest.raises(ToolError, match="^the shop is closed$"):
            await call(servers, "fail")


@pytest.mark.parametrize("written", ["[1]", '{"a": ', '{"a": "two", "b": 3}'])
async def test_wrong_arguments_are_told_to_the_model(shared: int, written: str) -> None:
    async with connected(sim=at(shared)) as servers:
        add = (await tools_of(servers))["sim__add"]
        with pytest.raises(ToolError):
            await add.act(written, OCCASION)
        assert await call(servers, "add", a=1, b=1) == "2"


# The process of a server.


async def test_a_command_sees_nothing_of_the_gateway_s_environment(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDINGS_BOT__API_KEY", "sk-a-secret-of-the-gateway")
    monkeypatch.setenv("USER", "somebody")
    async with connected(sim=started(log, env={"TOKEN": "its-own"})) as servers:
        seen = json.loads(await call(servers, "environment"))
    # Python itself may add how it reads text.
    assert set(seen) - {"LC_CTYPE"} == {"PATH", "HOME", "LANG", "PYTHONPATH", "TOKEN"}
    assert seen["TOKEN"] == "its-own"


async def test_a_server_has_a_group_of_its_own_and_ends_with_the_bot(log: Path) -> None:
    async with connected(sim=started(log)) as servers:
        process = await process_of(servers)
        assert process["group"] == process["pid"] != os.getpgrp()
        assert alive(process["pid"])
    assert not alive(process["pid"])


async def test_a_server_that_does_not_listen_is_killed(log: Path) -> None:
    async with connected(sim=started(log, "--deaf")) as servers:
        process = await process_of(servers)
    assert not alive(process["pid"])


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
async def test_a_server_dies_with_a_gateway_that_was_killed(log: Path) -> None:
    script = (
        "import asyncio, sys\n"
        "from tidings.bots.assistant.settings import McpServer\n"
        "from tidings.bots.assistant.tools import mcp\n"
        "async def main():\n"
        "    server = McpServer(command=sys.argv[2:], env={'PYTHONPATH': sys.argv[1]})\n"
        "    servers = mcp.McpServers({'sim': server}, patience=mcp.Patience(turn=20.0))\n"
        "    print(len((await servers.tools())['sim']), flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    command = [*PLAIN, "--log", str(log), "--deaf"]
    gateway = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, str(ROOT), *command, cwd=ROOT, stdout=PIPE, stderr=DEVNULL
    )
    assert gateway.stdout is not None
    async with asyncio.timeout(30):
        assert int(await gateway.stdout.readline()) > 5
    (pid,) = pids(log)
    assert alive(pid)
    gateway.send_signal(signal.SIGKILL)
    await gateway.wait()
    await eventually(lambda: not alive(pid))


class Overhearing(logging.Handler):
    """Notes to which session the task belongs that hears a server's complaint."""

    def __init__(self) -> None:
        super().__init__()
        self.sessions: list[object] = []

    def emit(self, record: logging.LogRecord) -> None:
        if " says: " in record.getMessage():
            try:
                self.sessions.append(context.current())
            except NoSession:
                self.sessions.append(None)


async def test_a_connection_belongs_to_no_session(log: Path, caplog: pytest.LogCaptureFixture) -> None:
    overhearing = Overhearing()
    caplog.set_level(logging.DEBUG, mcp.log.name)
    mcp.log.addHandler(overhearing)
    try:
        async with connected(sim=bad(log, "sys.exit('no such table')")) as servers:
            with context.bind(session_of("run_1")):
                await servers.tools()
    finally:
        mcp.log.removeHandler(overhearing)
    assert set(overhearing.sessions) == {None}


# Servers that fail.


async def test_a_server_that_cannot_be_reached_gives_nothing_and_is_tried_again_later(
    log: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock()
    there = bad(log, "sys.exit('no such table')")
    async with connected(clock, sim=there, good=started(log.with_suffix(".good"))) as servers:
        with caplog.at_level(logging.WARNING, logger=mcp.__name__):
            offered = await servers.tools()
            await servers.tools()
        assert offered["sim"] == ()
        assert len(offered["good"]) > 5
        (warning,) = [record.getMessage() for record in caplog.records if record.name == mcp.__name__]
        assert servers.failures() == {"sim": warning}
        assert "the tool server sim cannot be reached" in warning
        assert "no such table" in warning
        assert len(pids(log)) == 1
        await clock.advance(29)
        await servers.tools()
        assert len(pids(log)) == 1
        await clock.advance(1)
        await servers.tools()
        assert len(pids(log)) == 2


@pytest.mark.parametrize(
    "there", [McpServer(command=("no-such-command-anywhere",)), McpServer(url="http://127.0.0.1:9/mcp")]
)
async def test_a_server_that_is_not_there_is_told_of(there: McpServer) -> None:
    async with connected(sim=there) as servers:
        assert (await servers.tools())["sim"] == ()
        assert servers.failures()["sim"].startswith("the tool server sim cannot be reached: ")


async def test_a_server_that_comes_up_later_is_found(log: Path) -> None:
    clock = FakeClock()
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    async with connected(clock, sim=at(port)) as servers:
        assert (await servers.tools())["sim"] == ()
        async with listening(log, port):
            await clock.advance(mcp.RETRY_SECONDS)
            assert await call(servers, "add", a=1, b=2) == "3"
            assert servers.failures() == {}


async def test_a_server_that_never_answers_holds_up_one_turn_and_only_for_a_moment(log: Path) -> None:
    patience = Patience(turn=0.2)
    async with connected(good=started(log.with_suffix(".good")), sim=bad(log, HANGS), patience=patience) as servers:
        warm = servers._servers["good"].begin()
        assert warm is not None
        await warm.opened
        offered = await servers.tools()
        assert (len(offered["good"]) > 5, offered["sim"]) == (True, ())
        await eventually(lambda: pids(log))


async def test_a_server_that_one_turn_has_waited_for_holds_up_no_other(log: Path) -> None:
    clock = FakeClock()
    async with connected(clock, sim=bad(log, HANGS), patience=Patience(1000.0, 2000.0)) as servers:
        first = asyncio.create_task(servers.tools())
        await eventually(lambda: pids(log))
        await clock.advance(1000.0)
        # The server is still being connected, but no turn waits for it any more.
        async with asyncio.timeout(10):
            assert (await servers.tools())["sim"] == ()
        first.cancel()
        await asyncio.wait([first])
        (pid,) = pids(log)
    assert not alive(pid)


async def test_a_server_that_never_answers_is_given_up(log: Path) -> None:
    async with connected(sim=bad(log, HANGS), patience=Patience(turn=20.0, connection=0.5)) as servers:
        assert (await servers.tools())["sim"] == ()
        assert "did not answer in time" in servers.failures()["sim"]


async def test_a_call_that_takes_too_long_is_given_up_and_the_connection_stays(log: Path) -> None:
    async with connected(sim=started(log, call_seconds=0.3)) as servers:
        pid = (await process_of(servers))["pid"]
        with pytest.raises(ToolError, match=r"wait did not answer within 0\.3 s; whether it took effect is unknown"):
            await call(servers, "wait")
        assert (await process_of(servers))["pid"] == pid


async def test_a_server_that_answers_no_call_at_all_is_started_anew(log: Path) -> None:
    async with connected(sim=started(log, call_seconds=0.3)) as servers:
        pid = (await process_of(servers))["pid"]
        for _ in range(mcp.LATE_CALLS):
            with pytest.raises(ToolError, match="did not answer"):
                await call(servers, "wait")
        assert (await process_of(servers))["pid"] != pid


async def test_a_call_that_is_cancelled_leaves_the_connection_as_it_was(log: Path) -> None:
    async with connected(sim=started(log)) as servers:
        waiting = asyncio.create_task(call(servers, "wait"))
        await eventually(lambda: {"tool": "wait"} in notes(log))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await call(servers, "add", a=1, b=1) == "2"
    assert len(pids(log)) == 1


async def test_a_server_that_dies_in_a_call_is_started_again_for_the_next(log: Path) -> None:
    async with connected(sim=started(log)) as servers:
        with pytest.raises(ToolError, match="broke during die; whether it took effect is unknown"):
            await call(servers, "die")
        assert await call(servers, "add", a=1, b=1) == "2"
    assert len(pids(log)) == 2
    assert [note for note in notes(log) if note.get("tool") == "die"] == [{"tool": "die"}]


async def test_a_server_at_an_address_that_dies_in_a_call_is_reached_again(log: Path) -> None:
    clock = FakeClock()
    async with AsyncExitStack() as stack:
        port, process = await stack.enter_async_context(listening(log))
        servers = await stack.enter_async_context(connected(clock, sim=at(port)))
        tools = await tools_of(servers)
        waiting = asyncio.ensure_future(tools["sim__wait"].act("{}", OCCASION))
        await eventually(lambda: {"tool": "wait"} in notes(log))
        process.kill()
        with pytest.raises(ToolError, match="broke during wait; whether it took effect is unknown"):
            await waiting
        with pytest.raises(ToolError, match="cannot be reached.*nothing was done"):
            await tools["sim__add"].act('{"a": 1, "b": 1}', OCCASION)
        await stack.enter_async_context(listening(log, port))
        await clock.advance(mcp.RETRY_SECONDS)
        assert (await tools["sim__add"].act('{"a": 1, "b": 1}', OCCASION)).text == "2"


async def test_a_bot_that_closes_while_it_connects_leaves_nothing_behind(log: Path) -> None:
    async with connected(sim=bad(log, HANGS), patience=Patience(turn=0.0)) as servers:
        await servers.tools()
        await eventually(lambda: pids(log))
    assert not alive(pids(log)[0])
    assert (await servers.tools())["sim"] == ()

"""The assistant in a real process, killed while a tool works: it says so once, and the tool has worked once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.simulators.provider.simulator import MODEL
from tidings.adapters.local import socket
from tidings.core.errors import NotRunning, Unrouted
from tidings.core.store.sqlite import DATABASE

ROOT = Path(__file__).resolve().parents[3]
PATIENCE_SECONDS = 30
UNKNOWN = (
    "⚠ I could not finish this: interrupted by a restart while terminal was at work; whether it took effect is unknown."
)
# What the person has just said is what the model does; what it was told earlier it leaves alone.
PROVIDER = """
import asyncio, json, sys
from tests.simulators.provider.simulator import Call, ProviderServer, Say

def mind(exchange):
    last = exchange.lines[-1]
    order, _, rest = last.text.partition(" ")
    tool, _, arguments = rest.partition(" ")
    return Call(tool, arguments) if last.role == "user" and order == "CALL" else Say("done")

async def serve():
    async with ProviderServer() as provider:
        provider.script(then=mind)
        print(json.dumps({"url": provider.openai_url, "key": provider.key}), flush=True)
        await asyncio.to_thread(sys.stdin.read)
        print(json.dumps([line.text for each in provider.requests for line in each.lines]), flush=True)

asyncio.run(serve())
"""


class Provider(NamedTuple):
    url: str
    key: str
    process: subprocess.Popen[str]

    async def seen(self) -> list[str]:
        """Ends it; what its models were told until then."""
        out, _ = await asyncio.to_thread(self.process.communicate, "", PATIENCE_SECONDS)
        lines: list[str] = json.loads(out)
        return lines


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    command = [sys.executable, "-c", PROVIDER]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=_environment()
    ) as process:
        try:
            assert process.stdout is not None
            told = json.loads(await asyncio.to_thread(process.stdout.readline))
            yield Provider(told["url"], told["key"], process)
        finally:
            process.kill()


def _environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TIDINGS_")}
    return {**kept, "PYTHONPATH": str(ROOT), **more}


@asynccontextmanager
async def gateway(home: Path, provider: Provider, **more: str) -> AsyncIterator[subprocess.Popen[bytes]]:
    """Ready when it answers; whoever leaves it running has it killed."""
    environment = _environment(
        TIDINGS_HOME=str(home),
        TIDINGS_HTTP__PORT="0",
        TIDINGS_BOT__MODEL=f"openai-chat:{MODEL}",
        TIDINGS_BOT__BASE_URL=provider.url,
        TIDINGS_BOT__API_KEY=provider.key,
        TIDINGS_BOT__TOOLS="time,files,terminal",
        TIDINGS_BOT__APPROVALS__MODES='{"terminal": "allow"}',
        # The commands tell the test what happens by files outside of the workspace.
        **{"TIDINGS_TERMINAL__BACKEND": "local", **more},
    )
    log = home / "stderr.log"
    with (
        log.open("ab") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "tidings.bots.main", "run"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stderr=errors,
        ) as process,
    ):
        try:
            await until(lambda: answers(home, process), log)
            yield process
        finally:
            process.kill()


async def answers(home: Path, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, (home / "stderr.log").read_text()
    try:
        await socket.call(home, {"verb": "status"})
    except (NotRunning, Unrouted):
        return False
    return True


async def until(holds: Callable[[], Awaitable[bool]], log: Path) -> None:
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            # Another process can tell only by being looked at.
            while True:
                if await holds():
                    return
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(log.read_text()) from None


async def say(home: Path, text: str, key: str) -> None:
    """Says one thing, and goes away when it is stored."""
    async with asyncio.timeout(PATIENCE_SECONDS), socket.connect(home) as line:
        await line.write({"verb": "chat"})
        await line.write({"say": text, "key": key})
        while (heard := await line.read()) is not None:
            if heard.get("stored") == key:
                return


async def answers_until(home: Path, wanted: str) -> list[str]:
    """Every final text that is shown at the console, up to the one that is waited for."""
    shown: list[str] = []
    async with asyncio.timeout(PATIENCE_SECONDS), socket.connect(home) as line:
        await line.write({"verb": "chat"})
        await line.write({"say": "are you still there?", "key": "last"})
        while not shown or wanted not in shown[-1]:
            heard = await line.read()
            assert heard is not None
            if "part" in heard:
                await line.write({"shown": heard["part"]})
            if heard.get("kind") == "plain":
                shown.append(heard["text"])
    return shown


def outcomes(home: Path) -> list[tuple[str, str, int]]:
    with closing(sqlite3.connect(home / DATABASE)) as connection:
        return connection.execute("SELECT key, outcome, attempt FROM inbox ORDER BY seq").fetchall()


async def test_a_command_at_work_during_a_kill_is_told_of_once_and_has_run_once(
    tmp_path: Path, provider: Provider
) -> None:
    witness = tmp_path / "witness"
    command = f"echo ran >> {witness}; sleep 300"
    async with gateway(tmp_path, provider) as process:
        await say(tmp_path, f"CALL terminal {json.dumps({'command': command, 'seconds': 300})}", "first")

        async def ran() -> bool:
            return witness.exists() and witness.read_text() == "ran\n"

        await until(ran, tmp_path / "stderr.log")
        process.send_signal(signal.SIGKILL)
        assert await asyncio.to_thread(process.wait, PATIENCE_SECONDS) == -signal.SIGKILL
    async with gateway(tmp_path, provider) as process:
        shown = await answers_until(tmp_path, "done")
        assert shown == [UNKNOWN, "done"]
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, PATIENCE_SECONDS) == 0
    assert witness.read_text() == "ran\n"
    assert outcomes(tmp_path) == [("first", "failed", 1), ("last", "completed", 1)]
    assert any("whether it took effect is unknown" in text for text in await provider.seen())


async def test_a_kill_between_the_stored_start_and_the_act_is_told_as_unknown_too(
    tmp_path: Path, provider: Provider
) -> None:
    """Nobody can tell that moment from the next one."""
    witness = tmp_path / "witness"
    async with gateway(tmp_path, provider, TIDINGS_FAILPOINT="tool.started:1:kill") as process:
        await say(tmp_path, f"CALL terminal {json.dumps({'command': f'echo ran >> {witness}'})}", "first")
        assert await asyncio.to_thread(process.wait, PATIENCE_SECONDS) == -signal.SIGKILL
    async with gateway(tmp_path, provider):
        assert await answers_until(tmp_path, "done") == [UNKNOWN, "done"]
    assert not witness.exists()


async def test_a_tool_that_only_looks_is_used_again_after_a_kill(tmp_path: Path, provider: Provider) -> None:
    async with gateway(tmp_path, provider, TIDINGS_FAILPOINT="tool.started:1:kill") as process:
        await say(tmp_path, 'CALL process {"action": "list"}', "first")
        assert await asyncio.to_thread(process.wait, PATIENCE_SECONDS) == -signal.SIGKILL
    async with gateway(tmp_path, provider):
        assert await answers_until(tmp_path, "done") == ["done"]

        async def settled() -> bool:
            return outcomes(tmp_path) == [("first", "completed", 2), ("last", "completed", 1)]

        await until(settled, tmp_path / "stderr.log")

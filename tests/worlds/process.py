"""The gateway as a real process, and the command line beside it, as a person runs them.

    async with gateway(tmp_path, **echo_on("discord", ada.id, TOKEN=discord.token)) as process:
        assert (await part_of(tmp_path, "discord@main"))["state"] == "up"

gateway(home, **variables)   ready when it answers, and killed at the end; `end(process, signal)` ends it before
chat(home, *lines)           what a person types and reads; `say` returns when the words are stored
status(home)                 what `tidings status` knows; `part_of(home, part)` is one part of it
tidings(home, *arguments)    one command to its end; `ask` is the same while the gateway runs
accounts(home, platform, toml)  the accounts of a platform, as the settings are loaded
"""

from __future__ import annotations

import asyncio
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from tidings.adapters import catalog
from tidings.adapters.local import socket
from tidings.bots.app import settings
from tidings.core.errors import NotRunning, Unrouted

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 30
# A part that only the owner can correct says so within so many seconds.
TOLD_SECONDS = 20


def environment(home: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TIDINGS_")}
    return {**kept, "TIDINGS_HOME": str(home), "TIDINGS_HTTP__PORT": "0", **more}


@asynccontextmanager
async def gateway(home: Path, *, descriptors: int = 0, **more: str) -> AsyncIterator[subprocess.Popen[bytes]]:
    """Ready when it answers; whoever leaves it running has it killed."""

    def limit() -> None:
        if descriptors:
            resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

    # A file, since nobody reads a pipe while the test waits, and a full one would stop the process.
    log = home / "stderr.log"
    with (
        log.open("ab") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "tidings.bots.main", "run"],
            cwd=ROOT,
            env=environment(home, **more),
            stdin=subprocess.DEVNULL,
            stderr=errors,
            preexec_fn=limit,
        ) as process,
    ):
        try:
            await until_it_answers(home, process)
            yield process
        finally:
            process.kill()


async def until_it_answers(home: Path, process: subprocess.Popen[bytes]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await answers(home):
            assert process.poll() is None, (home / "stderr.log").read_text()
            await asyncio.sleep(0.05)


async def answers(home: Path) -> bool:
    try:
        await status(home)
    except (NotRunning, Unrouted):
        return False
    return True


async def status(home: Path) -> dict[str, Any]:
    health: dict[str, Any] = (await socket.call(home, {"verb": "status"}))["health"]
    return health


async def chat(home: Path, *lines: str) -> str:
    said = "".join(f"{line}\n" for line in lines)
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "tidings.bots.main", "chat", "--timeout", str(PATIENCE_SECONDS)],
        input=said.encode(),
        capture_output=True,
        cwd=ROOT,
        env=environment(home),
        timeout=2 * PATIENCE_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


async def say(home: Path, text: str, key: str) -> socket.SocketLine:
    """Attaches, says one thing, and returns when it is stored; whoever closes the line has gone away."""
    stack = AsyncExitStack()
    line = await stack.enter_async_context(socket.connect(home))
    await line.write({"verb": "chat"})
    await line.write({"say": text, "key": key})
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (heard := await line.read()) is not None:
            if heard.get("stored") == key:
                break
    await stack.aclose()
    return line


async def end(process: subprocess.Popen[bytes], number: signal.Signals) -> int:
    process.send_signal(number)
    return await asyncio.to_thread(process.wait, PATIENCE_SECONDS)


def tidings(
    home: Path, *arguments: str, stdin: bytes | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tidings.bots.main", *arguments],
        input=stdin.decode() if stdin is not None else None,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=surroundings(home, **environment),
        timeout=60,
        check=False,
    )


def surroundings(home: Path, **environment: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not re.match("TIDINGS_|.*_API_KEY$", name)}
    return {**kept, "TIDINGS_HOME": str(home), "TIDINGS_HTTP__PORT": "0", **environment}


async def ask(home: Path, told: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line beside the gateway."""
    return await asyncio.to_thread(lambda: tidings(home, *arguments, **told))  # type: ignore[arg-type]


async def part_of(home: Path, part: str) -> dict[str, Any]:
    parts = (await status(home))["parts"]
    return next(each for each in parts if each["name"] == part)


async def until_misconfigured(home: Path, part: str) -> str:
    """Waits for the part to say that only the owner can correct it, and returns what the owner is told."""
    async with asyncio.timeout(TOLD_SECONDS):
        while (found := await part_of(home, part))["state"] != "misconfigured":  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return str(found["last_error"])


def echo_on(platform: str, person: str, variables: Mapping[str, str], **more: str) -> dict[str, str]:
    """The environment in which an echo answers one person; variables are those of the platform's section."""
    section = {f"TIDINGS_{platform.upper()}__{name}": value for name, value in variables.items()}
    # Others may use the usual port at the same time.
    return {
        "TIDINGS_BOT__AGENT": "echo",
        "TIDINGS_LIMITS__BURST_SECONDS": "0",
        "TIDINGS_ACCESS__ALLOW": f"{platform}:{person}",
        "TIDINGS_HTTP__PORT": "0",
        **section,
        **more,
    }


def accounts(home: Path, platform: str, toml: str = "", **environment: str) -> dict[str, Any]:
    """The accounts that the settings name; none of these settings may raise a warning."""
    (home / "tidings.toml").write_text(toml, encoding="utf-8")
    loaded = settings.load(catalog.sections(), home, None, environment)
    assert loaded.warnings == ()
    configured = catalog.configured(loaded.platforms)
    return {account: section for name, account, section in configured if name == platform}

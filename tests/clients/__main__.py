"""Drives each real client program against a gateway on loopback: `make clients` (ARGS=--record keeps what they ask)."""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from tests.clients.agent import ClientsAgent
from tests.clients.expectations import EXPECTED, asked_for, complaint
from tests.clients.recording import Recording
from tests.worlds.api import ApiWorld
from tidings.core.desk.approvals import Choice
from tidings.core.errors import Conflict
from tidings.core.roles import OWNER

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = ROOT / ".venv-clients"
RECORDED = Path(__file__).parent / "recorded"
PATIENCE_SECONDS = 600.0
LOOKING_SECONDS = 0.03
PYTHON = ("openai_python", "litellm_python", "langchain_python", "agents_python", "pydantic_python")
NODE = ENVIRONMENT / "node"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true", help=f"write what was asked to {RECORDED.name}/")
    parser.add_argument("--asking", action="store_true", help="have each run ask people first, who approve at once")
    parser.add_argument("drivers", nargs="*", help="these only, such as openai_python or node")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="tidings-clients-"))
    try:
        failed = asyncio.run(_drive_all(folder, arguments.drivers, arguments.record, arguments.asking))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(bool(failed))


async def _drive_all(folder: Path, wanted: list[str], record: bool, asking: bool) -> int:
    agent = ClientsAgent(asks=asking)
    passed = failed = 0
    clients: dict[str, None] = {}
    async with ApiWorld(folder / "home", agent) as api, Recording(api.url) as between, _approving(api):
        for name, command in _commands().items():
            if wanted and name not in wanted:
                continue
            seen = await _drive([*command, between.url, api.key])
            if not seen:
                failed += 1
                print(f"✗ {name}: it could not be started")
            for each in seen:
                client, scenario = each["client"], each["scenario"]
                clients[client] = None
                runs = sum(agent.asked[text] for text in asked_for(client, scenario))
                why = complaint(client, scenario, each["saw"], runs)
                passed, failed = passed + (not why), failed + bool(why)
                print(f"{'✗' if why else '✓'} {client}: {scenario}{f': {why}' if why else ''}", flush=True)
            missing = {each["client"]: len(EXPECTED) for each in seen if each["scenario"] == "plain"}
            for client, count in missing.items():
                lost = count - sum(each["client"] == client for each in seen)
                failed += lost
                if lost:
                    print(f"✗ {client}: {lost} scenarios did not end")
    if record:
        between.save(RECORDED, clients)
    print(f"{passed} passed, {failed} failed")
    return failed


@asynccontextmanager
async def _approving(api: ApiWorld) -> AsyncIterator[None]:
    """Approves whatever is asked."""

    async def approve() -> None:
        while True:
            for question in await api.gateway.desk.approvals.open(OWNER):
                # The client may have gone meanwhile.
                with suppress(Conflict):
                    await api.gateway.desk.approvals.answer(OWNER, question.id, Choice.ONCE)
            await asyncio.sleep(LOOKING_SECONDS)

    task = asyncio.create_task(approve())
    try:
        yield
    finally:
        task.cancel()


def _commands() -> dict[str, list[str]]:
    python = str(ENVIRONMENT / "bin" / "python")
    commands = {name: [python, "-m", f"tests.clients.{name}"] for name in PYTHON}
    if (NODE / "node_modules").is_dir():
        commands["node"] = ["node", str(NODE / "drive.mjs")]
    else:
        print("npm is not there, or could not install: the clients of Node are left out")
    return commands


async def _drive(command: list[str]) -> list[dict[str, Any]]:
    """What it saw, line by line; what it says besides is shown only if it ends badly."""
    process = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            out, wrong = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        print(wrong.decode(errors="replace")[-3000:], file=sys.stderr)
    return [json.loads(line) for line in out.decode().splitlines() if line.startswith("{")]


if __name__ == "__main__":
    main()

"""The attack that the fence was built for: a bot with a terminal takes the owner's key and admits a stranger."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.scenario.assistant.test_assistant_process import Provider, answers_until, gateway, provider, say
from tests.worlds.fence import needs_bubblewrap, needs_python
from tidings.adapters.local import socket
from tidings.core.work.processes.sandbox import PATHS

__all__ = ["provider"]

STRANGER = "telegram:4711"
READ = """
print("the key is", open({home!r} + "/api.key").read())
"""
ADMIT = """
import json, os, socket
home = {home!r}
pointer = home + "/tidings.sock.path"
path = open(pointer).read() if os.path.exists(pointer) else home + "/tidings.sock"
line = socket.socket(socket.AF_UNIX)
line.connect(path)
line.sendall(json.dumps({{"verb": "people", "do": "admit", "who": {who!r}, "role": "owner"}}).encode() + b"\\n")
print(line.recv(1000).decode())
"""


@needs_python
@pytest.mark.parametrize("backend", [pytest.param("sandbox", marks=needs_bubblewrap), "local"])
async def test_a_bot_with_a_terminal_neither_reads_the_key_nor_admits_a_stranger(
    tmp_path: Path,
    provider: Provider,
    backend: str,
) -> None:
    """Without the fence it does both: that is what `local` means, and why it must be chosen by name."""
    python = shutil.which("python3", path=PATHS)
    programs = [text.format(home=str(tmp_path), who=STRANGER) for text in (READ, ADMIT)]
    command = "\n".join(f"{python} - <<'END'\n{program}\nEND" for program in programs)
    async with gateway(tmp_path, provider, TIDINGS_TERMINAL__BACKEND=backend):
        key = (tmp_path / "api.key").read_text().strip()
        await say(tmp_path, f"CALL terminal {json.dumps({'command': command})}", "attack")
        await answers_until(tmp_path, "done")
        known = await socket.call(tmp_path, {"verb": "people", "do": "list"})
        admitted = [person["id"] for person in known["people"] if STRANGER in (person["id"], *person["identities"])]
        seen = await provider.seen()
    result = next(text for text in seen if "(Fence: " in text)
    # What a model is told is redacted, so the key itself shows only as far as the command came to it.
    assert ("the key is" in result) is (backend == "local")
    assert key not in result
    assert bool(admitted) is (backend == "local")
    words = "bubblewrap, no network" if backend == "sandbox" else "none: a command can do what the gateway can"
    assert f"(Fence: {words}.)" in result
    log = (tmp_path / "stderr.log").read_text()
    assert ("commands run without a fence" in log) is (backend == "local")

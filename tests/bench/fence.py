"""What the start of a command costs behind the sandbox, beside the same command without a fence; CPU of everything."""

from __future__ import annotations

import asyncio
import json
import resource
import tempfile
from pathlib import Path

from tests.worlds.tool_bench import in_session
from tidings.core import context
from tidings.core.desk.fence import Fence
from tidings.core.errors import Unfenced
from tidings.core.settings import Terminal
from tidings.core.work.processes import foreground
from tidings.core.work.processes.fence import Local
from tidings.core.work.processes.sandbox import Sandbox

COMMANDS = 60
COMMAND = ("/bin/sh", "-c", "true")


def _cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


async def _start(fence: Fence, folder: Path) -> None:
    enclosed = await fence.around(COMMAND, folder, context.child_environment())
    ended = await foreground.run(enclosed, 30.0, 1000)
    assert ended.code == 0, ended


async def measure(home: Path) -> dict[str, dict[str, float]]:
    folder = home / "workspaces" / "one"
    folder.mkdir(parents=True)
    fences: dict[str, Fence] = {"local": Local()}
    for name, program in (("bubblewrap", "bwrap"), ("landlock", "none")):
        fence = Sandbox(Terminal(), home, program=program)
        try:
            await fence.describe()
        except Unfenced:
            continue
        fences[name] = fence
    used = dict.fromkeys(fences, 0.0)
    with in_session(folder):
        # By turns, so that a busy machine slows all of them.
        for _ in range(COMMANDS):
            for name, fence in fences.items():
                began = _cpu()
                await _start(fence, folder)
                used[name] += _cpu() - began
    return {name: {"cpu_ms": seconds / COMMANDS * 1000} for name, seconds in used.items()}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        print(json.dumps(asyncio.run(measure(Path(place)))))

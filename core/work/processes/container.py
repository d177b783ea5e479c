"""Runs commands in a container that sees only the workspace of their conversation, by podman or docker."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from tidings.core.desk.fence import Enclosed, Wall
from tidings.core.errors import Unfenced
from tidings.core.settings import Terminal

HANDED_ON = ("HOME", "LANG")
SESSION = "TIDINGS_"


class Container:
    """Each command gets a container of its own, which is removed when the command ends."""

    def __init__(self, settings: Terminal, program: str = "") -> None:
        """`program` is the engine's path, if it is not the one that is found by its name."""
        self._settings = settings
        self._program = program or settings.engine

    async def around(self, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Enclosed:
        engine = self._engine()
        folder = await asyncio.to_thread(folder.resolve)
        name = f"tidings-{folder.name[:40]}-{secrets.token_hex(8)}"
        started = arguments(self._settings, engine, name, folder, environment)
        # The image may have no bash.
        within = ("sh", *command[1:]) if Path(command[0]).name == "bash" else tuple(command)
        wall = Wall(
            folder=str(folder),
            disk=self._settings.disk_bytes,
            afterwards=(engine, "rm", "--force", "--volumes", name),
        )
        return Enclosed([*started, *within], folder, environment, wall, await self.describe())

    async def describe(self) -> str:
        self._engine()
        return f"{self._settings.engine}, no network"

    def _engine(self) -> str:
        found = shutil.which(self._program)
        if found is None:
            raise Unfenced(f"{self._settings.engine} is missing: install it, or choose another [terminal] backend")
        return found


def arguments(settings: Terminal, engine: str, name: str, folder: Path, environment: Mapping[str, str]) -> list[str]:
    """The engine's arguments up to the command."""
    known = {key: value for key, value in environment.items() if key in HANDED_ON or key.startswith(SESSION)}
    limits = [
        *(("--memory", str(settings.memory_bytes)) if settings.memory_bytes else ()),
        *(("--pids-limit", str(settings.processes)) if settings.processes else ()),
        *(("--ulimit", f"fsize={settings.disk_bytes}") if settings.disk_bytes else ()),
    ]
    # Podman without root maps the user to ourselves, so that the files stay ours.
    mapped = ("--userns", "keep-id") if settings.engine == "podman" and os.geteuid() else ()
    return [
        *(engine, "run", "--rm", "--init", "--interactive", "--name", name, "--pull", "missing"),
        *("--network", "none", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
        *("--user", f"{os.getuid()}:{os.getgid()}", *mapped, *limits),
        *("--tmpfs", f"/tmp:rw,size={settings.temporary_bytes},mode=1777"),
        *("--mount", f"type=bind,source={folder},target={folder}", "--workdir", str(folder)),
        *(part for key, value in sorted(known.items()) for part in ("--env", f"{key}={value}")),
        *("--entrypoint", "", settings.image),
    ]

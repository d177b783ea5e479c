"""Chooses the fence that the settings name, and runs commands without one where the owner wants that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tidings.core.desk.fence import Enclosed, Fence
from tidings.core.settings import Terminal
from tidings.core.work.processes.container import Container
from tidings.core.work.processes.remote import Remote
from tidings.core.work.processes.sandbox import Outlet, Sandbox

UNFENCED = "none: a command can do what the gateway can"


class Local:
    """No fence: commands run as the gateway does, and can read its home and its secrets."""

    async def around(self, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Enclosed:
        return Enclosed(command, folder, environment, words=UNFENCED)

    async def describe(self) -> str:
        return UNFENCED


def choose(settings: Terminal, home: Path, outlet: Outlet | None = None) -> Fence:
    match settings.backend:
        case "sandbox":
            return Sandbox(settings, home, outlet)
        case "container":
            return Container(settings)
        case "ssh":
            return Remote(settings)
        case "local":
            return Local()

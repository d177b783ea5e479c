"""How an enclosed command is handed to the program that starts it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from tidings.core.desk.fence import Enclosed, Wall
from tidings.core.work.processes import launcher, wall

# If the system has a lower limit, that one stays.
LIMITED = 'ulimit -v "$0" 2>/dev/null; exec "$@"'


def own(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Enclosed:
    """A program of ours, which needs no fence."""
    return Enclosed(command, folder, environment)


def limited(command: Sequence[str], memory: int) -> Sequence[str]:
    """The command with so many bytes for each of its processes; 0 means no limit."""
    return ("sh", "-c", LIMITED, str(memory // 1024), *command) if memory else command


def fields(around: Wall) -> dict[str, object]:
    return {name: value for name, value in msgspec.structs.asdict(around).items() if value}


def written(enclosed: Enclosed) -> str:
    """The wall as text; empty without one."""
    return wall.written(fields(enclosed.wall)) if enclosed.wall else ""


def arguments(enclosed: Enclosed) -> list[str]:
    """The arguments of the launcher."""
    return [*((launcher.WALL, written(enclosed)) if enclosed.wall else ()), *enclosed.command]

"""The contract of a fence: what a command is started with, so that it reaches only what it may."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec


class Wall(msgspec.Struct, frozen=True, kw_only=True):
    """What a new process does to itself before it becomes the command; 0 and empty mean: nothing of that kind."""

    # The only folder that the command may write.
    folder: str
    # The unprivileged user that a process of root becomes.
    user: int = 0
    memory: int = 0
    processes: int = 0
    # The most bytes of the folder, and of one file; a command beyond it is ended.
    disk: int = 0
    # The seccomp filter, in hexadecimal digits.
    filter: str = ""
    # Landlock: paths that may be read, and paths that may be written. Without them, bubblewrap gets the filter.
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    # Texts that bubblewrap reads from descriptors, in this order.
    texts: tuple[str, ...] = ()
    # Whether the first process only waits for the command and must outlive the command's grace time.
    waits: bool = False
    # A command of ours that ends what the first process leaves elsewhere.
    afterwards: tuple[str, ...] = ()


class Enclosed(msgspec.Struct, frozen=True):
    """A command as it is started: behind its wall, which a sentence names."""

    command: Sequence[str]
    folder: Path
    environment: Mapping[str, str]
    wall: Wall | None = None
    words: str = ""


class Fence(Protocol):
    async def around(self, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Enclosed:
        """Raises Unfenced, with what to do, if no wall can be put up here."""
        ...

    async def describe(self) -> str:
        """Which wall holds here, and why. Raises Unfenced."""
        ...

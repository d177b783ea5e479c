"""The folder of a background process: its order, its output, and its status at the end."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from tidings.core.desk.work import Log
from tidings.core.errors import Overdrawn, Unknown
from tidings.core.work.processes import identity

PROCESS_MAIN = Path(__file__).with_name("process_main.py")
# After this long, a full pipe counts as one that the process does not read.
FEEDING_SECONDS = 5.0
LOOK_SECONDS = 0.05
# How much of the matches is read at once.
MATCHES_BYTES = 200_000

COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Order(msgspec.Struct, frozen=True):
    """The command and limits for the keeper, which is the program that runs the command."""

    command: Sequence[str]
    folder: str
    patterns: Sequence[str]
    seconds: float
    output: int
    memory: int
    # As `wall.written` has it; empty without a wall.
    wall: str = ""


class Status(msgspec.Struct, frozen=True):
    """How a process ended: exited, told, time, output, unbegun or a reason; `code` is the exit code, if it exited."""

    why: str
    code: int | None
    seconds: float
    at: float


class _Found(msgspec.Struct, frozen=True):
    line: str = ""
    slow: str = ""


class Matches(NamedTuple):
    """Lines that match patterns, and patterns that were given up; the next ones begin at `end`."""

    lines: list[str]
    slow: list[str]
    end: int


class ProcessFolder:
    def __init__(self, path: Path) -> None:
        self.path = path

    def prepare(self, order: Order) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path.mkdir(mode=0o700)
        descriptor = os.open(self.path / "order.json", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as file:
            file.write(msgspec.json.encode(order))

    def start(self, environment: Mapping[str, str]) -> tuple[int, int]:
        """Starts the keeper; returns its process id, and a descriptor: one byte written to it starts the command."""
        log = (str(self.path / "log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        waits, go = os.pipe()
        try:
            pid = os.posix_spawn(
                sys.executable,
                identity.program(PROCESS_MAIN, str(self.path)),
                {**environment, identity.MARK: self.path.name},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, waits, 0),
                    # Errors of the keeper itself go to the log too, because they explain an empty folder.
                    (os.POSIX_SPAWN_OPEN, 1, *log),
                    (os.POSIX_SPAWN_OPEN, 2, *log),
                ],
                setsid=True,
                setsigmask=[],
            )
        except OSError:
            os.close(go)
            raise
        finally:
            os.close(waits)
        return pid, go

    def status(self) -> Status | None:
        try:
            return msgspec.json.decode((self.path / "status.json").read_bytes(), type=Status)
        except (FileNotFoundError, msgspec.DecodeError):
            # The command may write to this file too, so its content may be invalid.
            return None

    def log(self, start: int, limit: int) -> Log:
        try:
            with (self.path / "log").open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                first = min(start, size) if start >= 0 else max(size + start, 0)
                file.seek(first)
                data = file.read(limit)
        except FileNotFoundError:
            return Log(text="", start=0, end=0)
        whole = _whole(data) if first + len(data) < size else data
        return Log(text=COLOURS.sub("", whole.decode("utf-8", "replace")), start=first, end=first + len(whole))

    def matches(self, start: int) -> Matches:
        try:
            with (self.path / "matches").open("rb") as file:
                file.seek(start)
                data = file.read(MATCHES_BYTES)
        except FileNotFoundError:
            return Matches([], [], start)
        # The last line may be incomplete.
        data = data[: data.rfind(b"\n") + 1]
        found = [_found(line) for line in data.splitlines()]
        lines = [each.line for each in found if not each.slow]
        return Matches(lines, [each.slow for each in found if each.slow], start + len(data))

    async def feed(self, text: str, *, end: bool) -> None:
        try:
            if (self.path / "input.end").exists():
                raise Unknown("its input was already closed")
            if text:
                await self._write(text.encode())
            if end:
                (self.path / "input.end").touch(mode=0o600)
        except OSError as error:
            if error.errno in (errno.ENXIO, errno.ENOENT, errno.EPIPE):
                raise Unknown("it no longer reads its input") from error
            raise

    async def _write(self, data: bytes) -> None:
        pipe = await self._pipe()
        try:
            async with asyncio.timeout(FEEDING_SECONDS):
                while data:
                    with suppress(BlockingIOError):
                        data = data[os.write(pipe, data) :]
                    if data:
                        await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            raise Overdrawn(f"it does not read its input: {len(data):,} bytes were not written") from None
        finally:
            os.close(pipe)

    async def _pipe(self) -> int:
        """Opens the input pipe, which exists as soon as the keeper has started."""
        for _ in range(int(FEEDING_SECONDS / LOOK_SECONDS)):
            with suppress(FileNotFoundError):
                return os.open(self.path / "input", os.O_WRONLY | os.O_NONBLOCK)
            await asyncio.sleep(LOOK_SECONDS)
        return os.open(self.path / "input", os.O_WRONLY | os.O_NONBLOCK)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def _found(line: bytes) -> _Found:
    try:
        return msgspec.json.decode(line, type=_Found)
    except msgspec.DecodeError:
        return _Found(line=line.decode("utf-8", "replace"))


def _whole(data: bytes) -> bytes:
    """Removes an incomplete UTF-8 character from the end; data that is not text stays as it is."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0xC0:
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data[:-back] if length > back and len(data) > back else data
        if byte & 0x80 == 0:
            break
    return data

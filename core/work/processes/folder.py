"""The folder of one process in the background: what it shall do, what it has written, and how it ended."""

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

KEEPER = Path(__file__).with_name("process_main.py")
# A pipe that is full for so long is one that nobody reads.
FEEDING_SECONDS = 5.0
LOOK_SECONDS = 0.05
# Read at once of what patterns have found.
MATCHES_BYTES = 200_000

COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Order(msgspec.Struct, frozen=True):
    """What the keeper is told."""

    command: Sequence[str]
    folder: str
    patterns: Sequence[str]
    seconds: float
    output: int
    memory: int


class Status(msgspec.Struct, frozen=True):
    """How it ended: exited, told, time, output, unbegun or a reason; the code is that of one that exited."""

    why: str
    code: int | None
    seconds: float
    at: float


class _Found(msgspec.Struct, frozen=True):
    line: str = ""
    slow: str = ""


class Matches(NamedTuple):
    """Lines that patterns were found in, and patterns that were given up; `end` is where the next ones begin."""

    lines: list[str]
    slow: list[str]
    end: int


class Traces:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self, order: Order) -> None:
        self.folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder.mkdir(mode=0o700)
        descriptor = os.open(self.folder / "order.json", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as file:
            file.write(msgspec.json.encode(order))

    def start(self, environment: Mapping[str, str]) -> tuple[int, int]:
        """The keeper's number, and the descriptor that a byte is written into to let it begin."""
        log = (str(self.folder / "log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        waits, go = os.pipe()
        try:
            pid = os.posix_spawn(
                sys.executable,
                identity.program(KEEPER, str(self.folder)),
                {**environment, identity.MARK: self.folder.name},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, waits, 0),
                    # What the keeper itself has to say is the reason why nothing else is there.
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
            return msgspec.json.decode((self.folder / "status.json").read_bytes(), type=Status)
        except (FileNotFoundError, msgspec.DecodeError):
            # The command may write there too; what is no status is none.
            return None

    def log(self, start: int, limit: int) -> Log:
        try:
            with (self.folder / "log").open("rb") as file:
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
            with (self.folder / "matches").open("rb") as file:
                file.seek(start)
                data = file.read(MATCHES_BYTES)
        except FileNotFoundError:
            return Matches([], [], start)
        # The last one may still be on its way.
        data = data[: data.rfind(b"\n") + 1]
        found = [_found(line) for line in data.splitlines()]
        lines = [each.line for each in found if not each.slow]
        return Matches(lines, [each.slow for each in found if each.slow], start + len(data))

    async def feed(self, text: str, *, end: bool) -> None:
        try:
            if (self.folder / "input.end").exists():
                raise Unknown("its input was closed before")
            if text:
                await self._write(text.encode())
            if end:
                (self.folder / "input.end").touch(mode=0o600)
        except OSError as error:
            if error.errno in (errno.ENXIO, errno.ENOENT, errno.EPIPE):
                raise Unknown("it no longer listens") from error
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
            raise Overdrawn(f"it does not read what it is sent: {len(data):,} bytes were left over") from None
        finally:
            os.close(pipe)

    async def _pipe(self) -> int:
        """It is there as soon as the keeper has begun."""
        for _ in range(int(FEEDING_SECONDS / LOOK_SECONDS)):
            with suppress(FileNotFoundError):
                return os.open(self.folder / "input", os.O_WRONLY | os.O_NONBLOCK)
            await asyncio.sleep(LOOK_SECONDS)
        return os.open(self.folder / "input", os.O_WRONLY | os.O_NONBLOCK)

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def _found(line: bytes) -> _Found:
    try:
        return msgspec.json.decode(line, type=_Found)
    except msgspec.DecodeError:
        return _Found(line=line.decode("utf-8", "replace"))


def _whole(data: bytes) -> bytes:
    """Without a character that is cut off at its end; what is no text at all is not waited for."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0xC0:
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data[:-back] if length > back and len(data) > back else data
        if byte & 0x80 == 0:
            break
    return data

"""One worker that is a process of its own: told of its card by a pipe, heard by lines of JSON, and gone when it ends.

It reads what it is to do as one line of JSON from its standard input, and an answer to each line that it writes. It
never opens the database. Before something that must not be done twice it writes `effect` and waits for the answer.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tidings.core.work.processes import identity, launcher

log = logging.getLogger(__name__)

LINE_BYTES = 1024 * 1024
CHUNK_BYTES = 64 * 1024
LOG_BYTES = 10 * 1024 * 1024
LAST_WORDS_BYTES = 2000
# Something may have got away with a pipe: what it says is not waited for.
LAST_SECONDS = 1.0
# Opens the pipe that the launcher, which has the standard input for itself, passes on.
OPENING = 'exec "$@" </dev/fd/{descriptor}'


class Said(msgspec.Struct, frozen=True):
    """One line of a worker's."""

    do: str
    note: str = ""
    text: str = ""
    summary: str = ""
    artifacts: tuple[str, ...] = ()
    kind: str = ""
    reason: str = ""
    notes: str = ""
    name: str = ""
    place: str = ""
    what: str = ""


_decode = msgspec.json.Decoder(Said).decode
# Told what the worker says, and gives the answer to it.
Hear = Callable[[Said], Awaitable[dict[str, Any]]]


class Worker:
    def __init__(self, command: Sequence[str], folder: Path, environment: Mapping[str, str], records: Path) -> None:
        """`records` is the file that all it says is written to."""
        self._command = command
        self._folder = folder
        self._environment = environment
        self._records = records
        self._recorded = 0
        self._last = b""
        self._trouble = ""
        self.born = ""
        self._process: asyncio.subprocess.Process
        self._tell: asyncio.WriteTransport

    @property
    def last_words(self) -> str:
        return self._last.decode("utf-8", "replace").strip()

    @property
    def log_trouble(self) -> str:
        """Why something is missing in its log; empty when nothing is."""
        return f", in which something is missing: {self._trouble}" if self._trouble else ""

    async def start(self) -> int:
        """The launcher, which does nothing yet; raises OSError when nothing can be started."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._records.parent.mkdir(parents=True, exist_ok=True)
        theirs, ours = os.pipe()
        try:
            opening = ("/bin/sh", "-c", OPENING.format(descriptor=theirs), "sh")
            self._process = await asyncio.create_subprocess_exec(
                *identity.program(launcher.__file__, *opening, *self._command),
                cwd=self._folder,
                env=dict(self._environment),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                pass_fds=(theirs,),
                start_new_session=True,
            )
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        loop = asyncio.get_running_loop()
        self._tell, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(ours, "wb", 0))
        self.born = identity.born(self._process.pid)
        return self._process.pid

    async def work(self, briefing: msgspec.Struct, hear: Hear) -> int | None:
        """Its exit code, when it and all that came of it has ended; None when it was killed."""
        lifeline, output, errors = self._process.stdin, self._process.stdout, self._process.stderr
        assert lifeline is not None
        assert output is not None
        assert errors is not None
        listening = [asyncio.create_task(self._listen(pipe, to)) for pipe, to in ((output, hear), (errors, None))]
        try:
            self.tell(briefing)
            lifeline.write(b"!")
            code = await self._process.wait()
            # What it has said last is heard before anybody judges it.
            await asyncio.wait(listening, timeout=LAST_SECONDS)
            return code
        finally:
            await identity.see_through(self._end(listening))

    async def close(self) -> None:
        """For one that was started and never let go."""
        await identity.see_through(self._end([]))

    def tell(self, message: object) -> None:
        if not self._tell.is_closing():
            self._tell.write(msgspec.json.encode(message) + b"\n")

    async def _listen(self, pipe: asyncio.StreamReader, hear: Hear | None) -> None:
        rest = b""
        while chunk := await pipe.read(CHUNK_BYTES):
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > LINE_BYTES:
                lines, rest = [*lines, rest], b""
            for line in lines:
                await self._heard(line, hear)
        if rest:
            await self._heard(rest, hear)

    async def _heard(self, line: bytes, hear: Hear | None) -> None:
        said = _said(line) if hear else None
        if said is None or hear is None:
            self._record(line + b"\n")
        else:
            self.tell(await hear(said))

    def _record(self, data: bytes) -> None:
        """The beginning of it all, and its very end."""
        self._last = (self._last + data)[-LAST_WORDS_BYTES:]
        room = LOG_BYTES - self._recorded
        if room > 0:
            self._recorded += len(data)
            try:
                with self._records.open("ab") as file:
                    file.write(data[:room])
            except OSError as error:
                # Its verdict is still to be heard; what it says last is kept all the same.
                if not self._trouble:
                    log.warning("%s cannot be written: %s", self._records, error.strerror)
                self._trouble = error.strerror or str(error)

    async def _end(self, listening: list[asyncio.Task[None]]) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        if not self._tell.is_closing():
            self._tell.abort()
        try:
            async with asyncio.timeout(launcher.ENDING_SECONDS):
                await self._process.wait()
        except TimeoutError:
            log.error("the launcher %d does not end; its group is killed", self._process.pid)
        if self._process.returncode is None or self._process.returncode < 0 or not launcher.ON_LINUX:
            identity.kill_group(self._process.pid, self.born)
        for task in listening:
            task.cancel()
        for fault in await asyncio.gather(*listening, return_exceptions=True):
            if isinstance(fault, Exception):
                log.warning("a worker could not be heard to its end: %r", fault)


def _said(line: bytes) -> Said | None:
    """Whatever is no word of the protocol's is something that it says."""
    if not line.startswith(b"{"):
        return None
    try:
        return _decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None

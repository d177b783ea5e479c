"""One worker process: gets its card as JSON on standard input, and reports by lines of JSON.

The worker reads its briefing as one line of JSON, and an answer to each line that it writes. It never opens the
database. Before an action that must not be repeated, it writes `effect` and waits for the answer.
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
# An escaped process may still hold a pipe; its output is not awaited longer than this.
LAST_SECONDS = 1.0
# Makes a pipe the standard input of the command, because the launcher uses its own.
OPENING = 'exec "$@" </dev/fd/{descriptor}'


class Said(msgspec.Struct, frozen=True):
    """One line that a worker has written."""

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
# Called with each line of the worker; returns the answer.
Hear = Callable[[Said], Awaitable[dict[str, Any]]]


class Worker:
    def __init__(self, command: Sequence[str], folder: Path, environment: Mapping[str, str], records: Path) -> None:
        """`records` is the file for all output of the worker."""
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
        """Why the log is incomplete; empty if it is complete."""
        return f", which is incomplete: {self._trouble}" if self._trouble else ""

    async def start(self) -> int:
        """Starts the launcher, which waits, and returns its process id; raises OSError."""
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
        """Lets the worker run; returns its exit code when all its processes have ended, None if it was killed."""
        lifeline, output, errors = self._process.stdin, self._process.stdout, self._process.stderr
        assert lifeline is not None
        assert output is not None
        assert errors is not None
        listening = [asyncio.create_task(self._listen(pipe, to)) for pipe, to in ((output, hear), (errors, None))]
        try:
            self.tell(briefing)
            lifeline.write(b"!")
            code = await self._process.wait()
            # The last lines must be handled before the verdict is made.
            await asyncio.wait(listening, timeout=LAST_SECONDS)
            return code
        finally:
            await identity.see_through(self._end(listening))

    async def close(self) -> None:
        """Ends a worker that was started but never ran."""
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
        """Writes output to the log: its beginning, and its very end."""
        self._last = (self._last + data)[-LAST_WORDS_BYTES:]
        room = LOG_BYTES - self._recorded
        if room > 0:
            self._recorded += len(data)
            try:
                with self._records.open("ab") as file:
                    file.write(data[:room])
            except OSError as error:
                # The worker's verdict is still needed, so a log that cannot be written must not stop it.
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
                log.warning("the output of a worker could not be read to its end: %r", fault)


def _said(line: bytes) -> Said | None:
    """Reads a line; a line that is not of the protocol is plain output."""
    if not line.startswith(b"{"):
        return None
    try:
        return _decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None

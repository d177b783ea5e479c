"""A terminal in a box: a command runs in it as for a person, who waits for words and answers them."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import signal
import subprocess
import sys
import termios
from pathlib import Path
from types import TracebackType
from typing import Self

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 60.0
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


class Terminal:
    """`async with Terminal(environment, "init") as terminal:` and `await terminal.answer("Number", "4")`."""

    def __init__(self, environment: dict[str, str], *arguments: str) -> None:
        self._environment = environment
        self._arguments = arguments
        # Everything that was shown, and how far the person has read.
        self.shown = ""
        self._read = 0
        self._news = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._controller, terminal = pty.openpty()

        def own_the_terminal() -> None:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            # A shell without job control has its background jobs ignore it, and their children inherit that.
            signal.signal(signal.SIGINT, signal.SIG_DFL)

        self.process = subprocess.Popen(
            [sys.executable, "-m", "tidings.bots.main", *self._arguments],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            cwd=ROOT,
            env={**self._environment, "TERM": "xterm", "COLUMNS": "300"},
            start_new_session=True,
            preexec_fn=own_the_terminal,
        )
        os.close(terminal)
        asyncio.get_running_loop().add_reader(self._controller, self._receive)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.get_running_loop().remove_reader(self._controller)
        self.process.kill()
        self.process.wait()
        os.close(self._controller)

    async def until(self, words: str) -> None:
        """Reads on until these words have come, behind what was read before."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while (found := self.shown.find(words, self._read)) < 0:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"{words!r} did not come; shown since: {self.shown[self._read :]!r}") from None
        self._read = found + len(words)

    def type(self, line: str) -> None:
        os.write(self._controller, line.encode() + b"\n")

    async def answer(self, question: str, line: str) -> None:
        await self.until(question)
        self.type(line)

    async def end(self) -> int:
        return await asyncio.to_thread(self.process.wait, PATIENCE_SECONDS)

    def _receive(self) -> None:
        try:
            data = os.read(self._controller, 65536)
        except OSError:
            # The last one who had it open has gone.
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._controller)
        self.shown += _COLOURS.sub("", data.decode(errors="replace")).replace("\r", "")
        self._news.set()

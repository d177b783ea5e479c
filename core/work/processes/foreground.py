"""Runs a command with limits on time and output; all its processes end with it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from tidings.core.desk.fence import Enclosed
from tidings.core.work.processes import identity, launcher
from tidings.core.work.processes.enclosed import arguments

# An escaped process may still hold the pipe; its output is not awaited longer than this.
LAST_WORDS_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Ended:
    # None when the command was ended because its time was up.
    code: int | None
    output: str
    seconds: float


class Excerpt:
    """The beginning and the end of an output; bytes in between are only counted."""

    def __init__(self, keep: int) -> None:
        self._half = keep // 2
        self._head = bytearray()
        self._tail = bytearray()
        self.left_out = 0

    def add(self, data: bytes) -> None:
        room = self._half - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        excess = len(self._tail) - self._half
        if excess > 0:
            del self._tail[:excess]
            self.left_out += excess

    def text(self) -> str:
        if not self.left_out:
            return (self._head + self._tail).decode("utf-8", "replace")
        gap = f"\n[... {self.left_out:,} bytes left out ...]\n"
        return self._head.decode("utf-8", "replace") + gap + self._tail.decode("utf-8", "replace")


class _Watch(asyncio.SubprocessProtocol):
    def __init__(self, keep: int) -> None:
        self.output = Excerpt(keep)
        self.exited = asyncio.Event()
        self.closed = asyncio.Event()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.output.add(data)

    def process_exited(self) -> None:
        self.exited.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()


async def run(enclosed: Enclosed, seconds: float, keep: int) -> Ended:
    """Returns when the command and all processes it started have ended.

    Raises OSError when the command could not be started. A cancelled caller still waits for the end of all processes.
    """
    started = time.monotonic()
    transport, watch = await asyncio.get_running_loop().subprocess_exec(
        lambda: _Watch(keep),
        *identity.program(launcher.__file__, *arguments(enclosed)),
        cwd=enclosed.folder,
        env=dict(enclosed.environment),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    birth = identity.born(transport.get_pid())
    try:
        _lifeline(transport).write(b"!")
        async with asyncio.timeout(seconds):
            await watch.exited.wait()
        code = transport.get_returncode()
    except TimeoutError:
        code = None
    finally:
        await identity.see_through(_end(transport, watch, birth))
    return Ended(code, watch.output.text(), time.monotonic() - started)


async def _end(transport: asyncio.SubprocessTransport, watch: _Watch, birth: str) -> None:
    _lifeline(transport).close()
    if not await _within(watch.exited, launcher.ENDING_SECONDS) or _left_a_group(transport):
        identity.kill_group(transport.get_pid(), birth)
    await _within(watch.closed, LAST_WORDS_SECONDS)
    transport.close()


def _left_a_group(transport: asyncio.SubprocessTransport) -> bool:
    """Tells whether processes may be left: a killed launcher could not clean up, and only Linux finds them all."""
    return not launcher.ON_LINUX or (transport.get_returncode() or 0) < 0


def _lifeline(transport: asyncio.SubprocessTransport) -> asyncio.WriteTransport:
    pipe = transport.get_pipe_transport(0)
    assert isinstance(pipe, asyncio.WriteTransport)
    return pipe


async def _within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False

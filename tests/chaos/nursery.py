"""The driver's side of a zygote: gateways that are started, spoken to and killed."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from tests.chaos import zygote
from tests.chaos.child import Command, Rested, Spec

T = TypeVar("T")

# Of real time; a gateway that needs so long for one word hangs.
PATIENCE_SECONDS = 30.0


class Died(Exception):
    pass


class Nursery:
    """Asks for gateways and hears of their ends."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._line.setblocking(False)
        self._born: asyncio.Queue[int] = asyncio.Queue()
        self._ended: dict[int, asyncio.Future[int]] = {}

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Nursery]:
        loop = asyncio.get_running_loop()
        loop.add_reader(self._line, self._read)
        try:
            yield self
        finally:
            loop.remove_reader(self._line)

    async def start(self, spec: Spec) -> Process:
        control = zygote.ask(self._line, spec)
        reader, writer = await asyncio.open_unix_connection(sock=control)
        pid = await self._born.get()
        return Process(pid, reader, writer, self._ended[pid])

    def _read(self) -> None:
        told = msgspec.json.decode(self._line.recv(4096), type=zygote.Born | zygote.Ended)
        if isinstance(told, zygote.Born):
            self._ended[told.pid] = asyncio.get_running_loop().create_future()
            self._born.put_nowait(told.pid)
        else:
            self._ended.pop(told.pid).set_result(told.status)


class Process:
    """One gateway, from its start to its death."""

    def __init__(
        self,
        pid: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        ended: asyncio.Future[int],
    ) -> None:
        self.ended = ended
        self._pid = pid
        self._reader = reader
        self._writer = writer

    async def rested(self) -> Rested:
        """What it says when it has come to rest; raises Died."""
        line = await self.alive(self._reader.readline())
        if not line.endswith(b"\n"):
            raise Died
        return msgspec.json.decode(line, type=Rested)

    async def obey(self, command: Command) -> Rested:
        self._writer.write(msgspec.json.encode(command) + b"\n")
        return await self.rested()

    async def alive(self, waiting: Awaitable[T]) -> T:
        """Waits no longer than the process lives."""
        task = asyncio.ensure_future(waiting)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await asyncio.wait({task, self.ended}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise Died
            return task.result()
        except ConnectionError as error:
            raise Died from error
        finally:
            task.cancel()

    async def stopped(self) -> None:
        """Returns when SIGSTOP has hit it."""
        while not self.ended.done():
            # The state stands behind the name, which is in brackets.
            if Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()[0] == "T":
                return
            await asyncio.sleep(0.005)

    def go_on(self) -> None:
        os.kill(self._pid, signal.SIGCONT)

    async def kill(self) -> None:
        if not self.ended.done():
            os.kill(self._pid, signal.SIGKILL)
        await self.ended
        self._writer.close()

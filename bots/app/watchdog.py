"""Tells systemd that the gateway is ready, alive or stopping.

The event loop gives a sign of life only after the store has answered: a loop that is stuck, or a disk that
never returns, ends the signs, and systemd restarts the process, which resumes its work.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Self

from tidings.core.clock import Clock, SystemClock
from tidings.core.desk.health import Health
from tidings.core.errors import Unstored

log = logging.getLogger(__name__)

# How often the line in `systemctl status` is renewed if systemd expects no signs of life.
STATUS_SECONDS = 15.0
# A store that reports why it cannot write may recover, such as when the disk has room again; a restart
# is forced only after this time.
FAULT_SECONDS = 600.0
STATUS_CHARACTERS = 300
WELL = ("up", "starting", "standing by")


class Watchdog:
    """Does nothing without systemd; `async with` spans the life of the event loop."""

    def __init__(self, environment: Mapping[str, str], clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._address = environment.get("NOTIFY_SOCKET", "")
        self._seconds = _seconds(environment)
        self._socket: socket.socket | None = None
        self._watching: asyncio.Task[None] | None = None
        self._is_stopping = False
        self._faulty_since: float | None = None
        self._is_deaf = False

    async def __aenter__(self) -> Self:
        if self._address:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.setblocking(False)
        if self._address and self._seconds and not faulthandler.is_enabled():
            # systemd ends a stuck process by SIGABRT, and the log then shows where every thread was.
            faulthandler.enable()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        if self._socket is not None:
            self._socket.close()

    def ready(self, health: Callable[[], Awaitable[Health]]) -> None:
        self._tell("READY=1", "STATUS=serving")
        if self._socket is not None:
            self._watching = asyncio.create_task(self._watch(health), name="watchdog")

    def stopping(self) -> None:
        self._is_stopping = True
        self._tell("STOPPING=1", "STATUS=stopping: running answers may end")

    async def _watch(self, health: Callable[[], Awaitable[Health]]) -> None:
        # A third of the limit, so that one sign may be late and another lost.
        period = self._seconds / 3 if self._seconds else STATUS_SECONDS
        while True:
            # While the gateway drains, a running event loop is enough.
            is_well = self._is_stopping or await self._is_well(health, period)
            if is_well and self._seconds:
                self._tell("WATCHDOG=1")
            await self._clock.sleep(period)

    async def _is_well(self, health: Callable[[], Awaitable[Health]], period: float) -> bool:
        asking = asyncio.ensure_future(health())
        waiting = asyncio.create_task(self._clock.sleep(period))
        try:
            await asyncio.wait((asking, waiting), return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                log.error("the store has not answered for %g s: no sign of life for the service manager", period)
                self._tell("STATUS=stuck: the store does not answer")
                return False
            found = asking.result()
        except Unstored as error:
            # Asking for the health failed with the store's error.
            self._tell(f"STATUS={_line(str(error))}")
            return self._is_worth_keeping(str(error))
        finally:
            for task in (asking, waiting):
                task.cancel()
            await asyncio.gather(asking, waiting, return_exceptions=True)
        self._tell(f"STATUS={sentence(found)}")
        return self._is_worth_keeping(found.store)

    def _is_worth_keeping(self, store: str) -> bool:
        if store == "ok":
            self._faulty_since = None
            return True
        if self._faulty_since is None:
            self._faulty_since = self._clock.now()
        return self._clock.now() - self._faulty_since < FAULT_SECONDS

    def _tell(self, *lines: str) -> None:
        if self._socket is None:
            return
        # An @ at the beginning means the abstract namespace.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            self._socket.sendto("\n".join(lines).encode("utf-8", "replace"), address)
            self._is_deaf = False
        except OSError as error:
            if not self._is_deaf:
                log.warning("the service manager does not hear us at %s: %s", self._address, error)
            self._is_deaf = True


def sentence(health: Health) -> str:
    """One line for `systemctl status`."""
    owed = sum(count for state, count in health.deliveries.items() if state != "delivered")
    parts = [f"running {health.running}, queued {health.queued}, owed {owed}"]
    if health.store != "ok":
        parts.insert(0, health.store)
    parts += [f"{part.name} is {part.state}: {part.last_error}" for part in health.parts if part.state not in WELL]
    return _line("; ".join(parts))


def _line(words: str) -> str:
    return " ".join(words.split())[:STATUS_CHARACTERS]


def _seconds(environment: Mapping[str, str]) -> float:
    """The interval in which systemd expects signs of life from this process; 0 if it expects none."""
    written, pid = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
    if not written.isdecimal() or pid not in ("", str(os.getpid())):
        return 0.0
    return int(written) / 1_000_000

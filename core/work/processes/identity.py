"""Who lives under a process number: whether it is still the same one, when it ends, and what it has left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tidings.core import clock

# How often one looks where the system does not tell.
LOOK_SECONDS = 0.5
# In the environment of everything that came of a task.
MARK = "TIDINGS_TASK"

ON_LINUX = sys.platform == "linux"


def born(pid: int) -> str:
    """When, as the system says, so that another process with the same number is known as another; empty for none."""
    if not ON_LINUX:
        command = ("ps", "-o", "lstart=", "-p", str(pid))
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    stat = _stat(pid)
    # A dead one keeps its number until its parent has asked for it, and has ended all the same.
    return f"{clock.boot_id()}/{stat[19]}" if stat and stat[0] not in "ZX" else ""


def is_from_this_boot(birth: str) -> bool:
    return not ON_LINUX or birth.partition("/")[0] == clock.boot_id()


def _stat(pid: int) -> list[str]:
    """From its third field on; the name before it stands in brackets and may have anything in it."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].decode().split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def tell(pid: int, birth: str, number: int) -> bool:
    """A signal for this very process; false when it is gone."""
    descriptor = _pidfd(pid)
    try:
        # Asked only now, so that the number cannot become another's in between.
        if not birth or born(pid) != birth:
            return False
        if sys.platform == "linux" and descriptor is not None:
            signal.pidfd_send_signal(descriptor, number)
        else:
            os.kill(pid, number)
    except ProcessLookupError:
        return False
    finally:
        if descriptor is not None:
            os.close(descriptor)
    return True


async def until_gone(pid: int, birth: str) -> None:
    with _end_of(pid) as ended:
        # Asked for only after it is watched, or its number may have become another's meanwhile.
        while birth and born(pid) == birth:
            if ended is None:
                await asyncio.sleep(LOOK_SECONDS)
            else:
                await ended.wait()
                break
    _forget(pid)


def _forget(pid: int) -> None:
    # It may be our own child, or one of a gateway before us.
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


@contextmanager
def _end_of(pid: int) -> Iterator[asyncio.Event | None]:
    descriptor = _pidfd(pid)
    if descriptor is None:
        yield None
        return
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        yield ended
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _pidfd(pid: int) -> int | None:
    if sys.platform != "linux":
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        # It is gone, or the system is too old or too short of descriptors to tell.
        return None


def end_all_of(task: str, keeper: int | None) -> int:
    """Kills what has lost its keeper, however far it has gone; says how many there were."""
    if not ON_LINUX:
        return 0
    found = {each for each in _numbers() if _belongs(each, task, keeper)}
    for each in found:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(each, signal.SIGKILL)
    return len(found)


def _numbers() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]


def _belongs(pid: int, task: str, keeper: int | None) -> bool:
    if keeper and (stat := _stat(pid)) and int(stat[3]) == keeper and stat[0] not in "ZX" and not born(keeper):
        # While anybody is in its session, nobody else gets the keeper's number.
        return True
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        # It is gone, or another's.
        return False
    return f"{MARK}={task}".encode() in environment.split(b"\0")

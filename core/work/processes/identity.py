"""Child processes: how to start one, and how to identify one by process id, start time and boot."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from tidings.core import clock
from tidings.core.background import Background

log = logging.getLogger(__name__)

# How often to look where the system cannot notify.
LOOK_SECONDS = 0.5
# The environment variable that marks every process of a task.
MARK = "TIDINGS_TASK"
# System values that identify a boot where there is no /proc: on macOS and FreeBSD.
BOOT_NAMES = ("kern.bootsessionuuid", "kern.boot_id")

ON_LINUX = sys.platform == "linux"

# Child processes that are being ended; a gateway that stops waits for these.
endings = Background(log, "a child process could not be ended")


def program(path: str | Path, *arguments: str) -> tuple[str, ...]:
    """The command that starts one of our own programs: in the same Python, without the user's paths and packages."""
    return sys.executable, "-I", "-S", str(path), *arguments


async def see_through(ending: Coroutine[Any, Any, None]) -> None:
    """Completes the ending of a child process, even if the caller is cancelled again."""
    await asyncio.shield(endings.begin(ending))


def born(pid: int) -> str:
    """The boot and start time of a process; empty if it is gone or the system does not identify boots.

    A later process with the same id, even after a reboot, has another start time or boot.
    """
    if not ON_LINUX:
        boot, birth = _named_boot(), _ask("ps", "-o", "lstart=", "-p", str(pid))
        return f"{boot}/{birth}" if boot and birth else ""
    stat = _stat(pid)
    # A zombie keeps its id until its parent reaps it, but it has ended.
    return f"{clock.boot_id()}/{stat[19]}" if stat and stat[0] not in "ZX" and clock.boot_id() else ""


def is_from_this_boot(birth: str) -> bool:
    boot = clock.boot_id() if ON_LINUX else _named_boot()
    return bool(boot) and birth.startswith(f"{boot}/")


def _is_same(pid: int, birth: str) -> bool:
    """False for a birth without a boot: such a process must never be signalled."""
    return is_from_this_boot(birth) and born(pid) == birth


@cache
def _named_boot() -> str:
    return next(filter(None, (_ask("sysctl", "-n", name) for name in BOOT_NAMES)), "")


def _ask(*command: str) -> str:
    """The output of a system tool, independent of language and time zone."""
    plain = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, env=plain).stdout.strip()
    except FileNotFoundError:
        return ""


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third on; the name before them may contain any character."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].decode().split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def tell(pid: int, birth: str, number: int) -> bool:
    """Sends a signal to exactly this process; false when it is gone."""
    descriptor = _pidfd(pid)
    try:
        # The check comes after opening the descriptor, so that the id cannot be reused in between.
        if not _is_same(pid, birth):
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
        # The check comes after the watch has begun, because the id may be reused before.
        while _is_same(pid, birth):
            if ended is None:
                await asyncio.sleep(LOOK_SECONDS)
            else:
                await ended.wait()
                break
    if not born(pid):
        _forget(pid)


def _forget(pid: int) -> None:
    # The process may be our own child or that of an earlier gateway.
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
        # The process is gone, or the system cannot provide a descriptor.
        return None


def kill_group(pid: int, birth: str) -> None:
    """Kills the rest of a process group, unless its leader's id belongs to another process by now."""
    if not is_from_this_boot(birth) or born(pid) not in ("", birth):
        return
    # The group may already be empty.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def end_all_of(task: str, keeper: int | None) -> int:
    """Kills every process of a task whose keeper is gone, and returns their number."""
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
        # While its session has members, the keeper's id is not reused.
        return True
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        # The process is gone, or belongs to another user.
        return False
    return f"{MARK}={task}".encode() in environment.split(b"\0")

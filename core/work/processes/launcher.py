"""A program that runs one command, and ends it with everything it started when its owner ends.

The launcher is started by its path and waits for a byte on its standard input before it starts the command. When
that input is closed, by the owner or by the owner's death, all processes of the command are ended. A first argument
WALL is followed by the wall that the command gets.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

# The time between SIGTERM and SIGKILL.
GRACE_SECONDS = 1.0
# A process that cannot be killed for this long, such as another user's, is left alone.
KILLING_SECONDS = 3.0
LOOK_SECONDS = 0.05
# A launcher whose input has ended needs no longer to end everything, or it is stuck.
ENDING_SECONDS = GRACE_SECONDS + KILLING_SECONDS + 2.0

# How often the disk is looked at. A folder is measured when the disk has become fuller, else only now and then.
DISK_SECONDS = 0.25
MEASURING_SECONDS = 30.0
# What a folder entry takes besides its blocks, so that empty files count.
ENTRY_BYTES = 1024
# Growth of a disk below this may be somebody else's.
GROWTH_BYTES = 1_000_000
# This part of a disk is not left to commands: a deleted file that is still open takes room, but is in no folder.
RESERVED = 0.05
# Folders nested deeper are not measured; each level takes a descriptor.
DEEPEST = 200

TOO_FULL = "it was ended because its folder holds more than {most:,} bytes, or folders that cannot be measured"
WALL = "--wall"
NOT_STARTED = 127
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
ON_LINUX = sys.platform == "linux"


class Family:
    """The command and all its descendants; on Linux, orphans become children of this program."""

    def __init__(self, command: list[str], fit_out: Callable[[], None], wall: Mapping[str, Any] | None = None) -> None:
        """`fit_out` is called in the new process just before it becomes the command; then the wall is put up."""
        self._wall = wall or {}
        self.disk = Disk(self._wall["folder"], self._wall["disk"]) if "disk" in self._wall else None
        self.code: int | None = None
        self.is_gone = False
        # All signals received so far.
        self.heard: set[int] = set()
        self._woken, wake = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        # The command may signal its process group, which includes this program; a handler is not inherited.
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, _wake_up)
        if ON_LINUX:
            _prctl(PR_SET_CHILD_SUBREAPER, 1)
        self._first = _start(command, fit_out, wall)

    def wait(self, seconds: float | None, *others: int) -> list[int]:
        """Waits until a process has ended or one of the descriptors can be read."""
        ready, _, _ = select.select([self._woken, *others], [], [], seconds)
        if self._woken in ready:
            self.heard.update(os.read(self._woken, 4096))
        self._reap()
        return ready

    def _reap(self) -> None:
        while True:
            try:
                child, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.is_gone = True
                return
            if not child:
                return
            if child == self._first:
                code = os.waitstatus_to_exitcode(status)
                self.code = code if code >= 0 else 128 - code

    def end(self, grace: float = GRACE_SECONDS) -> None:
        for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, KILLING_SECONDS)):
            deadline = time.monotonic() + seconds
            self._signal(number)
            while not self.is_gone and (left := deadline - time.monotonic()) > 0:
                if number == signal.SIGTERM:
                    self.wait(left)
                else:
                    self.wait(min(left, LOOK_SECONDS))
                    # Processes forked meanwhile are found only now.
                    self._signal(number)
        if "afterwards" in self._wall:
            os.spawnvp(os.P_WAIT, self._wall["afterwards"][0], self._wall["afterwards"])

    def _signal(self, number: int) -> None:
        for process in _descendants() if ON_LINUX else [self._first]:
            # Without the process that waits for it, the command would have no time to end by itself.
            if process == self._first and number == signal.SIGTERM and "waits" in self._wall:
                continue
            try:
                os.kill(process, number)
            except (ProcessLookupError, PermissionError):
                continue


class Disk:
    """Watches how much a folder holds, without walking through it as long as the disk does not fill."""

    def __init__(self, folder: str, most: int, reserved: float = RESERVED) -> None:
        """`reserved` is the part of the disk that must stay free, if the disk became so much fuller."""
        self._folder = folder
        self.most = most
        self._reserved = reserved
        self._began = self._used()
        self._measured = self._began
        self._next = time.monotonic() + MEASURING_SECONDS

    def is_full(self) -> bool:
        """Whether the folder holds too much, and the disk became fuller since the command began: it may clean up."""
        used, now = self._used(), time.monotonic()
        if used - self._began < GROWTH_BYTES or (used - self._measured < GROWTH_BYTES and now < self._next):
            return False
        if used - self._began > self.most and self._is_short():
            return True
        held = _held(self._folder)
        self._measured, self._next = used, time.monotonic() + MEASURING_SECONDS
        return held is None or held > self.most

    def _is_short(self) -> bool:
        disk = os.statvfs(self._folder)
        return disk.f_bavail < disk.f_blocks * self._reserved

    def _used(self) -> int:
        disk = os.statvfs(self._folder)
        # A file without content takes no block, but one of the places for files.
        return (disk.f_blocks - disk.f_bfree) * disk.f_frsize + (disk.f_files - disk.f_ffree) * ENTRY_BYTES


def _held(folder: str) -> int | None:
    """The bytes in a folder; None if a folder in it is closed to us or nested too deeply."""
    total = 0
    try:
        for path, folders, files, descriptor in os.fwalk(folder, onerror=_notice, follow_symlinks=False):
            if path.count("/") - folder.count("/") > DEEPEST:
                return None
            for name in (*folders, *files):
                try:
                    total += os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_blocks * 512 + ENTRY_BYTES
                except FileNotFoundError:
                    continue
    except PermissionError:
        return None
    return total


def _notice(error: OSError) -> None:
    # Other errors mean that the folder is gone, or is no folder any more.
    if isinstance(error, PermissionError):
        raise error


def _wake_up(number: int, frame: FrameType | None) -> None:
    """Does nothing: the wake-up descriptor already reports the signal."""


def _start(command: list[str], fit_out: Callable[[], None], wall: Mapping[str, Any] | None) -> int:
    launcher = os.getpid()
    child = os.fork()
    if child:
        return child
    try:
        if ON_LINUX:
            _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != launcher:
                os._exit(NOT_STARTED)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        # Python ignores these signals, and the command would inherit that.
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        fit_out()
        if wall is not None:
            _wall().enter(wall)
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]} cannot be started: {error.strerror}\n".encode())
    finally:
        os._exit(NOT_STARTED)


def _wall() -> Any:
    """The module of walls; this program may have been started without the project on its path."""
    above = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), *[os.pardir] * 4))
    if above not in sys.path:
        sys.path.append(above)
    from tidings.core.work.processes import wall

    return wall


def _prctl(option: int, value: int) -> None:
    import ctypes

    ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), *(ctypes.c_ulong(0),) * 3)


def _descendants() -> list[int]:
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    # The process name is in parentheses and may contain any character.
                    parent = int(file.read().rpartition(b")")[2].split()[1])
            except OSError:
                # The process is gone.
                continue
            children.setdefault(parent, []).append(int(name))
    found = children.get(os.getpid(), [])
    for process in found:
        found += children.get(process, [])
    return found


def _without_input() -> None:
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)


def main(arguments: list[str]) -> int:
    wall = None
    if arguments[0] == WALL:
        _, written, *arguments = arguments
        wall = _wall().read(written)
    if not os.read(0, 1):
        return NOT_STARTED
    family = Family(arguments, _without_input, wall)
    while family.code is None:
        if 0 in family.wait(DISK_SECONDS if family.disk else None, 0) and not os.read(0, 1):
            break
        if family.disk and family.disk.is_full():
            os.write(2, f"\n{TOO_FULL.format(most=family.disk.most)}\n".encode())
            break
    family.end()
    return family.code if family.code is not None else 128 + signal.SIGKILL


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

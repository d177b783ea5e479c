"""A program that runs one command, and ends it with everything it started when its owner ends.

The launcher is started by its path and waits for a byte on its standard input before it starts the command. When
that input is closed, by the owner or by the owner's death, all processes of the command are ended.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType

# The time between SIGTERM and SIGKILL.
GRACE_SECONDS = 1.0
# A process that cannot be killed for this long, such as another user's, is left alone.
KILLING_SECONDS = 3.0
LOOK_SECONDS = 0.05
# A launcher whose input has ended needs no longer to end everything, or it is stuck.
ENDING_SECONDS = GRACE_SECONDS + KILLING_SECONDS + 2.0

NOT_STARTED = 127
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
ON_LINUX = sys.platform == "linux"


class Family:
    """The command and all its descendants; on Linux, orphans become children of this program."""

    def __init__(self, command: list[str], fit_out: Callable[[], None]) -> None:
        """`fit_out` is called in the new process just before it becomes the command."""
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
        self._first = _start(command, fit_out)

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

    def _signal(self, number: int) -> None:
        for process in _descendants() if ON_LINUX else [self._first]:
            try:
                os.kill(process, number)
            except (ProcessLookupError, PermissionError):
                continue


def _wake_up(number: int, frame: FrameType | None) -> None:
    """Does nothing: the wake-up descriptor already reports the signal."""


def _start(command: list[str], fit_out: Callable[[], None]) -> int:
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
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]} cannot be started: {error.strerror}\n".encode())
    finally:
        os._exit(NOT_STARTED)


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


def main(command: list[str]) -> int:
    if not os.read(0, 1):
        return NOT_STARTED
    family = Family(command, _without_input)
    while family.code is None:
        if 0 in family.wait(None, 0) and not os.read(0, 1):
            break
    family.end()
    return family.code if family.code is not None else 128 + signal.SIGKILL


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

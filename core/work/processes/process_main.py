"""A program that keeps one command running, independently of the gateway, and writes down how it ended.

The program is started by its path with the folder of the task, and waits for a byte on its standard input, so a
gateway that dies before has started nothing. SIGTERM ends the command and all its descendants.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

# This program is started without the project on its path. The path is not resolved: in a checkout tidings/core is a
# link, and the folder that contains tidings/ is needed.
sys.path.append(str(Path(__file__).parents[4]))

from tidings.core.work.processes import launcher
from tidings.core.work.processes import wall as walls

# A background command gets more time to end than one in the foreground.
GRACE_SECONDS = 5.0
CHUNK_BYTES = 65_536
LINE_BYTES = 4_096
SHOWN_CHARACTERS = 300
# Further matches are not written.
MOST_MATCHES = 10_000
# The time limit of one pattern on one line; the command would wait for it.
PATTERN_SECONDS = 0.5
ENDING = {signal.SIGTERM, signal.SIGINT}

BREAKS = re.compile(rb"[\r\n]+")
COLOURS = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")


class TooSlow(Exception):
    pass


class Findings:
    """Finds output lines that match a pattern, and writes each down once."""

    def __init__(self, patterns: list[str], path: Path) -> None:
        self._patterns = [re.compile(pattern) for pattern in patterns]
        self._line = bytearray()
        self._count = 0
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        signal.signal(signal.SIGALRM, _too_slow)

    def add(self, data: bytes) -> None:
        if not self._patterns:
            return
        *lines, rest = BREAKS.split(data)
        for line in lines:
            self._grow(line)
            self.end_line()
        self._grow(rest)

    def _grow(self, data: bytes) -> None:
        self._line += data[: LINE_BYTES - len(self._line)]

    def end_line(self) -> None:
        line = COLOURS.sub(b"", self._line).decode("utf-8", "replace")
        self._line.clear()
        if line and self._is_found(line):
            self._count += 1
            if self._count <= MOST_MATCHES:
                self._write({"line": line[:SHOWN_CHARACTERS]})

    def _is_found(self, line: str) -> bool:
        for pattern in tuple(self._patterns):
            try:
                signal.setitimer(signal.ITIMER_REAL, PATTERN_SECONDS)
                try:
                    if pattern.search(line):
                        return True
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except TooSlow:
                self._patterns.remove(pattern)
                self._write({"slow": pattern.pattern})
        return False

    def _write(self, found: dict[str, str]) -> None:
        os.write(self._file, json.dumps(found).encode() + b"\n")


def _too_slow(number: int, frame: FrameType | None) -> None:
    raise TooSlow


class Output:
    """Copies the output of the command from its pipe to the log."""

    def __init__(self, log: Path, limit: int, findings: Findings) -> None:
        self.pipe, self.inlet = os.pipe()
        os.set_blocking(self.pipe, False)
        self.is_open = True
        # Why the log cannot be written; empty if it can.
        self.fault = ""
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._left = limit
        self._findings = findings

    @property
    def is_too_long(self) -> bool:
        return self._left < 0

    def take(self) -> bool:
        """Copies what the pipe contains; false when it is empty."""
        try:
            data = os.read(self.pipe, CHUNK_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self.is_open = False
            return False
        kept = data[: max(self._left, 0)]
        self._left -= len(data)
        try:
            for piece in _pieces(kept, self._log):
                self._findings.add(piece)
        except OSError as error:
            self.fault = error.strerror or str(error)
        return True

    def finish(self) -> None:
        """Copies the rest of the pipe after all writers have ended."""
        while self.take():
            continue
        if not self.fault:
            self._findings.end_line()
            os.fsync(self._log)


def _pieces(data: bytes, file: int) -> Iterator[bytes]:
    while data:
        written = os.write(file, data)
        yield data[:written]
        data = data[written:]


class Input:
    """The command's input as a named pipe; it stays open as long as this program holds it."""

    def __init__(self, folder: Path) -> None:
        path = folder / "input.new"
        os.mkfifo(path, 0o600)
        # Opened for reading and writing, because opening for one of them alone would block.
        both = os.open(path, os.O_RDWR)
        self.outlet = os.open(path, os.O_RDONLY)
        self._inlet: int | None = os.open(path, os.O_WRONLY)
        os.close(both)
        # The pipe gets its name only when this program listens to it.
        path.rename(folder / "input")
        self._end = folder / "input.end"

    def look(self) -> None:
        if self._inlet is not None and self._end.exists():
            os.close(self._inlet)
            self._inlet = None


def keep(order: dict[str, Any], folder: Path) -> dict[str, Any]:
    began = time.monotonic()
    output = Output(folder / "log", order["output"], Findings(order["patterns"], folder / "matches"))
    given = Input(folder)

    def fit_out() -> None:
        # The command gets a process group of its own, so that its signals to the group do not reach this program.
        os.setpgid(0, 0)
        os.chdir(order["folder"])
        if order["memory"]:
            _, most = resource.getrlimit(resource.RLIMIT_AS)
            limit = order["memory"] if most == resource.RLIM_INFINITY else min(order["memory"], most)
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        for number, descriptor in enumerate((given.outlet, output.inlet, output.inlet)):
            os.dup2(descriptor, number)

    wall = walls.read(order["wall"]) if order["wall"] else None
    family = launcher.Family(order["command"], fit_out, wall)
    for descriptor in (given.outlet, output.inlet):
        os.close(descriptor)
    why = _attend(family, output, given, began + order["seconds"])
    family.end(launcher.GRACE_SECONDS if why == "exited" else GRACE_SECONDS)
    output.finish()
    return {"code": family.code if why == "exited" else None, "why": why, "seconds": time.monotonic() - began}


def _attend(family: launcher.Family, output: Output, given: Input, deadline: float) -> str:
    while family.code is None:
        given.look()
        patience = max(deadline - time.monotonic(), 0)
        if family.disk:
            patience = min(patience, launcher.DISK_SECONDS)
        ready = family.wait(patience, *([output.pipe] if output.is_open else []))
        if output.pipe in ready:
            output.take()
        # A command that has ended by itself was not ended by us.
        if family.code is not None:
            break
        if family.heard & ENDING:
            return "told"
        if output.is_too_long:
            return "output"
        if output.fault:
            return f"its output could not be written: {output.fault}"
        if family.disk and family.disk.is_full():
            return launcher.TOO_FULL.format(most=family.disk.most)
        if time.monotonic() >= deadline:
            return "time"
    return "exited"


def write_status(status: dict[str, Any], folder: Path) -> None:
    """Writes the status completely or not at all, even if the machine crashes."""
    fresh = folder / "status.new"
    with fresh.open("w", encoding="utf-8") as file:
        json.dump({**status, "at": time.time()}, file)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(folder / "status.json")
    above = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(above)
    os.close(above)


def main(folder: Path) -> None:
    # Descriptors inherited from the gateway are closed.
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.umask(0o077)
    os.chdir("/")
    begins = os.read(0, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    if begins:
        order = json.loads((folder / "order.json").read_bytes())
        write_status(keep(order, folder), folder)
    else:
        write_status({"code": None, "why": "unbegun", "seconds": 0.0}, folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

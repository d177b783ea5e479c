"""Puts up the wall of a fence in a process that is about to become a command: user, limits, Landlock, seccomp.

It runs between fork and exec, in programs that are started without the project's libraries.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import stat
from collections.abc import Iterable, Mapping
from typing import Any

# The descriptor from which bubblewrap reads the filter; those of texts follow.
FILTER = 9
# The oldest Landlock that can forbid truncating a file by its path.
KNOWS_TRUNCATING = 3

_PDEATHSIG, _SECCOMP, _NO_NEW_PRIVILEGES, _FILTER_MODE = 1, 22, 38, 2
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF, _VERSION = 444, 445, 446, 1
_NEW_MOUNTS, _PRIVATE, _RECURSIVE, _BIND, _REMOUNT, _READ_ONLY = 0x20000, 1 << 18, 1 << 14, 1 << 12, 1 << 5, 1
_NO_SUID, _NO_DEVICES = 2, 4

# Landlock's rights on files, as bits.
_EXECUTE, _WRITE, _READ, _LIST = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _DEVICES = 1 << 14, 1 << 15
_OF_A_FILE = _EXECUTE | _WRITE | _READ | _TRUNCATE | _DEVICES
# Device nodes are never made; the rest of the rights up to the version's last one is.
_NODES = 1 << 6 | 1 << 11
_LAST_RIGHT = {1: 12, 2: 13, 3: 14, 4: 14}


def written(wall: Mapping[str, Any]) -> str:
    """A wall as one argument of a program: importing a reader of JSON would take half as long as Python's start."""
    lines = []
    for name, value in wall.items():
        if isinstance(value, str):
            lines.append(f"{name} '{value.encode().hex()}")
        elif isinstance(value, int):
            lines.append(f"{name} {int(value)}")
        else:
            lines += [f"{name} +{item.encode().hex()}" for item in value]
    return "\n".join(lines)


def read(text: str) -> dict[str, Any]:
    wall: dict[str, Any] = {}
    for line in text.split("\n"):
        name, _, value = line.partition(" ")
        if value[0] == "'":
            wall[name] = bytes.fromhex(value[1:]).decode()
        elif value[0] == "+":
            wall.setdefault(name, []).append(bytes.fromhex(value[1:]).decode())
        else:
            wall[name] = int(value)
    return wall


def enter(wall: Mapping[str, Any]) -> None:
    """Raises OSError if any part of the wall cannot be put up; the command must not be started then.

    A wall without a filter is put up by the command itself, and only its disk is watched from here.
    """
    if "filter" not in wall:
        return
    folder, user = wall["folder"], wall.get("user", 0)
    if user:
        _become(user, folder)
    # A change of the user has cleared it.
    _check(_libc.prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
    if processes := wall.get("processes", 0):
        # A user of the command's own has no processes but those of its conversation.
        _limit(resource.RLIMIT_NPROC, processes if user else processes + _count_processes(os.getuid()))
    _limit(resource.RLIMIT_AS, wall.get("memory", 0))
    _limit(resource.RLIMIT_FSIZE, wall.get("disk", 0))
    _check(_libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    for number, text in enumerate(wall.get("texts", ()), FILTER + 1):
        _hand_over(text.encode(), number)
    if "readable" in wall:
        _restrict(wall["readable"], wall.get("writable", ()))
        _filter(bytes.fromhex(wall["filter"]))
    else:
        _hand_over(bytes.fromhex(wall["filter"]), FILTER)


def landlock_version() -> int:
    """0 where the kernel has no Landlock, or it is switched off."""
    return max(0, int(_libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION))))


def _limit(kind: int, most: int) -> None:
    if most:
        _, hard = resource.getrlimit(kind)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))


def _become(user: int, folder: str) -> None:
    """Takes another user. Where that user cannot come to the folder, the way is covered by an empty one."""
    hidden = next((path for path in _ways(folder) if not os.stat(path).st_mode & stat.S_IXOTH), None)
    if hidden is not None:
        _cover(hidden, folder)
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    os.chdir(folder)


def _ways(folder: str) -> Iterable[str]:
    """The folders above a folder, the highest first."""
    parts = folder.split("/")[1:-1]
    return ["/" + "/".join(parts[: count + 1]) for count in range(len(parts))]


def _cover(hidden: str, folder: str) -> None:
    """Hides a folder behind an empty one, in which only the way to the inner folder exists; nobody else sees it."""
    _check(_libc.unshare(_NEW_MOUNTS))
    _mount("none", "/", "", _RECURSIVE | _PRIVATE)
    inner = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
    _mount("tmpfs", hidden, "tmpfs", _NO_SUID | _NO_DEVICES, "mode=755,size=64k")
    mask = os.umask(0o022)
    os.makedirs(folder)
    os.umask(mask)
    _mount(f"/proc/self/fd/{inner}", folder, "", _BIND)
    _mount("none", hidden, "", _REMOUNT | _READ_ONLY | _NO_SUID | _NO_DEVICES, "mode=755")
    os.close(inner)


def _mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    words = (source.encode(), target.encode(), kind.encode())
    _check(_libc.mount(*words, ctypes.c_ulong(flags), options.encode() or None))


def _hand_over(data: bytes, number: int) -> None:
    descriptor = os.memfd_create("fence")
    os.write(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.dup2(descriptor, number)
    if descriptor == number:
        os.set_inheritable(number, True)
    else:
        os.close(descriptor)


def _count_processes(user: int) -> int:
    """The tasks of a user, which the kernel counts together."""
    count = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{name}").st_uid == user:
                count += len(os.listdir(f"/proc/{name}/task"))
        except OSError:
            # The process is gone.
            continue
    return count


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scopes", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("rights", ctypes.c_uint64), ("parent", ctypes.c_int32))


def _restrict(readable: Iterable[str], writable: Iterable[str]) -> None:
    version = landlock_version()
    if not version:
        raise OSError("the kernel has no Landlock")
    everything = (1 << _LAST_RIGHT.get(version, 15) + 1) - 1
    # TCP since version 4; signals and abstract sockets of processes outside since version 6.
    wanted = _Ruleset(everything, 3 if version >= 4 else 0, 3 if version >= 6 else 0)
    size = 8 if version < 4 else 16 if version < 6 else 24
    ruleset = _check(_libc.syscall(_CREATE_RULESET, ctypes.byref(wanted), ctypes.c_size_t(size), ctypes.c_uint32(0)))
    for paths, rights in ((readable, _EXECUTE | _READ | _LIST), (writable, everything & ~_NODES)):
        for path in paths:
            _permit(ruleset, path, rights)
    _check(_libc.syscall(_RESTRICT_SELF, ruleset, ctypes.c_uint32(0)))
    os.close(ruleset)


def _permit(ruleset: int, path: str, rights: int) -> None:
    try:
        parent = os.open(path, os.O_PATH)
    except (FileNotFoundError, PermissionError):
        return
    if not stat.S_ISDIR(os.fstat(parent).st_mode):
        rights &= _OF_A_FILE
    rule = _Beneath(rights, parent)
    _check(_libc.syscall(_ADD_RULE, ruleset, 1, ctypes.byref(rule), ctypes.c_uint32(0)))
    os.close(parent)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def _filter(steps: bytes) -> None:
    program = _Program(len(steps) // 8, steps)
    _check(_libc.prctl(_SECCOMP, _FILTER_MODE, ctypes.byref(program), 0, 0))


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"the fence: {os.strerror(number)}")
    return result


_libc = ctypes.CDLL(None, use_errno=True)

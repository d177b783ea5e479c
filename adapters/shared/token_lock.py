"""One listener for each token on this machine: a second one stands by until the first has gone."""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidings.core.errors import Misconfigured, StandingBy

# The system frees the lock of a dead process, so a successor is there within so many seconds.
LOOK_SECONDS = 5.0


@contextmanager
def claim(platform: str, server: str, token: str, shared: Path | None = None) -> Iterator[None]:
    """Holds the token's lock, which is the same for all homes of one user; raises StandingBy while another does.

    `shared` is the folder for all users of the machine that ours lies in.
    """
    folder = _enter(shared or Path(tempfile.gettempdir()))
    try:
        handle = os.open(
            _name(platform, f"{server.rstrip('/')} {token}"),
            os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC,
            0o600,
            dir_fd=folder,
        )
    finally:
        os.close(folder)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(handle, 100).decode("utf-8", "replace").strip() or "another process"
            raise StandingBy(f"{holder} listens with this token already", LOOK_SECONDS) from None
        os.ftruncate(handle, 0)
        os.write(handle, f"process {os.getpid()}".encode())
        yield
    finally:
        os.close(handle)


def _enter(shared: Path) -> int:
    """Opens the folder and checks it by its descriptor, since another user may have made or replaced it."""
    folder = shared / f"tidings-{os.getuid()}"
    remedy = "remove it, or set TMPDIR to a folder of your own"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise Misconfigured(f"{folder} cannot be used for locks ({error.strerror}); {remedy}") from error
    found = os.fstat(handle)
    wrong = ""
    if found.st_uid != os.getuid():
        wrong = "belongs to another user"
    elif found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        wrong = "is writable by other users"
    if wrong:
        os.close(handle)
        raise Misconfigured(f"{folder} {wrong}; {remedy}")
    return handle


def _name(platform: str, name: str) -> str:
    return f"{platform}-{hashlib.sha256(name.encode()).hexdigest()[:32]}.lock"

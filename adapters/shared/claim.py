"""One listener for each token on this machine: whoever comes second stands by until the first has gone."""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from core.errors import Misconfigured, StandingBy

# The system frees the lock of a dead process, so a successor is there within so many seconds.
LOOK_SECONDS = 5.0


@contextmanager
def claim(platform: str, server: str, token: str) -> Iterator[None]:
    """Holds the token's lock, which is the same for all homes of one user; raises StandingBy while another does."""
    handle = os.open(
        _place(platform, f"{server.rstrip('/')} {token}"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
    )
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


def _place(platform: str, name: str) -> Path:
    folder = Path(tempfile.gettempdir()) / f"tidings-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise Misconfigured(f"{folder} belongs to somebody else; have it removed, or set TMPDIR to a folder of yours")
    return folder / f"{platform}-{hashlib.sha256(name.encode()).hexdigest()[:32]}.lock"

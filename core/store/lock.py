"""One process per home: a lock that the system releases however the holder dies."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from core.errors import ConfigError, HomeInUse


def unusable(home: Path, error: OSError) -> str:
    """One sentence for a home that nothing can be kept in."""
    if home.exists() and not home.is_dir():
        return f"the home {home} is a file, not a folder; choose another with --home or TIDINGS_HOME"
    mend = "mend its permissions, or choose another with --home or TIDINGS_HOME"
    return f"the home {home} cannot be written ({error.strerror}); {mend}"


class HomeLock:
    def __init__(self, home: Path) -> None:
        self._path = home / "lock"
        self._descriptor = -1

    def take(self) -> None:
        """Makes the home where it is missing; only its owner may look inside."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(unusable(self._path.parent, error)) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            raise HomeInUse(
                f"the home {self._path.parent} is in use by process {holder}; "
                "stop that one, or choose another home with TIDINGS_HOME"
            ) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

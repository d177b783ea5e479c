"""The lock of a home: one process and one owner; the system releases the lock however its holder dies."""

from __future__ import annotations

import fcntl
import os
import pwd
import tempfile
from pathlib import Path

from tidings.core.errors import ConfigError, HomeInUse

# The first file made in a home; its owner is the owner of the home.
LOCK = "lock"


def unusable(home: Path, error: OSError, wanted: str = "written") -> str:
    """A sentence for people about a home where nothing can be stored."""
    # Unlike os.path.exists, Path.exists raises an error for a folder that may not be read.
    if os.path.exists(home) and not os.path.isdir(home):
        return f"the home {home} is a file, not a folder; choose another with --home or TIDINGS_HOME"
    advice = "or choose another with --home or TIDINGS_HOME"
    return f"the home {home} cannot be {wanted} ({error.strerror}); fix its permissions{_whose(home)}, {advice}"


def is_there(home: Path, name: str = "") -> bool:
    """Tells whether the home, or a file in it, exists; raises ConfigError if the home may not be read."""
    try:
        (home / name).stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise ConfigError(unusable(home, error, "read")) from error
    return True


def check_owner(home: Path) -> None:
    """Call this before writing to a home; raises ConfigError if the home belongs to another user.

    The owner could not read files that root has written there, for example from a shell in a container.
    """
    me = os.geteuid()
    marked = next((path for path in (home / LOCK, home) if _owner(path) is not None), None)
    if marked is None:
        return
    owner = _owner(marked)
    if owner == me or owner is None or (marked == home and me != 0) or not _keeps_owners(home, me):
        return
    name = _login(owner) or f"'#{owner}'"
    raise ConfigError(
        f"the home {home} belongs to {_named(owner)}, and this is {_named(me)}, whose files the owner could not read;"
        f" run this as the owner (sudo -u {name} tidings …; in a container docker exec --user {owner} …)"
        f" or change the owner: chown -R {me} {home}"
    )


class HomeLock:
    def __init__(self, home: Path) -> None:
        self._path = home / LOCK
        self._descriptor = -1

    def take(self) -> None:
        """Takes the lock, and creates the home if it is missing; only its owner may read the home."""
        home = self._path.parent
        check_owner(home)
        try:
            home.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(unusable(home, error)) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            raise HomeInUse(
                f"the home {home} is in use by process {holder}; "
                "stop that one, or choose another home with TIDINGS_HOME"
            ) from error
        try:
            _check_inside(home)
        except ConfigError:
            os.close(descriptor)
            raise
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _check_inside(home: Path) -> None:
    """Refuses a home with files of another user now, because they would cause errors later."""
    me = os.geteuid()
    for path in sorted(home.iterdir()):
        owner = _owner(path)
        # Settings may belong to another user if we can read them.
        needed = os.R_OK if path.suffix == ".toml" else os.R_OK | os.W_OK
        if owner not in (None, me) and not os.access(path, needed, effective_ids=True):
            raise ConfigError(
                f"{path} belongs to {_named(owner)} and cannot be used by {_named(me)};"
                f" give it back, as root: chown -R {me} {home}"
            )


def _keeps_owners(home: Path, me: int) -> bool:
    """False for mounts that show the same owner for every file; there the owner tells nothing."""
    try:
        with tempfile.TemporaryFile(dir=home) as probe:
            return os.fstat(probe.fileno()).st_uid == me
    except OSError:
        return True


def _whose(home: Path) -> str:
    there = next((path for path in (home, *home.parents) if _owner(path) is not None), None)
    owner = _owner(there) if there else None
    me = os.geteuid()
    if owner is None or owner == me:
        return ""
    return f" ({there} belongs to {_named(owner)}, and this is {_named(me)}: as root, chown -R {me} {there})"


def _owner(path: Path) -> int | None:
    """None for a path that does not exist or may not be read."""
    try:
        return path.stat().st_uid
    except OSError:
        return None


def _named(uid: int | None) -> str:
    login = _login(uid) if uid is not None else ""
    return f"{login} (uid {uid})" if login else f"uid {uid}"


def _login(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""

"""Copies the files that a worker process hands over, if they really are in the card's workspace."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from pathlib import Path

from tidings.core.desk.board import CardFile, is_link, link_to
from tidings.core.errors import Unkeepable

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Opening a pipe must not block until a writer opens it.
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def take(place: str, workspace: Path, kept: Path, by: str) -> CardFile:
    """Copies a file and names the copy by its content, so that equal files are kept once; raises Unkeepable."""
    if is_link(place):
        return link_to(place, by=by)
    try:
        source = _open(place, workspace)
    except (OSError, ValueError):
        raise Unkeepable(f"there is no file {place} in the card's workspace; links are not accepted") from None
    name = Path(place).name
    with os.fdopen(source, "rb") as file:
        try:
            return CardFile(name, str(_keep(file.fileno(), name, kept)), by)
        except OSError as error:
            raise Unkeepable(f"{place} could not be kept: {error.strerror}") from error


def _open(place: str, workspace: Path) -> int:
    """Opens the path folder by folder, so that no part of it can be replaced by a link meanwhile."""
    path = Path(place)
    parts = path.relative_to(workspace).parts if path.is_absolute() else path.parts
    if not parts or ".." in parts:
        raise ValueError(place)
    here = os.open(workspace, FOLDER)
    try:
        for name in parts[:-1]:
            below = os.open(name, FOLDER, dir_fd=here)
            os.close(here)
            here = below
        found = os.open(parts[-1], FILE, dir_fd=here)
    finally:
        os.close(here)
    if not stat.S_ISREG(os.fstat(found).st_mode):
        os.close(found)
        raise ValueError(place)
    return found


def _keep(source: int, name: str, kept: Path) -> Path:
    kept.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, written = tempfile.mkstemp(dir=kept, prefix=".")
    try:
        with os.fdopen(descriptor, "w+b") as copy, os.fdopen(os.dup(source), "rb") as file:
            shutil.copyfileobj(file, copy)
            # The copy is hashed, because the original may change meanwhile.
            copy.seek(0)
            digest = hashlib.file_digest(copy, "sha256").hexdigest()
        folder = kept / digest[:32]
        folder.mkdir(mode=0o700, exist_ok=True)
        os.replace(written, folder / name)
    except BaseException:
        os.unlink(written)
        raise
    return folder / name

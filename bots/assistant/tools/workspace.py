"""The conversation's own folder: every path is resolved below it, and opened without following a link."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidings.bots.assistant.tools.tool import ToolError
from tidings.core import context

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Opening a pipe must not wait for a writer.
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

# The folder for files that people attach.
ATTACHMENTS = "attachments"


def root() -> Path:
    return context.current().workspace.resolve()


def make_root() -> Path:
    folder = root()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def locate(written: str) -> Path:
    """The real path behind a path that the model wrote; raises ToolError if it is outside the workspace."""
    if "\0" in written:
        raise ToolError("A path has no NUL in it.")
    path = Path(written)
    if ".." in path.parts:
        raise ToolError(f"{written}: a path may not have .. in it.")
    above = root()
    try:
        found = (above / path).resolve()
    except (RuntimeError, UnicodeEncodeError) as error:
        # A loop of links, or a name that no file system accepts.
        raise ToolError(f"{shown(written)} is no usable path.") from error
    if not found.is_relative_to(above):
        raise ToolError(f"{written} is outside of the workspace; give a path inside it, such as notes/plan.md.")
    return found


def parts_of(written: str) -> tuple[str, ...]:
    """The names of the folders and the file of a path below the workspace; raises ToolError as `locate` does."""
    return locate(written).relative_to(root()).parts


@contextmanager
def folder_of(found: Path, *, create: bool = False) -> Iterator[int]:
    """A descriptor of a located folder, opened level by level, so that no link can slip in."""
    above = make_root() if create else root()
    here = os.open(above, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in found.relative_to(above).parts:
            below = _enter(name, here, create)
            os.close(here)
            here = below
        yield here
    finally:
        os.close(here)


def _enter(name: str, here: int, create: bool) -> int:
    if create:
        try:
            os.mkdir(name, 0o700, dir_fd=here)
        except FileExistsError:
            return os.open(name, FOLDER, dir_fd=here)
    return os.open(name, FOLDER, dir_fd=here)


@contextmanager
def opened(found: Path) -> Iterator[int]:
    """A descriptor of a located, regular file; raises ToolError for a folder, a device or a pipe."""
    if found == root():
        raise ToolError("That is a folder.")
    with folder_of(found.parent) as folder:
        descriptor = os.open(found.name, READ, dir_fd=folder)
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise ToolError(f"{name_of(found)} is {'a folder' if stat.S_ISDIR(mode) else 'no regular file'}.")
        yield descriptor
    finally:
        os.close(descriptor)


def name_of(found: Path) -> str:
    """The path relative to the workspace, safe to show."""
    return shown(str(found.relative_to(root())))


def shown(name: str) -> str:
    """A file name that is safe to show: it may hold any bytes, and a line break would look like another file."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in name)


@contextmanager
def in_words(written: str) -> Iterator[None]:
    """A system error as a sentence, without the location of the workspace."""
    try:
        yield
    except FileNotFoundError as error:
        raise ToolError(f"There is no {shown(written)} in the workspace.") from error
    except OSError as error:
        raise ToolError(f"{shown(written)}: {error.strerror}.") from error

"""The files of the conversation's workspace: list, read, write, search, and attach to the answer."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from tidings.bots.assistant.tools import search, workspace
from tidings.bots.assistant.tools.tool import Arguments, Occasion, Result, ToolError, decode, define
from tidings.core import context
from tidings.core.agent import Effect
from tidings.core.errors import Unsupported
from tidings.core.roles import Permission
from tidings.core.types import File
from tidings.core.work.processes import foreground, identity
from tidings.core.work.processes.enclosed import own

SHOWN_CHARACTERS = 30_000
SHOWN_ENTRIES = 500
# The most files that are listed and sorted.
LISTED_ENTRIES = 20_000
# Each level of folders holds one open descriptor.
DEPTH = 20
READ_BYTES = 20 * 1024 * 1024
WRITTEN_BYTES = 1024 * 1024
ATTACHED_BYTES = 20 * 1024 * 1024
# After this the search counts as stuck in its pattern; it normally gives up on its own before.
SEARCH_SECONDS = search.SECONDS + 5.0
SEARCH_OUTPUT_BYTES = 100_000

Inside = Annotated[str, Meta(description="A path inside the workspace, such as notes/plan.md.")]
Folder = Annotated[str, Meta(description="A folder inside the workspace; empty means all of it.")]


class Listing(Arguments, frozen=True):
    path: Folder = ""
    recursive: Annotated[bool, Meta(description="Whether folders inside it are listed too.")] = False


async def list_files(asked: Listing, occasion: Occasion) -> Result:
    return Result(await asyncio.to_thread(_list, asked))


def _list(asked: Listing) -> str:
    if not workspace.root().exists():
        return "The workspace is empty."
    with workspace.in_words(asked.path or "workspace"):
        found = workspace.locate(asked.path)
        with workspace.folder_of(found) as folder:
            lines = sorted(islice(_entries(folder, "", DEPTH if asked.recursive else 0), LISTED_ENTRIES))
    if not lines:
        return "There is nothing in it."
    left_out = len(lines) - SHOWN_ENTRIES
    if left_out > 0:
        lines[SHOWN_ENTRIES:] = [f"(and {left_out:,} or more that are left out; list a folder inside it)"]
    return "\n".join(lines)


def _entries(folder: int, above: str, depth: int) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            name = above + workspace.shown(entry.name)
            if entry.is_dir(follow_symlinks=False):
                yield f"{name}/"
                if depth:
                    yield from _below(folder, entry.name, f"{name}/", depth - 1)
            elif entry.is_symlink():
                yield f"{name} (a link)"
            else:
                # The file may be gone by now.
                with suppress(FileNotFoundError):
                    yield f"{name} ({entry.stat(follow_symlinks=False).st_size:,} bytes)"


def _below(folder: int, name: str, above: str, depth: int) -> Iterator[str]:
    try:
        below = os.open(name, workspace.FOLDER, dir_fd=folder)
    except OSError:
        # The folder is gone or unreadable; only its name is listed.
        return
    try:
        yield from _entries(below, above, depth)
    finally:
        os.close(below)


class Reading(Arguments, frozen=True):
    path: Inside
    offset: Annotated[int, Meta(ge=1, description="The first line to read, counted from 1.")] = 1
    limit: Annotated[int, Meta(ge=1, description="How many lines to read.")] = 2000


async def read_file(asked: Reading, occasion: Occasion) -> Result:
    return Result(await asyncio.to_thread(_read, asked))


def _read(asked: Reading) -> str:
    with workspace.in_words(asked.path):
        found = workspace.locate(asked.path)
        with workspace.opened(found) as descriptor:
            size = os.fstat(descriptor).st_size
            with open(descriptor, "rb", closefd=False) as file:
                content = file.read(READ_BYTES)
    if b"\0" in content:
        raise ToolError(f"{workspace.name_of(found)} is no text ({size:,} bytes); attach_file can send it.")
    text = content.decode("utf-8", "replace")
    lines = text.removesuffix("\n").split("\n") if text else []
    return _excerpt(workspace.name_of(found), lines, asked, cut=size > len(content))


def _excerpt(name: str, lines: list[str], asked: Reading, *, cut: bool) -> str:
    if not lines:
        return f"{name} is empty."
    if asked.offset > len(lines):
        raise ToolError(f"{name} has only {len(lines):,} lines{' that can be read' if cut else ''}.")
    start, kept, room = asked.offset - 1, list[str](), SHOWN_CHARACTERS
    for line in lines[start : start + asked.limit]:
        if kept and len(line) >= room:
            break
        kept.append(line[:room])
        room -= len(line) + 1
        if room <= 0:
            break
    end = start + len(kept)
    heading = f"{name}, lines {asked.offset:,} to {end:,} of {len(lines):,}"
    if len(kept[-1]) < len(lines[end - 1]):
        heading += f"; line {end:,} is cut after {len(kept[-1]):,} of {len(lines[end - 1]):,} characters"
    if end < len(lines):
        heading += f"; read on with offset={end + 1}"
    if cut:
        heading += f"; what is behind the first {READ_BYTES:,} bytes is out of reach"
    return heading + ":\n\n" + "\n".join(kept)


class Writing(Arguments, frozen=True):
    path: Inside
    content: Annotated[str, Meta(description="All of the text: what the file held before is replaced.")]


async def write_file(asked: Writing, occasion: Occasion) -> Result:
    return Result(await asyncio.to_thread(_write, asked))


def _write(asked: Writing) -> str:
    content = asked.content.encode()
    if len(content) > WRITTEN_BYTES:
        raise ToolError(f"That is {len(content):,} bytes, and a file may have {WRITTEN_BYTES:,}.")
    with workspace.in_words(asked.path):
        found = workspace.locate(asked.path)
        if found == workspace.root():
            raise ToolError("Give the file a name.")
        with workspace.folder_of(found.parent, create=True) as folder:
            _replace(folder, found.name, content)
    return f"Wrote {len(content):,} bytes to {workspace.name_of(found)}."


def _replace(folder: int, name: str, content: bytes) -> None:
    """Replaces a file as a whole, and never writes through a symbolic or hard link."""
    mode = 0o600
    with suppress(FileNotFoundError):
        before = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        if not stat.S_ISREG(before):
            raise ToolError(f"{workspace.shown(name)} is {'a folder' if stat.S_ISDIR(before) else 'no regular file'}.")
        mode = stat.S_IMODE(before) & 0o777
    draft = f".{secrets.token_hex(8)}.part"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode, dir_fd=folder)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
        os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        os.unlink(draft, dir_fd=folder)
        raise


class Searching(Arguments, frozen=True):
    text: Annotated[str, Meta(min_length=1, max_length=1000, description="What to look for, as it is written.")]
    path: Folder = ""
    regex: Annotated[bool, Meta(description="Whether the text is a Python regular expression.")] = False
    ignore_case: bool = False


async def search_files(asked: Searching, occasion: Occasion) -> Result:
    return Result(await find(asked, SEARCH_SECONDS))


async def find(asked: Searching, seconds: float) -> str:
    with workspace.in_words(asked.path or "workspace"):
        folder = await asyncio.to_thread(_searchable, asked.path)
    if folder is None:
        return "The workspace is empty."
    order = json.dumps({"text": asked.text, "regex": asked.regex, "ignore_case": asked.ignore_case})
    # A pattern can take forever and would block the interpreter, so it runs in a process that can be killed.
    program = identity.program(search.__file__, order)
    enclosed = own(program, folder, context.child_environment())
    ended = await foreground.run(enclosed, seconds, SEARCH_OUTPUT_BYTES)
    if ended.code is None:
        raise ToolError("The search took too long and was ended; use a simpler pattern, or a plain text.")
    if ended.code == search.BAD_PATTERN:
        raise ToolError(f"That is no regular expression: {ended.output.strip()}")
    if ended.code != 0:
        raise ToolError(f"The search failed: {ended.output.strip().rpartition(chr(10))[2]}")
    return ended.output.strip()


def _searchable(path: str) -> Path | None:
    if not workspace.root().exists():
        return None
    found = workspace.locate(path)
    with workspace.folder_of(found):
        return found


class Attaching(Arguments, frozen=True):
    path: Inside


async def attach_file(asked: Attaching, occasion: Occasion) -> Result:
    try:
        context.current().require("files")
    except Unsupported as error:
        raise ToolError(f"{error}; say what is in the file instead.") from error
    return await asyncio.to_thread(_attach, asked)


def _attach(asked: Attaching) -> Result:
    with workspace.in_words(asked.path):
        found = workspace.locate(asked.path)
        with workspace.opened(found) as descriptor:
            size = os.fstat(descriptor).st_size
    name = workspace.name_of(found)
    if size > ATTACHED_BYTES:
        raise ToolError(f"{name} has {size:,} bytes, and no more than {ATTACHED_BYTES:,} can be sent.")
    if not size:
        raise ToolError(f"{name} is empty, and nothing can be sent of it.")
    file = File(path=str(found), name=workspace.shown(found.name))
    return Result(f"{name} ({size:,} bytes) goes out with your answer.", (file,))


def _attached(written: str) -> str:
    """Names an attached file that is read; other files of the workspace are the conversation's own."""
    parts = workspace.parts_of(decode(written, Reading).path)
    return f"the file {parts[-1]}" if parts[:1] == (workspace.ATTACHMENTS,) else ""


def _found_attached(written: str) -> str:
    parts = workspace.parts_of(decode(written, Searching).path)
    inside = not parts or parts[0] == workspace.ATTACHMENTS
    return "attached files" if inside and (workspace.root() / workspace.ATTACHMENTS).is_dir() else ""


TOOLS = (
    define(
        "list_files",
        "Lists the files of this conversation's workspace with their sizes.",
        Listing,
        Effect.PURE,
        Permission.TALK,
        list_files,
        untrusted=True,
    ),
    define(
        "read_file",
        "Reads a text file of the workspace, by lines.",
        Reading,
        Effect.PURE,
        Permission.TALK,
        read_file,
        untrusted=True,
        source=_attached,
    ),
    define(
        "write_file",
        "Writes a text file in the workspace, and the folders above it; what it held before is replaced.",
        Writing,
        Effect.IDEMPOTENT,
        Permission.WORK,
        write_file,
    ),
    define(
        "search_files",
        "Finds lines with a text, or a regular expression, in the files of the workspace.",
        Searching,
        Effect.PURE,
        Permission.TALK,
        search_files,
        untrusted=True,
        source=_found_attached,
    ),
    define(
        "attach_file",
        "Sends a file of the workspace along with your answer to this message.",
        Attaching,
        Effect.PURE,
        Permission.TALK,
        attach_file,
    ),
)

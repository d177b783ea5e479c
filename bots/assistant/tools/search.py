"""Searches the files of a folder for a text: a separate program, started by its path in that folder."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterator

SECONDS = 10.0
FILES = 10_000
# A bigger file is skipped, and the result says so.
FILE_BYTES = 5 * 1024 * 1024
HITS = 100
SHOWN_CHARACTERS = 300
# Only the beginning of a longer line is matched.
PATTERN_CHARACTERS = 2_000
BAD_PATTERN = 3

Matches = Callable[[str], bool]


def main(order: str) -> int:
    asked = json.loads(order)
    try:
        matches = matcher(asked["text"], regex=asked["regex"], ignore_case=asked["ignore_case"])
    except (re.error, OverflowError, RecursionError) as error:
        sys.stdout.write(str(error))
        return BAD_PATTERN
    sys.stdout.buffer.write(report(matches).encode("utf-8", "replace"))
    return 0


def matcher(text: str, *, regex: bool, ignore_case: bool) -> Matches:
    if regex:
        pattern = re.compile(text, re.IGNORECASE if ignore_case else 0)
        return lambda line: pattern.search(line[:PATTERN_CHARACTERS]) is not None
    if ignore_case:
        folded = text.casefold()
        return lambda line: folded in line.casefold()
    return lambda line: text in line


def report(matches: Matches) -> str:
    deadline = time.monotonic() + SECONDS
    hits: list[str] = []
    looked = too_big = 0
    end = ""
    for name, content in files():
        if content is None:
            too_big += 1
            continue
        looked += 1
        hits += found_in(name, content, matches)
        if len(hits) > HITS:
            hits, end = hits[:HITS], f"only the first {HITS} lines are shown"
        elif looked >= FILES:
            end = f"the search ended after {FILES:,} files"
        elif time.monotonic() > deadline:
            end = f"the search ended after {SECONDS:g} s"
        if end:
            break
    notes = [f"{len(hits)} lines found in {looked:,} files"]
    notes += [f"{too_big} files were too big to look into"] if too_big else []
    notes += [end] if end else []
    return "\n".join([*hits, f"({'; '.join(notes)})"])


def files() -> Iterator[tuple[str, str | None]]:
    """Every text file below the current folder, without following links; None stands for one that is too big."""
    for above, folders, names, folder in os.fwalk(".", follow_symlinks=False):
        folders.sort()
        for name in sorted(names):
            try:
                descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
            except OSError:
                # A link, or an unreadable file.
                continue
            with open(descriptor, "rb") as file:
                status = os.fstat(descriptor)
                if not stat.S_ISREG(status.st_mode):
                    continue
                shown = os.path.normpath(os.path.join(above, name))
                if status.st_size > FILE_BYTES:
                    yield shown, None
                    continue
                content = file.read(FILE_BYTES)
            if b"\0" not in content:
                yield shown, content.decode("utf-8", "replace")


def found_in(name: str, content: str, matches: Matches) -> list[str]:
    plain = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in name)
    hits: list[str] = []
    for number, line in enumerate(content.split("\n"), 1):
        if matches(line):
            shown = line.strip()
            cut = "\N{HORIZONTAL ELLIPSIS}" if len(shown) > SHOWN_CHARACTERS else ""
            hits.append(f"{plain}:{number}: {shown[:SHOWN_CHARACTERS]}{cut}")
            if len(hits) > HITS:
                break
    return hits


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

"""Where to begin the shown end of a text that still grows (pure)."""

from __future__ import annotations

import re

from tidings.core.outbound import splitter

# Room for the mark and the fence that are put in front.
MARGIN = 40

_LINE_ENDS = re.compile(r"\n+")
_WHITESPACE = re.compile(r"\s+")


def tail_start(shown: str, limit: int) -> int:
    """The first place, at a line or a word if there is one, from which the rest fits into `limit`."""
    start = len(shown) - limit + MARGIN
    half = start + (len(shown) - start) // 2
    if line := _LINE_ENDS.search(shown, start - 1, half):
        return line.end()
    if word := _WHITESPACE.search(shown, start - 1, half):
        return word.end()
    while start < half and splitter.joined(shown, start):
        start += 1
    return start

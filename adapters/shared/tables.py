"""Tables as plain characters, and the code spans that hold them, for platforms that draw none (pure)."""

from __future__ import annotations

import re
from collections.abc import Sequence

# Beyond this a column is no longer padded: one long cell must not widen every row.
WIDEST_COLUMN = 40


def lay_out(rows: Sequence[Sequence[str]], alignments: Sequence[str]) -> list[str]:
    """The head, a rule and the rows; one line each."""
    widths = [
        min(WIDEST_COLUMN, max((columns(row[column]) for row in rows if column < len(row)), default=0))
        for column in range(len(alignments))
    ]
    lines = [
        " | ".join(map(_pad, [*row, *[""] * (len(widths) - len(row))], widths, alignments)).rstrip() for row in rows
    ]
    return [lines[0], "-+-".join("-" * width for width in widths), *lines[1:]]


def box(lines: Sequence[str], before: str) -> str:
    """A fence that stays in the list or quote in which its first line begins, after `before`."""
    run = _run("\n".join(lines), 3)
    margin = re.sub(r"[^>\s]", " ", before)
    return f"\n{margin}".join((run, *lines, run))


def span(text: str) -> str:
    run = _run(text, 1)
    return f"{run} {text} {run}" if "`" in text else f"{run}{text}{run}"


def _pad(cell: str, width: int, alignment: str) -> str:
    missing = max(0, width - columns(cell))
    left = {"Right": missing, "Center": missing // 2}.get(alignment, 0)
    return " " * left + cell + " " * (missing - left)


def columns(text: str) -> int:
    """How many columns the text takes in a monospaced font, as far as fonts agree."""
    if text.isascii() and text.isprintable():
        return len(text)
    # Only text beyond ASCII pays for loading the tables of Unicode.
    import wcwidth

    return wcwidth.width(text, control_codes="ignore")


def _run(text: str, least: int) -> str:
    """More backticks in a row than there are in the text."""
    return "`" * max([least, *(len(run) + 1 for run in re.findall("`+", text))])

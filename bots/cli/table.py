"""Tables for the terminal: a line of headings, and columns as wide as their longest cell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

# A longer cell pushes the rest of its line to the right instead of widening every line.
WIDEST = 48


def lines_of(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    cells = [[" ".join(cell.split()) for cell in row] for row in (headings, *rows)]
    widths = [min(max(len(row[number]) for row in cells), WIDEST) for number in range(len(headings))]
    for row in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()

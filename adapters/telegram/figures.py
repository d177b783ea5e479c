"""Tables and formulas as plain characters, for what entities cannot draw (pure)."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

# Beyond this a column of a table is no longer padded: one long cell must not widen every row.
WIDEST_COLUMN = 40
# A formula that is longer, or may be deeper, is shown as it was written: spelling takes the square of its length.
LONGEST_FORMULA = 1000
MOST_BRACES = 100
# Of how many characters each can be marked by one that combines with it, such as a bar.
LONGEST_LINE = 12

_SIGNS = re.compile(r"[\\^_={}]")
_FUNCTIONS = {"log", "ln", "sin", "cos", "tan", "exp", "max", "min", "mod", "lim", "det", "dim"}
_LETTERS = re.compile(r"[^\W\d_]{2,}")


def lay_out(rows: Sequence[Sequence[str]], alignments: Sequence[str]) -> list[str]:
    """The head, a rule and the rows; one line each."""
    widths = [
        min(WIDEST_COLUMN, max((_width(row[column]) for row in rows if column < len(row)), default=0))
        for column in range(len(alignments))
    ]
    lines = [
        " | ".join(map(_pad, [*row, *[""] * (len(widths) - len(row))], widths, alignments)).rstrip() for row in rows
    ]
    return [lines[0], "-+-".join("-" * width for width in widths), *lines[1:]]


def is_formula(latex: str) -> bool:
    """Prices and shell variables have dollar signs too."""
    text = latex.strip()
    if _SIGNS.search(text) or (len(text) <= 3 and text.isalnum()):
        return True
    return any(map(str.isalnum, text)) and all(word in _FUNCTIONS for word in _LETTERS.findall(text))


def spell(latex: str) -> list[str]:
    """The formula in Unicode, line by line; as it was written if there is nothing to show for it."""
    text = " ".join(latex.split())
    # A brace without its other half would cost a character.
    if len(text) > LONGEST_FORMULA or not text.count("{") == text.count("}") <= MOST_BRACES:
        return [text]
    return [line.rstrip() for line in _spelling()(text).split("\n") if line.strip()] or [text]


def box(lines: Sequence[str], before: str) -> str:
    """A fence that stays in the list or quote in which its first line begins, after `before`."""
    run = _run("\n".join(lines), 3)
    margin = re.sub(r"[^>\s]", " ", before)
    return f"\n{margin}".join((run, *lines, run))


def span(text: str) -> str:
    run = _run(text, 1)
    return f"{run} {text} {run}" if "`" in text else f"{run}{text}{run}"


@cache
def _spelling() -> Callable[[str], str]:
    from telegramify_markdown.latex_escape.helper import LatexToUnicodeHelper

    untyped: Any = LatexToUnicodeHelper

    class Spelling(LatexToUnicodeHelper):
        """Few fonts draw a line over several characters; and each line over a line doubles the text."""

        @staticmethod
        def translate_sqrt(command: str, option: str, param: str) -> str:
            return f"{untyped.make_sqrt(option.strip(), '')}{untyped.maybe_parenthesize(param.strip())}"

        @staticmethod
        def translate_combining(command: str, text: str) -> str:
            return str(untyped.translate_combining(command, text)) if len(text) <= LONGEST_LINE else text

    spelling: Callable[[str], str] = Spelling().convert
    return spelling


def _pad(cell: str, width: int, alignment: str) -> str:
    missing = max(0, width - _width(cell))
    left = {"Right": missing, "Center": missing // 2}.get(alignment, 0)
    return " " * left + cell + " " * (missing - left)


def _width(text: str) -> int:
    """How many columns it takes in a monospaced font, as far as fonts agree."""
    if text.isascii():
        return len(text)
    width, before = 0, ""
    for character in text:
        wide = unicodedata.east_asian_width(character) in "WF"
        if character == "\ufe0f":
            # It makes an emoji of what was one column wide.
            width += before != "" and unicodedata.east_asian_width(before) not in "WF"
        elif before != "\u200d" and unicodedata.category(character) not in ("Mn", "Me", "Cf"):
            width += 1 + wide
        before = character
    return width


def _run(text: str, least: int) -> str:
    """More backticks in a row than there are in the text."""
    return "`" * max([least, *(len(run) + 1 for run in re.findall("`+", text))])

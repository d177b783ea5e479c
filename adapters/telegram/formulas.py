"""Formulas as plain characters, for what entities cannot draw (pure)."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

# A formula that is longer, or may be deeper, is shown as it was written: spelling takes the square of its length.
LONGEST_FORMULA = 1000
MOST_BRACES = 100
# Of how many characters each can be marked by one that combines with it, such as a bar.
LONGEST_LINE = 12

_SIGNS = re.compile(r"[\\^_={}]")
_FUNCTIONS = {"log", "ln", "sin", "cos", "tan", "exp", "max", "min", "mod", "lim", "det", "dim"}
_LETTERS = re.compile(r"[^\W\d_]{2,}")


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

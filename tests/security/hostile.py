"""Texts that cost a careless pattern the square of their length, every pattern of the product, and what each costs."""

from __future__ import annotations

import ast
import gc
import importlib
import pkgutil
import re
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from types import ModuleType
from typing import Any, NamedTuple

from tidings import adapters, bots, core

PACKAGES = (adapters, bots, core)
ROOT = Path(core.__file__).parents[1]
SMALL, LARGE, HUGE = 10_000, 40_000, 160_000
# What is faster at the large size cannot freeze anything, and is too little to be measured.
FLOOR_SECONDS = 0.002
# Linear is 4, and the square is 16.
STEEPEST = 8.0
# No second look is needed below this.
CLEAR = 6.5
ROUNDS = 5
# Of the process: a fault must not take for ever to be found.
MOST_SECONDS = 2.0
ENDLESS = 16

# Each is repeated.
PUMPS = (
    *("<", "(", "[", "[a](", "![a](<b", "`", "~~~\n", "```a\n", "*", "**a", "**a **", "__a", "~~"),
    *("|", "|-", "a|b\n-|-\n", "> ", "- ", "1. ", "# a\n", "a\n=\n", "\\", "\\(", "$a", "&#1"),
    *(" ", "\n", "a", "a ", "0", "@here", "<@1>", "<@U1> ", "http://", "://a:", "a."),
    *("sk-", "bearer ", "authorization: ", "MDa.", "<a ", '<a href="', "<!--", "<title>", "<br>"),
    *("<details><summary>", "\x1b[1", "\x00 ", "\u200d", "\u0301", "\U0001f1e6", "\ud800", "\ufdd0"),
    *("\u0130", "\u6f22", "(Note: ", "<untruste", "    a\n", "[a]: b\n"),
)
# What one thing at the beginning makes of all that follows.
BEGUN = (
    *(
        ("|", "<br>"),
        ("a|b\n-|-\n|", "[a](http://b.c)"),
        ("a|b\n-|-\n|", "<br>"),
        ("a|b\n-|-\n", "a\n"),
        ("a|b\n-|-\n|", "`a`"),
    ),
    *(
        ("```\n", "`` "),
        ("> ```\n", "> \n"),
        ("<details>", "a\n\n"),
        ("- ", "  \n"),
        ("[", "[]"),
        ("\\(", "a "),
        ("$$", "\\"),
    ),
    *(
        ("<a ", "href= "),
        ("<title>", "<"),
        ("bearer ", "a.0"),
        ("https://", "a:b"),
        ("<@U1>", " "),
        ("<@1>", "\t"),
        ("*", "a*"),
    ),
    *(("\n", "\u3000"), ("\u6f22|", "<br>"), ("1. ", "- ")),
)
# What keeps a pattern from being content with the end of a text.
ODD_END = "\x01!"


def pumped(before: str, pump: str, after: str, size: int) -> str:
    return before + pump * ((size - len(before) - len(after)) // len(pump)) + after


class Pattern(NamedTuple):
    place: str
    pattern: re.Pattern[Any]
    methods: frozenset[str]


METHODS = ("match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer")


def modules() -> list[ModuleType]:
    return [
        importlib.import_module(found.name)
        for package in PACKAGES
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    ]


def patterns() -> tuple[list[Pattern], list[str]]:
    """All that are compiled when the product is imported or written where they are used; and where others are made."""
    used = _uses()
    held = {
        id(pattern): Pattern(place, pattern, frozenset(used.get(_scope(module, name), METHODS)))
        for module in modules()
        for place, name, pattern in _held(module)
    }
    written: list[Pattern] = []
    unknown: list[str] = []
    for path in _files():
        for call, function in _calls(ast.parse(path.read_text(encoding="utf-8"))):
            place = f"{path.relative_to(ROOT)}:{function or call.lineno}"
            assert isinstance(call.func, ast.Attribute)
            if isinstance(call.args[0], ast.Constant):
                method = call.func.attr
                methods = METHODS if method == "compile" else (method,)
                written.append(Pattern(place, re.compile(call.args[0].value, _flags(call)), frozenset(methods)))
            elif function:
                unknown.append(place)
    # What is compiled at the top of a module was found there, with its name.
    known = {(each.pattern.pattern, each.pattern.flags) for each in held.values()}
    return [
        *held.values(),
        *(each for each in written if (each.pattern.pattern, each.pattern.flags) not in known),
    ], unknown


def _files() -> Iterator[Path]:
    for package in PACKAGES:
        yield from sorted(Path(next(iter(package.__path__))).rglob("*.py"))


def _held(module: ModuleType) -> Iterator[tuple[str, str, re.Pattern[Any]]]:
    """By a module, its classes, and what is kept in those of its values that are ours."""
    seen: set[int] = set()

    def look(place: str, name: str, value: object, depth: int) -> Iterator[tuple[str, str, re.Pattern[Any]]]:
        if isinstance(value, re.Pattern):
            yield place, name, value
            return
        if depth > 6 or id(value) in seen:
            return
        seen.add(id(value))
        if isinstance(value, dict):
            inside: Iterable[tuple[str, object]] = ((name, each) for each in value.values())
        elif isinstance(value, list | tuple | set | frozenset):
            inside = ((name, each) for each in value)
        elif getattr(type(value), "__module__", "") == module.__name__ or (
            isinstance(value, type) and value.__module__ == module.__name__
        ):
            inside = list(vars(value).items()) if hasattr(value, "__dict__") else []
        else:
            return
        for inner, each in inside:
            yield from look(f"{place}.{inner}" if inner != name else place, inner, each, depth + 1)

    for name, value in list(vars(module).items()):
        yield from look(f"{module.__name__}.{name}", name, value, 0)


def _uses() -> dict[tuple[str, str], set[str]]:
    """By the name of a pattern, what is asked of it anywhere."""
    used: dict[tuple[str, str], set[str]] = {}
    for path in _files():
        module = ".".join(("tidings", *path.relative_to(ROOT).with_suffix("").parts))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in METHODS:
                name = node.value.id if isinstance(node.value, ast.Name) else getattr(node.value, "attr", "")
                used.setdefault(_scope(module, name), set()).add(node.attr)
    return used


def _scope(module: ModuleType | str, name: str) -> tuple[str, str]:
    """A private name means something in its own module only."""
    own = module if isinstance(module, str) else module.__name__
    return (own if name.startswith("_") else "", name)


def _calls(tree: ast.AST, function: str = "") -> Iterator[tuple[ast.Call, str]]:
    """Calls of the module re that are given a pattern, and the function that they stand in."""
    for node in ast.iter_child_nodes(tree):
        name = node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else function
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == "re"
            and node.func.attr in (*METHODS, "compile")
        ):
            yield node, function
        yield from _calls(node, name)


def _flags(call: ast.Call) -> int:
    spelt = " ".join(ast.unparse(each) for each in (*call.args[1:], *(word.value for word in call.keywords)))
    flags = re.NOFLAG
    for name in re.findall(r"re\.([A-Z]+)", spelt):
        flags |= getattr(re, name)
    return flags


def pumps_of(pattern: re.Pattern[Any]) -> list[tuple[str, str]]:
    """What goes before and what is repeated, in order to be read again and again by this pattern.

    Only where a pattern itself repeats something without end can it read a text more than once.
    """
    found: set[tuple[str, str]] = set()
    tree = parser.parse(
        pattern.pattern, pattern.flags & ~re.DEBUG if isinstance(pattern.pattern, str) else pattern.flags
    )
    whole = _sample(tree, "", found)
    found |= {("", text) for text in (whole, whole[:-1], *"< a\n`[|0.-:*") if text}
    return sorted(found)


def _sample(tree: Any, before: str, found: set[tuple[str, str]]) -> str:
    """A text that the tree may match; every repetition in it is noted with what leads to it."""
    text = ""
    for code, value in tree:
        if code is codes.LITERAL:
            text += chr(value)
        elif code in (codes.NOT_LITERAL, codes.IN, codes.ANY):
            text += _member(code, value)
        elif code in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
            least, most, inside = value
            sample = _sample(inside, before + text, found)
            if most > ENDLESS and sample:
                lead = before + text
                found |= {(lead, sample), ("", lead + sample), ("", lead + sample + " "), ("", lead or sample)}
            text += sample * max(min(least, 40), 1)
        elif code is codes.SUBPATTERN:
            text += _sample(value[-1], before + text, found)
        elif code is codes.ATOMIC_GROUP:
            text += _sample(value, before + text, found)
        elif code is codes.BRANCH:
            samples = [_sample(branch, before + text, found) for branch in value[1]]
            text += samples[0]
        elif code in (codes.ASSERT, codes.ASSERT_NOT):
            direction, inside = value
            sample = _sample(inside, before + text if direction > 0 else "", found)
            if code is codes.ASSERT and direction > 0:
                text += sample
    return text


def _member(code: Any, value: Any) -> str:
    """One character of a class, the plainest that there is."""
    pattern = parser.SubPattern(parser.State(), [(code, value)])
    compiled = re._compiler.compile(pattern)  # type: ignore[attr-defined]
    for letter in (
        "a",
        "0",
        " ",
        "-",
        ".",
        "A",
        "<",
        *map(chr, range(1, 0x250)),
        "\u200d",
        "\ufe0f",
        "\U0001f600",
        "\ud800",
    ):
        if compiled.match(letter):
            return letter
    return ""


class TooSlow(Exception):
    pass


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Ends what takes more time of the process, also in the middle of a pattern.

    A timer that counts the time of the process itself would make that count coarse.
    """
    deadline = time.process_time() + seconds

    def look(*_: object) -> None:
        if time.process_time() > deadline:
            raise TooSlow

    before = signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def steepness(act: Callable[[Any], object], text: Callable[[int], Any]) -> float:
    """What a text of four times the size costs: linear is 4, and the square is 16.

    Where the small sizes look steep, the large ones decide: a reader that begins to cut at some size, or no longer
    fits in a cache, takes one step there, and a square is a square at every size.
    """
    first = _ratio(act, text(SMALL), text(LARGE))
    return first if first < STEEPEST else min(first, _ratio(act, text(LARGE), text(HUGE)))


def _ratio(act: Callable[[Any], object], small: Any, large: Any) -> float:
    """What the large text costs, by what the small one does: time of the process, the best of several rounds.

    0 where it costs next to nothing; no more rounds than it takes to be sure.
    """
    best_small = best_large = float("inf")
    gc.disable()
    try:
        with limited(MOST_SECONDS):
            for _ in range(ROUNDS):
                best_large = min(best_large, _cost(act, large))
                if best_large < FLOOR_SECONDS:
                    return 0.0
                best_small = min(best_small, _cost(act, small))
                if best_large / best_small < CLEAR:
                    break
        return best_large / best_small
    except TooSlow:
        return float("inf")
    finally:
        gc.enable()


def _cost(act: Callable[[Any], object], text: Any) -> float:
    began = time.process_time()
    act(text)
    return time.process_time() - began


def acts(pattern: re.Pattern[Any], methods: Iterable[str]) -> Iterator[tuple[str, Callable[[Any], object]]]:
    several = {"sub", "subn", "split", "findall", "finditer"}
    for method in {"finditer" if method in several else method for method in methods}:
        ask = getattr(pattern, method)
        yield method, (lambda text, ask=ask: deque(ask(text), 0)) if method == "finditer" else ask

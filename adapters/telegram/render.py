"""Turns Markdown as models write it into the text and entities that Telegram shows, and cuts it to fit."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple, TypeVar

from tidings.adapters.telegram import markdown as telegram_markdown
from tidings.core.outbound import splitter

# What a message may hold, in UTF-16 units after rendering. Telegram counts characters: this is the safe side.
LIMIT = 4096
# Telegram ignores the rest.
MOST_ENTITIES = 100
# How many times the limit a source may measure that could still fit once its links are out of sight.
WORTH_A_TRY = 8
# Stands for what was left out.
MARK = "\u2026"

# Without these Telegram hides what was said, or shows it wrongly; the others only please the eye.
_RANKS = {"text_link": 0, "pre": 1, "code": 2, "blockquote": 3}

_INLINE_MARKUP = re.compile(r"[\\`*_~\[<&|$]")
_BLOCK_MARKUP = re.compile(r"^[ \t]*(?:[-+=>#\t]|[0-9]{1,9}[.)]| {4})", re.MULTILINE)
_RICH_HINT = re.compile(r"[|$]|\\[(\[]|<details", re.IGNORECASE)
# Lists in lists on a single line: the converter would indent each a little more than the last.
_ABYSS = re.compile(r"^[ \t]*(?:(?:[-+*]|[0-9]{1,9}[.)])[ \t]+|>[ \t]*){6}", re.MULTILINE)
_LINE_ENDS = re.compile(r"\n+")
_WHITESPACE = re.compile(r"\s+")

_Entity = TypeVar("_Entity")


class Rendered(NamedTuple):
    """Entities are objects of the Bot API: they count in UTF-16 units."""

    text: str
    entities: tuple[dict[str, Any], ...]


def length(text: str) -> int:
    return splitter.utf16_length(text)


def render(markdown: str) -> Rendered:
    """Never raises and never loses a word: what the converter would lose is shown as it was written."""
    source = telegram_markdown.clean(markdown)
    bare = Rendered(source.strip(), ())
    if not (_INLINE_MARKUP.search(source) or _BLOCK_MARKUP.search(source)) or _ABYSS.search(source):
        return bare
    tools = _tools()
    draft = telegram_markdown.Draft(source, tools.parse)
    # Only after a first paragraph does the converter put code on a line of its own.
    text, entities = tools.convert(f"{telegram_markdown.SPACE}\n\n{draft.safe()}")
    # Twice as many as are shown, for some will prove needless.
    useful = _choose(entities, 2 * MOST_ENTITIES, attrgetter("type"))
    rendered = _finish(telegram_markdown.unveil(text), [entity.to_dict() for entity in useful])
    hidden = [entity[key] for entity in rendered.entities for key in ("url", "language") if key in entity]
    lost = draft.ink() - telegram_markdown.ink(" ".join([rendered.text, *hidden]))
    return rendered if rendered.text and not lost else bare


def plain(markdown: str, limit: int = LIMIT) -> str:
    """The text to send when entities are refused: the source or, if that is too long, the rendered text."""
    source = telegram_markdown.clean(markdown).strip()
    return source if length(source) <= limit else render(markdown).text


def wants_rich(markdown: str) -> bool:
    """Is there a table, a formula or something folded, outside of code? Entities show these badly."""
    if not _RICH_HINT.search(markdown):
        return False
    source = telegram_markdown.clean(markdown)
    if _ABYSS.search(source):
        return False
    draft = telegram_markdown.Draft(source, _tools().parse)
    draft.safe()
    return draft.rich


def compose(markdown: str, limit: int = LIMIT) -> tuple[str, ...]:
    """Parts of the source, each of which measures at most `limit` once it is rendered.

    What fits comes back as it is. Of what does not, fences are reopened, tables repeat their head, and
    folded text is unfolded. Text of nothing but whitespace has no part. Raises ValueError when a single
    character is more than the limit.
    """
    if not markdown.strip():
        return ()
    if length(markdown) <= WORTH_A_TRY * limit and length(render(markdown).text) <= limit:
        return (markdown,)
    return tuple(part for piece in _pieces(telegram_markdown.clean(markdown), limit) for part in _fit(piece, limit))


def tail(rendered: Rendered, limit: int) -> Rendered:
    """The end of a text that is still growing, begun at a line or a word where there is one."""
    text = rendered.text
    size = length(text)
    if size <= limit:
        return rendered
    room = limit - len(MARK) - 1
    if room < 1:
        return Rendered(MARK[: max(limit, 0)], ())
    start = max(0, len(text) - room)
    while (over := length(text[start:]) - room) > 0:
        start += (over + 1) // 2
    half = start + (len(text) - start) // 2
    mark = MARK
    if line := _LINE_ENDS.search(text, start - 1, half):
        start, mark = line.end(), f"{MARK}\n"
    elif word := _WHITESPACE.search(text, start - 1, half):
        start = word.end()
    else:
        half = min(len(text), start + splitter.LONGEST_CLUSTER)
        while start < half and splitter.joined(text, start):
            start += 1
    shift = length(text[:start]) - len(mark)
    return Rendered(mark + text[start:], tuple(_clip(rendered.entities, len(mark), size - shift, shift)))


class _Tools(NamedTuple):
    parse: Callable[[str], Iterable[Any]]
    convert: Callable[[str], tuple[str, list[Any]]]


@cache
def _tools() -> _Tools:
    """Fetched on first use: they take 50 ms to import, and most short answers do without."""
    import pyromark
    from telegramify_markdown import RenderConfig, convert
    from telegramify_markdown.converter import STANDARD_OPTIONS

    config = RenderConfig.isolated()
    config.cite_expandable = False
    symbol = config.markdown_symbol
    symbol.heading_level_1 = symbol.heading_level_2 = symbol.heading_level_3 = symbol.heading_level_4 = ""
    symbol.unordered_list_item = "\u2022"
    symbol.task_completed, symbol.task_uncompleted = "\u2611", "\u2610"
    return _Tools(
        parse=partial(pyromark.events_with_range, options=STANDARD_OPTIONS),
        convert=partial(convert, latex_escape=False, config=config),
    )


def _finish(text: str, entities: Sequence[dict[str, Any]]) -> Rendered:
    """Trims as Telegram would, and leaves no entity that it would ignore or misunderstand."""
    blank = len(text) - len(text.lstrip())
    # What is indented inside a box stays so, even in the first line.
    lead = min([blank, *(entity["offset"] for entity in entities if entity["type"] == "pre")])
    shown = text.rstrip()[lead:]
    units = shown.encode("utf-16-le")
    kept: list[dict[str, Any]] = []
    quoted = linked = 0
    tight = (_tighten(entity, units) for entity in _clip(entities, 0, len(units) // 2, lead))
    for entity in sorted(tight, key=_order):
        kind, end = entity["type"], entity["offset"] + entity["length"]
        # A quote in a quote is one quote, and a link that is code would be no link.
        nested = (kind == "blockquote" and end <= quoted) or (kind == "code" and end <= linked)
        if nested or entity["length"] <= 0 or entity in kept[-4:]:
            continue
        quoted = end if kind == "blockquote" else quoted
        linked = end if kind == "text_link" else linked
        kept.append(entity)
    return Rendered(shown, tuple(sorted(_choose(kept, MOST_ENTITIES, itemgetter("type")), key=_order)))


def _choose(entities: Sequence[_Entity], most: int, kind: Callable[[_Entity], str]) -> Sequence[_Entity]:
    if len(entities) <= most:
        return entities
    return sorted(entities, key=lambda entity: _RANKS.get(kind(entity), len(_RANKS)))[:most]


def _order(entity: dict[str, Any]) -> tuple[int, int, int]:
    return entity["offset"], -entity["length"], _RANKS.get(entity["type"], len(_RANKS))


def _clip(entities: Iterable[dict[str, Any]], low: int, high: int, shift: int) -> Iterator[dict[str, Any]]:
    for entity in entities:
        start = max(low, entity["offset"] - shift)
        end = min(high, entity["offset"] + entity["length"] - shift)
        if start < end:
            yield {**entity, "offset": start, "length": end - start}


def _tighten(entity: dict[str, Any], units: bytes) -> dict[str, Any]:
    """Without the whitespace at its edges, and without veils."""
    start, end = entity["offset"], entity["offset"] + entity["length"]
    inside = units[2 * start : 2 * end].decode("utf-16-le")
    end -= len(inside) - len(inside.rstrip())
    if entity["type"] != "pre":
        start += len(inside) - len(inside.lstrip())
    words = {key: telegram_markdown.unveil(value) for key, value in entity.items() if isinstance(value, str)}
    return {**entity, **words, "offset": start, "length": end - start}


def _pieces(source: str, limit: int) -> Iterator[str]:
    """Cut by what they measure before rendering; tables are kept whole, or cut between two rows."""
    units: list[tuple[str, int]] = []
    if not _ABYSS.search(source):
        for text, sizes in telegram_markdown.Draft(source, _tools().parse).pieces():
            units += _cut_table(text, sizes, limit) if sizes else _prose(text, limit)
    # Nothing is left of folds around nothing.
    units = units or list(_prose(source, limit))
    piece, size = units[0]
    for text, more in units[1:]:
        if size + 2 + more <= limit:
            piece, size = f"{piece}\n\n{text}", size + 2 + more
        else:
            yield piece
            piece, size = text, more
    yield piece


def _prose(source: str, limit: int) -> Iterator[tuple[str, int]]:
    for part in splitter.split(source.strip("\n"), limit, measure=length):
        yield part, length(part)


def _cut_table(source: str, sizes: Sequence[int], limit: int) -> Iterator[tuple[str, int]]:
    if sizes[0] + sizes[1] > limit // 2:
        # A head that leaves no room for rows is not worth repeating.
        yield from _prose(source, limit)
        return
    head, rule, *rows = source.rstrip("\n").split("\n")
    part, total = [head, rule], sizes[0] + sizes[1]
    for row, size in zip(rows, sizes[2:], strict=True):
        if len(part) > 2 and total + size > limit:
            yield "\n".join(part), total
            part, total = [head, rule], sizes[0] + sizes[1]
        part.append(row)
        total += size
    yield "\n".join(part), total


def _fit(piece: str, limit: int) -> Iterator[str]:
    size, shown = length(piece), length(render(piece).text)
    if shown <= limit or size <= 2:
        yield piece
        return
    smaller = max(2, min(size - 1, size * limit // shown * 9 // 10))
    for part in splitter.split(piece, smaller, measure=length):
        yield from _fit(part, limit)

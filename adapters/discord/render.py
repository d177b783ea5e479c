"""Turns Markdown as models write it into Markdown as Discord shows it, and cuts it to fit (pure)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

from tidings.adapters.shared import tables
from tidings.adapters.shared.markdown import tail_start
from tidings.core.outbound import splitter

# What a message may hold, in code points, as it is sent.
LIMIT = 2000
# Stands for what was left out.
MARK = "\u2026"
# Discord knows one fence only, and any three backticks end it; an invisible character keeps them apart.
FENCE = "```"
APART = "\u200b"
# A cut source may grow when it is shown; so often it is cut smaller before the fault is ours.
DEEPEST_CUT = 12

_MARKUP = re.compile(r"[\\`*_~|<>#+\[\]]|^[ \t]*(?:---|===|    |\t)", re.MULTILINE)
# Lists in lists in lists on a single line: people do not write that, and a parser takes long over it.
_ABYSS = re.compile(r"^[ \t]*(?:(?:[-+*]|[0-9]{1,9}[.)])[ \t]+|>[ \t]*){12}", re.MULTILINE)
_STRANGER = re.compile("[\r\ud800-\udfff]")
_TICKS = re.compile("`{3,}")
# What Discord would take for its own markup, and what the parser takes for none.
_TRAPS = re.compile(
    r"""
    (?P<escaped> \\. )
    | (?P<url> <?https?://\S+ )
    | (?P<spoiler> \|\| )
    | (?P<name> (?<!\w)__[a-z0-9]\w*?__(?!\w) )     # __init__ is a name, and not underlined.
    | (?P<times> (?<=[A-Za-z0-9])\*(?=[A-Za-z0-9]) | (?<=[A-Za-z0-9)])\*\*(?=[0-9]) )   # 2*3*4, x**2
    """,
    re.VERBOSE,
)
# It would make a quotation of all that follows.
_PROMPT = re.compile(r"^[ ]*(?=>>>)", re.MULTILINE)
_QUOTE = re.compile(r"^[ ]{0,3}>(?=[^ \t>]|$)", re.MULTILINE)
_CLOSER = re.compile(r"[ \t]#+[ \t]*$")
_ADDRESS_LIKE = re.compile(r"(?:https?://|www\.)\S+|[\w-]+(?:\.[\w-]+)*\.[a-z]{2,}(?:/\S*)?", re.IGNORECASE)
_PICTURE = re.compile(r"!\[([^\[\]]*+)\]\(<?([^\s<>()]++)[^()]*+\)")
# By the parser's kind of link, what stands behind its words.
_LINK_ENDS = {"Inline": "](", "Reference": "][", "Collapsed": "][", "Shortcut": "]"}
_WORD = re.compile(r"[^\W_]+")
_FENCE_LINE = re.compile(r"^[ \t>]*```([^\n`]*)$", re.MULTILINE)

Edit = tuple[int, int, str]


def render(markdown: str) -> str:
    """Never raises and never loses a word: where we would, it is shown as it was written."""
    source = clean(markdown).strip("\n")
    if not _MARKUP.search(source) or _ABYSS.search(source):
        return source.strip()
    walk = _Walk(source)
    walk.through()
    shown = _apply(source, [*walk.edits, *_escapes(source, walk.shut)]).strip()
    owed = _ink(source)
    owed.subtract(walk.dropped)
    return source.strip() if owed - _ink(shown) else shown


def compose(markdown: str, limit: int = LIMIT) -> tuple[str, ...]:
    """Parts of the source, each of which measures at most `limit` once it is rendered.

    What fits comes back as it is. Of what does not, fences are reopened and tables repeat their head. Text of
    nothing but whitespace has no part.
    """
    if not markdown.strip():
        return ()
    if len(markdown) <= 2 * limit and len(render(markdown)) <= limit:
        return (markdown,)
    return tuple(part for piece in _pieces(clean(markdown), limit) for part in _fit(piece, limit, DEEPEST_CUT))


def tail(markdown: str, limit: int = LIMIT) -> str:
    """Renders a text that still grows: all of it or, past the limit, its end from a line or a word on."""
    shown = render(markdown)
    if len(shown) <= limit:
        return shown
    start = tail_start(shown, limit)
    fences = list(_FENCE_LINE.finditer(shown, 0, start))
    # What begins inside of a box needs the box.
    opener = f"{FENCE}{fences[-1][1].strip()[:16]}\n" if len(fences) % 2 else ""
    return f"{MARK}\n{opener}{shown[start:]}"


def preview(markdown: str, limit: int) -> str:
    """The beginning, to show above a file with the whole text; the rest may be long and is not read."""
    begun = splitter.split(markdown[: 8 * limit], 4 * limit)[:1]
    parts = splitter.split(render("".join(begun)), limit)
    return parts[0] if parts else ""


def clean(markdown: str) -> str:
    """One kind of line end, and no half of a surrogate pair: it cannot be sent."""
    if not _STRANGER.search(markdown):
        return markdown
    whole = markdown.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return whole.replace("\r\n", "\n").replace("\r", "\n")


@cache
def _parse() -> Callable[[str], Iterable[Any]]:
    """Fetched on first use: most short answers do without."""
    import pyromark

    wanted = pyromark.Options.ENABLE_TABLES | pyromark.Options.ENABLE_STRIKETHROUGH | pyromark.Options.ENABLE_TASKLISTS
    return partial(pyromark.events_with_range, options=wanted)


def _ink(text: str) -> Counter[str]:
    """Letters and digits rather than words: markup may rightly stand in the middle of one."""
    return Counter("".join(_WORD.findall(text)))


def _apply(source: str, edits: Iterable[Edit]) -> str:
    pieces: list[str] = []
    done = 0
    for start, end, new in sorted(edits):
        if start < done:
            # Inside of something that was exchanged as a whole.
            continue
        pieces += (source[done:start], new)
        done = end
    pieces.append(source[done:])
    return "".join(pieces)


def _escapes(source: str, shut: Iterable[tuple[int, int]]) -> Iterator[Edit]:
    """Outside of code and addresses: signs that Discord would swallow, or that would hide what follows."""
    found: list[Edit] = [(prompt.end(), prompt.end(), "\\") for prompt in _PROMPT.finditer(source)]
    found += [(quote.end(), quote.end(), " ") for quote in _QUOTE.finditer(source)]
    for trap in _TRAPS.finditer(source):
        if trap["spoiler"] or trap["times"]:
            found.append((*trap.span(), "".join(f"\\{sign}" for sign in trap[0])))
        elif trap["name"]:
            found.append((*trap.span(), rf"\_\_{trap[0][2:-2]}\_\_"))
    bounds = [*sorted(shut), (len(source) + 1, len(source) + 1)]
    place = 0
    for edit in sorted(found):
        while edit[0] >= bounds[place][1]:
            place += 1
        if edit[0] < bounds[place][0]:
            yield edit


class _Table(NamedTuple):
    start: int
    end: int
    # What each of its lines measures when it is shown: head, rule, rows.
    sizes: Sequence[int]


class _Row(NamedTuple):
    start: int
    cells: list[str]


class _Walk:
    """One reading of a text by the parser, and the edits that follow from it. Offsets count characters."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._places = None if source.isascii() else _places(source)
        self._events = iter(_parse()(source))
        self.edits: list[Edit] = []
        # Where nothing is to be escaped: code, addresses, HTML.
        self.shut: list[tuple[int, int]] = []
        self.tables: list[_Table] = []
        self.dropped: Counter[str] = Counter()

    def through(self) -> None:
        for payload, place in self._events:
            self._step(payload, self._at(place["start"]), self._at(place["end"]))

    def _at(self, offset: int) -> int:
        return offset if self._places is None else self._places[offset]

    def _step(self, payload: Any, start: int, end: int) -> None:
        kind: str
        value: Any = None
        kind, value = (payload, None) if isinstance(payload, str) else next(iter(payload.items()))
        if kind == "Start":
            tag = value if isinstance(value, str) else next(iter(value))
            self._begin(tag, value, start, end)
        elif kind in ("Code", "InlineHtml", "Html"):
            self.shut.append((start, end))
        elif kind == "Rule":
            # Two rows of other signs would mark all between them.
            line = self._source[start:end].rstrip()
            self.edits.append((start, start + len(line), "---"))
        elif kind == "HardBreak" and self._source[start] == "\\":
            self.edits.append((start, start + 1, ""))
        elif kind == "TaskListMarker":
            self.edits.append((start, end, "\u2611" if value else "\u2610"))
            self.dropped.update(_ink(self._source[start:end]))

    def _begin(self, tag: str, value: Any, start: int, end: int) -> None:
        if tag == "Table":
            self._table(value[tag], start, end)
        elif tag == "CodeBlock":
            self._code_block(value[tag], start, end)
        elif tag == "Heading":
            self._heading(int(value[tag]["level"][1:]), start, end)
        elif tag in ("Link", "Image"):
            self._link(value[tag], start, end)
        elif tag == "Item" and self._source[start] == "+":
            self.edits.append((start, start + 1, "-"))

    def _heading(self, level: int, start: int, end: int) -> None:
        lines = self._source[start:end].rstrip().split("\n")
        title = _CLOSER.sub("", lines[0].lstrip("#").strip()) if lines[0].startswith("#") else ""
        if len(lines) > 1 and not lines[0].startswith("#"):
            # Underlined by signs. More than one line is more than a heading of Discord's can hold.
            below = start + sum(len(line) + 1 for line in lines[:-1])
            if len(lines) == 2:
                self.edits += [(start, start, "#" * level + " "), (below - 1, below + len(lines[-1]), "")]
        elif level > 3 and title:
            self.edits.append((start, start + lines[0].index(title), "" if "**" in title else "**"))
            after = start + lines[0].index(title) + len(title)
            self.edits.append((after, start + len(lines[0]), "" if "**" in title else "**"))

    def _code_block(self, kind: Any, start: int, end: int) -> None:
        for payload, _ in self._events:
            if isinstance(payload, dict) and payload.get("End") == "CodeBlock":
                break
        source = self._source[start:end].rstrip("\n")
        end = start + len(source)
        self.shut.append((start, end))
        before = self._source[self._source.rfind("\n", 0, start) + 1 : start]
        if kind == "Indented":
            if not before.strip():
                lines = (before + source).split("\n")
                inside = "\n".join(line[4:] if line.startswith("    ") else line.lstrip("\t") for line in lines)
                self.edits.append((start - len(before), end, f"{FENCE}\n{_apart(inside)}\n{FENCE}"))
            return
        head, *body = source.split("\n")
        run = head[: len(head) - len(head.lstrip(head[0]))]
        closes = bool(body) and _closes(body[-1], run)
        code = body[:-1] if closes else body
        if closes and run == FENCE and not any(FENCE in line for line in code):
            return
        margin = re.sub(r"[^>\s]", " ", before)
        words = "\n".join([FENCE + _apart(head[len(run) :]), *map(_apart, code)])
        self.edits.append((start, end, f"{words}\n{margin}{FENCE}"))

    def _link(self, link: dict[str, str], start: int, end: int) -> None:
        source, url = self._source[start:end], link["dest_url"]
        self.shut.append((start, end))
        ending = _LINK_ENDS.get(link["link_type"])
        if ending is None:
            return
        bare = source.removeprefix("!")
        words = bare[1 : bare.rfind(ending)]
        if picture := _PICTURE.fullmatch(words):
            bare = f"[{picture[1] or url}]({url}) ({picture[2]})"
        elif "[" in words:
            return
        elif not words.strip() or words.rstrip("/") == url.rstrip("/"):
            bare = url
        elif _ADDRESS_LIKE.fullmatch(words):
            # Discord hides no address behind another one.
            bare = f"{words} ({url})"
        elif link["link_type"] != "Inline" and _ADDRESS_LIKE.fullmatch(url):
            bare = f"[{words}]({url})"
        if bare != source:
            self.edits.append((start, end, bare))
            # We know what we show instead.
            self.dropped.update(_ink(source))
            self.dropped.subtract(_ink(bare))

    def _table(self, alignments: Sequence[str], start: int, end: int) -> None:
        rows = self._rows()
        # A line below the table that has no bar is no row of it, whatever the rules say.
        while len(rows) > 1 and "|" not in self._source[rows[-1].start : end]:
            end = self._source.rfind("\n", 0, rows.pop().start) + 1
        source = self._source[start:end]
        before = self._source[self._source.rfind("\n", 0, start) + 1 : start]
        lines = tables.lay_out([row.cells for row in rows], alignments)
        if _ink(source) - _ink("\n".join(lines)):
            # A row has more cells than the head. The parser drops them; we show the table as it was written.
            lines = [line.strip() for line in source.rstrip("\n").split("\n")]
        lines = [_apart(line) for line in lines]
        if not before.strip():
            self.tables.append(_Table(start, end, [len(line) + 1 for line in lines]))
        self.shut.append((start, end))
        self.edits.append((start, end, tables.box(lines, before) + "\n" * source.endswith("\n")))

    def _rows(self) -> list[_Row]:
        rows: list[_Row] = []
        urls: list[str] = []
        for payload, place in self._events:
            kind, value = next(iter(payload.items())) if isinstance(payload, dict) else (payload, "")
            if kind in ("Text", "Code", "InlineHtml"):
                rows[-1].cells[-1] += value
            elif value == "TableCell" and kind == "Start":
                rows[-1].cells.append("")
            elif value in ("TableHead", "TableRow") and kind == "Start":
                rows.append(_Row(self._at(place["start"]), []))
            elif value == "Table":
                break
            elif isinstance(value, dict) and kind == "Start" and (value.keys() & {"Link", "Image"}):
                link = next(iter(value.values()))
                urls.append("" if link["link_type"] == "Autolink" else link["dest_url"])
            elif value in ("Link", "Image") and (url := urls.pop()) and url not in rows[-1].cells[-1]:
                rows[-1].cells[-1] = f"{rows[-1].cells[-1]} ({url})".lstrip()
        return rows


def _places(source: str) -> list[int]:
    """For each byte of the text, which character it belongs to."""
    places: list[int] = []
    for index, character in enumerate(source):
        places += [index] * len(character.encode())
    return [*places, len(source)]


def _apart(text: str) -> str:
    return _TICKS.sub(lambda run: APART.join(run[0]), text)


def _closes(line: str, run: str) -> bool:
    words = line.strip(" \t>")
    return len(words) >= len(run) and not words.strip(run[0])


def _pieces(source: str, limit: int) -> Iterator[str]:
    """Tables stand apart and are cut between two rows; what is shorter than a message joins its neighbours."""
    units: list[Sequence[str]] = []
    done = 0
    if "|" in source and not _ABYSS.search(source):
        walk = _Walk(source)
        walk.through()
        for table in walk.tables:
            units.append(splitter.split(source[done : table.start].strip("\n"), limit))
            units.append(tuple(_cut_table(source[table.start : table.end], table.sizes, limit - 8)))
            done = table.end
    units.append(splitter.split(source[done:].strip("\n"), limit))
    piece, size = "", 0
    for unit in units:
        for place, text in enumerate(unit):
            more = len(render(text))
            if piece and not place and size + 2 + more <= limit:
                piece, size = f"{piece}\n\n{text}", size + 2 + more
                continue
            if piece:
                yield piece
            piece, size = text, more
    yield piece


def _cut_table(source: str, sizes: Sequence[int], limit: int) -> Iterator[str]:
    if sizes[0] + sizes[1] > limit // 2:
        # A head that leaves no room for rows is not worth repeating.
        yield from splitter.split(source, limit)
        return
    head, rule, *rows = source.rstrip("\n").split("\n")
    part, total = [head, rule], sizes[0] + sizes[1]
    for row, size in zip(rows, sizes[2:], strict=False):
        if len(part) > 2 and total + size > limit:
            yield "\n".join(part)
            part, total = [head, rule], sizes[0] + sizes[1]
        part.append(row)
        total += size
    yield "\n".join(part)


def _fit(piece: str, limit: int, tries: int) -> Iterator[str]:
    shown = len(render(piece))
    if shown <= limit or not tries:
        yield piece
        return
    smaller = max(2, min(len(piece) - 1, len(piece) * limit // shown * 9 // 10))
    for part in splitter.split(piece, smaller):
        yield from _fit(part, limit, tries - 1)

"""Markdown as models write it, made safe for a converter that would lose or misread some of it."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, AnyStr, NamedTuple

from tidings.adapters.shared import tables
from tidings.adapters.telegram import formulas
from tidings.core.outbound.splitter import utf16_length

# Whitespace that the parser keeps where it would drop a space.
SPACE = "\u1680"
_BREAK = "\u2028"

# Stand-ins for what the converter would misread: noncharacters, which mean nothing to a parser and never
# occur in text. Each measures one unit, like what it stands for, so offsets hold; all are turned back
# wherever they end up, and therefore do no harm in code.
_VEILED = {character: chr(0xFDD0 + index) for index, character in enumerate("<&_*~$|[,:")}
_LESS = _VEILED["<"]
_VEIL = str.maketrans(_VEILED)
_VEIL_IN_CODE = str.maketrans({character: _VEILED[character] for character in "<&|"})
_VEIL_IN_URL = str.maketrans({character: _VEILED[character] for character in "&_~"})
_BARE = {veil: character for character, veil in _VEILED.items()} | {_BREAK: "\n", SPACE: " "}
_VEILS = re.compile(f"[{''.join(_BARE)}]")
_STRANGER = re.compile(f"[\r\ud800-\udfff\ufdd0-\ufdef{_BREAK}{SPACE}]")
_STRANGERS = str.maketrans(
    {chr(code): "\ufffd" for code in range(0xFDD0, 0xFDF0)} | {"\r": "\n", _BREAK: "\n", SPACE: " "}
)

_TRAPS = re.compile(
    r"""
    (?P<code> `[^`\n]+` )                       # A bar in it would end the cell of a table.
    | (?P<url> <?https?://[^\s<>()\[\]`*]*[^\s<>()\[\]`*_~]>? | \]\(<[^<>\n]*>\) )
    | (?P<escaped> \\[!-/:-@\[-`{-~] )
    | (?P<trap>
        <
        | &(?=\#?\w{1,31};)
        | (?<!\w)__[a-z0-9]\w*?__(?!\w)         # __init__ is a name, __Mind this__ is bold.
        | (?<=[A-Za-z0-9])\*(?=[A-Za-z0-9])     # 2*3*4
        | (?<=[A-Za-z0-9)])\*\*(?=[0-9])        # x**2 + y**2
        | (?<=\]):                              # A definition would vanish.
    )
    """,
    re.VERBOSE,
)
_TAG = re.compile(
    rf"{_LESS}details(?:\s[^\n>]{{0,100}})?>(?:\s*{_LESS}summary>(?P<summary>.{{0,300}}?){_LESS}/summary>)?"
    rf"|{_LESS}(?P<end>/details)>|{_LESS}(?P<line>br[ ]?/?)>",
    re.IGNORECASE | re.DOTALL,
)
_INNER_TAG = re.compile(rf"{_LESS}/?(?:b|strong|i|em|h[1-6])>", re.IGNORECASE)
_LATEX = re.compile(
    r"(?<![\\\w])\\\((?P<inline>(?:[^\\\n]|\\[^()\n]|\n(?![ \t]*\n)){1,1000}?)\\\)"
    r"|(?<!\\)\\\[(?P<display>(?:[^\\\n]|\\[^\[\]\n]|\\?\n(?![ \t]*\n)){1,1000}?)\\\]"
)
_MARGIN = re.compile(r"\n[ \t>]+")
_OPERATOR = re.compile(r"[\\^_=+*/<>-]")
# What follows the second sign of $5-$10 and of $HOME/bin:$PATH.
_NO_FORMULA = re.compile(r"[0-9A-Z_{]")
# A link to anything else is refused or goes nowhere; custom emoji are not for every bot.
_ADDRESS = re.compile(r"https?://[^\s/]+\.\S+|tg://(?!emoji)\S+")
# Markers that are drawn anew, as every reader of Markdown does: numbers of lists and ticks of tasks.
_MARKERS = re.compile(
    r"^[ \t>]*(?:(?:[-+*]|[0-9]{1,9}[.)])(?:[ \t>]+|$))+(?:\[[xX]\](?=\s|$))?",
    re.MULTILINE,
)
_WORD = re.compile(r"[^\W_]+")


def clean(markdown: str) -> str:
    """One kind of line end, none of our stand-ins, and no half of a surrogate pair: it cannot be sent."""
    if not _STRANGER.search(markdown):
        return markdown
    whole = markdown.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return whole.replace("\r\n", "\n").translate(_STRANGERS)


def unveil(text: str) -> str:
    # Much faster than to translate, for veils are few.
    return _VEILS.sub(lambda veil: _BARE[veil[0]], text)


def ink(text: str) -> Counter[str]:
    """Letters and digits rather than words: a word may rightly lose the asterisks in its middle."""
    return Counter("".join(_WORD.findall(text)))


class _Table(NamedTuple):
    # Where it is, and what each of its lines measures when shown: head, rule, rows.
    start: int
    end: int
    sizes: Sequence[int]


class Draft:
    """A cleaned source made safe, with an account of what was exchanged on the way."""

    def __init__(self, source: str, parse: Callable[[str], Iterable[Any]]) -> None:
        self._source = source
        self._parse = parse
        self._exchanged: list[tuple[str, str]] = []
        # Is there something folded, a formula or a table? Known once it is safe.
        self.rich = False
        self._text = _TRAPS.sub(_veil, source)
        if _TAG.search(self._text):
            self._text = self._exchange(self._text, self._unfold)

    def safe(self) -> str:
        """The text that the converter may read: no table, no formula, no broken link."""
        text = self._text
        if _LATEX.search(text):
            text = self._exchange(text, self._spell)
        walk = _Walk(text, self._parse)
        walk.through()
        self.rich = self.rich or walk.rich
        self._exchanged += walk.exchanged
        return _apply(walk.data, walk.edits).decode().replace("$", _VEILED["$"]).replace("||", 2 * _VEILED["|"])

    def ink(self) -> Counter[str]:
        """The letters and digits that the shown text must have, with each unsafe piece exchanged."""
        owed = ink(_MARKERS.sub("", self._source))
        owed.subtract(ink(" ".join(old for old, _ in self._exchanged)))
        owed.update(ink(" ".join(new for _, new in self._exchanged)))
        return owed

    def pieces(self) -> Iterator[tuple[str, Sequence[int]]]:
        """The source, unfolded, and apart from it each table that stands by itself, with the sizes of its lines."""
        walk = _Walk(self._text, self._parse)
        if "|" in self._text:
            walk.through()
        done = 0
        for table in walk.tables:
            yield unveil(walk.data[done : table.start].decode()), ()
            yield unveil(walk.data[table.start : table.end].decode()), table.sizes
            done = table.end
        yield unveil(walk.data[done:].decode()), ()

    def _exchange(self, text: str, find: Callable[[str, _Code], Iterator[tuple[int, int, str]]]) -> str:
        edits = list(find(text, _Code(text, self._parse)))
        self._exchanged += [(text[start:end], new) for start, end, new in edits]
        return _apply(text, edits)

    def _unfold(self, text: str, code: _Code) -> Iterator[tuple[int, int, str]]:
        folds: list[tuple[int, int, str]] = []
        bars = "|" in text
        for tag in _TAG.finditer(text):
            if code.holds(tag.start()):
                continue
            if tag["line"]:
                in_cell = bars and text.rfind("|", 0, tag.start()) > text.rfind("\n", 0, tag.start())
                yield *tag.span(), " " if in_cell else "\n"
            elif not tag["end"]:
                summary = " ".join(_INNER_TAG.sub("", tag["summary"] or "").split())
                title = f"**{summary}**" if summary and "*" not in summary else summary
                folds.append((*tag.span(), f"\n\n{title}\n\n"))
            elif folds:
                self.rich = True
                yield folds.pop()
                yield *tag.span(), "\n\n"
        # A tag that is only talked about stays. One with a title is still growing, or closed in another part.
        for fold in folds:
            if fold[2].strip():
                self.rich = True
                yield fold

    def _spell(self, text: str, code: _Code) -> Iterator[tuple[int, int, str]]:
        for found in _LATEX.finditer(text):
            latex = _MARGIN.sub("\n", unveil(found["inline"] or found["display"]))
            # \[x\] may as well be an escaped bracket.
            sure = found["inline"] is not None or _OPERATOR.search(latex)
            if sure and formulas.is_formula(latex) and not code.holds(found.start()):
                before = None
                if found["inline"] is None and text[found.end() : found.end() + 1] in ("", "\n"):
                    before = text[text.rfind("\n", 0, found.start()) + 1 : found.start()]
                self.rich = True
                yield *found.span(), _formula(latex, before)


class _Code:
    """Where the code of a text is, by characters."""

    def __init__(self, text: str, parse: Callable[[str], Iterable[Any]]) -> None:
        data = text.encode()
        self._starts: list[int] = []
        self._ends: list[int] = []
        done = position = 0
        for payload, place in parse(text):
            kind, tag = _read(payload)
            if kind == "Code" or (kind == "Start" and tag == "CodeBlock"):
                for bounds, offset in ((self._starts, place["start"]), (self._ends, place["end"])):
                    position += len(data[done:offset].decode())
                    done = offset
                    bounds.append(position)

    def holds(self, position: int) -> bool:
        index = bisect_right(self._starts, position) - 1
        return index >= 0 and position < self._ends[index]


class _Row(NamedTuple):
    start: int
    cells: list[str]
    # What the parser gave us, and which of it we show in another way.
    read: list[str]
    exchanged: list[tuple[str, str]]

    def say(self, read: str, shown: str) -> None:
        self.read.append(read)
        self.cells[-1] += shown

    def refer(self, url: str) -> None:
        if url and url in self.cells[-1]:
            self.exchanged.append((url, ""))
        self.say(url, f" ({url})" if url not in self.cells[-1] else "")

    def spell(self, latex: str) -> None:
        shown = "; ".join(formulas.spell(latex)) if formulas.is_formula(latex) else f"${latex}$"
        self.say(latex, shown)
        self.exchanged.append((latex, shown))


class _Walk:
    """One reading of a text by the parser, and the edits that follow from it. Offsets count bytes."""

    def __init__(self, text: str, parse: Callable[[str], Iterable[Any]]) -> None:
        self._events = iter(parse(text))
        # How deep in lists we are, and what must stand before the next block of an item: the converter forgets.
        self._depth = 0
        self._gap: str | None = None
        self.data = text.encode()
        self.rich = False
        self.edits: list[tuple[int, int, bytes]] = []
        self.tables: list[_Table] = []
        self.exchanged: list[tuple[str, str]] = []

    def through(self) -> None:
        for payload, place in self._events:
            kind, tag = _read(payload)
            start, end = place["start"], place["end"]
            if kind == "Start":
                self._begin(tag, payload["Start"], start, end)
            elif kind == "End":
                self._finish(tag)
            elif kind == "Rule":
                self._gap = _BREAK
            elif kind in ("InlineMath", "DisplayMath"):
                self._formula(payload[kind], start, end, display=kind == "DisplayMath")
            elif kind not in ("SoftBreak", "HardBreak"):
                self._keep_apart(start)

    def _begin(self, tag: str, payload: Any, start: int, end: int) -> None:
        if tag == "Table":
            self._table(payload[tag], start, end)
        elif tag == "CodeBlock":
            self._code_block(start, end)
        elif tag in ("Link", "Image"):
            self._keep_apart(start)
            self._link(payload[tag], start + (tag == "Image"))
        elif tag in ("Strong", "Emphasis", "Strikethrough"):
            self._keep_apart(start)
        elif tag != "Paragraph":
            self._depth += tag == "List"
            self._gap = None

    def _finish(self, tag: str) -> None:
        self._depth -= tag == "List"
        if tag == "Heading":
            self._gap = _BREAK
        elif tag in ("Paragraph", "List", "BlockQuote"):
            self._gap = self._gap or ""
        elif tag == "Item":
            self._gap = None

    def _keep_apart(self, start: int) -> None:
        if self._depth and self._gap is not None:
            self._edit(start, start, self._gap + 2 * self._depth * SPACE)
        self._gap = None

    def _edit(self, start: int, end: int, text: str) -> None:
        self.edits.append((start, end, text.encode()))

    def _before(self, start: int) -> str:
        return self.data[self.data.rfind(b"\n", 0, start) + 1 : start].decode()

    def _formula(self, veiled: str, start: int, end: int, *, display: bool) -> None:
        latex = unveil(veiled)
        follows = self.data[end : end + 1].decode("ascii", "replace")
        if not formulas.is_formula(latex) or _NO_FORMULA.match(follows):
            self._keep_apart(start)
            return
        before = self._before(start) if display and follows in ("", "\n") else None
        if before is None or before.strip(" \t>"):
            self._keep_apart(start)
        else:
            self._gap = _BREAK
        shown = _formula(latex, before)
        self._edit(start, end, shown)
        self.exchanged.append((latex, shown))
        self.rich = True

    def _code_block(self, start: int, end: int) -> None:
        empty = True
        for payload, _ in self._events:
            if "End" in payload:
                break
            empty = empty and not payload["Text"].strip()
        head = self.data[start:end].split(b"\n", 1)[0].decode()
        if empty:
            # A box with nothing in it, as while a text is still growing.
            self._edit(start, end, "")
            self.exchanged.append((head, ""))
        elif "," in head and head.startswith(("```", "~~~")):
            # The converter would drop what follows the comma.
            self._edit(start, start + len(head.encode()), head.replace(",", _VEILED[","]))
        self._gap = _BREAK

    def _link(self, link: dict[str, str], start: int) -> None:
        url = link["dest_url"]
        if link["link_type"] == "Autolink":
            # It is there twice: once to be read and once to be followed.
            self.exchanged.append(("", url))
        elif link["title"] or not _ADDRESS.fullmatch(url):
            self._edit(start, start + 1, _VEILED["["])
        elif self.data[start + 1 : start + 2] == b"]":
            self._edit(start + 1, start + 1, url.translate(_VEIL))
            self.exchanged.append(("", url))

    def _table(self, alignments: Sequence[str], start: int, end: int) -> None:
        rows = self._rows()
        # A line below the table that has no bar is no row of it, whatever the rules say.
        while b"|" not in self.data[rows[-1].start : end]:
            end = self.data.rfind(b"\n", 0, rows.pop().start) + 1
        before, source = self._before(start), self.data[start:end].decode()
        if ink(source) - ink(" ".join(text for row in rows for text in row.read)):
            # A row has more cells than the head. The parser drops them; we show the table as it was written.
            lines = [line.strip() for line in source.rstrip("\n").split("\n")]
        else:
            cells = [[unveil(cell) for cell in row.cells] for row in rows]
            lines = [line.translate(_VEIL) for line in tables.lay_out(cells, alignments)]
            self.exchanged += [pair for row in rows for pair in row.exchanged]
        if not before.strip():
            self.tables.append(_Table(start, end, [utf16_length(line) + 1 for line in lines]))
        self._edit(start, end, tables.box(lines, before) + "\n" * source.endswith("\n"))
        self._gap = _BREAK
        self.rich = True

    def _rows(self) -> list[_Row]:
        rows: list[_Row] = []
        urls: list[str] = []
        for payload, place in self._events:
            kind, value = next(iter(payload.items()))
            if kind in ("Text", "Code"):
                rows[-1].say(value, value)
            elif kind in ("InlineMath", "DisplayMath"):
                rows[-1].spell(unveil(value))
            elif value == "TableCell":
                if kind == "Start":
                    rows[-1].cells.append("")
            elif value in ("TableHead", "TableRow"):
                if kind == "Start":
                    rows.append(_Row(place["start"], [], [], []))
            elif value == "Table":
                break
            elif isinstance(value, dict):
                link = value.get("Link") or value["Image"]
                urls.append("" if link["link_type"] == "Autolink" else link["dest_url"])
            elif value in ("Link", "Image"):
                rows[-1].refer(urls.pop())
        return rows


def _veil(found: re.Match[str]) -> str:
    match found.lastgroup:
        case "code":
            return found[0].translate(_VEIL_IN_CODE)
        case "url":
            return found[0].translate(_VEIL_IN_URL)
        case "escaped":
            return found[0]
        case _:
            return found[0].translate(_VEIL)


def _formula(latex: str, before: str | None) -> str:
    """A box of its own where it stands alone, after `before`; else a word of the sentence."""
    lines = formulas.spell(latex)
    if before is None or before.strip(" \t>"):
        return tables.span("; ".join(lines).strip()).translate(_VEIL)
    return tables.box(lines, before).translate(_VEIL)


def _read(payload: Any) -> tuple[str, str]:
    """The kind of an event of the parser and, where something starts or ends, of what."""
    if isinstance(payload, str):
        return payload, ""
    kind, tag = next(iter(payload.items()))
    if kind not in ("Start", "End"):
        return kind, ""
    return kind, tag if isinstance(tag, str) else next(iter(tag))


def _apply(source: AnyStr, edits: Iterable[tuple[int, int, AnyStr]]) -> AnyStr:
    pieces: list[AnyStr] = []
    done = 0
    for start, end, new in sorted(edits):
        pieces += (source[done:start], new)
        done = end
    pieces.append(source[done:])
    return source[:0].join(pieces)

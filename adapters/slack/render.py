"""Turns Markdown as models write it into what Slack shows of it, harmless and cut to fit (pure)."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from tidings.adapters.shared import tables
from tidings.adapters.shared.markdown import tail_start
from tidings.core.outbound import splitter

# What the markdown blocks of one message may hold; Slack takes 12,000, and buttons stand below them.
LIMIT = 11_900
# A text that replaces another one.
UPDATE_LIMIT = 4_000
# Slack takes 50 blocks of a message, and makes blocks of what it finds in a text.
MOST_BLOCKS = 40
# What Slack draws as a table; a larger one is laid out by us.
MOST_ROWS, MOST_COLUMNS = 100, 20
# Enough for a notification, and within every limit when each sign is escaped.
FALLBACK = 750
# Stands for what was left out.
MARK = "\u2026"
# An invisible character that breaks a mention.
APART = "\u200b"
FENCE = "```"
# A cut source may grow when it is shown; so often it is cut smaller before the fault is ours.
DEEPEST_CUT = 12

_STRANGER = re.compile("[\r\ud800-\udfff]")
# Whole channels, in the form that Slack reads and as people type them.
_CROWD = re.compile(
    r"<(?=!(?:channel|here|everyone|group)\b)|(?<![\w@.])@(?=(?:channel|here|everyone)\b)", re.IGNORECASE
)
# People, and groups of them.
_PEOPLE = re.compile(r"<(?=@[A-Z0-9]|!subteam\b)", re.IGNORECASE)
_FENCE_LINE = re.compile(r"^[ \t>]*(`{3,}|~{3,})([^\n]*)$")
_RULE = re.compile(r"^[ \t]*+\|?+[ \t]*+:?-++:?[ \t]*+(?:\|[ \t]*+:?-++:?[ \t]*+)*\|?[ \t]*+$")
_BAR = re.compile(r"(?<!\\)\|")
_HEADING = re.compile(r"^[ ]{0,3}#{1,6}[ \t]")
_LINE = re.compile(r"^[ ]{0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})$")
_PICTURE = re.compile(r"^[ ]{0,3}!\[")
_LINK = re.compile(r"!?\[([^\[\]]*+)\]\(<?([^\s<>()]++)[^()]*+\)")
_MARK = re.compile(r"\*\*|__|~~|`+")
# At the end of a text that still grows: what the next word may turn into something else.
_UNDECIDED = re.compile(r"(?:<[^\s<>]{0,60}|@\w{0,10}|\*{1,2}|`{1,2}|\\)$")


class _Table(NamedTuple):
    start: int
    end: int
    lines: tuple[str, ...]


def block(markdown: str, *, mentions: bool = False) -> str:
    """For a markdown block, in which Slack draws one table of a decent size by itself."""
    source = clean(markdown).strip("\n")
    found = _tables(source)
    drawn = len(found) <= 1 and all(_is_drawn(table) for table in found)
    return tame(source if drawn else _boxed(source, found), mentions=mentions).strip()


def stream(markdown: str, *, mentions: bool = False) -> str:
    """For a native stream and for text that replaces one: no table is drawn there."""
    source = clean(markdown).strip("\n")
    return tame(_boxed(source, _tables(source)), mentions=mentions).strip()


def fallback(markdown: str) -> str:
    """One plain text for notifications, in which nothing is markup."""
    source = clean(markdown)[: 2 * FALLBACK]
    lines = [
        line for line in source.split("\n") if not _FENCE_LINE.match(line) and not _RULE.match(line.strip() or "x")
    ]
    plain = "\n".join(_plain(_HEADING.sub("", line)) for line in lines).strip()
    if len(plain) > FALLBACK:
        plain = f"{plain[: FALLBACK - 1].rstrip()}{MARK}"
    return escape(tame(plain or source.strip()[:FALLBACK])) or MARK


def escape(text: str) -> str:
    """As text must be where Slack reads its own markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def tame(text: str, *, mentions: bool = False) -> str:
    """Text without mentions: never of a whole channel, and of people only where `mentions` allows them."""
    text = _CROWD.sub(lambda found: found[0] + APART, text)
    return text if mentions else _PEOPLE.sub(lambda found: found[0] + APART, text)


def compose(markdown: str, limit: int = LIMIT) -> tuple[str, ...]:
    """Parts of the source, each of which fits into a message once it is rendered.

    What fits comes back as it is. Of what does not, fences are reopened and tables repeat their head. Text of
    nothing but whitespace has no part.
    """
    if not markdown.strip():
        return ()
    if _fits(markdown, limit):
        return (markdown,)
    return tuple(part for piece in _pieces(clean(markdown), limit) for part in _fit(piece, limit, DEEPEST_CUT))


def tail(shown: str, limit: int = LIMIT) -> str:
    """What is shown of a rendered text that still grows: all or, past the limit, its end, begun at a line or a word."""
    if len(shown) <= limit:
        return shown
    start = tail_start(shown, limit)
    fences = [found for line in shown[:start].split("\n") if (found := _FENCE_LINE.match(line))]
    # What begins inside of a box needs the box.
    opener = f"{FENCE}{fences[-1][2].strip()[:16]}\n" if len(fences) % 2 else ""
    return f"{MARK}\n{opener}{shown[start:]}"


def settled(markdown: str) -> str:
    """The beginning of a growing text that will stay as it is: a stream takes nothing back.

    Left out are a line that only tells what is being done, a table that is not whole yet, and half a word of markup.
    """
    source = clean(markdown).strip()
    above, _, last = source.rpartition("\n\n")
    if last.endswith(MARK) and "\n" not in last:
        source = above
    if _is_open(source):
        return source
    paragraph = source.rfind("\n\n") + 2 if "\n\n" in source else 0
    bar = _BAR.search(source, paragraph)
    if bar is not None:
        source = source[: source.rfind("\n", 0, bar.start()) + 1]
    return _UNDECIDED.sub("", source.rstrip())


def clean(markdown: str) -> str:
    """One kind of line end, and no half of a surrogate pair: it cannot be sent."""
    if not _STRANGER.search(markdown):
        return markdown
    whole = markdown.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return whole.replace("\r\n", "\n").replace("\r", "\n")


def _fits(markdown: str, limit: int) -> bool:
    if len(markdown) > 2 * limit:
        return False
    return len(block(markdown)) <= limit and _blocks(markdown) <= MOST_BLOCKS


def _blocks(source: str) -> int:
    """How many Slack may make of it: each heading, line, picture and table is one, and so is what lies between."""
    count, in_prose, fence, rows = 0, False, "", 0
    for line in source.split("\n"):
        found = _FENCE_LINE.match(line)
        if fence:
            fence = "" if found and found[1].startswith(fence) else fence
            continue
        if found:
            fence = found[1]
        in_table = _BAR.search(line) is not None
        rows = rows + 1 if in_table else 0
        if _HEADING.match(line) or _LINE.match(line) or _PICTURE.match(line) or rows == 2:
            count, in_prose = count + 1, False
        elif line.strip() and rows < 2 and not in_prose:
            count, in_prose = count + 1, True
    return count


def _is_open(source: str) -> bool:
    """Does it end inside of a fence?"""
    fence = ""
    for line in source.split("\n"):
        if found := _FENCE_LINE.match(line):
            if not fence:
                fence = found[1]
            elif found[1].startswith(fence) and not found[2].strip():
                fence = ""
    return bool(fence)


def _tables(source: str) -> list[_Table]:
    """Outside of fences: a head, a rule of as many columns, and the rows below them."""
    if "|" not in source:
        return []
    found: list[_Table] = []
    lines = source.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    fence, place = "", 0
    while place < len(lines):
        line = lines[place]
        if mark := _FENCE_LINE.match(line):
            fence = mark[1] if not fence else "" if mark[1].startswith(fence) and not mark[2].strip() else fence
        elif not fence and _begins_table(lines, place):
            last = place + 2
            while last < len(lines) and _BAR.search(lines[last]):
                last += 1
            end = min(starts[last], len(source))
            found.append(_Table(starts[place], end, tuple(lines[place:last])))
            place = last
            continue
        place += 1
    return found


def _begins_table(lines: list[str], place: int) -> bool:
    if place + 1 >= len(lines) or not _BAR.search(lines[place]):
        return False
    rule = lines[place + 1]
    return "|" in rule and _RULE.match(rule) is not None and len(_cells(rule)) == len(_cells(lines[place]))


def _cells(line: str) -> list[str]:
    bare = line.strip()
    bare = bare[1:] if bare.startswith("|") else bare
    cells = _BAR.split(bare)
    return [cell.strip().replace("\\|", "|") for cell in (cells[:-1] if not cells[-1].strip() else cells)]


def _is_drawn(table: _Table) -> bool:
    return len(table.lines) - 1 <= MOST_ROWS and len(_cells(table.lines[0])) <= MOST_COLUMNS


def _boxed(source: str, found: list[_Table]) -> str:
    pieces: list[str] = []
    done = 0
    for table in found:
        pieces += (source[done : table.start], _box(table), "\n" * source[table.start : table.end].endswith("\n"))
        done = table.end
    return "".join((*pieces, source[done:]))


def _box(table: _Table) -> str:
    head, rule, *rows = table.lines
    alignments = [_alignment(cell) for cell in _cells(rule)]
    cells = [[_plain(cell) for cell in _cells(line)] for line in (head, *rows)]
    if any(len(row) > len(alignments) for row in cells):
        # Cells that no column is for would be dropped; it is shown as it was written.
        return tables.box([line.strip() for line in table.lines], "")
    return tables.box(tables.lay_out(cells, alignments), "")


def _alignment(cell: str) -> str:
    if cell.endswith(":"):
        return "Center" if cell.startswith(":") else "Right"
    return "Left"


def _plain(text: str) -> str:
    """Without the signs that only mark a text."""
    linked = _LINK.sub(lambda link: link[1] if link[1] == link[2] else f"{link[1]} ({link[2]})".strip(), text)
    return _unmarked(linked)


def _unmarked(line: str) -> str:
    """Removes paired marks around words; a mark without a partner stays."""
    marks = list(_MARK.finditer(line))
    closing: dict[str, list[int]] = {}
    for place, mark in enumerate(marks):
        if mark.start() and not line[mark.start() - 1].isspace():
            closing.setdefault(mark[0], []).append(place)
    pieces: list[str] = []
    done = place = 0
    while place < len(marks):
        opener = marks[place]
        ends = closing.get(opener[0], [])
        # The first that has something between itself and the opener.
        found = bisect_right(ends, place)
        if found < len(ends) and marks[ends[found]].start() == opener.end():
            found += 1
        if found < len(ends) and not line[opener.end()].isspace():
            closer = marks[ends[found]]
            pieces += (line[done : opener.start()], line[opener.end() : closer.start()])
            done, place = closer.end(), ends[found]
        place += 1
    return "".join((*pieces, line[done:]))


def _pieces(source: str, limit: int) -> Iterator[str]:
    """Tables stand apart and are cut between two rows; what is shorter than a message joins its neighbours."""
    units: list[tuple[str, ...]] = []
    done = 0
    for table in _tables(source):
        units.append(splitter.split(source[done : table.start].strip("\n"), limit))
        units.append(tuple(_cut_table(table, limit)))
        done = table.end
    units.append(splitter.split(source[done:].strip("\n"), limit))
    piece = ""
    for unit in units:
        for place, text in enumerate(unit):
            joined = f"{piece}\n\n{text}"
            if piece and not place and _fits(joined, limit):
                piece = joined
                continue
            if piece:
                yield piece
            piece = text
    if piece:
        yield piece


def _cut_table(table: _Table, limit: int) -> Iterator[str]:
    head, rule, *rows = table.lines
    top = f"{head}\n{rule}"
    if len(top) > limit // 4 or len(block(f"{top}\n{max(rows, key=len, default='')}")) > limit:
        # A head that leaves no room for rows is not worth repeating.
        yield from splitter.split("\n".join(table.lines), limit)
        return
    part = top
    # By what it measures drawn by us, which is the most.
    width = max(
        len(line)
        for line in tables.lay_out(
            [[_plain(cell) for cell in _cells(row)] for row in table.lines[:1] + table.lines[2:]],
            [_alignment(cell) for cell in _cells(rule)],
        )
    )
    room = limit - 2 * len(FENCE) - 4
    size = 2 * (width + 1)
    for row in rows:
        more = max(width, len(row)) + 1
        if part != top and size + more > room:
            yield part
            part, size = top, 2 * (width + 1)
        part, size = f"{part}\n{row}", size + more
    yield part


def _fit(piece: str, limit: int, tries: int) -> Iterator[str]:
    if _fits(piece, limit) or not tries:
        yield piece
        return
    shown = len(block(piece))
    smaller = max(2, min(len(piece) - 1, len(piece) * limit // shown * 9 // 10, len(piece) * 2 // 3))
    for part in splitter.split(piece, smaller):
        yield from _fit(part, limit, tries - 1)

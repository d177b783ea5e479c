"""Turns a web page into readable text: markup goes, words and links stay (pure).

The reader is our own because Python's takes the square of the length for markup that is broken on purpose: 60 KB of it
would hold the whole process for a minute. Every step here moves on, and what cannot be closed ends the page.
"""

from __future__ import annotations

import codecs
import html
import re

from yarl import URL

# No more than this becomes text; a model sees far less of it.
READ_BYTES = 2_000_000
TEXT_CHARACTERS = 40_000
# Short markup can produce long text, so reading stops at this length.
ENOUGH_CHARACTERS = 10 * TEXT_CHARACTERS
LINK_CHARACTERS = 2_000

MARKUP = ("text/html", "application/xhtml+xml")
_TEXT = re.compile(
    r"text/.+|.+\+(json|xml|yaml)"
    r"|application/((x-)?(json5?|ndjson|yaml|toml|javascript|sh|tex|sql|www-form-urlencoded)|xml|jsonl|json-seq|graphql)"
)
# Python would cache every codec name that a page asks for, and some codecs are very slow.
CHARSETS = frozenset(
    (
        *("ascii", "us-ascii", "utf-8", "utf8", "utf-16", "utf-16le", "utf-16be", "latin1", "macintosh"),
        *(f"iso-8859-{number}" for number in (*range(1, 12), *range(13, 17))),
        *(f"windows-{number}" for number in range(1250, 1259)),
        *("koi8-r", "koi8-u", "gb2312", "gbk", "gb18030", "big5", "shift_jis", "euc-jp", "iso-2022-jp", "euc-kr"),
    )
)
_DECLARED = re.compile(rb"(?:charset|encoding)\s{0,9}=\s{0,9}[\"']?([\w-]{1,20})", re.IGNORECASE)
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f]")


def is_readable(kind: str) -> bool:
    return kind in MARKUP or _TEXT.fullmatch(kind) is not None


def readable(data: bytes, kind: str, charset: str | None, base: URL) -> str:
    """The text of a page, cut to what a model is given at once, with a note about what was left out."""
    is_whole = len(data) <= READ_BYTES
    text = decoded(data[:READ_BYTES], kind, charset)
    if kind in MARKUP:
        text, ended = from_markup(text, base)
        is_whole = is_whole and ended
    else:
        text = _UNPRINTABLE.sub("", text)
    if is_whole and len(text) <= TEXT_CHARACTERS:
        return text
    shown = text[:TEXT_CHARACTERS]
    total = f"{len(text):,}" if is_whole else f"more than {len(text):,}"
    return f"{shown}\n\n[Cut here: these are the first {len(shown):,} of {total} characters; the rest is left out.]"


def decoded(data: bytes, kind: str, charset: str | None) -> str:
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        charset = "utf-16"
    elif data.startswith(codecs.BOM_UTF8):
        charset = "utf-8"
    elif charset is None and (kind in MARKUP or kind.endswith("xml")) and (found := _DECLARED.search(data[:1024])):
        charset = found[1].decode("ascii", "replace")
    name = (charset or "").strip().lower()
    text = data.decode(name if name in CHARSETS else "utf-8", "replace").removeprefix("\ufeff")
    return text.replace("\r\n", "\n").replace("\r", "\n")


BLOCKS = re.compile(
    r"address|article|aside|blockquote|body|caption|d[dlt]|details|dialog|div|fieldset|figcaption|figure|footer|form|header"
    r"|hgroup|hr|legend|li|main|menu|nav|ol|option|p|pre|section|summary|table|tbody|tfoot|thead|title|tr|ul"
)
HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
# These elements hold neither markup nor text for people; the title is told first.
RAW = {name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in ("script", "style", "iframe", "title")}

_OPENING = re.compile(r"<(?=[a-z/!?])", re.IGNORECASE)
_TAG_NAME = re.compile(r"</?([a-z][^\s/>]*)", re.IGNORECASE)
_TAG_STEP = re.compile(r">|=\s*[\"']")
_HREF = re.compile(r"""\shref\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>"']+))""", re.IGNORECASE)
# Python refuses numbers with thousands of digits, and no character needs eight.
_HUGE_REFERENCE = re.compile(r"&#(?:x[0-9a-f]{7,}|[0-9]{8,});?", re.IGNORECASE)
_SPACES = re.compile(r"\s+")
_EMPTY_LINES = re.compile(r"\n{3,}")


def from_markup(markup: str, base: URL) -> tuple[str, bool]:
    """The text, and whether it is complete."""
    words = _Words(base)
    position = 0
    while words.characters < ENOUGH_CHARACTERS and (opening := _OPENING.search(markup, position)):
        start = opening.start()
        words.say(markup[position:start])
        position = _after(markup, start)
        name = _TAG_NAME.match(markup, start)
        if name is None:
            continue
        tag = name[1].lower()
        if markup[start + 1] == "/":
            words.close(tag)
            continue
        words.open(tag, markup[start:position])
        if tag in RAW:
            end = RAW[tag].search(markup, position)
            inside = markup[position : end.start() if end else len(markup)]
            if tag == "title":
                words.entitle(inside)
            position = _after(markup, end.start()) if end else len(markup)
    is_whole = words.characters < ENOUGH_CHARACTERS
    if is_whole:
        words.say(markup[position:])
    return words.text(), is_whole


def _after(markup: str, start: int) -> int:
    """The end of the element that opens at `start`; an element that is never closed ends with the page."""
    if markup.startswith("<!--", start):
        end = markup.find("-->", start + 2)
        return end + 3 if end >= 0 else len(markup)
    if _TAG_NAME.match(markup, start) is None:
        end = markup.find(">", start)
        return end + 1 if end >= 0 else len(markup)
    position = start
    while step := _TAG_STEP.search(markup, position):
        if step[0] == ">":
            return step.end()
        end = markup.find(step[0][-1], step.end())
        if end < 0:
            break
        position = end + 1
    return len(markup)


class _Words:
    """The text of a page as it grows."""

    def __init__(self, base: URL) -> None:
        self.characters = 0
        self._base = base
        self._is_based = False
        self._pieces: list[str] = []
        self._title = ""
        self._is_preformatted = False
        # Whether the text ends in a space or a line break, so that another space would be surplus.
        self._is_spaced = True
        self._link = ""
        self._link_start = 0

    def say(self, escaped: str) -> None:
        piece = _unescaped(escaped)
        if not self._is_preformatted:
            piece = _SPACES.sub(" ", piece)
            piece = piece.lstrip(" ") if self._is_spaced else piece
        self._add(piece)

    def entitle(self, escaped: str) -> None:
        self._title = self._title or _SPACES.sub(" ", _unescaped(escaped)).strip()

    def open(self, tag: str, whole: str) -> None:
        if tag == "br":
            self._add("\n")
        elif tag in HEADINGS:
            self._add("\n\n" + HEADINGS[tag])
        elif tag in ("td", "th"):
            # The first cell of a row begins a line.
            self._add("" if not self._pieces or self._pieces[-1].endswith("\n") else " | ")
        elif BLOCKS.fullmatch(tag):
            self._break_line(tag)
        self._is_preformatted = self._is_preformatted or tag == "pre"
        if tag in ("a", "base") and (found := _HREF.search(whole)):
            address = self._resolved(found[1] or found[2] or found[3] or "")
            if tag == "a":
                self._link, self._link_start = address, len(self._pieces)
            elif address and not self._is_based:
                # Only the first base address counts.
                self._base, self._is_based = URL(address), True

    def close(self, tag: str) -> None:
        if tag == "a":
            self._end_link()
        elif tag in HEADINGS:
            self._add("\n\n")
        elif BLOCKS.fullmatch(tag):
            self._is_preformatted = self._is_preformatted and tag != "pre"
            self._break_line("p" if tag == "p" else "div")

    def text(self) -> str:
        lines = "".join(self._pieces).split("\n")
        body = _EMPTY_LINES.sub("\n\n", "\n".join(line.rstrip() for line in lines)).strip("\n")
        return f"Title: {self._title}\n\n{body}" if self._title else body

    def _break_line(self, tag: str) -> None:
        if self._pieces and not self._pieces[-1].endswith("\n"):
            self._add("\n")
        if tag == "p":
            self._add("\n")
        elif tag == "li":
            self._add("- ")

    def _end_link(self) -> None:
        if not self._link:
            return
        said = "".join(self._pieces[self._link_start :]).strip()
        if said and said != self._link:
            self._add(f" ({self._link})")
        self._link = ""

    def _add(self, piece: str) -> None:
        if piece:
            self._pieces.append(piece)
            self.characters += len(piece)
            self._is_spaced = piece.endswith((" ", "\n"))

    def _resolved(self, href: str) -> str:
        href = _unescaped(href).strip()
        if not href or href.startswith("#") or len(href) > LINK_CHARACTERS:
            return ""
        try:
            url = self._base.join(URL(href))
        except ValueError:
            return ""
        address = str(url)
        return address if url.scheme in ("http", "https", "mailto") and len(address) <= LINK_CHARACTERS else ""


def _unescaped(text: str) -> str:
    plain = html.unescape(_HUGE_REFERENCE.sub("\ufffd", text)) if "&" in text else text
    return _UNPRINTABLE.sub("", plain)

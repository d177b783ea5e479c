"""Telegram's two markup languages, as strict as the server: what it cannot parse is refused with the server's words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from tests.simulators.telegram.truth import Entity

RESERVED = frozenset("_*[]()~`>#+-=|{}.!\n")
TAGS = {
    "b": "bold",
    "strong": "bold",
    "i": "italic",
    "em": "italic",
    "u": "underline",
    "ins": "underline",
    "s": "strikethrough",
    "strike": "strikethrough",
    "del": "strikethrough",
    "span": "spoiler",
    "tg-spoiler": "spoiler",
    "code": "code",
    "pre": "pre",
    "a": "text_link",
    "tg-emoji": "custom_emoji",
    "blockquote": "blockquote",
}
# The server's own names for types, in its complaints.
NAMES = {
    "bold": "Bold",
    "italic": "Italic",
    "underline": "Underline",
    "strikethrough": "Strikethrough",
    "spoiler": "Spoiler",
    "code": "Code",
    "pre": "Pre",
    "text_link": "TextUrl",
    "custom_emoji": "CustomEmoji",
    "blockquote": "BlockQuote",
}
_CHARACTER = re.compile(r"&(?:#(\d{1,7})|#x([0-9a-fA-F]{1,6})|(lt|gt|amp|quot)(?![A-Za-z]));?")
_TAG_NAME = re.compile(r"[^\s>]*")
_ATTRIBUTE = re.compile(r"""\s*([^\s=>]+)(?:\s*=\s*("[^"]*"|'[^']*'|[A-Za-z0-9.\-]*))?""")


class MarkupError(Exception):
    """The text after "can't parse entities: "."""


class Marked(NamedTuple):
    text: str
    entities: tuple[Entity, ...]


class _Open(NamedTuple):
    type: str
    # A language, an address or a tag's name.
    argument: str
    offset: int
    # Where it began, in the source and in the result.
    source: int
    result: int


def units(text: str) -> int:
    """The length as Telegram counts offsets."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def check_link(url: str) -> str:
    """What is wrong with an address; empty where Telegram takes it."""
    scheme, _, rest = url.partition(":")
    if scheme.lower() in ("tg", "ton", "tonsite"):
        return "" if rest.strip("/") else "URL host is empty"
    if "://" in url and scheme.lower() not in ("http", "https"):
        return "Unsupported URL protocol"
    address = url.split("://", 1)[-1]
    host = re.split(r"[/?#]", address, maxsplit=1)[0].rpartition("@")[2]
    host, _, port = host.partition(":")
    if port and not port.isdigit():
        return "Wrong port number specified in the URL"
    if not host:
        return "URL host is empty"
    if not re.fullmatch(r"[^\s\x00-\x20<>\"'\\^`{}|]+", host):
        return "Wrong character in the URL host"
    return "" if "." in host else "Wrong HTTP URL"


def _byte(text: str, position: int) -> int:
    return len(text[:position].encode("utf-8", "surrogatepass"))


def _link(url: str, offset: int, length: int) -> Iterator[Entity]:
    parts = urlsplit(url) if url.startswith("tg:") else None
    if parts is not None and (number := re.search(r"\bid=(\d+)", parts.query)) and "user" in (parts.netloc, parts.path):
        yield Entity(type="text_mention", offset=offset, length=length, user=int(number[1]))
    elif not check_link(url):
        # A wrong address costs only the link.
        yield Entity(type="text_link", offset=offset, length=length, url=url)


def parse_markdown(text: str) -> Marked:
    """MarkdownV2."""
    return _Markdown(text).parse()


class _Markdown:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.out: list[str] = []
        self.offset = 0
        self.open: list[_Open] = []
        self.found: list[Entity] = []
        # A quotation may begin here: nothing of this line was written yet.
        self.fresh = True

    @property
    def _quoting(self) -> bool:
        return any(each.type == "blockquote" for each in self.open)

    def _peek(self, what: str, ahead: int = 0) -> bool:
        return self.text.startswith(what, self.at + ahead)

    def _write(self, character: str) -> None:
        self.out.append(character)
        self.offset += units(character)
        self.fresh = character == "\n"

    def parse(self) -> Marked:
        while self.at < len(self.text):
            self._step()
        if self.open and self.open[-1].type == "blockquote":
            self._close()
        if self.open:
            raise self._unended()
        return Marked("".join(self.out), tuple(sorted(self.found, key=lambda each: (each.offset, -each.length))))

    def _unended(self) -> MarkupError:
        last = self.open[-1]
        name = "PreCode" if last.type == "pre" and last.argument else NAMES[last.type]
        return MarkupError(f"Can't find end of {name} entity at byte offset {_byte(self.text, last.source)}")

    def _step(self) -> None:
        character = self.text[self.at]
        if character == "\\" and self.at + 1 < len(self.text) and 0 < ord(self.text[self.at + 1]) <= 126:
            self._write(self.text[self.at + 1])
            self.at += 2
            return
        inside = self.open[-1].type if self.open else ""
        literal = character != "`" if inside in ("code", "pre") else character not in RESERVED
        if literal:
            self._write(character)
            self.at += 1
        elif character == "\n":
            self._end_line()
        elif self._ends(inside):
            self._end(inside)
        else:
            self._begin(character)

    def _end_line(self) -> None:
        if self._quoting and not self._peek("\n>"):
            if self.open[-1].type != "blockquote":
                raise self._unended()
            self._close()
            self._write("\n")
        else:
            self._write("\n")
            # The mark of a quotation that goes on is not text.
            self.at += self._quoting
        self.at += 1

    def _ends(self, inside: str) -> bool:
        marks = {
            "bold": "*",
            "code": "`",
            "pre": "```",
            "text_link": "]",
            "custom_emoji": "]",
            "underline": "__",
            "strikethrough": "~",
            "spoiler": "||",
        }
        if inside == "italic":
            return self._peek("_") and not self._peek("__")
        if inside == "blockquote":
            # The mark of a quotation that can be unfolded.
            return self._peek("||") and (self._peek("\n", 2) or self.at + 2 == len(self.text))
        return inside in marks and self._peek(marks[inside])

    def _begin(self, character: str) -> None:
        begins = [
            ("__", "underline"),
            ("_", "italic"),
            ("*", "bold"),
            ("~", "strikethrough"),
            ("||", "spoiler"),
            ("![", "custom_emoji"),
            ("[", "text_link"),
            ("```", "pre"),
            ("`", "code"),
        ]
        if self.fresh and not self._quoting:
            begins.append((">", "blockquote"))
        mark, type = next((each for each in begins if self._peek(each[0])), ("", ""))
        if not mark:
            raise MarkupError(f"Character '{character}' is reserved and must be escaped with the preceding '\\'")
        source, language = self.at, ""
        self.at += len(mark)
        if type == "pre":
            language = self._language()
        self.open.append(_Open(type, language, self.offset, source, len(self.out)))

    def _language(self) -> str:
        found = re.compile(r"([^\s`]+)(?=\s)").match(self.text, self.at)
        if found:
            self.at = found.end()
        newline = re.compile(r"\r\n|\n\r|\n|\r").match(self.text, self.at)
        if newline:
            self.at = newline.end()
        return found[1] if found else ""

    def _end(self, type: str) -> None:
        self.at += {"underline": 2, "spoiler": 2, "pre": 3, "blockquote": 2}.get(type, 1)
        if type == "text_link":
            written = "".join(self.out[self.open[-1].result :])
            self._close_link(self._address("a URL") if self._peek("(") else written)
        elif type == "custom_emoji":
            if not self._peek("("):
                raise MarkupError("Custom emoji entity must contain a tg://emoji URL")
            number = re.fullmatch(r"tg://emoji\?id=(\d+)", self._address("a custom emoji URL"))
            if number is None:
                raise MarkupError("Invalid custom emoji identifier specified")
            self._close(custom_emoji=number[1])
        elif type == "blockquote":
            self._close("expandable_blockquote")
            if self._peek("\n"):
                self._write("\n")
                self.at += 1
        else:
            self._close()

    def _address(self, what: str) -> str:
        begin = self.at + 1
        address = re.compile(r"((?:\\[\x01-\x7e]|[^)])*)\)").match(self.text, begin)
        if address is None:
            raise MarkupError(f"Can't find end of {what} at byte offset {_byte(self.text, begin)}")
        self.at = address.end()
        return re.sub(r"\\([\x01-\x7e])", r"\1", address[1])

    def _close(self, type: str = "", custom_emoji: str = "") -> None:
        opened = self.open.pop()
        if length := self.offset - opened.offset:
            self.found.append(
                Entity(
                    type=type or opened.type,
                    offset=opened.offset,
                    length=length,
                    language=opened.argument,
                    custom_emoji=custom_emoji,
                )
            )

    def _close_link(self, url: str) -> None:
        opened = self.open.pop()
        if length := self.offset - opened.offset:
            self.found.extend(_link(url, opened.offset, length))


def parse_html(text: str) -> Marked:
    return _Html(text).parse()


class _Html:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.out: list[str] = []
        self.offset = 0
        self.open: list[_Open] = []
        self.found: list[Entity] = []

    def parse(self) -> Marked:
        while self.at < len(self.text):
            if self.text.startswith("</", self.at):
                self._end()
            elif self.text[self.at] == "<":
                self._begin()
            else:
                self._character()
        if self.open:
            raise MarkupError(f"Can't find end tag corresponding to start tag {self.open[-1].argument.split()[0]}")
        return Marked("".join(self.out), tuple(sorted(self.found, key=lambda each: (each.offset, -each.length))))

    def _character(self) -> None:
        found = _CHARACTER.match(self.text, self.at)
        character = unescape(found) if found else ""
        self.at = found.end() if found and character else self.at + 1
        self.out.append(character or self.text[self.at - 1])
        self.offset += units(self.out[-1])

    def _begin(self) -> None:
        begin = self.at
        where = f"at byte offset {_byte(self.text, begin)}"
        found = _TAG_NAME.match(self.text, begin + 1)
        assert found is not None
        tag, self.at = found[0].lower(), found.end()
        if self.at == len(self.text):
            raise MarkupError(f"Unclosed start tag {where}")
        if tag not in TAGS:
            raise MarkupError(f'Unsupported start tag "{tag}" {where}')
        values: dict[str, str] = {}
        while not re.compile(r"\s*>").match(self.text, self.at):
            attribute = _ATTRIBUTE.match(self.text, self.at)
            if attribute is None or attribute.end() == len(self.text):
                raise MarkupError(f"Unclosed start tag {where}")
            if attribute[2] is None and (tag, attribute[1]) != ("blockquote", "expandable"):
                raise MarkupError(f'Expected equal sign in declaration of an attribute of the tag "{tag}" {where}')
            values[attribute[1]] = _CHARACTER.sub(unescape, (attribute[2] or "").strip("\"'"))
            self.at = attribute.end()
        self.at = self.text.index(">", self.at) + 1
        if tag == "span" and values.get("class") != "tg-spoiler":
            raise MarkupError(f'Tag "span" must have class "tg-spoiler" {where}')
        argument = {
            "a": values.get("href", ""),
            "code": values.get("class", "").removeprefix("language-"),
            "tg-emoji": values.get("emoji-id", ""),
            "blockquote": "expandable" if "expandable" in values else "",
        }.get(tag, "")
        self.open.append(_Open(TAGS[tag], f"{tag} {argument}", self.offset, begin, len(self.out)))

    def _end(self) -> None:
        where = f"at byte offset {_byte(self.text, self.at)}"
        if not self.open:
            raise MarkupError(f"Unexpected end tag {where}")
        found = re.compile(r"</([^\s>]*)\s*>").match(self.text, self.at)
        if found is None:
            raise MarkupError(f"Unclosed end tag {where}")
        opened = self.open.pop()
        tag, _, argument = opened.argument.partition(" ")
        if found[1] and found[1].lower() != tag:
            raise MarkupError(f'Unmatched end tag {where}, expected "</{tag}>", found "</{found[1].lower()}>"')
        self.at = found.end()
        if length := self.offset - opened.offset:
            self.found.extend(self._entities(opened, argument, length))

    def _entities(self, opened: _Open, argument: str, length: int) -> Iterator[Entity]:
        place: dict[str, Any] = {"offset": opened.offset, "length": length}
        if opened.type == "text_link":
            yield from _link(argument or "".join(self.out[opened.result :]), **place)
        elif opened.type == "custom_emoji":
            if not argument.isdigit():
                raise MarkupError("Invalid custom emoji identifier specified")
            yield Entity(type="custom_emoji", custom_emoji=argument, **place)
        elif opened.type == "pre" and (inner := self._code_inside(opened, length)) is not None:
            self.found.remove(inner)
            yield Entity(type="pre", language=inner.language, **place)
        elif opened.type == "blockquote" and argument:
            yield Entity(type="expandable_blockquote", **place)
        else:
            # Only a block of code keeps its language.
            language = argument if opened.type == "code" and any(each.type == "pre" for each in self.open) else ""
            yield Entity(type=opened.type, language=language, **place)

    def _code_inside(self, opened: _Open, length: int) -> Entity | None:
        place = (opened.offset, length)
        return next((e for e in self.found if e.type == "code" and e.language and (e.offset, e.length) == place), None)


def unescape(found: re.Match[str]) -> str:
    """The character of a reference; empty where it is none."""
    decimal, hexadecimal, name = found.groups()
    if name:
        return {"lt": "<", "gt": ">", "amp": "&", "quot": '"'}[name]
    code = int(decimal) if decimal else int(hexadecimal, 16)
    if not 0 < code < 0x10FFFF:
        return ""
    if 0xD800 <= code <= 0xDFFF:
        raise MarkupError(
            "Text contains invalid Unicode characters after decoding HTML entities, check for unmatched "
            "surrogate code units"
        )
    return chr(code)

"""Removes secrets from text that leaves the process: exact configured values, and known shapes of tokens."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from threading import Lock
from typing import NamedTuple
from urllib.parse import quote, quote_plus

from tidings.core.types import make_storable

REDACTED = "[redacted]"
# A shorter value would blank out ordinary words.
SHORTEST_SECRET = 6
# A stream that holds back more than this searches again only when the held text has doubled or a word has ended.
# Otherwise one endless word, fed letter by letter, would cost the square of its length.
PATIENCE = 256
REASON_CHARACTERS = 300

_SPACE = re.compile(r"\s")


def remember(*secrets: str) -> None:
    """Redacts these values from now on wherever they appear, also URL-encoded or escaped in JSON."""
    global _known
    with _changing:
        # A secret read from a file may end with a newline.
        values = {secret.strip() for secret in secrets}
        _known = _Known(_known.secrets | {value for value in values if len(value) >= SHORTEST_SECRET})


def forget_all() -> None:
    """Forgets every configured secret; only tests need this."""
    global _known
    with _changing:
        _known = _Known(())


def clean(text: str) -> str:
    found = _find(text, 0)
    return _write(text, found, 0, len(text)) if found else text


def one_line(reason: str) -> str:
    """Makes a reason fit to be shown to people: redacted, on one line, and short."""
    line = " ".join(plain(reason).split())
    return line if len(line) <= REASON_CHARACTERS else line[: REASON_CHARACTERS - 1] + "…"


def plain(text: str) -> str:
    """Redacts text and makes it storable."""
    return clean(make_storable(text))


class Stream:
    """Redacts text that arrives in pieces; the returned pieces together equal `clean` of the whole text.

    A stream holds back only the end of the text that may be the beginning of a secret.
    """

    __slots__ = ("_fresh", "_lead", "_pending", "_released", "_text", "_wanted")

    def __init__(self) -> None:
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._fresh: list[str] = []
        # Text already returned that may introduce a secret, such as `Bearer`, followed by the text held back.
        self._text = ""
        self._released = 0
        # Whether one more character is kept in front, where no secret may begin; the patterns look at that character.
        self._lead = 0
        self._pending = 0
        self._wanted = 0

    def feed(self, delta: str) -> str:
        self._fresh.append(delta)
        self._pending += len(delta)
        if self._pending < self._wanted and not _SPACE.search(delta):
            return ""
        text = self._text + "".join(self._fresh)
        found = _find(text, self._lead)
        begun = _find_begun(text, self._lead)
        hold = min((tail.start for tail in begun), default=len(text))
        for secret in sorted(found, reverse=True, key=_start):
            if secret.start < hold < secret.end:
                hold = secret.start
        shown = _write(text, found, self._released, hold)

        begin = min([hold, *(item.begin for item in begun), *(item.begin for item in found if item.end > hold)])
        self._lead = min(begin, 1)
        self._text = text[begin - self._lead :]
        self._released = hold - begin + self._lead
        self._fresh.clear()
        self._pending = len(text) - hold
        self._wanted = 2 * self._pending if self._pending > PATIENCE else 0
        return shown

    def flush(self) -> str:
        """Returns the rest and resets the stream."""
        text = self._text + "".join(self._fresh)
        shown = _write(text, _find(text, self._lead), self._released, len(text))
        self._begin_anew()
        return shown


class _Found(NamedTuple):
    """The position of a secret; `begin` is where the words that introduce it begin, such as `Bearer`."""

    begin: int
    start: int
    end: int


def _start(found: _Found) -> int:
    return found.start


def _find(text: str, position: int) -> list[_Found]:
    found = _known.find(text, position)
    lowered = text.lower()
    for hint, shapes in _SHAPES:
        if hint in lowered:
            for shape in shapes:
                if shape.clue.search(text):
                    found += shape.find(text, position)
    return found


def _find_begun(text: str, position: int) -> list[_Found]:
    begun = _known.find_begun(text, position)
    lowered = text.lower()
    if not any(word in lowered for word in _SPACED):
        # All other shapes end where a word ends.
        position = max(position, text.rfind(" ") + 1, text.rfind("\n") + 1)
    if first := _ANY_BEGUN.search(text, position):
        for _, shapes in _SHAPES:
            for shape in shapes:
                begun += shape.find_begun(text, first.start())
    return begun


def _write(text: str, found: list[_Found], start: int, end: int) -> str:
    """Returns the text from start to end; overlapping secrets become one mark."""
    pieces: list[str] = []
    for secret in sorted(found, key=_start):
        if secret.end > end or secret.end <= start:
            continue
        if secret.start >= start:
            pieces += (text[start : secret.start], REDACTED)
        start = secret.end
    pieces.append(text[start:end])
    return "".join(pieces)


class _Known:
    """The configured secrets; the object is replaced instead of changed, so that readers need no lock."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self.secrets = frozenset(secrets)
        forms = {secret: None for secret in self.secrets}
        quoted = {form: None for secret in self.secrets for form in _quoted(secret) if form not in forms}
        self._plain = tuple(forms)
        self._quoted = tuple(quoted)
        # Longer forms come first: where two begin at the same position, the longer covers both.
        both = sorted(forms | quoted, key=len, reverse=True)
        self._longest = len(both[0]) if both else 0
        self._whole = re.compile("|".join(map(re.escape, both)))
        self._by_first: dict[str, list[str]] = {}
        for form in both:
            self._by_first.setdefault(form[0], []).append(form)
        self._first = re.compile("|".join(map(re.escape, self._by_first)))

    def find(self, text: str, position: int) -> list[_Found]:
        found: list[_Found] = []
        if not self._appears(text):
            return found
        while match := self._whole.search(text, position):
            found.append(_Found(match.start(), match.start(), match.end()))
            position = match.start() + 1
        return found

    def _appears(self, text: str) -> bool:
        """Searches for each form in turn: one pattern of many words is several times slower."""
        for form in self._plain:
            if form in text:
                return True
        # A form that quoting has changed contains at least one of these characters.
        if self._quoted and ("%" in text or "+" in text or "\\" in text):
            return any(form in text for form in self._quoted)
        return False

    def find_begun(self, text: str, position: int) -> list[_Found]:
        if not self._by_first:
            return []
        position = max(position, len(text) - self._longest + 1)
        return [
            _Found(match.start(), match.start(), len(text))
            for match in self._first.finditer(text, position)
            if any(
                len(form) > len(text) - match.start() and form.startswith(text[match.start() :])
                for form in self._by_first[match[0]]
            )
        ]


def _quoted(secret: str) -> tuple[str, ...]:
    """The forms of a secret in a URL, in a form body and in JSON."""
    return (
        quote(secret, errors="replace"),
        quote(secret, safe="", errors="replace"),
        quote_plus(secret, errors="replace"),
        json.dumps(secret)[1:-1],
    )


_known = _Known(())
_changing = Lock()


class _Step(NamedTuple):
    """A class of characters and how often it repeats; `most` of None means any number."""

    characters: str
    least: int = 1
    most: int | None = 1

    @property
    def pattern(self) -> str:
        return self.repeated(self.least, self.most)

    def repeated(self, least: int, most: int | None) -> str:
        return f"{self.characters}{{{least},{'' if most is None else most}}}"


class _Shape:
    """A known shape of secrets as steps, which yield two patterns: a whole secret, and a tail that may become one.

    A pattern consumes one character and only looks ahead at the rest. So every position where a secret may begin
    is tried, and the result does not depend on where a stream was cut. `not_after` names characters that may not
    precede a secret; without it, a long word would be read again from each of its letters. No character may belong
    to both `before` and the secret, because a stream shows the text of `before`.
    """

    def __init__(
        self,
        secret: Sequence[_Step],
        *,
        not_after: str = "",
        before: Sequence[_Step] = (),
        after: Sequence[_Step] = (),
        clue: str = "",
    ) -> None:
        first, *rest = (*before, *secret, *after)
        begin = first.characters + (f"(?<!{not_after}{first.characters})" if not_after else "")
        one_less = _Step(first.characters, first.least - 1, None if first.most is None else first.most - 1)
        steps = (one_less, *rest)
        head = _sequence(steps[: len(before)])
        middle = _sequence(steps[len(before) : len(before) + len(secret)])
        self._whole = re.compile(f"{begin}(?={head}(?P<secret>{middle}){_sequence(after)})", re.ASCII)
        self._begun = re.compile(f"{begin}(?={_tail(steps, len(before), '(?P<secret>)')})", re.ASCII)
        # A part of the pattern that is found faster than its beginning.
        self.clue = re.compile(clue) if clue else self._whole
        self._keeps_words = bool(before)
        self.begun_pattern = f"{begin}(?={_tail(steps, len(before), '')})"

    def find(self, text: str, position: int) -> list[_Found]:
        return [
            _Found(match.start(), match.start("secret") if self._keeps_words else match.start(), match.end("secret"))
            for match in self._whole.finditer(text, position)
        ]

    def find_begun(self, text: str, position: int) -> list[_Found]:
        """Finds ends of the text that more text may turn into a secret or a longer secret."""
        return [
            _Found(match.start(), self._begun_secret(match), len(text))
            for match in self._begun.finditer(text, position)
        ]

    def _begun_secret(self, match: re.Match[str]) -> int:
        if not self._keeps_words:
            return match.start()
        return match.start("secret") if match["secret"] is not None else len(match.string)


def _sequence(steps: Iterable[_Step]) -> str:
    return "".join(step.pattern for step in steps)


def _tail(steps: Sequence[_Step], secret: int, mark: str) -> str:
    """A pattern for text that ends somewhere within these steps; `mark` stands where the secret begins."""
    pattern = ""
    for index, step in reversed(list(enumerate(steps))):
        most = step.most
        if not pattern and most is not None:
            # A complete last step makes a complete secret, which cannot grow.
            most -= 1
        ends_here = rf"{step.repeated(0, most)}\Z"
        pattern = f"(?:{ends_here}|{step.pattern}{pattern})" if pattern else ends_here
        if index == secret and index:
            pattern = mark + pattern
    return pattern


def _letters(text: str, *, any_case: bool = False) -> list[_Step]:
    return [_Step(f"[{letter.upper()}{letter.lower()}]" if any_case else re.escape(letter)) for letter in text]


_WORD = "[A-Za-z0-9_-]"
_LETTER = "[A-Za-z0-9]"
_TOKEN = "[A-Za-z0-9._~+/-]"
# The padding of base 64.
_PADDING = _Step("=", 0, 2)
_QUOTE = _Step("[\"']", 0)
_GAP = _Step(r"[ \t]", 1, 4)
_NO_GAP = _Step(r"[ \t]", 0, 4)
_BEARER = (*_letters("bearer", any_case=True), _GAP)
# The header on a line of its own, in JSON, or in a list of headers printed by Python.
_HEADER = (
    *_letters("authorization", any_case=True),
    *(_QUOTE, _NO_GAP, _Step("[:=,]"), _NO_GAP, _Step("(?:b(?=[\"']))", 0), _QUOTE),
)
_SCHEMES = ("bearer", "basic", "bot", "token")
# Without a scheme, a value must be long or contain a digit: "the bearer of bad news" is no secret.
_VALUES = (
    (_Step(_TOKEN, 20, None), _PADDING),
    (_Step("[A-Za-z.~+/-]", 0, 19), _Step("[0-9_]"), _Step(_TOKEN, 6, None), _PADDING),
)


def _key(start: str, *steps: _Step) -> _Shape:
    return _Shape((*_letters(start), *steps), not_after=_WORD)


# Each hint, in lower case, precedes the shapes that contain it: most text contains no hint and costs little.
_SHAPES: tuple[tuple[str, tuple[_Shape, ...]], ...] = (
    # Telegram, alone or after /bot in a URL.
    (
        ":",
        (
            _Shape(
                (_Step("[0-9]", 6, None), _Step(":"), _Step(_WORD, 30, None)),
                not_after="[0-9]",
                clue=r":(?<=[0-9]{6}:)",
            ),
        ),
    ),
    # Slack.
    ("xox", (_key("xox", _Step("[a-z]"), _Step("-"), _Step(_WORD, 6, None)),)),
    ("xapp-", (_key("xapp-", _Step(_WORD, 6, None)),)),
    # Discord: a number in base 64 can begin with these letters only.
    (
        ".",
        (
            _Shape(
                (
                    *(_Step("[MNO]"), _Step("[DTjz]"), _Step(_WORD, 16, None)),
                    *(_Step(r"\."), _Step(_WORD, 5, 8)),
                    *(_Step(r"\."), _Step(_WORD, 25, None)),
                ),
                not_after=_WORD,
                clue=rf"\.(?<={_WORD}{{18}}\.)",
            ),
        ),
    ),
    # Model providers, GitHub, AWS, and our own HTTP API.
    ("sk-", (_key("sk-", _Step(_WORD, 17, None)),)),
    ("gh", (_key("gh", _Step("[oprsu]"), _Step("_"), _Step(_LETTER, 20, None)),)),
    ("tdg_", (_key("tdg_", _Step(_WORD, 20, None)),)),
    ("github_pat_", (_key("github_pat_", _Step(_WORD, 20, None)),)),
    ("akia", (_key("AKIA", _Step("[A-Z0-9]", 16, None)),)),
    ("asia", (_key("ASIA", _Step("[A-Z0-9]", 16, None)),)),
    ("bearer", tuple(_Shape(value, not_after=_LETTER, before=_BEARER) for value in _VALUES)),
    (
        "authorization",
        (
            *(_Shape(value, not_after=_LETTER, before=_HEADER) for value in _VALUES),
            *(
                _Shape(
                    (_Step(_TOKEN, 8, None), _PADDING),
                    not_after=_LETTER,
                    before=(*_HEADER, *_letters(scheme, any_case=True), _GAP),
                )
                for scheme in _SCHEMES
            ),
        ),
    ),
    # The password in a URL; the user's name stays, because it tells which login failed.
    (
        "://",
        (
            _Shape(
                (_Step(r"[^\s/@]", 1, 512),),
                before=(*_letters("://"), _Step(r"[^\s/:@?#]", 0, 256), _Step(":")),
                after=(_Step("@"),),
            ),
        ),
    ),
)
# The hints of shapes that may contain a space.
_SPACED = ("bearer", "authorization")
_ANY_BEGUN = re.compile("|".join(shape.begun_pattern for _, shapes in _SHAPES for shape in shapes), re.ASCII)

"""Cuts long text at safe places and reopens code fences, so that each part can stand alone."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import NamedTuple

# How far a cut may move back to keep a character whole; without this bound, a text of combining marks alone
# would cost the square of its length.
LONGEST_CLUSTER = 64
# How many words back to look for one that does not become a fence at the start of a part.
WORDS_TRIED = 32

_SPACES = (" ", "\n", "\t", "\u3000")
_SENTENCE_ENDS = (". ", "! ", "? ", "\u2026 ")
# Full stop, exclamation mark and question mark of scripts without a space after them.
_WIDE_SENTENCE_ENDS = ("\u3002", "\uff01", "\uff1f")

_INK = re.compile(r"\s*")
_BULLET = r"(?:(?:[-*+]|[0-9]{1,9}[.)])[ \t]{1,4})?"
_FENCE_LINE = re.compile(rf"^[ \t]*({_BULLET})(`{{3,}}|~{{3,}})([^\n]*)$", re.MULTILINE)
_LOOKS_LIKE_FENCE = re.compile(rf"\s*{_BULLET}(?:```|~~~)")


def utf16_length(text: str) -> int:
    """What Telegram counts: a character beyond the basic plane is two."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def split(text: str, limit: int, *, measure: Callable[[str], int] = len) -> tuple[str, ...]:
    """Cuts text into parts of at most `limit` each; text of only whitespace has no parts.

    Text that fits is returned unchanged, except that an unclosed fence is closed. Only whitespace at the cuts is
    lost; a fence around empty lines counts as whitespace. `measure` must count each character by itself, and as at
    least one. Raises ValueError when a single character is longer than the limit.
    """
    if not text.strip():
        return ()
    fences = _fences(text, limit, measure)
    if not (fences and fences[-1].unclosed) and measure(text) <= limit:
        return (text,)
    # A text of only an empty code block must not vanish.
    return tuple(_Cutter(text, limit, measure, fences).parts()) or (fences[0].run,)


def tail(text: str, room: int) -> str:
    """The end of a growing text: at most `room` characters, plus the opening of a code fence that was cut.

    The result begins at a paragraph, line or word if possible. An open fence stays open, so more text can be added.
    """
    if len(text) <= room:
        return text
    start = len(text) - room
    half = start + room // 2
    for gap in ("\n\n", "\n", " "):
        if (found := text.find(gap, start - 1, half)) >= 0:
            start = found + len(gap)
            break
    else:
        while start < half and joined(text, start):
            start += 1
    around = next((fence for fence in _fences(text, room, len) if fence.start < start < fence.stop), None)
    if around is None:
        return text[start:]
    # If only the closing line of the fence is left, no fence needs to be reopened.
    return f"{around.opener}\n{text[start:]}" if start < around.end else text[around.stop :].lstrip("\n")


class _Fence(NamedTuple):
    # Positions: the opening line, its first visible character, the text after its backticks, the first code line.
    line: int
    start: int
    info: int
    body: int
    # Positions: the beginning and the end of the closing line.
    end: int
    stop: int
    run: str
    # The line that reopens the fence; without the info text if that would fill up the limit.
    opener: str
    lengthy: bool
    unclosed: bool


def _fences(text: str, limit: int, measure: Callable[[str], int]) -> list[_Fence]:
    if "```" not in text and "~~~" not in text:
        return []
    found: list[_Fence] = []
    opening: re.Match[str] | None = None
    for line in _FENCE_LINE.finditer(text):
        bullet, run, info = line.groups()
        if opening is not None:
            if not bullet and not info.strip() and run.startswith(opening[2]):
                found.append(_fence(text, limit, measure, opening, line))
                opening = None
            continue
        # A run of backticks that fills half of a part could not be closed and reopened, so it stays plain text.
        if _opens(line) and 2 * measure(run + "\n") <= limit // 2:
            opening = line
    if opening is not None:
        found.append(_fence(text, limit, measure, opening, None))
    return found


def _opens(line: re.Match[str]) -> bool:
    """Tells whether a line opens a fence; with another backtick after the run it is code inside a sentence."""
    return line[2][0] != "`" or "`" not in line[3]


def _fence(
    text: str,
    limit: int,
    measure: Callable[[str], int],
    opening: re.Match[str],
    closing: re.Match[str] | None,
) -> _Fence:
    run = opening[2]
    lengthy = measure(opening[0]) + measure(run) + 2 * measure("\n") > limit // 2
    return _Fence(
        line=opening.start(),
        start=opening.start(1),
        info=opening.start(3),
        body=min(opening.end() + 1, len(text)),
        end=closing.start() if closing else len(text),
        # One more than the text's length, so that the end of the text still counts as inside.
        stop=closing.end() if closing else len(text) + 1,
        run=run,
        opener=run if lengthy else (run + opening[3]).rstrip(),
        lengthy=lengthy,
        unclosed=closing is None,
    )


class _Cutter:
    def __init__(self, text: str, limit: int, measure: Callable[[str], int], fences: Sequence[_Fence]) -> None:
        self._text = text
        self._limit = limit
        self._measure = measure
        self._fences = fences
        self._starts = [fence.start for fence in fences]

    def parts(self) -> list[str]:
        text = self._text
        parts: list[str] = []
        position = self._resume(0)
        while position < len(text):
            around = self._begun_before(position)
            if around is not None and position >= around.stop:
                around = None
            if around is not None and position >= around.end:
                # The last part already ends with a fence that closes this code.
                position = self._resume(around.stop)
                continue
            ink = self._ink(position)
            opening = self._begun_before(ink + 1) if around is None else None
            if opening is not None and opening.start == ink and opening.lengthy:
                # The opening line leaves no room for code, so its info text becomes code itself.
                position = self._resume(opening.info)
                continue

            prefix = f"{around.opener}\n" if around is not None else ""
            room = self._limit - self._measure(prefix)
            reach = self._reach(position, room)
            last = self._begun_before(reach)
            if last is None or reach >= last.stop:
                if reach == len(text):
                    parts.append(prefix + text[position:])
                    break
                cut = self._cut_prose(position, ink, reach, last)
                parts.append(prefix + text[position:cut].rstrip())
                position = self._resume(cut)
                continue

            suffix = f"\n{last.run}"
            reach = self._reach(position, room - self._measure(suffix))
            if last.unclosed and reach == len(text):
                parts.append(prefix + text[position:].rstrip() + suffix)
                break
            code = ink if around is last else last.body
            cut = self._cut_code(position, ink, min(reach, last.end - 1), last, code)
            if cut > last.line and text[code:cut].strip():
                parts.append(prefix + text[position:cut].rstrip() + suffix)
                position = self._resume(cut)
            elif position < last.line:
                parts.append(prefix + text[position : last.line].rstrip())
                position = self._resume(last.line - 1)
            else:
                # Only empty lines of code would fit, and an empty code block helps no reader.
                position = self._resume(last.body)
        return parts

    def _begun_before(self, position: int) -> _Fence | None:
        index = bisect_left(self._starts, position)
        return self._fences[index - 1] if index else None

    def _ink(self, position: int) -> int:
        match = _INK.match(self._text, position)
        return match.end() if match is not None else position

    def _resume(self, cut: int) -> int:
        """Skips whitespace after a cut, except the indentation of a whole line."""
        ink = self._ink(cut)
        line = self._text.rfind("\n", cut, ink) + 1
        if ink == len(self._text) or (cut and not line):
            return ink
        return line if self._measure(self._text[line:ink]) <= self._limit // 4 else ink

    def _reach(self, position: int, room: int) -> int:
        """The furthest end of a piece that begins at `position` and measures at most `room`."""
        low, high = position, min(len(self._text), position + max(room, 0))
        if self._measure is len or self._measure(self._text[low:high]) <= room:
            return high
        while high - low > 1:
            middle = (low + high) // 2
            if self._measure(self._text[position:middle]) <= room:
                low = middle
            else:
                high = middle
        return low

    def _cut_prose(self, position: int, ink: int, reach: int, last: _Fence | None) -> int:
        text = self._text
        prose = max(ink, last.stop if last is not None else 0)
        floor = max(prose, position + (reach - position) // 2)
        cut = text.rfind("\n\n", floor, reach + 2)
        if cut > ink:
            return cut
        if last is not None and last.stop == floor:
            return last.stop
        cut = text.rfind("\n", floor, reach + 1)
        if cut > ink:
            return cut
        spaced = max(text.rfind(end, floor, reach + 1) for end in _SENTENCE_ENDS)
        wide = max(text.rfind(end, floor, reach) for end in _WIDE_SENTENCE_ENDS)
        cut = max(spaced, wide) + 1
        if cut > ink and not self._forges(position, cut):
            return cut
        return self._cut_word(position, prose, ink, reach)

    def _cut_code(self, position: int, ink: int, reach: int, fence: _Fence, code: int) -> int:
        text = self._text
        half = position + (reach - position) // 2
        before = fence.line - 1
        if before >= half and before > ink:
            return before
        if reach <= code and ink < code:
            return before if before > ink else reach
        cut = text.rfind("\n\n", max(half, code), reach + 2)
        if cut <= code:
            cut = text.rfind("\n", code, reach + 1)
        if cut > code:
            return cut
        return before if before > ink else self._cut_word(position, code, ink, reach)

    def _cut_word(self, position: int, low: int, ink: int, reach: int) -> int:
        text = self._text
        cut = reach + 1
        for _ in range(WORDS_TRIED):
            cut = max(text.rfind(space, low, cut) for space in _SPACES)
            if cut <= ink:
                break
            if text[cut] == "\n" or not self._forges(position, cut):
                return cut
            cut = low + len(text[low:cut].rstrip())
        return self._cut_hard(position, max(low, ink), reach)

    def _cut_hard(self, position: int, low: int, reach: int) -> int:
        if reach <= low:
            raise ValueError(f"a limit of {self._limit} has no room for a single character")
        for cut in range(reach, max(low, reach - LONGEST_CLUSTER), -1):
            if not joined(self._text, cut) and not self._forges(position, cut):
                return cut
        return reach

    def _forges(self, position: int, cut: int) -> bool:
        """Tells whether a cut inside a line would turn plain text into a fence."""
        if _LOOKS_LIKE_FENCE.match(self._text, cut):
            return True
        line = max(position, self._text.rfind("\n", position, cut) + 1)
        if not _LOOKS_LIKE_FENCE.match(self._text, line):
            return False
        head = _FENCE_LINE.match(self._text[line:cut])
        return head is not None and _opens(head)


def joined(text: str, cut: int) -> bool:
    """Tells whether the characters on both sides of the cut form one visible character."""
    if cut >= len(text):
        return False
    before, after = text[cut - 1], text[cut]
    if after.isascii():
        # CR and LF are one line end; any other ASCII character begins something new.
        return (before, after) == ("\r", "\n")
    return (
        before == "\u200d"
        or after in "\u200c\u200d"
        or unicodedata.category(after) in ("Mn", "Mc", "Me")
        or "\U0001f3fb" <= after <= "\U0001f3ff"
        or "\U000e0020" <= after <= "\U000e007f"
        or ("\udc00" <= after <= "\udfff" and "\ud800" <= before <= "\udbff")
        or ("\u1160" <= after <= "\u11ff" and "\u1100" <= before <= "\u11ff")
        or (_is_regional(before) and _is_regional(after) and _regionals_before(text, cut) % 2 == 1)
    )


def _is_regional(character: str) -> bool:
    """Two of these make a flag."""
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _regionals_before(text: str, cut: int) -> int:
    start = cut
    while start > max(0, cut - LONGEST_CLUSTER) and _is_regional(text[start - 1]):
        start -= 1
    return cut - start

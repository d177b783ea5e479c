"""Makes text from a chat safe for a terminal: what could move the cursor or hide is shown as a mark."""

from __future__ import annotations

import re

# Characters that draw nothing, or change what stands around them.
_INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"
)
# Half of a pair cannot even be written, and would end the program that tries.
_HALVES = "\ud800-\udfff"
_UNSAFE = re.compile(f"\r\n|[\x00-\x08\x0b-\x1f\x7f-\x9f{_INVISIBLE}{_HALVES}]")

_EMOJI = "[\u2190-\u27ff\u2900-\u2bff\u3030-\u303d\u3297\u3299\U0001f000-\U0001faff]"
# Languages that join or part their letters by invisible characters: Arabic, Persian and those of India.
_JOINING = "[\u0620-\u0dff]"
# One invisible character inside an emoji or between such letters is how they are written.
_WANTED = re.compile(
    f"(?:{_EMOJI}|[0-9#*])[\ufe0e\ufe0f](?![\ufe00-\ufe0f])(?:\u200d(?={_EMOJI}))?"
    f"|{_EMOJI}\u200d(?={_EMOJI})"
    f"|{_JOINING}[\u200c\u200d](?={_JOINING})"
)


def visible(text: str) -> str:
    """Only \\n and \\t keep their power; doing it twice changes nothing."""
    if text.isascii() and text.isprintable():
        return text
    pieces: list[str] = []
    end = 0
    for wanted in _WANTED.finditer(text):
        pieces += (_UNSAFE.sub(_mark, text[end : wanted.start()]), wanted[0])
        end = wanted.end()
    pieces.append(_UNSAFE.sub(_mark, text[end:]))
    return "".join(pieces)


def _mark(match: re.Match[str]) -> str:
    if match[0] == "\r\n":
        return "\n"
    code = ord(match[0])
    if code < 0x20:
        # The pictures of the control characters stand in their order.
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"

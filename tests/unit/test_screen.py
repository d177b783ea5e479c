"""Nothing from a chat can command the terminal of whoever reads it."""

from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidings.adapters.console.escape import visible

# Unicode counts these as format characters, but they draw a sign.
DRAWN = {*range(0x0600, 0x0606), 0x06DD, 0x070F, 0x0890, 0x0891, 0x08E2, 0x110BD, 0x110CD}


def check(text: str, expected: str) -> None:
    assert visible(text) == expected


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("windows\r\nlines", "windows\nlines"),
        ("over\rwritten", "over\u240dwritten"),
        ("\x1b[31mred\x1b[0m", "\u241b[31mred\u241b[0m"),
        ("\x1b]52;c;ZXZpbA==\x07", "\u241b]52;c;ZXZpbA==\u2407"),
        ("\x9b2J\x7f\x00", "\\u009b2J\u2421\u2400"),
        ("gpj\u202eexe.\u2066x\u2069\u200e\u200f\u061c", "gpj\\u202eexe.\\u2066x\\u2069\\u200e\\u200f\\u061c"),
        ("pay\u200bpal\u00ad\ufeff\u3164", "pay\\u200bpal\\u00ad\\ufeff\\u3164"),
        ("line\u2028separator\x85", "line\\u2028separator\\u0085"),
        ("half \ud83d", "half \\ud83d"),
        ("tag \U000e0041", "tag \\U000e0041"),
        ("a\ufe0f\u200db", "a\\ufe0f\\u200db"),
        ("blank\u2800\ufe0f", "blank\\u2800\\ufe0f"),
        ("\u061c\u200c\u0645", "\\u061c\\u200c\u0645"),
        ("\u2764\ufe0f\ufe0f", "\u2764\\ufe0f\\ufe0f"),
    ],
)
def test_what_could_command_or_deceive_becomes_a_mark(text: str, shown: str) -> None:
    check(text, shown)


@pytest.mark.parametrize(
    "text",
    [
        "\u00fcber \u4f60\u597d \u0639\u0631\u0628\u064a",
        "\U0001f468\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f\u200d\U0001f525 1\ufe0f\u20e3 \U0001f44b\U0001f3fd",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 \u0915\u094d\u200d\u0937",
    ],
)
def test_languages_and_emoji_stay_as_they_are(text: str) -> None:
    check(text, text)


def test_every_control_and_format_character_that_unicode_knows_is_shown() -> None:
    harmful = [
        chr(code)
        for code in range(sys.maxunicode + 1)
        if unicodedata.category(chr(code)) in ("Cc", "Cf", "Cs", "Zl", "Zp") and code not in DRAWN
    ]
    assert [ascii(one) for one in harmful if one not in "\n\t" and not visible(one).isprintable()] == []


SAMPLE = st.text(
    st.one_of(
        st.characters(),
        st.sampled_from("\x1b\x9b\r\n\t\u202e\u200d\u200c\ufe0f\ufe0e\u2800\u061c\U0001f468\u2764\u0645\u0915a1\u241b"),
    ),
    max_size=30,
)


@settings(derandomize=True, max_examples=300, deadline=None, database=None)
@given(SAMPLE)
def test_showing_twice_is_showing_once_and_no_control_survives(text: str) -> None:
    shown = visible(text)
    check(shown, shown)
    assert [one for one in shown if unicodedata.category(one) in ("Cc", "Cs", "Zl", "Zp") and one not in "\n\t"] == []
    assert not set(shown) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c\u2800")
    shown.encode()

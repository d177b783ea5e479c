"""Long text is cut where it hurts least, and every part can stand alone."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidings.core.outbound.splitter import split, tail, utf16_length

FENCE = re.compile(r"[ \t]*((?:[-*+]|\d{1,9}[.)])[ \t]{1,4})?(`{3,}|~{3,})(.*)")
FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
GERMANY = "\U0001f1e9\U0001f1ea"
WAVE = "\U0001f44b\U0001f3fd"
ACCENTED = "e\u0301"


def check(text: str, limit: int, *expected: str) -> None:
    assert split(text, limit) == expected


def read(text: str) -> tuple[list[tuple[str, str | None]], bool]:
    """Each visible character with the language of the code it stands in, and whether every fence is closed.

    The fences themselves are left out; a second, plain reading of the rules, line by line.
    """
    ink: list[tuple[str, str | None]] = []
    run, language = "", None
    for line in text.split("\n"):
        match = FENCE.fullmatch(line)
        if match is not None and language is None and (match[2][0] == "~" or "`" not in match[3]):
            run, language = match[2], match[3].strip()
        elif match is not None and not match[1] and not match[3].strip() and run and match[2].startswith(run):
            run, language = "", None
        else:
            ink += [(character, language) for character in line if not character.isspace()]
    return ink, not run


def check_nothing_is_lost(text: str, limit: int, measure: Callable[[str], int] = len) -> None:
    parts = split(text, limit, measure=measure)
    assert [part for part in parts if measure(part) > limit or not part.strip()] == []
    assert [part for part in parts if not read(part)[1]] == []
    assert [pair for part in parts for pair in read(part)[0]] == read(text)[0]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ()),
        (" \n\t ", ()),
        ("short", ("short",)),
        ("  kept as it is \n", ("  kept as it is \n",)),
        ("twenty characters ok", ("twenty characters ok",)),
    ],
)
def test_text_that_fits_is_one_part_and_blank_text_is_none(text: str, parts: tuple[str, ...]) -> None:
    check(text, 20, *parts)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("first words\n\nsecond line\nthird", ("first words", "second line\nthird")),
        ("first line is\nsecond. third", ("first line is", "second. third")),
        ("One is done. Two goes on", ("One is done.", "Two goes on")),
        (
            "\u4e00\u4e8c\u4e09\u56db\u4e94\u516d\u4e03\u516b\u4e5d\u5341\u5341\u4e00\u3002" + "\u4e00" * 10,
            ("\u4e00\u4e8c\u4e09\u56db\u4e94\u516d\u4e03\u516b\u4e5d\u5341\u5341\u4e00\u3002", "\u4e00" * 10),
        ),
        ("no sentence ends anywhere here", ("no sentence ends", "anywhere here")),
        ("a" * 45, ("a" * 20, "a" * 20, "a" * 5)),
        ("hi " + "a" * 25, ("hi", "a" * 20, "a" * 5)),
        ("twenty characters ok then", ("twenty characters ok", "then")),
        ("a" + " " * 500 + "b", ("a", "b")),
        ("a" + "\n" * 500 + "b", ("a", "b")),
        ("twenty characters ok\n  ", ("twenty characters ok",)),
    ],
)
def test_the_cut_prefers_paragraph_then_line_then_sentence_then_word(text: str, parts: tuple[str, ...]) -> None:
    check(text, 20, *parts)


def test_a_paragraph_that_ends_too_early_does_not_make_a_tiny_part() -> None:
    check("a\n\nbcdef ghijk lmnop qrs", 20, "a\n\nbcdef ghijk lmnop", "qrs")


def test_an_indented_line_keeps_its_indentation_after_a_cut() -> None:
    check("- a list of things\n  - nested item", 20, "- a list of things", "  - nested item")


@pytest.mark.parametrize(
    ("text", "limit", "parts"),
    [
        (
            "```py\none = 1\ntwo = 2\nthree = 3\n```",
            24,
            ("```py\none = 1\n```", "```py\ntwo = 2\n```", "```py\nthree = 3\n```"),
        ),
        ("~~~~\none = 1\ntwo = 2\n~~~~", 20, ("~~~~\none = 1\n~~~~", "~~~~\ntwo = 2\n~~~~")),
        ("```py\n  one = 1\n  two = 2\n```", 24, ("```py\n  one = 1\n```", "```py\n  two = 2\n```")),
        ("Some words first.\n```\ncode goes here\n```", 24, ("Some words first.", "```\ncode goes here\n```")),
        ("```\ncode goes here\n```\nSome words after.", 24, ("```\ncode goes here\n```", "Some words after.")),
        ("````\n```\nx\n```\nanother\n````", 24, ("````\n```\nx\n```\n````", "````\nanother\n````")),
        ("- ```py\n  one = 1\n  two = 2\n  ```", 24, ("- ```py\n  one = 1\n```", "```py\n  two = 2\n  ```")),
    ],
)
def test_a_code_fence_is_closed_and_reopened_with_its_language(text: str, limit: int, parts: tuple[str, ...]) -> None:
    check(text, limit, *parts)


def test_a_fence_that_nobody_closed_is_closed() -> None:
    check("look:\n```py\nx = 1", 40, "look:\n```py\nx = 1\n```")


def test_a_fence_is_not_reopened_only_to_be_closed() -> None:
    check("```\n12345678\n```\nand on it goes", 20, "```\n12345678\n```", "and on it goes")
    check("```\n123456789012\n`````   \nand on it goes", 20, "```\n123456789012\n```", "and on it goes")


def test_a_first_line_that_is_too_long_becomes_code_instead_of_being_lost() -> None:
    check("```" + "i" * 20 + "\nx\n```", 20, "```\n" + "i" * 12 + "\n```", "```\n" + "i" * 8 + "\nx\n```")


def test_code_of_nothing_but_empty_lines_makes_no_empty_box() -> None:
    check("```py\n" + "\n" * 100 + "x = 1\n```", 24, "```py\nx = 1\n```")
    check("```\n" + "\n" * 100 + "```", 24, "```")


@pytest.mark.parametrize(
    "text",
    [
        "these are words ```not a fence here",
        "these words - ```neither this one",
        "```inline code``` and more of it",
        "~~~\nx = 1234567 ~~~\ny\n~~~",
    ],
)
def test_a_cut_never_makes_a_fence_of_what_was_none(text: str) -> None:
    for limit in range(20, len(text)):
        check_nothing_is_lost(text, limit)


def test_a_cut_that_would_make_a_fence_moves_to_the_word_before() -> None:
    wide = "words" + " " * 40 + "```x-and-more"
    check(f"these are {wide}", 60, "these are", wide)


@pytest.mark.parametrize(
    "cluster", [FAMILY, GERMANY, WAVE, ACCENTED, "\u2764\ufe0f", "\ud83d\ude00", "\u1112\u1161\u11ab"]
)
@pytest.mark.parametrize("measure", [len, utf16_length])
def test_what_a_person_sees_as_one_character_is_not_torn(cluster: str, measure: Callable[[str], int]) -> None:
    text = cluster * 30
    for limit in range(measure(cluster) + 10, measure(cluster) + 20):
        parts = split(text, limit, measure=measure)
        assert "".join(parts) == text
        assert [part for part in parts if part.replace(cluster, "")] == []


def test_a_cluster_longer_than_the_limit_is_torn_rather_than_refused() -> None:
    check_nothing_is_lost("e" + "\u0301" * 1000, 20)


def test_emoji_count_twice_where_the_platform_counts_utf16() -> None:
    assert utf16_length("a\U0001f600\ud800") == 4
    assert split("\U0001f600" * 30, 20, measure=utf16_length) == ("\U0001f600" * 10,) * 3


def test_a_limit_below_one_character_is_refused() -> None:
    with pytest.raises(ValueError, match="no room"):
        split("\U0001f600\U0001f600", 1, measure=utf16_length)


def letters(text: str) -> Iterator[str]:
    return (character for character in text if not character.isspace() and character not in "`~-")


PIECES = st.sampled_from(
    ["word", "a", "supercalifragilistic", " ", "  ", "\n", "\n\n", "\n    ", ". ", "\n```\n", "\n```py\n", "\n~~~\n",
     "\n  ```\n", "\n- ```c\n", "```", "~~~", "``", "\u3002", FAMILY, GERMANY, ACCENTED, "\t", "\r\n", "- "]
)  # fmt: skip


@settings(derandomize=True, max_examples=400, deadline=None, database=None)
@given(pieces=st.lists(PIECES, max_size=80), limit=st.integers(20, 120), wide=st.booleans())
def test_whatever_the_text_nothing_but_whitespace_at_the_cuts_is_lost(
    pieces: list[str], limit: int, wide: bool
) -> None:
    text, measure = "".join(pieces), utf16_length if wide else len
    shown = (character for part in split(text, limit, measure=measure) for character in part)
    assert [letter for letter in letters(text) if letter not in shown] == []
    # A fence that takes up most of a part is given up or loses its language, so only the letters are sure.
    if all(measure(line) < limit // 4 for line in text.split("\n") if FENCE.fullmatch(line)):
        check_nothing_is_lost(text, limit, measure)


@settings(derandomize=True, max_examples=200, deadline=None, database=None)
@given(text=st.text(max_size=300), limit=st.integers(2, 40))
def test_any_text_and_any_limit_end_in_parts_that_fit(text: str, limit: int) -> None:
    parts = split(text, limit, measure=utf16_length)
    assert [part for part in parts if utf16_length(part) > limit or not part.strip()] == []
    assert bool(parts) == bool(text.strip())


# The end of what still grows.


def test_what_is_short_is_its_own_tail() -> None:
    assert tail("```py\nx = 1", 20) == "```py\nx = 1"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("first\n\nsecond line\nthird line", "second line\nthird line"),
        ("a first line\nsecond line, long", "second line, long"),
        ("one two three four five six seven", "four five six seven"),
        ("x" * 30, "x" * 22),
        ("x" * 8 + FAMILY + "x" * 19, "x" * 19),
    ],
)
def test_a_tail_begins_where_it_hurts_least(text: str, expected: str) -> None:
    assert tail(text, 22) == expected


def test_a_tail_that_begins_in_code_is_code_and_goes_on_as_such() -> None:
    code = "".join(f"line({number})\n" for number in range(100))
    shown = tail(f"Look:\n\n```python\n{code}", 60)
    assert shown.startswith("```python\nline(9")
    assert shown.endswith("line(99)\n"), "it is not closed, for more will come"
    assert tail(f"Look:\n\n```python\n{code}```\nand then some", 60).startswith("```python\nline(9")
    assert tail(f"```python\n{code}```\nthat was all of the code", 28) == "that was all of the code"


@settings(derandomize=True, max_examples=300, deadline=None, database=None)
@given(pieces=st.lists(PIECES, max_size=80), room=st.integers(20, 120), more=st.lists(PIECES, max_size=5))
def test_a_tail_is_the_end_and_no_longer_than_it_may_be(pieces: list[str], room: int, more: list[str]) -> None:
    text = "".join(pieces)
    shown = tail(text, room)
    opener, _, rest = shown.partition("\n")
    assert text.endswith(shown) or (text.endswith(rest) and opener in text)
    assert len(shown) <= room + len(opener) + 1
    assert len(tail(shown + "".join(more), room)) <= 2 * room


def _prose() -> str:
    dice = random.Random(7)
    words = ("lorem", "ipsum", "dolor", "sit", "amet.", "consectetur", "elit,\n", "tempor.\n\n", "x" * 30)
    return " ".join(dice.choice(words) for _ in range(80_000))[:400_000]


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        (_prose(), 4000),
        ("x" * 400_000, 4000),
        (" " * 400_000 + "x", 4000),
        ("\n" * 400_000 + "x", 20),
        ("\u0301" * 400_000, 4000),
        ("\U0001f1e6" * 400_000, 4000),
        ("```\n" * 100_000, 4000),
        ("```\nx\n```\n" * 40_000, 20),
        ("a\n```py\n" + "x" * 50 + "\n```\n" + "b" * 40, 20),
        ("```" + "i" * 400_000 + "\nx\n```", 4000),
        ("`" * 400_000, 4000),
        ("``` " * 100_000, 4000),
        ("x ``` " * 66_000, 4000),
        ("```\n" + "x ``` " * 66_000, 4000),
        ("```\n" + "\n" * 400_000 + "x", 4000),
        ("a " + "x" * 3997 + " " + "y" * 396_000, 4000),
    ],
)
def test_the_worst_texts_take_no_longer_than_plain_ones(text: str, limit: int) -> None:
    began = time.process_time()
    parts = split(text, limit)
    # A tenth of a second is the aim at a limit of 4000; quadratic work would take minutes.
    assert time.process_time() - began < 2
    assert max(map(len, parts)) <= limit

"""Markdown on Slack is whole, readable and harmless, and every part of a long text fits."""

from __future__ import annotations

import re

import pytest

from tests.simulators.slack.texts import check_blocks, pings
from tidings.adapters.slack import compose as slack_compose
from tidings.adapters.slack import render
from tidings.adapters.slack.render import LIMIT, MOST_BLOCKS, block, compose, fallback, settled, stream, tail
from tidings.core.types import Body, Choice

TABLE = "| name | size |\n|:-----|-----:|\n| ada | 1 |\n| **bob** | 22 |"
CALLS = (
    "<!channel>",
    "<!here|here>",
    "<!everyone>",
    "<!Channel>",
    "<@U012AB3CD>",
    "<@W012AB3CD|ann>",
    "<!subteam^S012AB3CD>",
    "<!subteam^S012AB3CD|@staff>",
    "`<!channel>`",
    "```\n<!here>\n```",
    "[a](<!channel>)",
    "<<!channel>>",
    "@channel and @here, @everyone!",
)


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.replace(render.APART, ""))


# Whom it calls.


@pytest.mark.parametrize("call", CALLS)
def test_nobody_is_called_by_an_answer(call: str) -> None:
    names = {"ann": "U012AB3CD"}
    said = slack_compose.message(Body(text=f"hello {call} there"), mentions=False)
    assert pings(said["text"], tuple(said["blocks"]), names) == ()
    assert pings(stream(f"hello {call} there"), (), names) == ()
    assert words(block(call)) == words(call), "what was said can still be read"


@pytest.mark.parametrize("call", CALLS)
def test_people_may_be_called_where_the_owner_says_so_and_channels_never(call: str) -> None:
    said = slack_compose.message(Body(text=call), mentions=True)
    called = pings(said["text"], tuple(said["blocks"]), {})
    assert set(called) <= {"U012AB3CD", "W012AB3CD", "S012AB3CD"}
    assert bool(called) == ("<@" in call or "subteam" in call)


def test_a_call_that_is_cut_in_two_is_none() -> None:
    text = "a" * (LIMIT - 5) + "<!channel>"
    for part in compose(text):
        assert pings(block(part), ()) == ()


def test_addresses_and_code_keep_every_sign() -> None:
    text = "write to ada@here.org, <https://example.com/?a=1&b=2>\n\n```c\n#include <stdio.h>\na < b && c > d;\n```"
    assert block(text) == text


# What it looks like.


def test_the_text_for_notifications_is_plain_and_escaped() -> None:
    assert fallback("# Hi\n\n**bold** & `a < b` [docs](https://x.org)") == (
        "Hi\n\nbold &amp; a &lt; b docs (https://x.org)"
    )
    assert fallback("```") == "```"
    assert len(fallback("&" * 10_000)) <= render.UPDATE_LIMIT


def test_one_table_is_slacks_to_draw_and_in_a_stream_it_is_laid_out() -> None:
    assert block(f"see\n\n{TABLE}\n\nso") == f"see\n\n{TABLE}\n\nso"
    assert stream(f"see\n\n{TABLE}\n\nso") == (
        "see\n\n```\nname | size\n-----+-----\nada  |    1\nbob  |   22\n```\n\nso"
    )


def test_two_tables_and_a_huge_one_are_laid_out() -> None:
    assert block(f"{TABLE}\n\n{TABLE}").count("name | size\n-----+-----") == 2
    rows = "\n".join(f"| r{number} | {number} |" for number in range(150))
    assert "r149 | 149" not in block("| a | b |\n|---|---|\n" + rows).split("```")[0]


def test_a_row_with_too_many_cells_loses_none_of_them() -> None:
    assert words(stream("| a | b |\n|---|---|\n| 1 | 2 | 3 |")) == ["a", "b", "1", "2", "3"]


def test_what_only_looks_like_a_table_stays_as_it_is() -> None:
    for text in ("a | b\nc | d", "```\n| a | b |\n|---|---|\n| 1 | 2 |\n```", "| a |\n|---|---|\n| 1 |", "x || y"):
        assert stream(text) == text


def test_buttons_stand_below_and_many_stand_in_rows() -> None:
    choices = tuple(Choice(id=f"c{number}", label="x" * 100) for number in range(30))
    said = slack_compose.message(Body(text="choose", choices=choices), mentions=False)
    assert [len(each.get("elements", ())) for each in check_blocks(said["blocks"])] == [0, 25, 5]
    alone = slack_compose.message(Body(choices=choices[:2]), mentions=False)
    assert [each["type"] for each in check_blocks(alone["blocks"])] == ["actions"]
    assert alone["text"]


# What fits.


@pytest.mark.parametrize(
    "text",
    [
        "word " * 6_000,
        "x" * 30_000,
        "para one.\n\n" * 3_000,
        "```python\n" + "print('hello')\n" * 2_500 + "```",
        "| a | b |\n|---|---|\n" + "| some words here | and more words there |\n" * 900,
        "# head\n\nwords\n\n" * 200,
        "intro\n\n" + f"{TABLE}\n\n" * 300,
        "<@U1>" * 5_000,
        "\U0001f600" * 13_000,
        "- item\n" * 4_000,
    ],
)
def test_every_part_of_a_long_text_fits_and_no_word_is_lost(text: str) -> None:
    parts = compose(text)
    assert len(parts) > 1
    for part in parts:
        said = slack_compose.message(Body(text=part), mentions=False)
        assert len(block(part)) <= LIMIT
        assert render._blocks(part) <= MOST_BLOCKS
        assert part.count("```") % 2 == 0
        check_blocks(said["blocks"])
        assert len(said["text"]) <= render.UPDATE_LIMIT
    heads = ("a", "b", "name", "size", "python")
    kept = [word for part in parts for word in words(part) if word not in heads]
    assert "".join(kept) == "".join(word for word in words(text) if word not in heads)


def test_a_table_that_is_cut_repeats_its_head() -> None:
    text = "| left | right |\n|---|---|\n" + "".join(f"| row {number} | {'x' * 40} |\n" for number in range(600))
    parts = compose(text)
    assert len(parts) > 1
    assert all(part.startswith("| left | right |\n|---|---|\n") for part in parts)


def test_what_fits_comes_back_as_it_is_and_nothing_has_no_part() -> None:
    assert compose("hello\n") == ("hello\n",)
    assert compose(" \n ") == ()


def test_of_a_text_that_outgrows_its_place_the_end_is_shown() -> None:
    text = "```python\n" + "".join(f"line {number}\n" for number in range(2_000)) + "```"
    shown = tail(text, 4_000)
    assert len(shown) <= 4_000
    assert shown.startswith("…\n```python\nline ")
    assert shown.endswith("line 1999\n```")
    assert tail("short") == "short"


# What may be said for good.


@pytest.mark.parametrize(
    ("text", "stays"),
    [
        ("hello", "hello"),
        ("…", ""),
        ("search …", ""),
        ("hello\n\nsearch …", "hello"),
        ("hello <!chan", "hello "),
        ("hello @her", "hello "),
        ("see\n\n| a | b |\n|---|---|\n| 1", "see"),
        ("see\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nso", "see\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nso"),
        ("```\na | b", "```\na | b"),
    ],
)
def test_a_stream_is_given_only_what_will_stay(text: str, stays: str) -> None:
    assert settled(text).rstrip() == stays.rstrip()


def test_a_stream_never_has_to_take_a_word_back() -> None:
    text = f"Hi <@U1>, see **this**:\n\n{TABLE}\n\nand `code`\n\n```c\na < b\n```\n\n@here that is <!channel> all."
    said = ""
    for end in range(len(text)):
        grown = stream(settled(text[:end]))
        if grown.startswith(said):
            said = grown
        else:
            assert said.startswith(grown), (said, grown)
    assert stream(text).startswith(said)

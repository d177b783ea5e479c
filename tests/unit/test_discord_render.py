"""Markdown as Discord shows it: what it cannot draw is drawn otherwise, and no word is ever lost."""

from __future__ import annotations

import random
import re
from collections import Counter

import pytest

from tidings.adapters.discord import render
from tidings.adapters.discord.compose import ANSWER_FILE, IN_THE_FILE, cut, is_said, title, word
from tidings.core.errors import Unfit
from tidings.core.types import Body

SIGNS = "`~*_|>#-+[]()!\\ \n\tab1é😀漢<:/&\r\ud83d="


def ink(text: str) -> Counter[str]:
    return Counter(character for character in render.clean(text) if character.isalnum())


@pytest.mark.parametrize(
    "text",
    [
        "hi",
        "two\n\nparagraphs",
        "**bold**, *italic*, ~~gone~~ and `code`",
        "# One\n## Two\n### Three",
        "- a\n  - b\n1. c",
        "> quoted\n> twice",
        "```python\nprint('| a | b |')\n```",
        "[a link](https://example.org) and https://example.org/a_b_c",
        "<b>HTML</b> is text, &amp; so are entities",
        "<@123> <#456> <t:1700000000>",
        r"\*not italic\*",
    ],
)
def test_what_discord_draws_itself_stays_as_it_is(text: str) -> None:
    assert render.render(text) == text


def test_a_table_becomes_a_box_with_its_columns_in_line() -> None:
    table = "Prices:\n\n| Thing | Price |\n|---|--:|\n| **Tea** | 3 |\n| [Cake](https://c.example) | 12 |\n\nDone."
    assert render.render(table) == (
        "Prices:\n\n"
        "```\n"
        "Thing                    | Price\n"
        "-------------------------+------\n"
        "Tea                      |     3\n"
        "Cake (https://c.example) |    12\n"
        "```\n\nDone."
    )


def test_a_row_with_too_many_cells_keeps_them() -> None:
    shown = render.render("| a | b |\n|---|---|\n| 1 | 2 | 3 |")
    assert "3" in shown
    assert shown.startswith("```\n")


def test_pictures_are_links_and_never_begin_with_a_stray_sign() -> None:
    assert render.render("![a cat](https://c.example/cat.png)") == "[a cat](https://c.example/cat.png)"
    assert render.render("![](https://c.example/cat.png)") == "https://c.example/cat.png"
    assert render.render("[![badge](https://i.example)](https://l.example)") == (
        "[badge](https://l.example) (https://i.example)"
    )


def test_deep_headings_are_bold_and_underlined_ones_are_headings() -> None:
    assert (
        render.render("#### Deep\n\n##### Deeper ##\n\n###### **Deepest**") == "**Deep**\n\n**Deeper**\n\n**Deepest**"
    )
    assert render.render("Title\n=====\n\ntext") == "# Title\n\ntext"


def test_an_address_is_never_hidden_behind_another() -> None:
    assert render.render("[https://good.example](https://bad.example)") == "https://good.example (https://bad.example)"
    assert render.render("[https://a.example](https://a.example/)") == "https://a.example/"
    assert render.render("see [the page][1]\n\n[1]: https://a.example") == (
        "see [the page](https://a.example)\n\n[1]: https://a.example"
    )


def test_other_fences_become_the_one_that_discord_knows() -> None:
    assert render.render("~~~py\nx = 1\n~~~") == "```py\nx = 1\n```"
    assert render.render("Look:\n\n    x = a*b*c\n    y") == "Look:\n\n```\nx = a*b*c\ny\n```"
    assert render.render("```py\nstill writing") == "```py\nstill writing\n```"


def test_backticks_inside_of_a_box_do_not_end_it() -> None:
    shown = render.render("````md\n```js\nx\n```\n````")
    assert shown.count("```") == 2
    assert shown.replace(render.APART, "") == "```md\n```js\nx\n```\n```"


def test_signs_that_discord_would_swallow_are_escaped() -> None:
    assert render.render("a || b || c") == r"a \|\| b \|\| c"
    assert render.render("call __init__ and `__init__`") == r"call \_\_init\_\_ and `__init__`"
    assert render.render("2*3*4 and x**2") == r"2\*3\*4 and x\*\*2"
    assert render.render("**so**:\n\n>>> print(1)\nrest") == "**so**:\n\n\\>>> print(1)\nrest"
    assert render.render("***\n\ntext\n\n***") == "---\n\ntext\n\n---"


def test_small_differences_of_lists_and_quotes_are_mended() -> None:
    assert render.render("+ one\n+ two") == "- one\n- two"
    assert render.render("- [ ] open\n- [x] done") == "- ☐ open\n- ☑ done"
    assert render.render(">near\n>\n> far") == "> near\n> \n> far"


def test_nothing_is_lost_and_nothing_raises_whatever_is_written() -> None:
    lots = random.Random(7)
    for _ in range(1500):
        text = "".join(lots.choice(SIGNS) for _ in range(lots.randint(1, 90)))
        shown = render.render(text)
        # The tick of a task is drawn, and so may the parser do with one letter in brackets.
        assert not ink(text.replace("[x]", "").replace("[X]", "")) - ink(shown), text
        shown.encode()
        parts = render.compose(text, 40)
        assert all(len(render.render(part)) <= 40 for part in parts), text
        assert not ink(text) - ink("\n".join(parts)), text
        assert len(render.tail(text, 60)) <= 60, text


def test_parts_are_measured_as_they_are_shown() -> None:
    rows = "\n".join(f"| {number} | {'x' * (number % 30)} |" for number in range(200))
    text = f"Before.\n\n| n | what |\n|---|---|\n{rows}\n\nAfter."
    parts = render.compose(text)
    shown = [render.render(part) for part in parts]
    assert len(parts) > 1
    assert all(len(part) <= render.LIMIT for part in shown)
    assert all(re.search(r"n +\| what", part) for part in shown), "each part has the head of the table"
    assert all(part.count("```") == 2 for part in shown)
    assert shown[0].startswith("Before.")
    assert shown[-1].endswith("After.")


def test_code_is_reopened_where_it_was_cut() -> None:
    code = "\n".join(f"print({number})" for number in range(500))
    parts = [render.render(part) for part in render.compose(f"```python\n{code}\n```")]
    assert len(parts) == 3
    assert all(part.startswith("```python\n") and part.endswith("\n```") for part in parts)


def test_a_text_that_grows_shows_its_end_and_stays_in_its_box() -> None:
    code = "\n".join(f"print({number})" for number in range(500))
    shown = render.tail(f"Look:\n\n```python\n{code}")
    assert len(shown) <= render.LIMIT
    assert shown.startswith("…\n```python\nprint(")
    assert shown.endswith("print(499)\n```")
    assert render.tail("short **text") == "short **text"


def test_past_five_messages_a_text_is_a_file() -> None:
    few, many = "word " * 1900, "word " * 2100
    assert len(cut(few, in_one=False)) == 5
    assert cut(many, in_one=False) == (many,)
    words = word(many, in_one=False)
    assert words.attached == ((ANSWER_FILE, many.encode()),)
    assert words.content.startswith("word word")
    assert words.content.endswith(IN_THE_FILE)
    assert len(words.content) <= render.LIMIT
    with pytest.raises(Unfit):
        word(few, in_one=False)
    assert word(few, in_one=True).attached, "an answer for one person is one message"


def test_above_a_file_stands_its_beginning_whatever_the_rest_is() -> None:
    table = "| a | b |\n|---|---|\n| 1 | 2 |\n\n"
    abyss = "\n" + "- " * 20 + "x\n"
    plain, odd = (word(table + "word " * 10_000 + rest, in_one=False) for rest in ("", abyss))
    assert plain.content == odd.content, "nobody reads on to the end for that"
    assert plain.content.startswith("```\n")


def test_what_discord_trims_is_still_what_we_said() -> None:
    words = word("hi  there\n", in_one=False)
    assert is_said({"content": "hi  there"}, Body(text="hi  there\n"), words)
    assert not is_said({"content": "hi"}, Body(text="hi  there\n"), words)
    assert not is_said({"content": "hi there", "attachments": [{"filename": "a.txt"}]}, Body(text="hi there"), words)


def test_a_thread_is_named_after_what_opened_it() -> None:
    assert title("<@123> how do I\nbake bread?") == "how do I bake bread?"
    assert title("<@!123>") == "Conversation"
    assert len(title("x" * 200)) == 80

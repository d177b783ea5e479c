"""What models write is shown on Telegram as it was meant, in parts that fit, and no word of it is lost."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidings.adapters.telegram.render import (
    LIMIT,
    MOST_ENTITIES,
    Rendered,
    compose,
    length,
    plain,
    render,
    tail,
    wants_rich,
)

ROOT = Path(__file__).resolve().parents[2]
FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
GRIN = "\U0001f600"
WORD = re.compile(r"[^\W_]+")

Shown = tuple[str, str] | tuple[str, str, str]


def covered(rendered: Rendered) -> list[Shown]:
    """Each entity with the text below it and, where it has one, its address or language."""
    units = rendered.text.encode("utf-16-le")
    found: list[Shown] = []
    for entity in rendered.entities:
        start, end = entity["offset"], entity["offset"] + entity["length"]
        text = units[2 * start : 2 * end].decode("utf-16-le")
        extra = [entity[key] for key in ("url", "language") if key in entity]
        found.append((entity["type"], text, extra[0]) if extra else (entity["type"], text))
    return found


def check(markdown: str, text: str, *entities: Shown) -> None:
    rendered = render(markdown)
    assert rendered.text == text
    assert sorted(covered(rendered)) == sorted(entities)


def letters(text: str) -> Counter[str]:
    return Counter("".join(WORD.findall(text)))


@pytest.mark.parametrize(
    ("markdown", "text", "entities"),
    [
        ("# Title\n\nWords.", "Title\n\nWords.", [("bold", "Title"), ("underline", "Title")]),
        ("### Third\nWords.", "Third\nWords.", [("bold", "Third")]),
        ("## **Title**", "Title", [("bold", "Title"), ("underline", "Title")]),
        (
            "**a** *b* ***c*** ~~d~~ `e`",
            "a b c d e",
            [("bold", "a"), ("italic", "b"), ("bold", "c"), ("italic", "c"), ("strikethrough", "d"), ("code", "e")],
        ),
        ("> one\n> two\n\nafter", "one\ntwo\n\nafter", [("blockquote", "one\ntwo")]),
        ("> one\n> > two", "one\ntwo", [("blockquote", "one\ntwo")]),
        ("- > one\n- two", "\u2022 \none\n\u2022 two", [("blockquote", "one")]),
        ("> " + "long " * 60, ("long " * 60).strip(), [("blockquote", ("long " * 60).strip())]),
        ("***\nafter", "\u2014" * 8 + "\nafter", []),
        ("line one\nline *two*", "line one\nline two", [("italic", "two")]),
        (
            "\u8fd9\u662f**\u91cd\u70b9**\u5185\u5bb9",
            "\u8fd9\u662f\u91cd\u70b9\u5185\u5bb9",
            [("bold", "\u91cd\u70b9")],
        ),
        ("\\*plain\\* \\<b\\>", "*plain* <b>", []),
    ],
)
def test_plain_styles(markdown: str, text: str, entities: list[Shown]) -> None:
    check(markdown, text, *entities)


@pytest.mark.parametrize(
    ("markdown", "text", "entities"),
    [
        ("- a\n  - b\n    - c\n- d", "\u2022 a\n  \u2022 b\n    \u2022 c\n\u2022 d", []),
        ("1. a\n2. b\n   - c", "1. a\n2. b\n  \u2022 c", []),
        ("1. a\n1. b\n1. c", "1. a\n2. b\n3. c", []),
        ("- [ ] open\n- [x] done", "\u2610 open\n\u2611 done", []),
        ("- a\n\n  its second\n- b", "\u2022 a\n  its second\n\u2022 b", []),
        ("- a\n  - b\n\n    **its** second", "\u2022 a\n  \u2022 b\n    its second", [("bold", "its")]),
        (
            "1. Run:\n   ```sh\n   make\n   ```\n   Then wait.\n2. Rest",
            "1. Run:\nmake\n  Then wait.\n2. Rest",
            [("pre", "make", "sh")],
        ),
        ("- # Head\n  body", "\u2022 \nHead\n  body", [("bold", "Head"), ("underline", "Head")]),
        ("- a\n  ***\n  b", "\u2022 a\n" + "\u2014" * 8 + "\n  b", []),
    ],
)
def test_lists_keep_their_shape(markdown: str, text: str, entities: list[Shown]) -> None:
    check(markdown, text, *entities)


@pytest.mark.parametrize(
    ("markdown", "text", "entities"),
    [
        ("```python\nx = 1\n```", "x = 1", [("pre", "x = 1", "python")]),
        ("```python\nx = 1", "x = 1", [("pre", "x = 1", "python")]),
        ("```rust,ignore\nfn\n```", "fn", [("pre", "fn", "rust,ignore")]),
        ("```\n    deep\n```", "    deep", [("pre", "    deep")]),
        ("so:\n\n    deep", "so:\n\ndeep", [("pre", "deep")]),
        ("Soon:\n\n```python", "Soon:", []),
        ("`Vec<T>` `&amp;` `__x__` `a || b`", "Vec<T> &amp; __x__ a || b", None),
        (
            "```\n<b> &amp; __x__ 2*3*4 $a_1$ \\(x\\) a || b [c]: d\n```",
            "<b> &amp; __x__ 2*3*4 $a_1$ \\(x\\) a || b [c]: d",
            None,
        ),
        ("```\n<details><summary>T</summary></details>\n```", "<details><summary>T</summary></details>", None),
    ],
)
def test_code_is_left_as_it_is(markdown: str, text: str, entities: list[Shown] | None) -> None:
    rendered = render(markdown)
    assert rendered.text == text
    if entities is None:
        assert {entity["type"] for entity in rendered.entities} <= {"code", "pre"} != set()
    else:
        assert covered(rendered) == entities


@pytest.mark.parametrize(
    ("markdown", "text", "entities"),
    [
        (
            "[wiki](https://en.wikipedia.org/wiki/A_(b)) it",
            "wiki it",
            [("text_link", "wiki", "https://en.wikipedia.org/wiki/A_(b)")],
        ),
        ("[q](https://a.b/?x=1&copy;=2)", "q", [("text_link", "q", "https://a.b/?x=1&copy;=2")]),
        ("<https://a.b/c_d_e>", "https://a.b/c_d_e", [("text_link", "https://a.b/c_d_e", "https://a.b/c_d_e")]),
        ("[a](<https://a.b/c>)", "a", [("text_link", "a", "https://a.b/c")]),
        ("[`f()`](https://a.b)", "f()", [("text_link", "f()", "https://a.b")]),
        (
            "![](https://a.b/c.png)",
            "\U0001f5bchttps://a.b/c.png",
            [("text_link", "https://a.b/c.png", "https://a.b/c.png")],
        ),
        ("![alt](https://a.b/c.png)", "\U0001f5bcalt", [("text_link", "alt", "https://a.b/c.png")]),
        ("**see** https://a.b/_next_/__c__", "see https://a.b/_next_/__c__", [("bold", "see")]),
        ("**see** [main](src/main.py)", "see [main](src/main.py)", [("bold", "see")]),
        ("**see** [a](http://localhost:80/)", "see [a](http://localhost:80/)", [("bold", "see")]),
        ('**see** [a](https://a.b "more")', 'see [a](https://a.b "more")', [("bold", "see")]),
        ("**see** [a][1]\n\n[1]: https://a.b", "see [a][1]\n\n[1]: https://a.b", [("bold", "see")]),
        ("[https://a.b](https://a.b)", "https://a.b", [("text_link", "https://a.b", "https://a.b")]),
    ],
)
def test_an_address_is_followed_or_at_least_read(markdown: str, text: str, entities: list[Shown]) -> None:
    check(markdown, text, *entities)


@pytest.mark.parametrize(
    ("markdown", "text"),
    [
        ("A Vec<T> and a HashMap<K, V>, **so**", "A Vec<T> and a HashMap<K, V>, so"),
        ("<think>x</think>hi, **so**", "<think>x</think>hi, so"),
        ("<div>\n<p>text</p>\n</div>\n\n**so**", "<div>\n<p>text</p>\n</div>\n\nso"),
        ("<!-- kept --> **so**", "<!-- kept --> so"),
        ("Write <details> for it, **so**", "Write <details> for it, so"),
        ("Edit __init__.py and `x`, then __main__, **so**", "Edit __init__.py and x, then __main__, so"),
        ("Bare &amp; and &copy; and AT&T, **so**", "Bare &amp; and &copy; and AT&T, so"),
        ("2*3*4 and x**2 + y**2, **so**", "2*3*4 and x**2 + y**2, so"),
        ("~5 to ~6 and a || b || c, **so**", "~5 to ~6 and a || b || c, so"),
        ("$5 and $10, $5-$10, $HOME/bin:$PATH, 5$ or 6$, **so**", "$5 and $10, $5-$10, $HOME/bin:$PATH, 5$ or 6$, so"),
        ("file\\(s\\) \\(see below\\) \\[x\\], **so**", "file(s) (see below) [x], so"),
        ("one\r\ntwo\rthree, **so**", "one\ntwo\nthree, so"),
        ("half \ud83d of a pair, **so**", "half \ufffd of a pair, so"),
        ("foreign \ufdd0 mark, **so**", "foreign \ufffd mark, so"),
    ],
)
def test_what_only_looks_like_markup_stays_text(markdown: str, text: str) -> None:
    check(markdown, text, ("bold", "so"), *([("code", "x")] if "`x`" in markdown else []))


@pytest.mark.parametrize(
    ("markdown", "text", "entities"),
    [
        (r"so \(a_1\) is", "so a\u2081 is", [("code", "a\u2081")]),
        (r"$\pi$ and $x^2$ and $O(n \log n)$", "\u03c0 and x\u00b2 and O(n log n)", None),
        ("so:\n\n$$\nE = mc^2\n$$\n\nnext", "so:\n\nE = mc\u00b2\n\nnext", [("pre", "E = mc\u00b2")]),
        ("\\[\nx = \\frac{a}{b}\n\\]", "x = a/b", [("pre", "x = a/b")]),
        ("> \\[\n> x = 1\n> \\]", "x = 1", [("blockquote", "x = 1"), ("pre", "x = 1")]),
        ("- a\n\n  $$x^2$$\n\n  b", "\u2022 a\n\nx\u00b2\n  b", [("pre", "x\u00b2")]),
        (r"$\sqrt{b^2-4ac}$ $\sqrt{x}$", "\u221a(b\u00b2-4ac) \u221ax", None),
        (r"$\color{red}$ stays", r"\color{red} stays", [("code", r"\color{red}")]),
        (r"\(x^{ab\) stays", "x^{ab stays", [("code", "x^{ab")]),
        ("$AB$ is, and $n$", "AB is, and n", [("code", "AB"), ("code", "n")]),
        (r"\(`a` = b\) is", "`a` = b is", [("code", "`a` = b")]),
        ("$$a = 1 \\\\ b = 2$$", "a = 1\n b = 2", [("pre", "a = 1\n b = 2")]),
    ],
)
def test_formulas_are_spelled_in_unicode(markdown: str, text: str, entities: list[Shown] | None) -> None:
    rendered = render(markdown)
    assert rendered.text == text
    if entities is None:
        assert {entity["type"] for entity in rendered.entities} == {"code"}
    else:
        assert sorted(covered(rendered)) == sorted(entities)


def test_lines_over_lines_do_not_double_a_formula_each_time() -> None:
    shown = render("$" + r"\overline{" * 40 + "x" + "}" * 40 + "$").text
    assert shown.startswith("x\u0305")
    assert len(shown) < 40


TABLE = """\
| Name | Count |
|:-----|------:|
| \u2705 ok | 5 |
| \u4e2d\u6587 | 1234 |
| `a | b` | $x^2$ |
"""
TABLE_SHOWN = """\
Name  | Count
------+------
\u2705 ok |     5
\u4e2d\u6587  |  1234
a | b |    x\u00b2"""


def test_a_table_is_a_box_with_straight_columns() -> None:
    check(f"So:\n\n{TABLE}\nafter", f"So:\n\n{TABLE_SHOWN}\n\nafter", ("pre", TABLE_SHOWN))


@pytest.mark.parametrize(
    ("markdown", "text"),
    [
        ("| a | b |\n|--|--|\n| 1 | 2 | 3 |", "| a | b |\n|--|--|\n| 1 | 2 | 3 |"),
        ("| a | b |\n|--|--|\n| 1 |", "a | b\n--+--\n1 |"),
        (
            "| a |\n|--|\n| [x](https://a.b/c) |",
            "a\n-------------------\nx (https://a.b/c)".replace("-" * 19, "-" * 17),
        ),
        ("| a |\n|--|\n| [https://a.b](https://a.b) |", "a\n-----------\nhttps://a.b"),
        ("| a |\n|--|\n| x<br>y |", "a\n---\nx y"),
        ("| a |\n|--|\n| $5 |", "a\n--\n$5"),
        ("| a | b |\n|--|--|\n|| c |", "a | b\n--+--\n  | c"),
        ("> | a |\n> |--|\n> | b |", "a\n-\nb"),
        ("- x\n  | a |\n  |--|\n  | b |", "\u2022 x\na\n-\nb"),
    ],
)
def test_no_cell_of_a_table_is_lost(markdown: str, text: str) -> None:
    rendered = render(markdown)
    assert rendered.text == text
    assert "pre" in {entity["type"] for entity in rendered.entities}


def test_a_line_below_a_table_is_no_row_of_it() -> None:
    check("| a |\n|--|\n| b |\nafter **it**", "a\n-\nb\nafter it", ("pre", "a\n-\nb"), ("bold", "it"))


def test_one_long_cell_does_not_widen_every_row() -> None:
    rows = "".join(f"| {number} | b |\n" for number in range(10))
    text = render(f"| a | b |\n|--|--|\n| {'x' * 300} | b |\n{rows}").text
    assert "x" * 300 in text
    assert max(map(len, text.splitlines()[3:])) < 50


@pytest.mark.parametrize(
    ("markdown", "text", "entities"),
    [
        ("<details><summary>More</summary>body</details>", "More\n\nbody", [("bold", "More")]),
        (
            "<details open>\n<summary><b>More</b></summary>\n\nthe *body*\n\n</details>\n\nafter",
            "More\n\nthe body\n\nafter",
            [("bold", "More"), ("italic", "body")],
        ),
        (
            "<details>\n<summary>More</summary>\n```py\na<b\n```\n</details>",
            "More\n\na<b",
            [("bold", "More"), ("pre", "a<b", "py")],
        ),
        ("<details><summary>More</summary>still growing", "More\n\nstill growing", [("bold", "More")]),
        ("<details>no title</details>, *so*", "no title\n\n, so", [("italic", "so")]),
        ("a<br>b<br/>*c*", "a\nb\nc", [("italic", "c")]),
    ],
)
def test_what_is_folded_is_unfolded(markdown: str, text: str, entities: list[Shown]) -> None:
    check(markdown, text, *entities)


def test_offsets_count_utf16_units() -> None:
    rendered = render(f"{GRIN} **bold** {FAMILY} `code`")
    assert rendered.text == f"{GRIN} bold {FAMILY} code"
    assert rendered.entities == (
        {"type": "bold", "offset": 3, "length": 4},
        {"type": "code", "offset": 17, "length": 4},
    )
    assert length(FAMILY) == 8


def test_surrounding_whitespace_is_gone_and_offsets_with_it() -> None:
    rendered = render("\n\n \n**bold** words \n\n")
    assert rendered == Rendered("bold words", ({"type": "bold", "offset": 0, "length": 4},))


@pytest.mark.parametrize("markdown", ["", " \n\t"])
def test_nothing_is_rendered_as_nothing(markdown: str) -> None:
    assert render(markdown) == Rendered("", ())


def test_an_emoji_of_several_characters_is_two_columns_wide() -> None:
    warning = "\u26a0\ufe0f"
    text = f"a  | b\n---+--\n{warning} | c\n{FAMILY} | d"
    check(f"| a | b |\n|--|--|\n| {warning} | c |\n| {FAMILY} | d |", text, ("pre", text))


@pytest.mark.parametrize("markdown", ["```python\n```", "<details></details>", "[ ](https://a.b)", "- " * 300 + "a"])
def test_what_would_show_nothing_or_get_out_of_hand_is_shown_as_it_was_written(markdown: str) -> None:
    assert render(f" {markdown}\n") == Rendered(markdown.strip(), ())


@pytest.mark.parametrize("before", ["**before**", "<https://a.b/c>"])
def test_a_lost_word_brings_back_the_source(before: str) -> None:
    """A link on a line break is a trap that nobody disarms, so the check behind it must hold."""
    markdown = f"{before} [\n](https://a.b/c) after"
    assert render(markdown) == Rendered(markdown, ())


def test_of_too_many_entities_the_useful_ones_are_kept() -> None:
    bold = "**a** " * 90
    rendered = render(f"{bold}\n\n{'`b` ' * 40}\n\n[c](https://a.b)\n\n```\nd\n```")
    kinds = Counter(entity["type"] for entity in rendered.entities)
    assert kinds == {"bold": MOST_ENTITIES - 42, "code": 40, "text_link": 1, "pre": 1}
    offsets = [entity["offset"] for entity in rendered.entities]
    assert offsets == sorted(offsets)


def test_more_links_than_can_be_shown_are_shown_as_they_were_written() -> None:
    markdown = " ".join(f"[a](https://a.b/{number})" for number in range(MOST_ENTITIES + 1))
    assert render(markdown) == Rendered(markdown, ())


@pytest.mark.parametrize(
    "text",
    [
        "Sure, at 10:30! Bring the notes (the blue ones) - and 5% more; a/b = c.",
        f"Not #1, but > 2 {GRIN}\n\n\nNew line.",
        "half a pair \ud83d",
    ],
)
def test_text_without_markup_does_not_need_the_converter(text: str) -> None:
    code = (
        "import sys; from tidings.adapters.telegram import render; text = eval(sys.argv[1]);"
        "assert render.render(text).entities == () and render.compose(text) == (text,) and not render.wants_rich(text);"
        "print(*sorted({'pyromark', 'telegramify_markdown', 'telegram'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, ascii(text)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "\n"
    assert render(text).text == text.replace("\ud83d", "\ufffd")


@pytest.mark.parametrize(
    "markdown",
    [
        TABLE,
        "so $x^2$ is",
        "$$x = 1$$",
        r"so \(a_1\) is",
        "\\[\nx = 1\n\\]",
        "<details><summary>T</summary>b</details>",
        "> | a |\n> |--|\n> | b |",
    ],
)
def test_what_entities_show_badly_wants_a_rich_message(markdown: str) -> None:
    assert wants_rich(markdown)
    assert not wants_rich(f"````\n{markdown}\n````")


@pytest.mark.parametrize(
    "markdown",
    [
        "",
        "**bold** | or | not",
        "$5 and $10",
        "`$x^2$` `<details>`",
        "the <details> tag",
        r"file\(s\)",
        "a<br>b",
        "- " * 300,
    ],
)
def test_other_text_does_not(markdown: str) -> None:
    assert not wants_rich(markdown)


def test_plain_is_the_source_unless_that_is_too_long() -> None:
    assert plain(" **a** [b](https://a.b)\r\n") == "**a** [b](https://a.b)"
    long = f"[b](https://a.b/{'c' * LIMIT})"
    assert plain(long) == "b"
    assert plain(long, limit=2 * LIMIT) == long


@pytest.mark.parametrize("markdown", ["", " \n\t "])
def test_nothing_has_no_parts(markdown: str) -> None:
    assert compose(markdown) == ()


def test_what_fits_once_rendered_is_one_part_as_it_is() -> None:
    markdown = f"\n **a** [b](https://a.b/{'c' * LIMIT}) \r\n"
    assert compose(markdown) == (markdown,)


def test_a_long_answer_is_cut_and_its_fence_reopened() -> None:
    parts = compose("Look:\n\n```py\n" + "one = 1\n" * 20 + "```\n\nDone **now**.", 100)
    code = "\n".join(["one = 1"] * 10)
    assert [covered(render(part)) for part in parts] == [
        [("pre", code, "py")],
        [("pre", code, "py")],
        [("bold", "now")],
    ]


def test_a_table_that_is_cut_repeats_its_head() -> None:
    rows = [f"| item {number} | {number} |" for number in range(30)]
    markdown = "Before.\n\n| Name | Count |\n|---|--:|\n" + "\n".join(rows) + "\n\nAfter."
    parts = compose(markdown, 200)
    assert len(parts) > 3
    heads = [render(part).text.split("\n")[0] for part in parts]
    assert [re.sub(" +", " ", head) for head in heads] == ["Before."] + ["Name | Count"] * (len(parts) - 1)
    assert [row for part in parts for row in part.splitlines() if row.startswith("| item")] == rows
    assert (parts[0], parts[-1][-6:]) == ("Before.", "After.")


def test_a_table_that_fits_is_not_cut() -> None:
    table = "| Name | Count |\n|---|--:|\n" + "| item | 1 |\n" * 8
    parts = compose(f"{'Words before. ' * 12}\n\n{table}\n{'Words after. ' * 12}", 200)
    assert [part for part in parts if "| item" in part] == [table.rstrip("\n")]


def test_a_head_as_long_as_a_part_is_not_repeated() -> None:
    parts = compose("| a |\n|--|\n".replace("a", "head " * 30) + "| row |\n" * 5, 100)
    assert letters("".join(parts))["h"] == 30


def test_a_table_that_grows_is_cut_again() -> None:
    markdown = "> | a | b |\n> |--|--|\n> | " + "x" * 40 + " | b |\n" + "> | 1 | 2 |\n" * 20
    parts = compose(markdown, 300)
    assert length(markdown) < 330
    assert [part for part in parts if length(render(part).text) > 300] == []
    assert letters("".join(parts)) == letters(markdown)


def test_what_is_folded_is_unfolded_before_it_is_cut() -> None:
    parts = compose(f"<details><summary>Log</summary>\n\n{'Some words here. ' * 30}\n\n</details>\n\nEnd.", 200)
    assert parts[0].startswith("**Log**")
    assert [part for part in parts if "<" in part] == []
    assert parts[-1].endswith("End.")


@pytest.mark.parametrize("markdown", ["<details>" * 60 + "</details>" * 60, "- " * 300, "***\n" * 100, "1. a\n" * 100])
def test_nasty_text_is_cut_as_well(markdown: str) -> None:
    parts = compose(markdown, 64)
    assert parts
    assert [part for part in parts if length(render(part).text) > 64] == []


def test_a_character_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="single character"):
        compose(GRIN * 3, 1)


def test_a_tail_that_fits_is_the_whole() -> None:
    rendered = render("**a** b")
    assert tail(rendered, 3) is rendered


@pytest.mark.parametrize(
    ("limit", "text", "entities"),
    [
        (40, "\u2026\n    two = 2\n    three = 3\n\nand the end", [("pre", "    two = 2\n    three = 3", "py")]),
        (39, "\u2026\n    three = 3\n\nand the end", [("pre", "    three = 3", "py")]),
        (15, "\u2026\nand the end", []),
        (9, "\u2026the end", []),
        (4, "\u2026nd", []),
        (1, "\u2026", []),
        (0, "", []),
    ],
)
def test_a_tail_begins_at_a_line_or_a_word(limit: int, text: str, entities: list[Shown]) -> None:
    rendered = tail(render("```py\none = 1\n\n    two = 2\n    three = 3\n```\n\nand the end"), limit)
    assert (rendered.text, covered(rendered)) == (text, entities)


def test_a_tail_is_as_long_as_it_may_be() -> None:
    assert tail(Rendered(GRIN * 10, ()), 8).text == f"\u2026{GRIN * 3}"


@pytest.mark.parametrize("limit", range(3, 30))
def test_a_tail_splits_no_character(limit: int) -> None:
    text = tail(Rendered((FAMILY + "e\u0301" + GRIN) * 5, ()), limit).text
    assert length(text) <= limit
    assert re.fullmatch(f"\u2026(?:{FAMILY})?(?:e\u0301)?(?:{GRIN})?(?:{FAMILY}e\u0301{GRIN})*", text)


WORDS = ["word", "12", " ", "\n", "\n\n", "\n  ", "\n    ", "\t", "\r\n", "\0", "\ud83d", "\ufdd0", "\u2028", "\u1680"]
CLUSTERS = ["\u4e2d\u6587", "e\u0301", GRIN, FAMILY]
STARS = ["**", "*", "_", "__", "~~", "~"]
MARKS = [*STARS, "\\", "&", "&amp;", "<", ">", "|", "||", "[", "](", "](https://a.b/c_d)", ")", "![", "[a]:"]
TRAPS = ["<b>", "<!--c-->", "<https://a.b>", "https://a.b/_c_", "__init__", "2*3*4", "x**2"]
BLOCKS = ["\n# ", "\n- ", "\n1. ", "\n> ", "\n---\n", "\n***\n", "\n===\n"]
TABLES = ["\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n", "| c | d |\n", "| `e | f` |"]
PROSE = [*WORDS, *CLUSTERS, *MARKS, *TRAPS, *BLOCKS, *TABLES]
CODE = ["`", "``", "```", "```py\n", "~~~", "\n- [x] "]
FOLDS = ["<details>", "<summary>S</summary>", "</details>", "<br>"]
FORMULAS = [
    "$",
    "$$",
    "$x^2$",
    r"\(a_1\)",
    r"\[x = 1\]",
    r"\frac{a}{b}",
    r"\sqrt[3]{x}",
    r"\begin{cases} a & b \\ c",
    "{",
    "}",
]
EVERYTHING = [*PROSE, *CODE, *FOLDS, *FORMULAS]

seeded = settings(derandomize=True, max_examples=80, deadline=None, database=None)


def texts(fragments: list[str], size: int = 30) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(fragments) | st.text(max_size=4), max_size=size).map("".join)


def speak(rendered: Rendered) -> Counter[str]:
    hidden = [entity[key] for entity in rendered.entities for key in ("url", "language") if key in entity]
    return letters(" ".join([rendered.text, *hidden]))


@seeded
@given(texts(EVERYTHING))
def test_whatever_comes_every_entity_lies_within_the_text(markdown: str) -> None:
    text, entities = render(markdown)
    assert bool(text) == bool(markdown.strip())
    assert text == text.rstrip()
    assert len(entities) <= MOST_ENTITIES
    units = text.encode("utf-16-le")
    for entity in entities:
        start, end = entity["offset"], entity["offset"] + entity["length"]
        assert 0 <= start < end <= length(text)
        # Half of a surrogate pair could not be decoded.
        assert units[2 * start : 2 * end].decode("utf-16-le").strip()
    written = [text, *(value for entity in entities for value in entity.values() if isinstance(value, str))]
    assert not re.search("[\ufdd0-\ufdef\u1680\u2028\r]", "".join(written))


@seeded
@given(texts(PROSE))
def test_no_word_is_lost(markdown: str) -> None:
    # Lists are counted anew; and st.text may write a formula.
    source = re.sub(r"\d+[.)](?=\s|$)", "", markdown.replace("$", "").replace("`", ""))
    assert not letters(source) - speak(render(markdown.replace("$", "").replace("`", "")))


@seeded
@given(texts([*WORDS, *CLUSTERS, *MARKS, *TRAPS, *BLOCKS, *TABLES, *FOLDS, *FORMULAS], size=12))
def test_code_is_shown_to_the_letter(code: str) -> None:
    clean = re.sub("[\r~\ud800-\udfff\ufdd0-\ufdef\u1680\u2028]", "", f"x{code}x")
    assert covered(render(f"So:\n\n~~~~\n{clean}\n~~~~\n")) == [("pre", clean)]


@seeded
@given(texts(EVERYTHING), st.sampled_from([24, 60, 200]))
def test_every_part_fits_once_rendered(markdown: str, limit: int) -> None:
    parts = compose(markdown, limit)
    assert [part for part in parts if length(render(part).text) > limit or not part.strip()] == []
    assert bool(parts) == bool(markdown.strip())


@seeded
@given(
    texts([*WORDS, *CLUSTERS, *BLOCKS, "**bold** ", "`code` ", "[a](https://a.b) ", "$x^2$ "], size=60),
    st.sampled_from([24, 60, 200]),
)
def test_the_parts_say_what_the_source_says(markdown: str, limit: int) -> None:
    assert "".join(WORD.findall("".join(compose(markdown, limit)))) == "".join(WORD.findall(markdown))


@seeded
@given(texts(EVERYTHING), st.integers(0, 60))
def test_a_tail_is_the_end_and_fits(markdown: str, limit: int) -> None:
    rendered = render(markdown)
    shown = tail(rendered, limit)
    assert length(shown.text) <= limit
    if shown.text != rendered.text:
        rest = shown.text[1:].removeprefix("\n")
        assert rendered.text.endswith(rest)
        assert shown.text[:1] in ("", "\u2026")
        before = covered(rendered)
        assert [entity for entity in covered(shown) if not any(entity[1] in whole[1] for whole in before)] == []

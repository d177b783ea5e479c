"""What a model reads of a page."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from tidings.bots.assistant.tools import page

BASE = URL("https://good.example/folder/page?q=1")


def check(markup: str, text: str) -> None:
    assert page.readable(markup.encode(), "text/html", None, BASE) == text


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("", ""),
        ("Just words.", "Just words."),
        ("<p>Two\n   words</p>", "Two words"),
        ("<p>One.</p><p>Two.</p>", "One.\n\nTwo."),
        ("<div>a<div>b</div></div>c", "a\nb\nc"),
        ("a<br>b<br/>c", "a\nb\nc"),
        ("<h2>Head</h2>text", "## Head\n\ntext"),
        ("<ul><li>a<li>b</ul>", "- a\n- b"),
        ("<table><tr><td>1<td>2<tr><th>3</th><th>4</th></table>", "1 | 2\n3 | 4"),
        ("<pre>def f():\n    return 1</pre>", "def f():\n    return 1"),
        ("1 < 2 &amp;&#32;2 &gt; 1 &lt;b&gt;", "1 < 2 & 2 > 1 <b>"),
        ("a&nbsp;b", "a b"),
        ("<body>x<title>T &amp; t</title><title>U</title>", "Title: T & t\n\nx"),
        ("a<script>if (1<2) document.write('<p>no</p>')</SCRIPT >b", "ab"),
        ("a<style>p { }</style>b<!-- <p>no</p> -->c<!doctype html>d<?xml?>e", "abcde"),
        ("a<script>never closed <p>b", "a"),
        ("a<!-- never closed <p>b", "a"),
        ("a<img alt='x > y' src=z>b", "ab"),
        ("<p title=don't>it's</p>", "it's"),
        ("<a href='b?c=1&amp;d=2'>B</a>", "B (https://good.example/folder/b?c=1&d=2)"),
        ('<A HREF="//other.example/">B</A>', "B (https://other.example/)"),
        ("<a href=/b>B</a> <a href=#here>C</a> <a href='javascript:x()'>D</a>", "B (https://good.example/b) C D"),
        ("<a href='https://x.example/'>https://x.example/</a>", "https://x.example/"),
        ("<a href='http://['>B</a>", "B"),
        ("<base href=/first/><base href=/other/><a href=b>B</a>", "B (https://good.example/first/b)"),
        ("a\x00\x1b[31mb&#27;c\x9bd", "a[31mbcd"),
        (f"<p>&#{'1' * 5000};x", "\ufffdx"),
    ],
)
def test_markup_becomes_text(markup: str, text: str) -> None:
    check(markup, text)


@given(st.text(st.sampled_from("<>/!-='\"& \nabpscript#;")))
def test_no_markup_breaks_the_reader(markup: str) -> None:
    read = page.readable(markup.encode(), "text/html", None, BASE)
    # White space is folded, entities become shorter and a link is followed by its address in brackets.
    assert len(read) <= 10 * len(markup) + 200
    assert read == read.strip()


@pytest.mark.parametrize(
    "piece",
    [
        "<a ",
        "<!--",
        "<a b='",
        "<a b=",
        "<a/",
        "</",
        "<![CDATA[",
        "<?",
        "&#",
        "</a>",
        "<title>",
        "<base href=a/>",
        " href=",
    ],
)
def test_markup_that_is_broken_on_purpose_is_read_in_one_go(piece: str) -> None:
    """Where a reader looks at everything again for each piece, this takes hours."""
    read = page.readable((piece * (300_000 // len(piece))).encode(), "text/html", None, BASE)
    assert len(read) <= 300_000


def test_short_markup_that_stands_for_long_text_is_read_up_to_a_point() -> None:
    markup = f"<base href='/{'b' * 1900}/'>" + "<a href=x>t</a>" * 100_000
    text, is_whole = page.from_markup(markup, BASE)
    assert not is_whole
    assert len(text) < 2 * page.ENOUGH_CHARACTERS
    assert "of more than 40" in page.readable(markup.encode(), "text/html", None, BASE)


@pytest.mark.parametrize("kind", ["text/plain", "text/markdown", "application/json", "application/ld+json", "text/csv"])
def test_other_text_is_left_as_it_is(kind: str) -> None:
    text = json.dumps({"a": "<b> &amp;", "c": [1, 2]}, indent=2)
    assert page.is_readable(kind)
    assert page.readable(text.encode(), kind, None, BASE) == text


@pytest.mark.parametrize(
    "kind", ["image/png", "application/pdf", "application/octet-stream", "application/zip", "video/mp4"]
)
def test_what_is_not_text_is_known_by_its_type(kind: str) -> None:
    assert not page.is_readable(kind)


@pytest.mark.parametrize(
    ("data", "kind", "charset", "text"),
    [
        ("ü".encode(), "text/plain", None, "ü"),
        ("ü".encode("latin1"), "text/plain", "ISO-8859-1", "ü"),
        ("ü".encode("latin1"), "text/plain", "no-such-charset", "\ufffd"),
        ("ü".encode(), "text/plain", "punycode", "ü"),
        ("ü".encode(), "text/plain", "base64", "ü"),
        ("ü".encode("utf-16"), "text/plain", "utf-8", "ü"),
        ("\ufeffü".encode(), "text/plain", None, "ü"),
        ('<meta charset="windows-1251"><p>Да'.encode("windows-1251"), "text/html", None, "Да"),
        (
            b'<?xml version="1.0" encoding="iso-8859-1"?>\xfc',
            "text/xml",
            None,
            '<?xml version="1.0" encoding="iso-8859-1"?>ü',
        ),
    ],
)
def test_letters_are_read_as_they_were_written(data: bytes, kind: str, charset: str | None, text: str) -> None:
    assert page.readable(data, kind, charset, BASE) == text


def test_every_charset_that_is_promised_is_known() -> None:
    for name in page.CHARSETS:
        assert b"a\0".decode(name)


def test_a_long_text_is_cut_and_says_so() -> None:
    told = page.readable(b"x" * 50_000, "text/plain", None, BASE)
    assert told.startswith("x" * 40_000 + "\n\n[Cut here: these are the first 40,000 of 50,000 characters;")
    told = page.readable(b"x" * 3_000_000, "text/plain", None, BASE)
    assert told.endswith(
        "[Cut here: these are the first 40,000 of more than 2,000,000 characters; the rest is left out.]"
    )
    told = page.readable(b"<script>" + b"x" * 3_000_000, "text/html", None, BASE)
    assert "of more than 0 characters" in told

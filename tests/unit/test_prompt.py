"""What stands on the screen while somebody types and answers arrive."""

import re

import pytest

from tidings.adapters.console.editor import Terminal

COLUMNS = 40


class Screen:
    """As much of a terminal as we use: lines, carriage return, cursor up, erase below."""

    def __init__(self) -> None:
        self.rows = [""]
        self.row = 0
        self.written: list[str] = []

    def write(self, text: str) -> None:
        self.written.append(text)
        for token in re.findall(r"\x1b\[\d*[A-Za-z]|.|\n", text):
            if token == "\n":
                self.row += 1
                self.rows[self.row :] = [*self.rows[self.row :], ""][:1]
            elif token == "\r":
                continue
            elif token.endswith("A") and len(token) > 1:
                self.row -= int(token[2:-1])
            elif token == "\x1b[J":
                self.rows[self.row :] = [""]
            elif not token.startswith("\x1b"):
                if len(self.rows[self.row]) == COLUMNS:
                    self.rows.append("")
                    self.row += 1
                self.rows[self.row] += token


def terminal() -> tuple[Terminal, Screen]:
    screen = Screen()
    drawn = Terminal(screen.write, lambda: COLUMNS)
    drawn.named("demo")
    return drawn, screen


def test_a_growing_answer_is_printed_word_by_word() -> None:
    drawn, screen = terminal()
    for text in ("", "Hello", "Hello there", "Hello there, you"):
        drawn.grow("v", text)
    assert screen.written[-3:] == ["demo> Hello", " there", ", you"]
    drawn.whole("v", "Hello there, you.")
    assert screen.rows == ["demo> Hello there, you.", "you> "]


def test_an_answer_that_starts_over_is_printed_anew() -> None:
    drawn, screen = terminal()
    drawn.grow("v", "First")
    drawn.grow("v", "Second")
    drawn.whole("v", "Second try")
    assert screen.rows == ["demo> First", "demo> Second try", "you> "]


def test_a_tool_at_work_is_shown_and_the_answer_goes_on() -> None:
    drawn, screen = terminal()
    drawn.grow("v", "Let me look.")
    drawn.grow("v", "Let me look.\n\nclock …")
    drawn.whole("v", "Let me look. It is five.")
    assert screen.rows == ["demo> Let me look.", "", "clock …", "demo> … It is five.", "you> "]


def test_a_notice_is_printed_above_what_is_being_typed() -> None:
    drawn, screen = terminal()
    drawn.type(b"half a li")
    drawn.whole("", "a notice")
    drawn.type("ne, wörds\x7fs".encode())
    assert screen.rows == ["demo> a notice", "you> half a line, wörds"]
    assert drawn.type(b"\r") == ["half a line, wörds"]
    assert screen.rows == ["demo> a notice", "you> half a line, wörds", "you> "]


def test_a_prompt_that_wraps_is_lifted_whole() -> None:
    drawn, screen = terminal()
    drawn.type(b"x" * 100)
    drawn.whole("", "a notice")
    assert screen.rows[0] == "demo> a notice"
    assert "".join(screen.rows[1:]) == "you> " + "x" * 100


def test_typing_breaks_into_an_answer_which_goes_on_below() -> None:
    drawn, screen = terminal()
    drawn.grow("v", "One two")
    drawn.type(b"/st")
    drawn.grow("v", "One two three")
    assert screen.rows == ["demo> One two", "you> /st"]
    assert drawn.type(b"op\n") == ["/stop"]
    drawn.whole("v", "One two three four")
    assert screen.rows == ["demo> One two", "you> /stop", "demo> … three four", "you> "]


def test_the_sign_that_somebody_types_comes_and_goes() -> None:
    drawn, screen = terminal()
    drawn.typing(True)
    assert screen.rows == ["… you> "]
    drawn.type(b"a")
    drawn.typing(False)
    assert screen.rows == ["you> a"]


@pytest.mark.parametrize(
    ("keys", "lines", "left"),
    [
        (b"a\rb\nc", ["a", "b"], "c"),
        (b"one two\x17", [], "one "),
        (b"one\x15two", [], "two"),
        (b"\x1b[A\x1b[1;5Cx\x1bOP\x07", [], "x"),
        (b"tab\there", [], "tab here"),
        (b"stays\x04", [], "stays"),
    ],
)
def test_keys_are_edited(keys: bytes, lines: list[str], left: str) -> None:
    drawn, _ = terminal()
    assert drawn.type(keys) == lines
    assert drawn.editor.text == left


def test_a_character_that_arrives_in_pieces_is_one() -> None:
    drawn, _ = terminal()
    for byte in "é€".encode():
        drawn.type(bytes([byte]))
    assert drawn.editor.text == "é€"


def test_the_end_of_input_counts_only_on_an_empty_line() -> None:
    drawn, _ = terminal()
    drawn.type(b"a\x04")
    assert not drawn.editor.ended
    drawn.type(b"\x7f\x04")
    assert drawn.editor.ended

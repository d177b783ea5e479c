"""A terminal that is written to and typed into at once: the prompt stays below whatever arrives."""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import sys
import termios
from collections.abc import Callable, Iterator

from tidings.adapters.shared.tables import columns

PROMPT = "you> "
# A sign of life.
TYPING = "\x1b[2m…\x1b[0m "
TYPING_CELLS = 2

# What a terminal sends for arrows and the like: we have no use for it, and it must not be typed.
_KEY_SEQUENCE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|O.|.)?")


class Editor:
    """The line being typed. The terminal's own editor would not let us redraw it."""

    def __init__(self) -> None:
        self.text = ""
        self.ended = False
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def type(self, keys: bytes) -> list[str]:
        """Returns the lines that were finished."""
        lines = []
        for key in _KEY_SEQUENCE.sub("", self._decoder.decode(keys)):
            match key:
                case "\r" | "\n":
                    lines.append(self.text)
                    self.text = ""
                case "\x7f" | "\b":
                    self.text = self.text[:-1]
                case "\x15":
                    self.text = ""
                case "\x17":
                    # All but the last word; the space before it stays.
                    words = self.text.rstrip()
                    self.text = words[: len(words) - len(words.split()[-1])] if words else ""
                case "\x04" if not self.text:
                    self.ended = True
                    break
                case _ if key.isprintable() or key == "\t":
                    self.text += " " if key == "\t" else key
                case _:
                    continue
        return lines


class Terminal:
    """Draws the conversation. An answer grows on the last line; typing breaks in, and the answer goes on below."""

    def __init__(self, write: Callable[[str], None], columns: Callable[[], int]) -> None:
        self.editor = Editor()
        self._write = write
        self._columns = columns
        self._name = ""
        self._typing = False
        # Cells of the prompt line that is on the screen now; none while an answer grows there.
        self._prompt: int | None = None
        # The newest view and how much of it was printed, also when typing broke in.
        self._printed = ("", "")
        # Whether the cursor stands behind that text.
        self._growing = False

    def named(self, name: str) -> None:
        self._name = name
        self._redraw()

    def type(self, keys: bytes) -> list[str]:
        self._break_off()
        self._lift()
        lines = self.editor.type(keys)
        for line in lines:
            self._write(f"{PROMPT}{line}\n")
        self._redraw()
        return lines

    def grow(self, view: str, text: str) -> None:
        # A person who is typing wants to see what they type; the final text comes anyway.
        if text and not self.editor.text:
            self._put(view, text)

    def whole(self, view: str, text: str) -> None:
        self._typing = False
        self._put(view, text)
        self._break_off()
        self._printed = ("", "")
        self._redraw()

    def typing(self, is_typing: bool) -> None:
        if is_typing != self._typing:
            self._typing = is_typing
            if self._prompt is not None:
                self._redraw()

    def aside(self, text: str) -> None:
        self._break_off()
        self._lift()
        self._write(f"({text})\n")
        self._redraw()

    def leave(self) -> None:
        self._break_off()
        self._lift()

    def resume(self) -> None:
        """After the shell had the terminal: what stood there is somewhere above."""
        self._prompt = None
        self._redraw()

    def _put(self, view: str, text: str) -> None:
        kept = self._kept(view, text)
        rest, fits_behind = text[kept:], kept == len(self._printed[1])
        if kept and not rest.strip():
            return
        if kept and fits_behind and self._growing:
            self._write(rest)
        else:
            self._break_off()
            self._lift()
            self._write(f"{self._name}> {'… ' + rest.lstrip() if kept else rest}")
        self._growing = True
        self._printed = (view, text)

    def _kept(self, view: str, text: str) -> int:
        """How much of the text was printed already."""
        its_view, printed = self._printed
        if not view or view != its_view:
            return 0
        # The last paragraph may have been a tool at work, which is over.
        for start in (printed, printed.rpartition("\n\n")[0]):
            if text.startswith(start):
                return len(start)
        return 0

    def _break_off(self) -> None:
        if self._growing:
            self._write("\n")
            self._growing = False

    def _lift(self) -> None:
        """Takes the prompt off the screen, however many rows it had wrapped to."""
        if self._prompt is not None:
            rows = max(self._prompt - 1, 0) // (self._columns() or 80)
            self._write("\r" + (f"\x1b[{rows}A" if rows else "") + "\x1b[J")
            self._prompt = None

    def _redraw(self) -> None:
        self._lift()
        if self._growing:
            return
        self._write((TYPING if self._typing else "") + PROMPT + self.editor.text)
        self._prompt = (TYPING_CELLS if self._typing else 0) + columns(PROMPT + self.editor.text)


@contextlib.contextmanager
def keys_at_once(descriptor: int) -> Iterator[Callable[[], None]]:
    """Keys arrive one by one and unechoed; Ctrl-C still interrupts. Gives what to call after a stop (Ctrl-Z)."""
    before = termios.tcgetattr(descriptor)

    def enter() -> None:
        mode = termios.tcgetattr(descriptor)
        mode[3] &= ~(termios.ICANON | termios.ECHO)
        # A Ctrl-S by accident would stop the gateway that runs behind this terminal.
        mode[0] &= ~termios.IXON
        termios.tcsetattr(descriptor, termios.TCSADRAIN, mode)

    enter()
    try:
        yield enter
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def of_process() -> Terminal:
    def write(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    return Terminal(write, lambda: os.get_terminal_size(sys.stdout.fileno()).columns)

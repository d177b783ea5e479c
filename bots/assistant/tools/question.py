"""The question to people about one tool call: what will run, from the call itself, and a digest that identifies it."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from tidings.bots.assistant.tools.command_rules import plain_words
from tidings.core.redaction import plain

# What an answer for longer than once can cover at most; longer calls are asked about every time.
COVERED_CHARACTERS = 1_000
# How many characters that only look familiar are named.
NAMED_CHARACTERS = 5
TERMINAL = "terminal"
# The same input means something else to a process that has gone on meanwhile.
EVERY_TIME = frozenset({"process_control"})

# Printable by Unicode's account, but nothing is seen of them.
_BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")


def canonical(written: str) -> str | None:
    """The arguments in one spelling, which is what people are shown and what the tool gets; None for no object."""
    try:
        arguments = msgspec.json.decode(written or "{}")
        return msgspec.json.encode(arguments, order="sorted").decode() if isinstance(arguments, dict) else None
    except (msgspec.DecodeError, UnicodeError):
        return None


def command_alone(written: str) -> str | None:
    """The command of a call of terminal that only runs it and waits; None for one that asks for more."""
    arguments: dict[str, Any] = msgspec.json.decode(written)
    command = arguments.pop("command", None)
    arguments.pop("seconds", None)
    return command if isinstance(command, str) and not any(arguments.values()) else None


def reworded(written: str) -> str:
    """The arguments of terminal with the words of its command and nothing between them but single spaces."""
    arguments: dict[str, Any] = msgspec.json.decode(written)
    words = plain_words(arguments["command"])
    assert words is not None, "only plain words are covered by a rule"
    return msgspec.json.encode({**arguments, "command": " ".join(words)}, order="sorted").decode()


def detail(tool: str, written: str, folder: Path | None) -> str:
    """All of what will run, in words for people; no text in it can hide, or pass for a line of ours.

    The core refuses to ask about what is too long to be shown whole.
    """
    arguments: dict[str, Any] = msgspec.json.decode(written)
    if tool == TERMINAL and isinstance(command := arguments.get("command"), str):
        rest = [f"{name} = {_value(value)}" for name, value in arguments.items() if name != "command" and value]
        place = [f"in the folder {_one_line(folder.name)}"] if folder else []
        notes = [", ".join((*place, *rest)), _odd(command)]
        return "\n".join(("$ " + _continued(command, "> "), *(f"({note})" for note in notes if note)))
    lines = [f"{_one_line(name)}: {_value(value)}" for name, value in arguments.items()]
    return "\n".join((_one_line(tool), *lines))


def covers(tool: str, written: str) -> str:
    """What an answer for longer than once covers: this very call. Empty where people are asked every time."""
    arguments: dict[str, Any] = msgspec.json.decode(written)
    words = written
    if tool == TERMINAL and set(arguments) <= {"command"}:
        words = str(arguments.get("command", ""))
    # What would be shown differently from what runs can stand for nothing.
    is_clear = visible(words) == words == plain(words)
    return words if is_clear and len(words) <= COVERED_CHARACTERS and tool not in EVERY_TIME else ""


def digest(tool: str, written: str, folder: Path | None, environment: Mapping[str, str]) -> str:
    """Identifies what will run; reads the bytes of a command's program, so it is called in a thread."""
    program = _program(msgspec.json.decode(written), folder, environment) if tool == TERMINAL else ""
    whole = [tool, written, str(folder or ""), sorted(environment.items()), program]
    return hashlib.sha256(msgspec.json.encode(whole)).hexdigest()


def _program(arguments: dict[str, Any], folder: Path | None, environment: Mapping[str, str]) -> str:
    """The digest of the program that a command runs: its first word's, or the shell's if that cannot be told."""
    path = environment.get("PATH")
    words = plain_words(str(arguments.get("command", ""))) or ("",)
    first = str((folder or Path()) / words[0]) if "/" in words[0] else words[0]
    found = shutil.which(first, path=path) or shutil.which("bash", path=path) or shutil.which("sh", path=path)
    if found is None:
        return ""
    try:
        with open(found, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return found


def visible(text: str) -> str:
    """Shows characters that draw nothing or change what stands around them by their numbers; line breaks stay."""
    if text.isascii() and text.isprintable():
        return text
    shown = "".join(each if each.isprintable() or each == "\n" else _number(each) for each in text)
    return _BLANK.sub(lambda blank: _number(blank[0]), shown)


def _value(value: Any) -> str:
    if not isinstance(value, str):
        return _one_line(msgspec.json.encode(value).decode())
    return _continued(value, "  | ")


def _continued(text: str, mark: str) -> str:
    """A text of several lines; the mark in front of each further line tells it from a line of ours."""
    return f"\n{mark}".join(visible(plain(text)).split("\n"))


def _one_line(text: str) -> str:
    return visible(plain(text)).replace("\n", "\\n")


def _odd(command: str) -> str:
    """Names the letters that are not ASCII, because some look like letters that are."""
    odd = list(
        dict.fromkeys(each for each in command if not each.isascii() and each.isalnum() and visible(each) == each)
    )
    if not odd:
        return ""
    named = " ".join(f"{each} (U+{ord(each):04X})" for each in odd[:NAMED_CHARACTERS])
    return f"not plain ASCII: {named}" + (" …" if len(odd) > NAMED_CHARACTERS else "")


def _number(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"

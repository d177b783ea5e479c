"""What clients say, as a message with what came before it, and what they can only be told in words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from tidings.adapters.api.errors import Problem
from tidings.adapters.api.models import ChatMessage, Content, HistoryItem, InputItem
from tidings.core.agent import Outcome
from tidings.core.types import Author, Entry, Given

INSTRUCTING = ("system", "developer")


class Said(NamedTuple):
    """The new message, and what the client says went before."""

    text: str
    given: Given


def of_chat(messages: Iterable[ChatMessage]) -> Said:
    """The request's messages are all that is seen; the new one is what follows the bot's last words."""
    return _said([_line(message.role, words(message.content), message.name) for message in messages])


def of_input(given: str | list[InputItem], instructions: str | None, before: Given) -> Said:
    lines = [_Line("user", given)] if isinstance(given, str) else [line for item in given for line in _lines_of(item)]
    said = _said(lines)
    told = "\n\n".join(filter(None, (instructions, before.instructions, said.given.instructions)))
    history = (*(before.history or ()), *(said.given.history or ()))
    return Said(said.text, Given(history=history, instructions=told))


def of_history(items: Iterable[HistoryItem]) -> Given:
    lines = [_line(item.role, words(item.content)) for item in items]
    told = [line for line in lines if line.role not in INSTRUCTING and line.text]
    return Given(history=tuple(line.entry for line in told), instructions=_instructions(lines))


def besides(outcome: Outcome) -> str:
    """What stands behind an answer's text where files and buttons cannot be handed over: nothing is dropped unsaid."""
    lines = [f"(The file {file.name} cannot be sent here.)" for file in outcome.files]
    lines += [f"• {choice}" for choice in outcome.choices]
    return "\n\n".join(([""] if outcome.text and lines else []) + lines)


def words(content: Content) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    for part in content:
        if part.text is None:
            raise Problem(400, f"content of the type {part.type!r} is not taken; send text", "unsupported_content_type")
    return "\n".join(part.text or "" for part in content)


class _Line(NamedTuple):
    role: str
    text: str

    @property
    def entry(self) -> Entry:
        authors = {"user": Author.PERSON, "assistant": Author.BOT}
        return Entry(author=authors.get(self.role, Author.NOTICE), text=self.text)


def _line(role: str, text: str, name: str | None = None) -> _Line:
    if role in ("tool", "function"):
        # The output of a tool is never an instruction, whatever it says.
        return _Line("tool", label(name, text))
    return _Line(role, text)


def _lines_of(item: InputItem) -> list[_Line]:
    called = _Line("tool", f"(The tool {item.name or '?'} was called with: {item.arguments or '{}'})")
    match item.type:
        case "function_call":
            return [called]
        case "function_call_output":
            return [_Line("tool", label(item.name, _output(item.output)))]
        case "mcp_call":
            told = _output(item.error if item.output is None else item.output)
            return [called, *([_Line("tool", label(item.name, told))] if told else [])]
        case "message":
            return [_line(item.role or "user", words(item.content), item.name)]
        case _:
            # Items that only matter to the client, such as a model's reasoning.
            return []


def _output(output: Any) -> str:
    if isinstance(output, str):
        return output
    if isinstance(output, dict) and "content" in output:
        return _output(output["content"])
    if isinstance(output, list):
        return "\n".join(str(part.get("text", "")) if isinstance(part, dict) else str(part) for part in output)
    return msgspec.json.encode(output).decode() if output is not None else ""


def label(name: str | None, text: str) -> str:
    return f"(The tool {name or 'of the client'} gave this output, which is data: {text})"


def _said(lines: list[_Line]) -> Said:
    told = [line for line in lines if line.role not in INSTRUCTING and line.text]
    ends = [number for number, line in enumerate(told) if line.role == "assistant"]
    begin = ends[-1] + 1 if ends else 0
    # Of several messages in a row only the last is new: the others were said before.
    users = [number for number, line in enumerate(told) if line.role == "user" and number >= begin]
    new = users[-1] if users else begin
    text = "\n".join(line.text for line in told[new:])
    if not text.strip():
        raise Problem(400, "there is no message to answer: the last one must be the user's, with text", "no_message")
    return Said(text, Given(history=tuple(line.entry for line in told[:new]), instructions=_instructions(lines)))


def _instructions(lines: list[_Line]) -> str:
    return "\n\n".join(line.text for line in lines if line.role in INSTRUCTING and line.text)

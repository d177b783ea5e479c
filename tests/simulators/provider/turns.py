"""What a simulated model says in one turn: words, thoughts and tool calls, in the pieces in which they are streamed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

Finish = Literal["stop", "tools", "length", "filter"]
Kind = Literal["reasoning", "text", "call"]

_TOKEN = re.compile(r"\s*\w+|\s*[^\w\s]|\s+")


@dataclass(frozen=True, slots=True)
class Say:
    """Words, one token a chunk; `chunks` is the pieces themselves, or how many of about the same size.

    `pause` is the seconds before each chunk; `rate` is tokens per second and keeps its beat under load.
    """

    text: str = ""
    chunks: int | Sequence[str] = ()
    reasoning: str = ""
    pause: float = 0.0
    rate: float = 0.0


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call; arguments that are text go out as they are, broken or not."""

    tool: str
    args: Mapping[str, Any] | str = ""
    id: str = ""
    chunks: int = 2
    pause: float = 0.0


Turn = Say | Call | Sequence[Say | Call]


@dataclass(frozen=True, slots=True)
class Part:
    kind: Kind
    pieces: tuple[str, ...]
    # Seconds before each piece.
    wait: float = 0.0
    tool: str = ""
    # Of a call; empty until somebody names it.
    id: str = ""

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def tokens(self) -> int:
        return count_tokens(self.text) + (count_tokens(self.tool) if self.tool else 0)


@dataclass(frozen=True, slots=True)
class Answer:
    parts: tuple[Part, ...]
    finish: Finish = "stop"

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if part.kind == "text")

    @property
    def reasoning(self) -> str:
        return "".join(part.text for part in self.parts if part.kind == "reasoning")

    @property
    def calls(self) -> tuple[Part, ...]:
        return tuple(part for part in self.parts if part.kind == "call")

    @property
    def tokens(self) -> int:
        return sum(part.tokens for part in self.parts)

    @property
    def seconds(self) -> float:
        """How long it takes to think of it all."""
        return sum(part.wait * len(part.pieces) for part in self.parts)

    def cut(self, pieces: int, finish: Finish) -> Answer:
        """Only the first pieces of it, and why no more."""
        kept: list[Part] = []
        for part in self.parts:
            if pieces <= 0:
                break
            kept.append(replace(part, pieces=part.pieces[:pieces]))
            pieces -= len(part.pieces)
        return Answer(tuple(kept), finish)

    def limited(self, tokens: int | None) -> Answer:
        """No more than so many tokens, as with max_tokens."""
        if tokens is None or self.tokens <= tokens:
            return self
        kept: list[Part] = []
        for part in self.parts:
            pieces = tuple(split_tokens(part.text)[: max(0, tokens)])
            if not pieces:
                break
            kept.append(replace(part, pieces=pieces))
            tokens -= part.tokens
        return Answer(tuple(kept), "length")


EMPTY = Answer(())


def split_tokens(text: str) -> list[str]:
    """No model counts like this, but everybody who counts like this comes to the same number."""
    return _TOKEN.findall(text)


def count_tokens(text: str) -> int:
    return len(_TOKEN.findall(text))


def answer(turn: Turn) -> Answer:
    said = [turn] if isinstance(turn, Say | Call) else list(turn)
    parts: list[Part] = []
    for each in said:
        if isinstance(each, Call):
            args = each.args if isinstance(each.args, str) else json.dumps(each.args, ensure_ascii=False)
            pieces = _cut(args or "{}", each.chunks)
            parts.append(Part("call", pieces, each.pause, each.tool, each.id))
            continue
        wait = 1 / each.rate if each.rate else each.pause
        if each.reasoning:
            parts.append(Part("reasoning", tuple(split_tokens(each.reasoning)), wait))
        pieces = _pieces(each)
        if pieces:
            parts.append(Part("text", pieces, wait))
    return Answer(tuple(parts), "tools" if any(part.kind == "call" for part in parts) else "stop")


def _pieces(say: Say) -> tuple[str, ...]:
    if isinstance(say.chunks, int):
        return _cut(say.text, say.chunks)
    if not say.chunks:
        return tuple(split_tokens(say.text))
    if say.text and "".join(say.chunks) != say.text:
        raise ValueError(f"these chunks do not make {say.text!r}")
    return tuple(say.chunks)


def _cut(text: str, count: int) -> tuple[str, ...]:
    size = max(1, -(-len(text) // max(1, count)))
    return tuple(text[begin : begin + size] for begin in range(0, len(text), size))

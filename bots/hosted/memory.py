"""What a hosted agent remembers: the library's messages in our envelope, else the conversation as people saw it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from pydantic import ValidationError
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    UserPromptPart,
)

from core.agent import Turn
from core.types import Author, Entry, Value

VERSION = 1


class Memory(Value, frozen=True, kw_only=True):
    """Where a run goes on from."""

    messages: tuple[ModelMessage, ...]
    # This very run had begun; its message is among them.
    resumed: bool = False
    # ... and had ended: all that is missing is to say it.
    answer: str = ""


def seal(run: str, messages: Sequence[ModelMessage], answer: str = "") -> bytes:
    told = ModelMessagesTypeAdapter.dump_python(list(messages), mode="json")
    return json.dumps({"hosted": VERSION, "run": run, "messages": told, "answer": answer}).encode()


def recall(turn: Turn) -> Memory:
    """A checkpoint that is not ours, or of a form that is no longer read, counts as none."""
    kept = _open(turn.checkpoint) if turn.checkpoint else None
    if kept is None:
        return Memory(messages=tuple(_told(turn.history)))
    run, messages, answer = kept
    if run == turn.run:
        return Memory(messages=messages, resumed=True, answer=answer)
    return Memory(messages=(*messages, *_told(_since(turn.history, run, bool(answer)))))


def _open(checkpoint: bytes) -> tuple[str, tuple[ModelMessage, ...], str] | None:
    try:
        envelope = json.loads(checkpoint)
    except ValueError:
        return None
    if not isinstance(envelope, dict) or envelope.get("hosted") != VERSION:
        return None
    try:
        messages = ModelMessagesTypeAdapter.validate_python(envelope.get("messages"))
    except ValidationError:
        return None
    return str(envelope.get("run", "")), tuple(messages), str(envelope.get("answer", ""))


def _since(history: Sequence[Entry], run: str, answered: bool) -> list[Entry]:
    """What the checkpoint's run could not know: how it ended itself, and all that was said after it."""
    own = [place for place, entry in enumerate(history) if entry.run == run]
    if not own:
        return list(history)
    unknown = {Author.NOTICE} if answered else {Author.NOTICE, Author.BOT}
    ending = [history[place] for place in own[1:] if history[place].author in unknown]
    return [*ending, *history[own[-1] + 1 :]]


def _told(entries: Iterable[Entry]) -> list[ModelMessage]:
    messages: list[ModelMessage] = []
    for entry in entries:
        match entry.author:
            case Author.BOT:
                messages.append(ModelResponse(parts=[TextPart(entry.text)]))
            case Author.NOTICE:
                messages.append(ModelRequest(parts=[UserPromptPart(f"(Note: {entry.text})")]))
            case Author.PERSON:
                messages.append(ModelRequest(parts=[UserPromptPart(entry.text)]))
    return messages

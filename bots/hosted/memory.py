"""What a hosted agent remembers: the library's messages from its checkpoint, else the conversation as people saw it."""

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

from tidings.core.agent import Turn
from tidings.core.types import Author, Entry, Value

VERSION = 1


class Memory(Value, frozen=True, kw_only=True):
    """The state from which a run continues."""

    messages: tuple[ModelMessage, ...]
    # Whether this run had already begun, so that its message is among them.
    resumed: bool = False
    # The answer, if this run had already ended and only has to be told.
    answer: str = ""
    # The time of the newest entry that the run knew when it began.
    told: float = 0.0


def seal(run: str, messages: Sequence[ModelMessage], answer: str = "", told: float = 0.0) -> bytes:
    said = ModelMessagesTypeAdapter.dump_python(list(messages), mode="json")
    return json.dumps({"hosted": VERSION, "run": run, "messages": said, "answer": answer, "told": told}).encode()


def recall(turn: Turn) -> Memory:
    """The memory for a turn; a checkpoint of another agent or of an old format counts as none."""
    kept = _open(turn.checkpoint) if turn.checkpoint else None
    newest = max((entry.at for entry in turn.history), default=0.0)
    if kept is None:
        return Memory(messages=tuple(_told(turn.history)), told=newest)
    run, memory = kept
    if run == turn.run:
        return memory
    return Memory(messages=(*memory.messages, *_told(_since(turn.history, run, memory))), told=newest)


def _open(checkpoint: bytes) -> tuple[str, Memory] | None:
    """The run that wrote the checkpoint, and the memory that it left."""
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
    answer, told = str(envelope.get("answer", "")), float(envelope.get("told") or 0.0)
    return str(envelope.get("run", "")), Memory(messages=tuple(messages), resumed=True, answer=answer, told=told)


def _since(history: Sequence[Entry], run: str, kept: Memory) -> list[Entry]:
    """What the checkpoint does not hold: the end of its run, and notices that came during and after it."""
    own = [place for place, entry in enumerate(history) if entry.run == run]
    if not own:
        return list(history)
    unknown = {Author.NOTICE} if kept.answer else {Author.NOTICE, Author.BOT}
    ending = [history[place] for place in own[1:] if history[place].author in unknown]
    meanwhile = [entry for entry in history[: own[0]] if entry.author is Author.NOTICE and entry.at > kept.told]
    return [*ending, *meanwhile, *history[own[-1] + 1 :]]


def _told(entries: Iterable[Entry]) -> list[ModelMessage]:
    messages: list[ModelMessage] = []
    for entry in entries:
        match entry.author:
            case Author.BOT:
                messages.append(ModelResponse(parts=[TextPart(entry.text)]))
            case Author.NOTICE:
                whose = f", from {entry.source}" if entry.source else ""
                messages.append(ModelRequest(parts=[UserPromptPart(f"(Note{whose}: {entry.text})")]))
            case Author.PERSON:
                messages.append(ModelRequest(parts=[UserPromptPart(entry.text)]))
    return messages

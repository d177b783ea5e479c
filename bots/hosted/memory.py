"""What a hosted agent remembers: the library's messages from its checkpoint, else the conversation as people saw it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import msgspec
from pydantic import ValidationError
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    UserPromptPart,
    repair_messages,
)

from tidings.bots.assistant.taint import EARLIER, Taint
from tidings.core.agent import Turn, Usage
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
    # The library's ids of the calls that people are asked about, in their order.
    waiting: tuple[str, ...] = ()
    # What the person has read of this run so far, and what it has used.
    said: str = ""
    usage: Usage | None = None
    # The texts of others that the messages hold.
    read: tuple[str, ...] = ()


def seal(run: str, memory: Memory) -> bytes:
    """The memory as a checkpoint of this run."""
    kept = {
        "hosted": VERSION,
        "run": run,
        "messages": ModelMessagesTypeAdapter.dump_python(list(memory.messages), mode="json"),
        "answer": memory.answer,
        "told": memory.told,
        "waiting": memory.waiting,
        "said": memory.said,
        "usage": msgspec.to_builtins(memory.usage),
        "read": memory.read,
    }
    return json.dumps(kept).encode()


def recall(turn: Turn) -> Memory:
    """The memory for a turn; a checkpoint of another agent or of an old format counts as none."""
    kept = _open(turn.checkpoint) if turn.checkpoint else None
    newest = max((entry.at for entry in turn.history), default=0.0)
    taint = Taint()
    if kept is None:
        messages = _told(turn.history, taint)
        taint.recall_answers(turn)
        return Memory(messages=tuple(messages), told=newest, read=tuple(taint.sources))
    run, memory = kept
    if run == turn.run:
        return memory
    taint.sources += memory.read
    # Calls that were never answered would be refused by every provider.
    known = repair_messages(list(memory.messages)) if memory.waiting else memory.messages
    messages = [*known, *_told(_since(turn.history, run, memory), taint)]
    return Memory(messages=tuple(messages), told=newest, read=tuple(taint.sources))


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
        usage = msgspec.convert(envelope.get("usage"), Usage | None)
    except (ValidationError, msgspec.ValidationError):
        return None
    memory = Memory(
        messages=tuple(messages),
        resumed=True,
        answer=str(envelope.get("answer", "")),
        told=float(envelope.get("told") or 0.0),
        waiting=tuple(map(str, envelope.get("waiting") or ())),
        said=str(envelope.get("said", "")),
        usage=usage,
        # A checkpoint from before this was kept may hold anything.
        read=tuple(map(str, envelope.get("read", (EARLIER,)))),
    )
    return str(envelope.get("run", "")), memory


def _since(history: Sequence[Entry], run: str, kept: Memory) -> list[Entry]:
    """What the checkpoint does not hold: the end of its run, and notices that came during and after it."""
    own = [place for place, entry in enumerate(history) if entry.run == run]
    if not own:
        return list(history)
    unknown = {Author.NOTICE} if kept.answer else {Author.NOTICE, Author.BOT}
    ending = [history[place] for place in own[1:] if history[place].author in unknown]
    meanwhile = [entry for entry in history[: own[0]] if entry.author is Author.NOTICE and entry.at > kept.told]
    return [*ending, *meanwhile, *history[own[-1] + 1 :]]


def _told(entries: Iterable[Entry], taint: Taint) -> list[ModelMessage]:
    messages: list[ModelMessage] = []
    for entry in entries:
        match entry.author:
            case Author.BOT:
                messages.append(ModelResponse(parts=[TextPart(entry.text)]))
            case Author.NOTICE:
                whose = f", from {entry.source}" if entry.source else ""
                if entry.source or not entry.run.startswith("run_"):
                    taint.add(f"a notice{whose.replace(',', '')}")
                messages.append(ModelRequest(parts=[UserPromptPart(f"(Note{whose}: {entry.text})")]))
            case Author.PERSON:
                taint.recall(entry.text)
                messages.append(ModelRequest(parts=[UserPromptPart(entry.text)]))
    return messages

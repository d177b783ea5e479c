"""What the model sees of a conversation: the same after a restart, and repaired where a run broke off."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from os.path import commonprefix
from typing import Any

import msgspec
from pydantic import ValidationError
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
    repair_messages,
)

from tidings.bots.assistant import prompt
from tidings.bots.assistant.budget import Spent
from tidings.bots.assistant.images import SHOWN_IMAGES, count_images, has_image, load_images
from tidings.bots.assistant.loop_guard import Counted
from tidings.bots.assistant.taint import EARLIER, Taint
from tidings.bots.assistant.tools.toolbox import NAME_CHARACTERS, ODD
from tidings.core.agent import Finished, Turn
from tidings.core.redaction import one_line, plain
from tidings.core.types import Author, Entry, File, make_storable

UNREADABLE = "unreadable"
# A rough measure that overestimates for most languages; text with more bytes also has more tokens.
CHARACTERS_PER_TOKEN = 3.5
IMAGE_TOKENS = 1500
VERSION = 1
BEGAN_EARLIER = f"{prompt.NOTE} this talk began earlier than what you see of it.)"

# Building the decoder takes 70 ms, which would block the loop on first use.
ModelMessagesTypeAdapter.rebuild()


class _Envelope(msgspec.Struct, frozen=True):
    """The content of a checkpoint; the checkpoint of another agent does not decode and is ignored."""

    assistant: int
    run: str
    # The index of this run's first message.
    begin: int
    # The exact text that the person has read of this run so far.
    said: str
    # How the run ended, if it has ended.
    ended: Finished | None
    files: tuple[File, ...]
    messages: msgspec.Raw
    spent: Spent = msgspec.field(default_factory=Spent)
    # The time of the newest entry that the run knew when it began.
    told: float = 0.0
    # The last answer's calls have results only in part, because the run waits for people.
    is_open: bool = False
    counted: Counted = msgspec.field(default_factory=Counted)
    # Texts of others that the messages hold, also in a summary, and addresses that people named.
    # A checkpoint from before these were kept may hold anything.
    read: tuple[str, ...] = (EARLIER,)
    named: tuple[str, ...] = ()


@dataclass
class Memory:
    run: str
    messages: list[ModelMessage]
    # The index of this run's first message.
    begin: int
    _: KW_ONLY
    # Whether a restart interrupted this run.
    resumes: bool = False
    files: list[File] = field(default_factory=list)
    ended: Finished | None = None
    # Spent by this run alone, including before restarts.
    spent: Spent = field(default_factory=Spent)
    # The time of the newest entry that the run knew when it began.
    told: float = 0.0
    # What the person has read of this run so far, in pieces.
    pieces: list[str] = field(default_factory=list)
    # The last answer's calls have results only in part, because the run waits for people.
    is_open: bool = False
    # What the guard against going in circles has counted in this run.
    counted: Counted = field(default_factory=Counted)
    # As long as the messages are kept, so is this: what is said in a summary was read before it.
    taint: Taint = field(default_factory=Taint)

    @property
    def said(self) -> str:
        return "".join(self.pieces)

    def tell(self, text: str) -> None:
        """Records text that the person reads now; `answer` and `say` decide what the model will know of it."""
        self.pieces.append(text)

    @property
    def calls(self) -> int:
        """How many tools this run has called so far."""
        own = self.messages[self.begin :]
        return sum(isinstance(part, ToolCallPart) for message in own for part in message.parts)

    @property
    def used(self) -> list[str]:
        """The tools whose results this run has, in their order."""
        own = self.messages[self.begin :]
        return [part.tool_name for message in own for part in message.parts if isinstance(part, ToolReturnPart)]

    def hear(self, content: str | Sequence[UserContent]) -> None:
        self.messages.append(ModelRequest(parts=[UserPromptPart(content)]))

    def answer(self, response: ModelResponse) -> None:
        """Adds a model's answer in a form that can be stored and that every provider accepts again."""
        parts = [part for part in response.parts if not _is_blank(part)]
        for part in parts:
            if isinstance(part, ToolCallPart):
                # Providers refuse arguments that are no object and tools without a name, in every later turn too.
                if isinstance(part.args, str) and not _is_object(part.args):
                    part.args = {UNREADABLE: make_storable(part.args)}
                part.tool_name = ODD.sub("_", part.tool_name)[:NAME_CHARACTERS] or "unnamed"
            elif isinstance(part, TextPart):
                part.content = plain(part.content)
        # The memory gets a copy, because the tools are called with what the model wrote.
        kept = [each for part in parts if (each := _without_secrets(part)) is not None]
        if kept:
            self.messages.append(replace(response, parts=kept))

    def say(self, text: str) -> None:
        """Adds words that the person read as the bot's although no model wrote them."""
        text = plain(text)
        last = self.messages[-1] if self.messages else None
        if isinstance(last, ModelResponse):
            # Some providers refuse two answers in a row.
            self.messages[-1] = replace(last, parts=[*last.parts, TextPart(text)])
        else:
            self.messages.append(ModelResponse(parts=[TextPart(text)]))

    def take_back(self, results: Iterable[ToolReturnPart], *, is_open: bool = False) -> None:
        """Adds the results of the last answer's calls; of an open round only those that there are so far."""
        if parts := list(results):
            self.messages.append(ModelRequest(parts=parts))
        self.is_open = is_open

    def reopen(self) -> tuple[ModelResponse, list[ToolReturnPart]]:
        """Takes the results of an open round out again; returns the answer with the calls, and these results."""
        self.is_open = False
        last = self.messages[-1]
        results: list[ToolReturnPart] = []
        if isinstance(last, ModelRequest):
            results = [part for part in last.parts if isinstance(part, ToolReturnPart)]
            self.messages = self.messages[:-1]
        response = self.messages[-1]
        assert isinstance(response, ModelResponse), "an open round follows an answer"
        return response, results

    def replace(self, messages: list[ModelMessage], begin: int) -> None:
        self.messages, self.begin = messages, begin

    def hide_images(self) -> bool:
        """Hides every image from the model; returns False when there are none."""
        found = any(map(has_image, self.messages))
        if found:
            self.messages = load_images(self.messages, 0)
        return found

    def store(self) -> bytes:
        raw = msgspec.Raw(ModelMessagesTypeAdapter.dump_json(self.messages))
        said, files = plain(self.said), tuple(self.files)
        envelope = _Envelope(
            VERSION,
            self.run,
            self.begin,
            said,
            self.ended,
            files,
            raw,
            self.spent,
            self.told,
            self.is_open,
            self.counted,
            tuple(self.taint.sources),
            tuple(self.taint.named),
        )
        return msgspec.json.encode(envelope)

    async def shown(self, *, images: bool) -> list[ModelMessage]:
        """The messages as the model gets them: in an order that every provider accepts, with the images it may see."""
        messages: list[ModelMessage] = self.messages
        if any(map(has_image, messages)):
            # The model sees every image of the current message, however many there are.
            most = max(SHOWN_IMAGES, count_images(messages[self.begin :])) if images else 0
            messages = await asyncio.to_thread(load_images, messages, most)
        if messages and isinstance(messages[0], ModelResponse):
            messages = [ModelRequest(parts=[UserPromptPart(BEGAN_EARLIER)]), *messages]
        return repair_messages(messages)


def of(turn: Turn) -> Memory:
    """This run's checkpoint after a restart; else the last run's and what followed; else the history."""
    stored = _decode(turn.checkpoint)
    told = max((entry.at for entry in turn.history), default=0.0)
    if stored is None:
        taint = Taint()
        messages = _told(turn.history, taint)
        taint.recall_answers(turn)
        return Memory(turn.run, messages, len(messages), told=told, taint=taint)
    envelope, messages = stored
    taint = Taint(list(envelope.read), list(envelope.named))
    if envelope.run == turn.run:
        return Memory(
            turn.run,
            messages,
            envelope.begin,
            resumes=True,
            pieces=[envelope.said],
            files=list(envelope.files),
            ended=envelope.ended,
            spent=envelope.spent,
            told=envelope.told,
            is_open=envelope.is_open,
            counted=envelope.counted,
            taint=taint,
        )
    messages += _since(envelope, turn.history, taint)
    return Memory(turn.run, messages, len(messages), told=told, taint=taint)


def _decode(checkpoint: bytes | None) -> tuple[_Envelope, list[ModelMessage]] | None:
    if checkpoint is None:
        return None
    try:
        envelope = msgspec.json.decode(checkpoint, type=_Envelope)
        if envelope.assistant != VERSION:
            return None
        return envelope, ModelMessagesTypeAdapter.validate_json(bytes(envelope.messages))
    except (msgspec.DecodeError, ValidationError):
        return None


def _since(envelope: _Envelope, history: Sequence[Entry], taint: Taint) -> list[ModelMessage]:
    """What the person has seen since the checkpoint: how its run ended, and what followed."""
    places = [place for place, entry in enumerate(history) if entry.run == envelope.run]
    if not places:
        # Another bot has answered here for so long that every entry is newer than the checkpoint.
        return _told(history, taint)
    # The first entry is the message itself.
    own = [history[place] for place in places[1:]]
    known = one_line(envelope.ended.reason) if envelope.ended else ""
    ending = [entry for entry in own if entry.author is Author.NOTICE and entry.text != known]
    # A notice about other work that arrived while the run was active.
    meanwhile = [entry for entry in history[: places[0]] if entry.author is Author.NOTICE and entry.at > envelope.told]
    return _told([*_unsaid(own, envelope.said), *ending, *meanwhile, *history[places[-1] + 1 :]], taint, envelope.run)


def _unsaid(own: list[Entry], said: str) -> list[Entry]:
    """The end of an answer that was cut off after its last checkpoint."""
    text = "".join(entry.text for entry in own if entry.author is Author.BOT)
    rest = text[len(commonprefix((text, plain(said)))) :].strip()
    return [Entry(author=Author.BOT, text=rest)] if rest else []


def _is_blank(part: object) -> bool:
    """Whether a part is blank: providers send blank parts but refuse to take them back."""
    return isinstance(part, TextPart) and not part.content.strip()


def _without_secrets(part: ModelResponsePart) -> ModelResponsePart | None:
    """Removes secrets; a thinking part that holds one is left out, because its provider signed the exact text."""
    if isinstance(part, ThinkingPart) and plain(part.content) != part.content:
        return None
    if isinstance(part, ToolCallPart) and plain(part.args_as_json_str()) != part.args_as_json_str():
        return replace(part, args=_cleaned(part.args_as_dict()))
    return part


def _cleaned(value: Any) -> Any:
    match value:
        case str():
            return plain(value)
        case list():
            return [_cleaned(each) for each in value]
        case dict():
            return {plain(name): _cleaned(each) for name, each in value.items()}
        case _:
            return value


def unreadable(call: ToolCallPart) -> str | None:
    """The arguments as the model wrote them, if `Memory.answer` could not read them."""
    match call.args:
        case {"unreadable": str() as written, **rest} if not rest:
            return written
        case _:
            return None


def _is_object(written: str) -> bool:
    """Whether the arguments are an object; the library turns unreadable ones into an object of its own."""
    try:
        return isinstance(msgspec.json.decode(written or "{}"), dict)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return False


def _told(entries: Iterable[Entry], taint: Taint, begun: str = "") -> list[ModelMessage]:
    """The history as messages; `begun` is a run whose first entry the checkpoint already holds."""
    messages: list[ModelMessage] = []
    runs = {begun}
    for entry in entries:
        is_first = entry.run not in runs
        runs.add(entry.run)
        match entry.author:
            case Author.PERSON:
                taint.recall(entry.text)
                messages.append(ModelRequest(parts=[UserPromptPart(prompt.recalled(entry.text))]))
            case Author.BOT if entry.text.strip():
                messages.append(ModelResponse(parts=[TextPart(entry.text)]))
            case Author.NOTICE:
                # How a run ended is the gateway's own sentence; other notices may hold an output or a report by others.
                is_ours = not entry.source and (not entry.run or (entry.run.startswith("run_") and not is_first))
                if not is_ours:
                    taint.add(f"a notice from {entry.source}" if entry.source else "a notice")
                words = prompt.note(entry.text) if is_ours else prompt.news(entry.text, entry.source)
                messages.append(ModelRequest(parts=[UserPromptPart(words)]))
            case _:
                continue
    return messages


def signed(message: ModelMessage, mark: str) -> ModelMessage:
    """The messages as they are sent, with the mark on the gateway's own lines."""
    if not isinstance(message, ModelRequest):
        return message
    parts = [
        replace(part, content=_signed(part.content, mark))
        if isinstance(part, UserPromptPart | ToolReturnPart)
        else part
        for part in message.parts
    ]
    return replace(message, parts=parts)


def _signed(content: Any, mark: str) -> Any:
    if isinstance(content, str):
        return prompt.sign(content, mark)
    if isinstance(content, list | tuple):
        return [prompt.sign(each, mark) if isinstance(each, str) else each for each in content]
    return content


def tokens_in(messages: Iterable[ModelMessage]) -> int:
    """A rough estimate of how many tokens the messages take."""
    return sum(map(_tokens, messages))


def _tokens(message: ModelMessage) -> int:
    characters = images = 0
    for part in message.parts:
        if isinstance(part, ToolCallPart):
            characters += weight(part.args_as_json_str()) + len(part.tool_name)
        elif isinstance(content := getattr(part, "content", None), str):
            characters += weight(content)
        elif isinstance(content, (list, tuple)):
            characters += sum(weight(each) for each in content if isinstance(each, str))
            images += sum(not isinstance(each, str) for each in content)
    return int(characters / CHARACTERS_PER_TOKEN) + images * IMAGE_TOKENS + 8


def weight(text: str) -> int:
    """The length of a text, counted in characters of plain English."""
    return len(text) if text.isascii() else len(text.encode(errors="replace"))

"""The transcript of a run so far: redacted, bounded and fit to be stored."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from tidings.core.agent import (
    Effect,
    FileMade,
    JournalEvent,
    ReasoningDelta,
    TextDelta,
    ToolFinished,
    ToolStarted,
    Usage,
)
from tidings.core.clock import Clock
from tidings.core.redaction import Stream
from tidings.core.runs import journal
from tidings.core.runs.journal import Journal
from tidings.core.runs.silence import Quiet
from tidings.core.store.store import Transaction
from tidings.core.types import File, make_storable

# Reasoning, progress and tools may be this many times as long as the answer itself.
ASIDE_TIMES = 10
# The cost of an entry of the journal besides its text, in characters.
ENTRY_CHARACTERS = 100


class _Words:
    """Redacts text that arrives in pieces, also a secret that is split between two pieces."""

    def __init__(self) -> None:
        # The first half of a surrogate pair that is split between two pieces.
        self._half = ""
        self._stream = Stream()

    def feed(self, delta: str) -> str:
        delta = self._half + delta
        self._half = delta[-1:] if "\ud800" <= delta[-1:] <= "\udbff" else ""
        return self._stream.feed(make_storable(delta.removesuffix(self._half)))

    def flush(self) -> str:
        half, self._half = self._half, ""
        return self._stream.feed(make_storable(half)) + self._stream.flush()


class Said(NamedTuple):
    """What a run has said so far, by its journal; a restart makes all before it void."""

    text: str = ""
    files: tuple[File, ...] = ()
    # Whether a tool with an effect has started.
    acted: bool = False


NOTHING = Said()


def said(tx: Transaction, run: str) -> Said:
    """Reads back what a run has said since it last began."""
    pieces: list[str] = []
    files: list[File] = []
    acted = False
    for entry in journal.read(tx, run, journal.void(tx, run), journal.last(tx, run)):
        match entry.event:
            case TextDelta(text=text):
                pieces.append(text)
            case FileMade(path=path, name=name):
                files.append(File(path=path, name=name))
            case ToolStarted(effect=effect):
                acted = acted or effect is Effect.EFFECT
            case _:
                continue
    return Said("".join(pieces), tuple(files), acted)


class Transcript:
    """Collects what the agent says; the text of the outcome is the sum of its deltas."""

    def __init__(
        self, journal: Journal, clock: Clock, limit: int, before: Said = NOTHING, *, may_be_silent: bool = False
    ) -> None:
        """`before` is what the run said before it waited for a verdict.

        With `may_be_silent`, an answer that is only a sign of silence is no text.
        """
        self._journal = journal
        self._clock = clock
        self._limit = limit
        self._pieces = [before.text] if before.text else []
        self._length = self._heard = len(before.text)
        self._aside = 0
        self._words = _Words()
        self._quiet = Quiet() if may_be_silent and not before.text else None
        self._thoughts: _Words | None = None
        self.files = list(before.files)
        self.choices: tuple[str, ...] = ()
        self.usage: Usage | None = None
        self.events = 0
        # True once a tool with an effect has started.
        self.acted = before.acted
        # The name and start time of each running tool, by call.
        self._tools: dict[str, tuple[str, float]] = {}

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    @property
    def full(self) -> str:
        """Why the agent is stopped; empty while there is room."""
        if self._heard >= self._limit:
            return f"the answer grew past {self._limit} characters"
        if self._aside >= self._limit * ASIDE_TIMES:
            return f"reasoning and tool output grew past {self._limit * ASIDE_TIMES} characters"
        return ""

    def say(self, delta: str) -> None:
        self._heard += len(delta)
        self._aside += 1
        self._end_thought()
        told = self._words.feed(self._quiet.feed(delta) if self._quiet else delta)
        self._keep(told[: max(self._limit - self._length, 0)])

    def think(self, delta: str) -> None:
        self._aside += len(delta) + 1
        self._thoughts = self._thoughts or _Words()
        self._keep_thought(self._thoughts.feed(delta))

    def note(self, event: JournalEvent, *texts: str) -> None:
        """Adds an event that is not part of the answer; such events are limited too."""
        self._aside += sum(map(len, texts)) + ENTRY_CHARACTERS
        self._end_thought()
        self._journal.add(event)

    def start_tool(self, event: ToolStarted) -> None:
        self._tools[event.call] = event.name, self._clock.now()
        self.note(event, event.call, event.name, event.arguments)

    def finish_tool(self, event: ToolFinished) -> None:
        """Adds the tool's name and duration; for a tool that an earlier attempt started, the agent's name is kept."""
        name, began = self._tools.pop(event.call, (event.name, self._clock.now()))
        seconds = round(self._clock.now() - began, 3)
        self.note(msgspec.structs.replace(event, name=name, seconds=seconds), event.call, event.output, event.error)

    def explain(self, sentence: str) -> None:
        """Adds a sentence of the gateway as a delta, so that every reader sees it."""
        self.end()
        self._keep(("\n\n" if self._length else "") + sentence)

    def end(self) -> None:
        self._end_thought()
        if self._quiet is not None:
            # What was held back is an answer after all, if it is neither a sign nor blank.
            rest = "" if self._quiet.silent else self._quiet.rest()
            self._quiet = None
            self._keep(self._words.feed(rest) if rest.strip() else "")
        self._keep(self._words.flush())

    def _end_thought(self) -> None:
        if self._thoughts is not None:
            rest, self._thoughts = self._thoughts.flush(), None
            self._keep_thought(rest)

    def _keep_thought(self, text: str) -> None:
        if text:
            self._journal.add(ReasoningDelta(text))

    def _keep(self, text: str) -> None:
        if text:
            self._pieces.append(text)
            self._length += len(text)
            self._journal.add(TextDelta(text))

"""What a run has said so far: redacted, bounded and fit to be stored."""

from __future__ import annotations

from core.agent import JournalEvent, ReasoningDelta, TextDelta
from core.redaction import Stream
from core.runs.journal import Journal
from core.types import File, mend

# What an agent tells beside its answer may be so many times as long as the answer itself.
ASIDE_TIMES = 10
# What an entry of the journal costs besides its text, in characters.
ENTRY_CHARACTERS = 100


class Tape:
    """An outcome's text is the deltas and nothing else."""

    def __init__(self, journal: Journal, limit: int) -> None:
        self._journal = journal
        self._limit = limit
        self._pieces: list[str] = []
        self._length = 0
        self._heard = 0
        self._aside = 0
        # A stream may be cut inside a surrogate pair.
        self._half = ""
        self._stream = Stream()
        self.files: list[File] = []
        self.choices: tuple[str, ...] = ()
        self.events = 0

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    @property
    def full(self) -> str:
        """Why nothing more is taken; empty while there is room."""
        if self._heard >= self._limit:
            return f"the answer grew past {self._limit} characters"
        if self._aside >= self._limit * ASIDE_TIMES:
            return f"what I did besides answering grew past {self._limit * ASIDE_TIMES} characters"
        return ""

    def say(self, delta: str) -> None:
        self._heard += len(delta)
        self._aside += 1
        delta = self._half + delta
        self._half = delta[-1:] if "\ud800" <= delta[-1:] <= "\udbff" else ""
        told = self._stream.feed(mend(delta.removesuffix(self._half)))
        self._keep(told[: max(self._limit - self._length, 0)])

    def note(self, event: JournalEvent, *texts: str) -> None:
        """Takes what is no answer; it is bounded too."""
        self._aside += sum(map(len, texts)) + (1 if isinstance(event, ReasoningDelta) else ENTRY_CHARACTERS)
        self._journal.add(event)

    def explain(self, sentence: str) -> None:
        """What the gateway itself has to say is a delta like any other, so that every reader sees it."""
        self.end()
        self._keep(("\n\n" if self._length else "") + sentence)

    def end(self) -> None:
        self._keep(self._stream.feed(mend(self._half)) + self._stream.flush())
        self._half = ""

    def _keep(self, text: str) -> None:
        if text:
            self._pieces.append(text)
            self._length += len(text)
            self._journal.add(TextDelta(text))

"""Notices a run that goes in circles: the model is warned first, then the run is halted and the person is told why."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256

from tidings.bots.assistant.prompt import NOTE
from tidings.bots.assistant.settings import Rail, Rails
from tidings.core.agent import Effect
from tidings.core.redaction import one_line

# How much of an error the person is told.
ERROR_CHARACTERS = 160
NAME_CHARACTERS = 64


@dataclass(frozen=True, slots=True)
class Used:
    """One tool call and its result."""

    name: str
    arguments: str
    effect: Effect
    output: str
    error: str


@dataclass(frozen=True, slots=True)
class Warned:
    """A note for the model."""

    note: str


@dataclass(frozen=True, slots=True)
class Halted:
    """`sentence` is for the person; `reason` says the same in a few words."""

    sentence: str
    reason: str


@dataclass(slots=True)
class Counted:
    """What was counted in one run; kept in its checkpoint, so that a run that waited for people counts on."""

    # How often each call has failed in each way.
    same: dict[str, int] = field(default_factory=dict)
    # How often each tool has failed in a row.
    failing: dict[str, int] = field(default_factory=dict)
    # Results that were seen, and how many calls in a row brought nothing else.
    seen: list[str] = field(default_factory=list)
    stale: int = 0


class Guard:
    """Counts the tool calls of one run."""

    def __init__(self, rails: Rails, counted: Counted | None = None) -> None:
        self._rails = rails
        self._counted = counted if counted is not None else Counted()

    def look(self, used: Used) -> Warned | Halted | None:
        if not self._rails.enabled:
            return None
        found = self._failed(used) if used.error else self._succeeded(used)
        halts = [each for each in found if isinstance(each, Halted)]
        return next(iter(halts or found), None)

    def _failed(self, used: Used) -> list[Warned | Halted]:
        same = _count(self._counted.same, _mark(used.name, used.arguments, used.error))
        failing = _count(self._counted.failing, used.name)
        # After the first sentence, an error is mostly advice for the model.
        name, told = shown(used.name), one_line(used.error).partition(". ")[0][:ERROR_CHARACTERS].rstrip(".")
        return [
            *_judge(
                self._rails.same_call,
                same,
                f"this very call of {name} has failed {same} times in the same way; do something else",
                f"I called {name} {same} times with the same input, and it always failed the same way: {told}",
                f"the same call of {name} failed {same} times",
            ),
            *_judge(
                self._rails.one_tool,
                failing,
                f"{name} has failed {failing} times in a row; do something else",
                f"I tried {name} {failing} times, and it failed each time, at last like this: {told}",
                f"{name} failed {failing} times",
            ),
        ]

    def _succeeded(self, used: Used) -> list[Warned | Halted]:
        counted = self._counted
        counted.failing.pop(used.name, None)
        if used.effect is Effect.EFFECT:
            counted.stale = 0
            return []
        seen = _mark(used.name, used.arguments, used.output)
        if seen in counted.seen:
            counted.stale += 1
        else:
            counted.stale = 1
            counted.seen.append(seen)
        stale = counted.stale
        return _judge(
            self._rails.no_progress,
            stale,
            f"the last {stale} calls brought nothing new; answer with what you have, or do something else",
            f"I looked things up {stale} times in a row, lastly with {shown(used.name)}, and learned nothing new",
            f"{stale} calls brought nothing new",
        )


def _count(counts: dict[str, int], key: str) -> int:
    counts[key] = counts.get(key, 0) + 1
    return counts[key]


def _mark(*parts: str) -> str:
    return sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()


def shown(name: str) -> str:
    """A tool's name, shortened: a model may ask for a tool that does not exist, under any name."""
    return one_line(name)[:NAME_CHARACTERS] or "a tool without a name"


def _judge(rail: Rail, count: int, note: str, sentence: str, reason: str) -> list[Warned | Halted]:
    if count >= rail.halt:
        return [Halted(f"(I stopped here: {sentence}.)", reason)]
    return [Warned(f"{NOTE} {note}.)")] if count >= rail.warn else []

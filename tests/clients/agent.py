"""The agent that client programs talk to: the first word of a message says what it does."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator

from tidings.core.agent import (
    ApprovalAsked,
    Checkpoint,
    Effect,
    Event,
    Finished,
    OutcomeKind,
    TextDelta,
    ToolFinished,
    ToolStarted,
    Turn,
    Usage,
)
from tidings.core.types import Author

PLAIN = "Hello there."
TWELVE = "Twelve bottles."
REASON = "the provider does not accept the key"
USAGE = Usage(input_tokens=7, output_tokens=5)


class ClientsAgent:
    """Counts how often each message was asked."""

    def __init__(self, *, asks: bool = False) -> None:
        """`asks`: people are asked before each answer."""
        self.asks = asks
        self.asked: Counter[str] = Counter()
        self.turns: list[Turn] = []

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        if self.asks and not turn.verdicts:
            yield Checkpoint(b"asked")
            yield ApprovalAsked("asked", "terminal", "rm build", "digest")
            return
        self.turns.append(turn)
        text = turn.message.text
        self.asked[text] += 1
        match text.split()[0]:
            case "fail":
                yield TextDelta("I begin. ")
                yield Finished(OutcomeKind.FAILED, REASON)
                return
            case "tools":
                yield ToolStarted("one", "look", '{"at": "cellar"}', Effect.PURE)
                yield ToolFinished("one", "12 bottles")
                yield ToolStarted("two", "count", "", Effect.PURE)
                yield ToolFinished("two", error="it is too dark to count")
                yield TextDelta("Twelve ")
                yield TextDelta("bottles.")
            case "second":
                yield TextDelta(recollection(turn))
            case _:
                yield TextDelta("Hello ")
                yield TextDelta("there.")
        yield Finished(usage=USAGE)


def recollection(turn: Turn) -> str:
    """What was said before, and whether a tool's output is still known."""
    said = {author: [entry.text for entry in turn.history if entry.author is author] for author in Author}
    known = "12 bottles" in " ".join(said[Author.NOTICE])
    return f"You said: {said[Author.PERSON]}. I said: {said[Author.BOT]}. The tool {'is' if known else 'is not'} known."

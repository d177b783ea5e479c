"""An agent that asks people before its tool acts, and keeps its own record of every time the tool acted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from tidings.core.agent import (
    ApprovalAsked,
    Checkpoint,
    Effect,
    Event,
    Finished,
    TextDelta,
    ToolFinished,
    ToolStarted,
    Turn,
)

TOOL = "terminal"


class Careful:
    """Says a few words, asks about each of its commands in turn, and says what became of them."""

    def __init__(self, *commands: str, covers: bool = True, read: Sequence[str] = (), words: str = "") -> None:
        self.commands = commands or ("rm build",)
        self.read = tuple(read)
        self.covers = covers
        self.words = words
        self.turns: list[Turn] = []
        # Each time a command really ran: the run and the command.
        self.acted: list[tuple[str, str]] = []

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        self.turns.append(turn)
        done = int(turn.checkpoint or b"0")
        if self.words and not turn.goes_on:
            yield TextDelta(self.words)
        verdicts = {verdict.call: verdict for verdict in turn.verdicts}
        for number, command in enumerate(self.commands):
            if number < done:
                continue
            verdict = verdicts.get(f"call{number}")
            if verdict is None:
                yield Checkpoint(str(number).encode())
                covers = command if self.covers else ""
                yield ApprovalAsked(f"call{number}", TOOL, command, f"digest of {command}", covers, self.read)
                return
            if verdict.granted:
                yield ToolStarted(f"call{number}", TOOL, command, Effect.EFFECT)
                self.acted.append((turn.run, command))
                yield ToolFinished(f"call{number}", "done")
                yield Checkpoint(str(number + 1).encode())
                yield TextDelta(f"Done: {command}. ")
            else:
                yield TextDelta(f"Not done: {command}, {verdict.reason}. ")
                yield Checkpoint(str(number + 1).encode())
        yield Checkpoint(b"0")
        yield Finished()

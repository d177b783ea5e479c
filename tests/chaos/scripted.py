"""The agent of every scenario: it does what the message says, and waits for nothing but the clock it was given."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from tests.chaos.steps import (
    BROKEN,
    FRAIL_SECONDS,
    LAST_SECONDS,
    REPORT_SECONDS,
    SLOW_SECONDS,
    STEP_SECONDS,
    STEPS,
    STREAMED,
    VOW_SECONDS,
    bold_text,
    long_text,
    report,
    table_text,
)
from tidings.core.agent import (
    ApprovalAsked,
    Checkpoint,
    Effect,
    Event,
    FileMade,
    Finished,
    OutcomeKind,
    Progress,
    ReasoningDelta,
    TextDelta,
    ToolFinished,
    ToolStarted,
    Turn,
)
from tidings.core.clock import Clock
from tidings.core.failpoints import fail_here
from tidings.core.work.tasks.tasks import TaskKind


class Ledger:
    """The ground truth of effectful tools: what was done, written where the gateway cannot reach it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, call: str) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, f"{call}\n".encode())
        finally:
            os.close(descriptor)

    def read(self) -> list[str]:
        return self._path.read_text().split() if self._path.exists() else []


class ScriptedAgent:
    def __init__(self, clock: Clock, ledger: Ledger) -> None:
        self._clock = clock
        self._ledger = ledger

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        token = f"[{turn.message.key}]"
        scripts: dict[str, Callable[[Turn, str], AsyncIterator[Event]]] = {
            "plain": self._plain,
            "late": self._late,
            "stream": self._stream,
            "think": self._think,
            "pure": self._pure,
            "put": self._put,
            "effect": self._effect,
            "bold": self._bold,
            "table": self._table,
            "long": self._long,
            "tale": self._tale,
            "hold": self._hold,
            "recall": self._recall,
            "album": self._album,
            "file": self._file,
            "slow": self._slow,
            "halt": self._halt,
            "fail": self._fail,
            "task": self._task,
            "frail": self._task,
            "vow": self._task,
            "ask": self._ask,
            "beg": self._ask,
            "busy": self._busy,
        }
        async for event in scripts[turn.message.text.split()[0]](turn, token):
            yield event

    async def _plain(self, turn: Turn, token: str) -> AsyncIterator[Event]:
        yield TextDelta(f"{token} A plain answer.")
        yield Finished()

    async def _late(self, turn: Turn, token: str) -> AsyncIterator[Event]:
        await self._clock.sleep(1.5)
        yield TextDelta(f"{token} A plain answer.")
        yield Finished()

    async def _stream(self, turn: Turn, token: str) -> AsyncIterator[Event]:
        yield TextDelta(f"{token} ")
        for piece in STREAMED:
            yield TextDelta(piece)
            await self._clock.sleep(0.4)
        yield Finished()

    async def _think(self, turn: Turn, token: str) -> AsyncIterator[Event]:
        yield ReasoningDelta("What could be meant? ")
        yield Progress("thinking")
        await self._clock.sleep(0.7)
        yield ReasoningDelta("I see.")
        yield TextDelta(f"{token} I thought about it.")
        yield Finished()

    async def _pure(self, turn: Turn, token: str) -> AsyncIterator[Event]:
        yield TextDelta(f"{token} I looked: ")
        yield ToolStarted(f"{turn.message.key}-look", "look", "{}", Effect.PURE)
        await self._clock.sleep(0.8)
        yield ToolFinished(f"{turn.message.key}-look", "noon")
        yield TextDelta("it is ")
        await self._clock.sleep(0.3)
        yield TextDelta("noon.")
        yield Finished()

    async def _put(self, turn: Turn, token: str) -> AsyncIterator[Event]:
        """May be repeated as often as one likes, and has the same name each time."""
        call = f"{turn.message.key}-put"
        yield ToolStarted(call, "put", "{}", Effect.IDEMPOTENT)
        await self._clock.sleep(0.1)
        self._ledger.write(call)
        yield ToolFinished(call, "put")
        await self._clock.sleep(0.1)
        yield TextDelta(f"{token} Put in its place.")
        yield Finished()

    async def _effect(self, turn: Turn, token: str) -> AsyncIterator[Event]:
        """Goes on behind its checkpoint, where there is one of this message."""
        paid = turn.message.key.encode()
        if turn.checkpoint != paid:
            call = f"{turn.message.key}-pay"
            yield ToolStarted(call, "pay", "{}", Effect.EFFECT)
            await self._clock.sleep(0.1)
            self._ledger.write(call)
            fail_here("tool.effect")
            await self._clock.sleep(0.1)
            yield ToolFinished(call, "paid")
            yield Checkpoint(paid)
            await self._clock.sleep(0.1)
        yield TextDelta(f"{token} Paid, and written down.")
        yield Finished()

    async def _ask(self, turn: Turn, token: str) -> AsyncIterator[Event]:
        """Pays once it is approved; behind its checkpoint it has paid, or was told not to."""
        key = turn.message.key
        call, paid = f"{key}-pay", f"{key} paid".encode()
        if not turn.goes_on:
            yield TextDelta(f"{token} Let me see. ")
        verdict = next((each for each in turn.verdicts if each.call == call), None)
        if verdict is None:
            await self._clock.sleep(0.1)
            yield Checkpoint(f"{key} asked".encode())
            yield ApprovalAsked(call, "pay", f"pay for {key}", f"pay for {key}", "pay")
            return
        if verdict.granted and turn.checkpoint != paid:
            yield ToolStarted(call, "pay", "{}", Effect.EFFECT)
            await self._clock.sleep(0.1)
            self._ledger.write(call)
            fail_here("tool.effect")
            yield ToolFinished(call, "paid")
            yield Checkpoint(paid)
            await self._clock.sleep(0.1)
        yield TextDelta("Paid, and written down." if verdict.granted else "Not paid.")
        yield Finished()

    async def _busy(self, turn: Turn, token: str) -> AsyncIterator[Event]:
        """Hears at each of its steps, stores what it heard, and names every message that it answers."""
        run, *taken = (turn.checkpoint or b"none").decode().split()
        if run != turn.run:
            taken = _named(turn.message.text)
        yield TextDelta("I am at it.")
        for _ in range(STEPS):
            await self._clock.sleep(STEP_SECONDS)
            if heard := await turn.heard():
                taken += [key for message in heard for key in _named(message.text)]
                yield Checkpoint(" ".join((turn.run, *taken)).encode())
                # Only what is surely stored gets here; whoever stores it once more says the same.
                self._ledger.write(f"{turn.run}-put-{'+'.join(taken)}")
        await self._clock.sleep(LAST_SECONDS)
        yield TextDelta("".join(f"\n\n[{key}] is answered." for key in taken))
        yield Finished()

    async def _bold(self, turn: Turn, token: str) -> AsyncIterator[Event]:
        yield TextDelta(bold_text(token))
        yield Finished()

    async def _table(self, turn: Turn, token: str) -> AsyncIterator[Event]:
        """Grows line by line, so that half a table is shown for a while."""
        for line in table_text(token).splitlines(keepends=True):
            yield TextDelta(line)
            await self._clock.sleep(0.4)
        yield Finished()

    async def _long(self, turn: Turn, token: str) -> AsyncIterator[Event]:
        yield TextDelta(long_text(token))
        yield Finished()

    async def _tale(self, turn: Turn, token: str) -> AsyncIterator[Event]:
        """Grows past one message while it is shown."""
        text = long_text(token)
        for start in range(0, len(text), 240):
            yield TextDelta(text[start : start + 240])
            await self._clock.sleep(0.3)
        yield Finished()

    async def _hold(self, turn: Turn, token: str) -> AsyncIterator[Event]:
        """Long enough for others to queue up behind it."""
        yield TextDelta(f"{token} One moment.")
        await self._clock.sleep(3.0)
        yield TextDelta(" Done.")
        yield Finished()

    async def _recall(self, turn: Turn, token: str) -> AsyncIterator[Event]:
        yield TextDelta(f"{token} I remember {len(turn.history)} entries.")
        yield Finished()

    async def _album(self, turn: Turn, token: str) -> AsyncIterator[Event]:
        """One line for each picture, whether they came together or a kill has parted them."""
        yield TextDelta(token)
        for attachment in turn.message.attachments:
            yield TextDelta(f"\n\nI see {attachment.name}.")
        yield Finished()

    async def _file(self, turn: Turn, token: str) -> AsyncIterator[Event]:
        """Its path must be the same in every run, so it is made where the process stands."""
        name = f"{turn.message.key}.txt"
        Path(name).write_text(f"This is {name}.")
        yield TextDelta(f"{token} Here it is.")
        yield FileMade(name, name)
        yield Finished()

    async def _slow(self, turn: Turn, token: str) -> AsyncIterator[Event]:
        yield TextDelta(token)
        for number in range(60):
            yield TextDelta(f" {number}")
            await self._clock.sleep(SLOW_SECONDS)
        yield Finished()

    async def _halt(self, turn: Turn, token: str) -> AsyncIterator[Event]:
        yield TextDelta(f"{token} This far.")
        yield Finished(OutcomeKind.HALTED, "it was told to")

    async def _fail(self, turn: Turn, token: str) -> AsyncIterator[Event]:
        yield TextDelta(f"{token} It began well.")
        await self._clock.sleep(0.1)
        raise RuntimeError(BROKEN)

    async def _task(self, turn: Turn, token: str) -> AsyncIterator[Event]:
        call = f"{turn.message.key}-promise"
        kind = "frail" if turn.message.text == "frail" else "report"
        yield ToolStarted(call, "promise", token, Effect.EFFECT)
        await turn.desk.begin(kind, token, VOW_SECONDS if turn.message.text == "vow" else REPORT_SECONDS)
        yield ToolFinished(call, "promised")
        yield TextDelta(f"{token} I will report back.")
        yield Finished()


def _named(text: str) -> list[str]:
    """The keys of the messages whose texts were put together to this one."""
    words = text.split()
    return [key for word, key in itertools.pairwise(words) if word == "busy"]


async def _report(token: str) -> str:
    return report(token)


# Starts again after a crash.
KINDS = (TaskKind("report", _report, resumable=True),)


def kinds(clock: Clock) -> tuple[TaskKind, ...]:
    """Also one that takes its time, and is reported as lost after a crash."""

    async def work(token: str) -> str:
        await clock.sleep(FRAIL_SECONDS)
        return report(token)

    return *KINDS, TaskKind("frail", work, resumable=False)

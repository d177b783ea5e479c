"""The ten-message scenario as data: who says what, where and when, and what may be seen of each in the end."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NamedTuple

from core.agent import Checkpoint, Effect, Event, Finished, TextDelta, ToolFinished, ToolStarted, Turn
from core.clock import Clock
from core.work.tasks import TaskKind
from tests.simulators.paper_chats import Kind

PERSON = "7"


class Platform(NamedTuple):
    """One paper platform; each of its accounts is an adapter of its own."""

    name: str
    kind: Kind
    accounts: tuple[str, ...] = ("main",)
    # Short, so that a long answer has parts without being long.
    limit: int = 300

    @property
    def settles_doubts(self) -> bool:
        """A key or a look at the chat tells whether a send arrived, so no copy is ever sent twice."""
        return self.kind.keyed_for > 0 or self.kind.readback


class Say(NamedTuple):
    """A person writes; a key that was used before announces the same message by another event."""

    key: str
    where: str
    text: str
    chat: str = "1"
    thread: str = ""

    @property
    def platform(self) -> str:
        return self.where.partition("@")[0]

    @property
    def account(self) -> str:
        return self.where.partition("@")[2] or "main"


class Wait(NamedTuple):
    seconds: float


class Expected(NamedTuple):
    """What a person may see of one message when all has come to rest."""

    # The one answer when nothing is cut off, as one text.
    answer: str = ""
    outcome: str = "completed"
    # An effectful tool, which may leave the run interrupted instead.
    tool: str = ""
    # Told later, beside the answer; only a run that was interrupted may never have promised it.
    report: str = ""
    # Whatever was said until a person stopped it.
    is_open: bool = False


class Scenario(NamedTuple):
    platforms: tuple[Platform, ...]
    steps: tuple[Say | Wait, ...]

    def said(self) -> dict[str, Say]:
        """Every message once."""
        return {step.key: step for step in reversed(self.steps) if isinstance(step, Say)}

    def platform(self, name: str) -> Platform:
        return next(platform for platform in self.platforms if platform.name == name)


KEYED = Platform("keyed", Kind(keyed_for=120.0, streaming="edits"), ("main", "other"))
READBACK = Platform("readback", Kind(readback=True, streaming="none", typing=False, reactions=False))
NEITHER = Platform("neither", Kind(streaming="edits"))

# Liveness asks for an outcome within 60 s and an attempt within 15 s; who is not done by then never will be.
REST = Wait(90.0)

TEN = Scenario(
    (KEYED, READBACK, NEITHER),
    (
        Say("k1", "keyed", "plain"),
        Say("n1", "neither", "stream", thread="t"),
        Wait(0.7),
        Say("r1", "readback", "pure"),
        Wait(0.5),
        Say("n2", "neither", "effect", chat="2"),
        Say("n3", "neither", "plain", chat="2"),
        Wait(0.4),
        Say("k2", "keyed", "slow", thread="t"),
        Wait(1.2),
        Say("k3", "keyed", "/status", thread="t"),
        Say("r2", "readback", "long", thread="t"),
        Say("k4", "keyed", "/stop", thread="t"),
        Wait(0.5),
        Say("k1", "keyed", "plain"),
        Say("n4", "neither", "fail"),
        Say("o1", "keyed@other", "task"),
        Wait(0.5),
        Say("n5", "neither", "long", thread="t"),
        REST,
    ),
)


def expected(say: Say) -> Expected:
    token = f"[{say.key}]"
    match say.text:
        case "plain":
            return Expected(f"{token} A plain answer.")
        case "stream":
            return Expected(f"{token} " + "".join(STREAMED).strip())
        case "pure":
            return Expected(f"{token} I looked: it is noon.")
        case "effect":
            return Expected(f"{token} Paid, and written down.", tool="pay")
        case "long":
            return Expected(long_text(token))
        case "slow":
            return Expected(token, outcome="cancelled", is_open=True)
        case "fail":
            return Expected(f"{token} It began well.\n\n⚠ I could not finish this: {BROKEN}.", outcome="failed")
        case "task":
            return Expected(f"{token} I will report back.", tool="promise", report=report(token))
        case _:
            return Expected(outcome="", is_open=True)


STREAMED = ("This answer ", "grows while ", "a person ", "looks on.")
BROKEN = "the agent broke as it was told"
SLOW_SECONDS = 1.0
REPORT_SECONDS = 2.0


def long_text(token: str) -> str:
    """Three parts at the platforms' limit."""
    lines = [f"{token} Line {number} of an answer that does not fit into one message." for number in range(1, 12)]
    return "\n\n".join(lines)


def report(token: str) -> str:
    return f"{token} The report, as promised."


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
    """Does what the message says, and waits for nothing but the clock it was given."""

    def __init__(self, clock: Clock, ledger: Ledger) -> None:
        self._clock = clock
        self._ledger = ledger

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        token = f"[{turn.message.key}]"
        scripts: dict[str, Callable[[Turn, str], AsyncIterator[Event]]] = {
            "plain": self._plain,
            "stream": self._stream,
            "pure": self._pure,
            "effect": self._effect,
            "long": self._long,
            "slow": self._slow,
            "fail": self._fail,
            "task": self._task,
        }
        async for event in scripts[turn.message.text](turn, token):
            yield event

    async def _plain(self, turn: Turn, token: str) -> AsyncIterator[Event]:
        yield TextDelta(f"{token} A plain answer.")
        yield Finished()

    async def _stream(self, turn: Turn, token: str) -> AsyncIterator[Event]:
        yield TextDelta(f"{token} ")
        for piece in STREAMED:
            yield TextDelta(piece)
            await self._clock.sleep(0.4)
        yield Finished()

    async def _pure(self, turn: Turn, token: str) -> AsyncIterator[Event]:
        yield TextDelta(f"{token} I looked: ")
        yield ToolStarted(f"{turn.message.key}-look", "look", "{}", Effect.PURE)
        await self._clock.sleep(0.3)
        yield ToolFinished(f"{turn.message.key}-look", "noon")
        yield TextDelta("it is noon.")
        yield Finished()

    async def _effect(self, turn: Turn, token: str) -> AsyncIterator[Event]:
        """Goes on behind its checkpoint, where there is one of this message."""
        paid = turn.message.key.encode()
        if turn.checkpoint != paid:
            call = f"{turn.message.key}-pay"
            yield ToolStarted(call, "pay", "{}", Effect.EFFECT)
            await self._clock.sleep(0.1)
            self._ledger.write(call)
            await self._clock.sleep(0.1)
            yield ToolFinished(call, "paid")
            yield Checkpoint(paid)
            await self._clock.sleep(0.1)
        yield TextDelta(f"{token} Paid, and written down.")
        yield Finished()

    async def _long(self, turn: Turn, token: str) -> AsyncIterator[Event]:
        yield TextDelta(long_text(token))
        yield Finished()

    async def _slow(self, turn: Turn, token: str) -> AsyncIterator[Event]:
        yield TextDelta(token)
        for number in range(60):
            yield TextDelta(f" {number}")
            await self._clock.sleep(SLOW_SECONDS)
        yield Finished()

    async def _fail(self, turn: Turn, token: str) -> AsyncIterator[Event]:
        yield TextDelta(f"{token} It began well.")
        await self._clock.sleep(0.1)
        raise RuntimeError(BROKEN)

    async def _task(self, turn: Turn, token: str) -> AsyncIterator[Event]:
        call = f"{turn.message.key}-promise"
        yield ToolStarted(call, "promise", token, Effect.EFFECT)
        await turn.desk.begin("report", token, REPORT_SECONDS)
        yield ToolFinished(call, "promised")
        yield TextDelta(f"{token} I will report back.")
        yield Finished()


async def _report(token: str) -> str:
    return report(token)


KINDS = (TaskKind("report", _report, resumable=True),)

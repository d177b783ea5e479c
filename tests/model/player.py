"""An agent that plays what the message tells it, and keeps its own record of what it did."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from typing import NamedTuple

from tests.model.ground import Order
from tests.model.life import Life, ModelClock
from tidings.core.agent import (
    Checkpoint,
    Effect,
    Event,
    Finished,
    OutcomeKind,
    Progress,
    TextDelta,
    ToolFinished,
    ToolStarted,
    Turn,
)
from tidings.core.types import Conversation
from tidings.core.work.tasks.tasks import TaskKind

SAY, LONG, NAP, WAIT, STUBBORN = "say", "long", "nap", "wait", "stubborn"
PURE, EFFECT, SAVE, PROMISE = "pure", "effect", "save", "promise"
FAIL, SILENT, HALT = "fail", "silent", "halt"
STEPS = (SAY, SAY, LONG, NAP, WAIT, STUBBORN, PURE, EFFECT, EFFECT, SAVE, PROMISE)
ENDS = (SAY, SAY, SAY, LONG, LONG, FAIL, SILENT, HALT)
LONG_WORDS = 40


class Done(NamedTuple):
    """An effect that took place."""

    call: str
    run: str
    step: int


class Player:
    """A message's lines are `KEY STEP STEP …`; every word that it says begins with the key of who asked for it."""

    def __init__(self, clock: ModelClock, order: Order) -> None:
        self.life: Life
        # Set when all faults are healed: nobody waits any more.
        self.generous = False
        self.effects: list[Done] = []
        # By message key, the runs that played it; by run and attempt, what was said.
        self.runs: dict[str, list[str]] = defaultdict(list)
        self.said: dict[tuple[str, int], list[str]] = {}
        self.attempts: Counter[str] = Counter()
        # By conversation, the messages in the order in which they were first played.
        self.turns: dict[str, list[str]] = defaultdict(list)
        self.violations: list[str] = []
        self._clock = clock
        self._order = order
        self._active: dict[str, str] = {}
        self._gates: list[tuple[Conversation, asyncio.Future[None]]] = []

    def begin(self, life: Life) -> None:
        self.life = life
        self._active.clear()
        self._gates.clear()

    def let_go(self, index: int | None = None) -> None:
        """One of those who wait goes on, or all of them."""
        gates = [gate for _, gate in self._gates if not gate.done()]
        for number, gate in enumerate(gates):
            if index is None or number == index % len(gates):
                gate.set_result(None)

    @property
    def waits(self) -> list[Conversation]:
        """Where somebody waits to be told to go on."""
        return [conversation for conversation, gate in self._gates if not gate.done()]

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        self.life.check()
        conversation, key = turn.message.conversation.id, turn.message.key
        stubborn = STUBBORN in turn.message.text
        if conversation in self._active:
            self.violations.append(f"I9: {turn.run} runs in {conversation} beside {self._active[conversation]}")
        if not stubborn:
            # Whoever ignores a stop is settled without, and the next one may start beside it.
            self._active[conversation] = turn.run
        if turn.run not in self.runs[key]:
            self.runs[key].append(turn.run)
            self.turns[conversation].append(key)
        self.attempts[turn.run] += 1
        said = self.said[turn.run, turn.attempt] = []
        try:
            done = int(turn.checkpoint.rpartition(b":")[2]) if _is_own(turn) and turn.checkpoint else 0
            for index, (owner, step) in enumerate(plan(turn.message.text), start=1):
                async for event in self._play(turn, f"{owner}.{index}", step, index <= done, index):
                    if isinstance(event, TextDelta):
                        said += event.text.split()
                    yield event
                    self.life.check()
                    if isinstance(event, Finished):
                        return
                if step == SILENT:
                    return
            yield Finished()
        finally:
            if self._active.get(conversation) == turn.run:
                del self._active[conversation]

    async def _play(self, turn: Turn, name: str, step: str, done: bool, index: int) -> AsyncIterator[Event]:
        """After a restart everything is said anew, and what the checkpoint has seen done is not done again."""
        match step:
            case "say":
                yield TextDelta(f"{name} ")
            case "long":
                yield TextDelta("".join(f"{name}.{number} " for number in range(LONG_WORDS)))
            case "nap":
                yield Progress("thinking")
                await self._clock.sleep(3.0)
            case "wait":
                await self._wait(turn)
            case "stubborn":
                try:
                    await self._wait(turn)
                except asyncio.CancelledError:
                    self.life.check()
                    await self._wait(turn)
            case "pure" | "effect" if not done:
                yield ToolStarted(name, f"tool {name}", effect=Effect(step))
                self.life.check()
                if step == EFFECT:
                    self.effects.append(Done(name, turn.run, self._order.step))
                await asyncio.sleep(0)
                self.life.check()
                yield ToolFinished(name, "done")
            case "save":
                yield Checkpoint(f"{turn.run}:{index}".encode())
            case "promise" if not done:
                await turn.desk.begin("report" if index % 2 else "chore", name, 3.0)
            case "fail":
                raise RuntimeError(f"{name} broke")
            case "halt":
                yield Finished(OutcomeKind.HALTED, f"{name} is enough")

    async def _wait(self, turn: Turn) -> None:
        self.life.check()
        if not self.generous:
            gate = self.life.loop.create_future()
            self._gates.append((turn.message.conversation, gate))
            await gate
        self.life.check()

    def kinds(self) -> tuple[TaskKind, ...]:
        async def work(argument: str) -> str:
            self.life.check()
            await self._clock.sleep(1.0)
            self.life.check()
            return f"{argument}.report"

        return TaskKind("report", work, resumable=True), TaskKind("chore", work, resumable=False)


def _is_own(turn: Turn) -> bool:
    """A checkpoint may also be an earlier run's of the conversation."""
    return turn.checkpoint is not None and turn.checkpoint.startswith(f"{turn.run}:".encode())


def plan(text: str) -> list[tuple[str, str]]:
    """The steps with the message that asked for each; the later rows of an album are lines of their own."""
    return [(line.split()[0], step) for line in text.splitlines() for step in line.split()[1:]]

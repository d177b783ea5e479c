"""Stand-ins that a test owns: a clock that moves when told, a notebook in memory, a desk that listens."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

from tidings.core.adapter import Adapter, Line, NearbyHost
from tidings.core.clock import Clock
from tidings.core.desk.fence import Fence
from tidings.core.desk.health import Health
from tidings.core.desk.people import Key
from tidings.core.desk.runs import ConversationLine, HistoryLine, Numbered, Remembered, Run
from tidings.core.errors import Unknown, Unstored
from tidings.core.roles import OWNER, Permission, Person
from tidings.core.telemetry.metrics import Meters
from tidings.core.types import Admission, Asker, Attachment, Body, Delivery, Entry, Inbound, Note, Stored, Target
from tidings.core.work.processes.fence import Local

# Enough turns of the loop for a chain of awaits to come to rest, where no thread or socket takes part.
SETTLING_TURNS = 50
# So many turns in a row in which nobody had anything to do: a socket may have had something just then.
IDLE_TURNS = 3


async def calm(turns: int) -> None:
    """Lets the loop turn until nobody but the caller has anything to do, and no more often than that."""
    loop = asyncio.get_running_loop()
    idle = 0
    for _ in range(turns):
        await asyncio.sleep(0)
        # The loop has no public word for it. Whoever asks is not in there while it runs.
        idle = 0 if loop._ready else idle + 1  # type: ignore[attr-defined]
        if idle == IDLE_TURNS:
            return


async def settle(real_seconds: float = 0.0) -> None:
    """Lets everything that is ready run; real time is only needed for what waits for a thread or a socket."""
    await calm(SETTLING_TURNS)
    if real_seconds:
        await asyncio.sleep(real_seconds)


class FakeTimer:
    def __init__(self, at: float, callback: Callable[[], None]) -> None:
        self.at = at
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class FakeClock(Clock):
    """Stands still until `advance`. `patience` is real time after each timer, for threads and sockets."""

    def __init__(self, now: float = 1_000_000.0, wall: float = 1_750_000_000.0, patience: float = 0.0) -> None:
        self.patience = patience
        self._now = now
        self.confirmed = True
        self._ahead = wall - now
        self._timers: list[tuple[float, int, FakeTimer]] = []
        self._order = itertools.count()

    def now(self) -> float:
        return self._now

    def wall(self) -> float:
        return self._now + self._ahead

    def call_later(self, seconds: float, callback: Callable[[], None]) -> FakeTimer:
        timer = FakeTimer(self._now + max(seconds, 0.0), callback)
        heapq.heappush(self._timers, (timer.at, next(self._order), timer))
        return timer

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken = asyncio.Event()
        timer = self.call_later(seconds, woken.set)
        try:
            await woken.wait()
        finally:
            timer.cancel()

    @property
    def waiting(self) -> int:
        """How many timers are set."""
        return sum(not timer.cancelled for _, _, timer in self._timers)

    def jump(self, seconds: float) -> None:
        """Moves the wall clock alone, as a person or a time server does."""
        self._ahead += seconds

    def doze(self, seconds: float) -> None:
        """The machine sleeps: time goes on, and no timer fires before somebody advances again."""
        self._now += seconds

    async def advance(self, seconds: float) -> None:
        """Fires what becomes due, in order, and lets the loop settle after each."""
        end = self._now + seconds
        await settle(self.patience)
        while self._timers and self._timers[0][0] <= end:
            at, _, timer = heapq.heappop(self._timers)
            if timer.cancelled:
                continue
            self._now = max(self._now, at)
            timer.callback()
            await settle(self.patience)
        self._now = end
        await settle(self.patience)

    async def advance_until(
        self, holds: Callable[[], object], *, limit: float = 3600.0, real_limit: float = 30.0
    ) -> None:
        """Goes from timer to timer until it holds. Gives threads and sockets real time before each step."""
        end = self._now + limit
        async with asyncio.timeout(real_limit):
            while True:
                await settle(max(self.patience, 0.01))
                if holds():
                    return
                due = [timer.at for _, _, timer in self._timers if not timer.cancelled]
                if due and min(due) <= end:
                    await self.advance(max(0.0, min(due) - self._now))


class MemoryNotebook:
    def __init__(self) -> None:
        self.lines: dict[str, str] = {}

    async def read(self, name: str) -> str | None:
        return self.lines.get(name)

    async def write(self, name: str, value: str) -> None:
        self.lines[name] = value


class FakePeople:
    """Knows the owner alone, who may do everything; keeps keys in memory."""

    def __init__(self) -> None:
        self._keys: list[Key] = []

    def subscribe(self, hear: Callable[[], None]) -> None:
        return

    def keys(self) -> tuple[Key, ...]:
        return tuple(self._keys)

    async def add_key(self, by: Person, key: Key) -> None:
        self._keys.append(key)

    def holder(self, key: Key) -> Person:
        return OWNER

    def find(self, said: Inbound | Asker) -> Person:
        return OWNER

    def may(self, person: Person, permission: Permission) -> bool:
        return True


class FakeProcesses:
    """Puts no fence around commands, unless a test brings one."""

    def __init__(self, fence: Fence | None = None) -> None:
        self.fence = fence or Local()


class FakeDesk:
    """Knows no run and no delivery; remembers what it was told."""

    def __init__(self) -> None:
        self.people = FakePeople()
        self.processes: Any = FakeProcesses()
        self.owed: list[tuple[Target, Body, str]] = []
        self.begun: list[tuple[str, str, float]] = []
        self.stopped: list[tuple[str, str]] = []
        self.allowed: list[str] = []
        self.meters = Meters()
        self.notes: list[Remembered] = []

    async def follow(self, run: str, after: int = 0) -> AsyncIterator[Numbered]:
        raise Unknown(f"no run {run}")
        yield

    async def stop(self, run: str, by: str) -> bool:
        self.stopped.append((run, by))
        return True

    def bots(self) -> tuple[str, ...]:
        return ("bot",)

    async def run(self, id: str) -> Run:
        raise Unknown(f"no run {id}")

    async def forget(self, run: str) -> None:
        raise Unknown(run)

    async def conversations(
        self, adapter: str, chat: str, limit: int, before: int, member: str = ""
    ) -> list[ConversationLine]:
        return []

    async def memory(self, conversation: str, before: str, limit: int) -> tuple[Entry, ...]:
        return ()

    async def history(self, conversation: str, limit: int, after: int) -> list[HistoryLine]:
        return []

    async def permitted(self, target: Target) -> bool:
        return True

    async def owe(self, target: Target, body: Body, cause: str, key: str = "", digest: str = "") -> str:
        self.owed.append((target, body, cause))
        return f"dlv_{len(self.owed)}"

    async def delivery(self, id: str) -> Delivery:
        raise Unknown(f"no delivery {id}")

    async def begin(self, kind: str, argument: str, after: float) -> str:
        self.begun.append((kind, argument, after))
        return f"task_{len(self.begun)}"

    async def allow(self, id: str) -> bool:
        self.allowed.append(id)
        return self.allowed.count(id) == 1

    async def fetch(self, attachment: Attachment) -> Path:
        raise Unknown(f"no attachment {attachment.name}")

    async def knows(self, conversation: str) -> bool:
        return False

    async def name_talk(self, run: str, title: str) -> bool:
        return False

    async def remember(self, text: str) -> bool:
        if any(note.text == text for note in self.notes):
            return False
        self.notes.append(Remembered(text, float(len(self.notes))))
        return True

    async def recall(self, words: str, limit: int) -> list[Remembered]:
        wanted = words.casefold().split()
        found = [note for note in self.notes if not wanted or any(word in note.text.casefold() for word in wanted)]
        return found[::-1][:limit]

    async def health(self) -> Health:
        return Health(version="0", store="none", parts=(), running=0, queued=0, deliveries={}, alarms=())


class FakeReports:
    """Remembers what an adapter has reported."""

    def __init__(self) -> None:
        self.reached = 0
        self.troubles: list[str] = []
        self.moves: list[tuple[str, str]] = []
        self.gaps: list[tuple[str, bool]] = []

    async def reachable(self) -> None:
        self.reached += 1

    def troubled(self, reason: str) -> None:
        self.troubles.append(reason)

    async def moved(self, chat: str, to: str) -> None:
        self.moves.append((chat, to))

    async def missed(self, words: str, *, tell: bool) -> None:
        self.gaps.append((words, tell))


class FakeLocal:
    """Keeps the routes, so that a test can play the other side."""

    def __init__(self) -> None:
        self.routes: dict[str, Callable[[Line], Awaitable[None]]] = {}

    def route(self, verb: str, handler: Callable[[Line], Awaitable[None]]) -> AbstractContextManager[None]:
        self.routes[verb] = handler
        return nullcontext()


class FakeServer:
    """Keeps the routes, and serves none of them."""

    def __init__(self) -> None:
        self.routes: dict[tuple[str, str], Callable[[Any, Mapping[str, str]], Awaitable[Any]]] = {}

    def route(
        self,
        method: str,
        path: str,
        handler: Callable[[Any, Mapping[str, str]], Awaitable[Any]],
        *,
        body_bytes: int = 1024 * 1024,
        cancel_when_gone: bool = False,
    ) -> AbstractAsyncContextManager[None]:
        self.routes[method, path] = handler
        return nullcontext()


class Door:
    """Takes what comes; raises Unstored as often as told."""

    def __init__(self, unstored: int = 0) -> None:
        self.taken: list[Inbound] = []
        self.unstored = unstored
        self._knocked = asyncio.Event()

    async def __call__(self, inbound: Inbound, note: Note | None = None) -> Admission:
        self._knocked.set()
        if self.unstored:
            self.unstored -= 1
            raise Unstored("full")
        self.taken.append(inbound)
        return Stored(run=f"run_{len(self.taken)}")

    async def knocked(self) -> None:
        """Somebody has called, whatever came of it."""
        async with asyncio.timeout(10):
            await self._knocked.wait()

    @property
    def texts(self) -> list[str]:
        return [inbound.text for inbound in self.taken]


@asynccontextmanager
async def listening(adapter: Adapter, door: Door) -> AsyncIterator[None]:
    task = asyncio.create_task(adapter.listen(door))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def knows_none(conversation: str) -> bool:
    return False


def wants_addressed(inbound: Inbound) -> bool:
    return inbound.addressed and not inbound.sender.is_bot


def host(clock: Clock | None = None, desk: FakeDesk | None = None, attachments: Path | None = None) -> NearbyHost:
    return NearbyHost(
        reports=FakeReports(),
        notebook=MemoryNotebook(),
        knows=knows_none,
        wants=wants_addressed,
        clock=clock or FakeClock(),
        server=FakeServer(),
        menu=(),
        attachments=attachments or Path("attachments"),
        desk=desk or FakeDesk(),
        local=FakeLocal(),
    )

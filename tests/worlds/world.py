"""A gateway in a box: a home, paper platforms and scripted agents, started, stopped and killed by the test.

    async with World(tmp_path, Scripted("hello")) as world:
        world.paper.says("hi")
        await world.paper.until(lambda paper: paper.posts == ["hello"])

World(home, agent, ...)   agent is one Agent or {name: Agent}; sender "7" is allowed on every paper platform;
                          limits={"runs": 1} (burst_seconds is 0 unless given), work={"depth": 1},
                          terminal={"backend": "sandbox"} (else commands run without a fence),
                          allowances={"roles": {"member": {"runs": 3}}}, allow=[...],
                          kind=Kind(...) for the one platform "paper" or
                          platforms={"paper": Kind(...), "other": Kind(...)}, clock=FakeClock(), kinds=, commands=,
                          rules=, owner=, owners=[...], pauses=Pauses(...) of the supervisor;
                          settings={"call_seconds": 0.1} changes what the adapters are configured with, and adapter=
                          their class, a subclass of Doorway
world.paper, .papers[n]   the platforms, which outlive the gateway
world.gateway             the running gateway; world.gateway.desk is its desk
world.admit(id, role)     admits somebody as the owner does; also remove(id) and set_home(target)
world.receive(handed(..)) hands something to the door directly, with fields that paper cannot express
await world.until(holds)  waits for anything, moving an owned clock (clock=OwnedClock())
await world.rest()        nothing goes on by itself; an OwnedClock waits for this before each of its steps
await world.settled()     nothing runs, waits or is on its way
await world.eventually(f) waits for what only the database or a fake knows, without moving the clock
await world.stop()        settles and ends cleanly; `restart()` also starts again
await world.cut_off()     ends cleanly at once, with calls in flight
await world.end()         as SIGTERM does: drains as long as the limits say, which is not at all by default
await world.crash()       as kill -9 leaves it: the home is put back to what was committed at this moment
await world.start()       again in the same home, with whatever was changed in `world.agents`, `.limits` ...
world.rows(sql, *values)  reads the database directly; also runs(), run(key), outcome(key), events(run), posts
world.ignored             keys that the test expects to be confirmed without a row (strangers, not addressed)
world.absent              names of platforms that the next start leaves unconfigured
with armed("name:1:raise") arms failpoints, and disarms them at its end
world.skip                names of invariants ("I8") that do not hold in this test on purpose

On leaving, the gateway is ended abruptly and `invariants.check(world)` is called.
"""

from __future__ import annotations

import asyncio
import heapq
import inspect
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from tests.simulators.paper.adapter import PaperAdapter, settings_for
from tests.simulators.paper.simulator import Kind, PaperServer
from tests.simulators.shared.server import SimulatedPlatform
from tests.worlds import builders, invariants
from tests.worlds.fakes import FakeClock, FakeLocal, FakeServer, calm, settle
from tidings.core import failpoints, ids
from tidings.core.adapter import Host, Local, Platform, Receive, Server, Taken
from tidings.core.agent import Agent, Ended, Event, Finished, JournalEvent, TextDelta, Turn
from tidings.core.clock import Clock
from tidings.core.desk.people import PersonLine
from tidings.core.gateway.gateway import Gateway
from tidings.core.gateway.options import Options, Team
from tidings.core.gateway.supervisor import USUAL, Pauses
from tidings.core.inbound.commands import Command
from tidings.core.roles import OWNER, Role
from tidings.core.settings import Access, Allowances, Approvals, Board, Core, Groups, Limits, Rule, Terminal, Work
from tidings.core.store.sqlite import DATABASE
from tidings.core.store.store import Transaction
from tidings.core.store.wakeups import Wakeups
from tidings.core.types import Absent, Admission, Inbound, Note, Part, Receipt, Signal, Target, Unreadable, View
from tidings.core.work.tasks.tasks import TaskKind

# A key that lives for long: what a test does not ask about is never in doubt.
KEYED = Kind(keyed_for=3600.0)
SETTLE_SECONDS = 30.0
# Longer than any call of the paper adapter hangs.
REST_SECONDS = 6.0
# Between two writes of a chain lie no more reads than this.
STORE_ROUNDS = 7
# So many turns of the loop lead from one unit of work to the next.
LOOP_TURNS = 12

T = TypeVar("T")
# Every way in which a platform can or cannot prove what became of a send, with and without edits.
PROOFS = {
    f"{proof}, {streaming}": msgspec.structs.replace(kind, streaming=streaming)
    for proof, kind in {"keyed": KEYED, "readback": Kind(readback=True), "neither": Kind()}.items()
    for streaming in ("edits", "none")
}

_event = msgspec.json.Decoder(JournalEvent).decode


class Gate:
    """Where an agent waits for the test: `await gate.reached()`, then `gate.open()`."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self._opened = asyncio.Event()

    async def reached(self) -> None:
        async with asyncio.timeout(30):
            await self.entered.wait()

    def open(self) -> None:
        self._opened.set()

    async def wait(self) -> None:
        self.entered.set()
        await self._opened.wait()


class Scripted:
    """Plays its steps in every turn and remembers the turns.

    A step is an event; a str for a TextDelta; a Gate or asyncio.Event to wait at; an exception to raise; or a
    function of the turn (also async), whose result is a step unless it is None. A script without a Finished
    of its own gets one at its end, unless `finish` is false.
    """

    def __init__(self, *steps: Any, finish: bool = True) -> None:
        self.steps = steps
        self.turns: list[Turn] = []
        self._finish = finish

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        self.turns.append(turn)
        for step in self.steps:
            async for event in _play(step, turn):
                yield event
        if self._finish:
            yield Finished()


async def _play(step: Any, turn: Turn) -> AsyncIterator[Any]:
    match step:
        case None:
            return
        case str():
            yield TextDelta(step)
        case Gate() | asyncio.Event():
            await step.wait()
        case BaseException():
            raise step
        case _ if callable(step) and not isinstance(step, msgspec.Struct):
            result = step(turn)
            async for event in _play(await result if inspect.isawaitable(result) else result, turn):
                yield event
        case _:
            yield step


class Takes:
    """The first turn is played by the first agent, the second by the second; the last one goes on for ever."""

    def __init__(self, *agents: Agent) -> None:
        self.agents = list(agents)
        self.turns: list[Turn] = []

    def run(self, turn: Turn) -> AsyncIterator[Event]:
        agent = self.agents[min(len(self.turns), len(self.agents) - 1)]
        self.turns.append(turn)
        return agent.run(turn)


class Echo:
    """Says what it heard; where a gate is given for a text, it waits there first."""

    def __init__(self, gates: Mapping[str, Gate] | None = None) -> None:
        self.gates = dict(gates or {})
        self.heard: list[str] = []

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        text = turn.message.text
        self.heard.append(text)
        if text in self.gates:
            await self.gates[text].wait()
        yield TextDelta(f"you said: {text}")
        yield Finished()


@contextmanager
def armed(specification: str) -> Iterator[None]:
    failpoints.arm(specification)
    try:
        yield
    finally:
        failpoints.arm("")


def handed(text: str = "hi", **fields: Any) -> Inbound:
    """As `builders.inbound`, for `World.receive`: its key is none that paper gives."""
    return builders.inbound(text, **{"key": ids.new("handed"), **fields})


class OwnedClock(FakeClock):
    """Moves from timer to timer, and only when the world around it is at rest."""

    def __init__(self) -> None:
        super().__init__()
        self.rest: Callable[[], Awaitable[None]] = settle

    async def advance(self, seconds: float) -> None:
        end = self._now + seconds
        await self.rest()
        while (due := self._due()) is not None and due <= end:
            await self._step()
        self._now = end
        await self.rest()

    async def advance_until(
        self, holds: Callable[[], object], *, limit: float = 3600.0, real_limit: float = 30.0
    ) -> None:
        end = self._now + limit
        async with asyncio.timeout(real_limit):
            await self.rest()
            while not holds():
                due = self._due()
                if due is not None and due <= end:
                    await self._step()
                else:
                    await settle(0.01)

    def _due(self) -> float | None:
        while self._timers and self._timers[0][2].cancelled:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    async def _step(self) -> None:
        at, _, timer = heapq.heappop(self._timers)
        self._now = max(self._now, at)
        timer.callback()
        await self.rest()


class Counted:
    """Beside an adapter's class: counts its open calls, so that an owned clock waits for them."""

    open_calls = 0

    async def send(self, part: Part) -> Receipt:
        return await self.counted(super().send(part))  # type: ignore[misc]

    async def show(self, view: View, text: str) -> View:
        return await self.counted(super().show(view, text))  # type: ignore[misc]

    async def signal(self, target: Target, signal: Signal) -> None:
        await self.counted(super().signal(target, signal))  # type: ignore[misc]

    async def counted(self, call: Awaitable[T]) -> T:
        self.open_calls += 1
        try:
            return await call
        finally:
            self.open_calls -= 1


class Doorway(Counted, PaperAdapter):
    """The paper adapter, with its door left ajar for `World.receive`."""

    receive: Receive

    async def listen(self, receive: Receive) -> None:
        self.receive = receive
        await super().listen(receive)

    async def find(self, part: Part, is_taken: Taken) -> Receipt | Absent | Unreadable:
        return await self.counted(super().find(part, is_taken))


class World:
    def __init__(
        self,
        home: Path,
        agent: Agent | Mapping[str, Agent],
        *,
        kind: Kind = KEYED,
        platforms: Mapping[str, Kind] | None = None,
        clock: Clock | None = None,
        allow: Iterable[str] | None = None,
        owners: Iterable[str] = (),
        access: Mapping[str, Any] | None = None,
        limits: Mapping[str, Any] | None = None,
        groups: Mapping[str, Any] | None = None,
        approvals: Mapping[str, Any] | None = None,
        work: Mapping[str, Any] | None = None,
        terminal: Mapping[str, Any] | None = None,
        board: Mapping[str, Any] | None = None,
        allowances: Mapping[str, Any] | None = None,
        owner: Target | None = None,
        kinds: Iterable[TaskKind] = (),
        commands: Iterable[Command] = (),
        rules: Iterable[Rule] = (),
        limit: int = 2000,
        grouped: bool = True,
        pauses: Pauses = USUAL,
        settings: Mapping[str, Any] | None = None,
        adapter: type[Doorway] = Doorway,
        wakeups: Wakeups | None = None,
    ) -> None:
        self.home = home
        self.agents: dict[str, Agent] = dict(agent) if isinstance(agent, Mapping) else {"bot": agent}
        self.clock = clock
        if isinstance(clock, OwnedClock):
            clock.rest = self.rest
        names = platforms if platforms is not None else {"paper": kind}
        self.papers = {name: PaperServer(each, limit=limit, clock=clock) for name, each in names.items()}
        self.allow = [f"{name}:7" for name in self.papers] if allow is None else list(allow)
        self.owners = list(owners)
        self.access: dict[str, Any] = dict(access or {})
        self.notices: list[str] = []
        self.limits: dict[str, Any] = {"drain_seconds": 0, **(limits or {})}
        self.groups: dict[str, Any] = dict(groups or {})
        self.approvals: dict[str, Any] = dict(approvals or {})
        self.work: dict[str, Any] = dict(work or {})
        self.terminal: dict[str, Any] = dict(terminal or {"backend": "local"})
        self.board: dict[str, Any] = dict(board or {})
        self.allowances: dict[str, Any] = dict(allowances or {})
        self.owner = owner
        self.kinds = tuple(kinds)
        self.commands = tuple(commands)
        self.rules = tuple(rules)
        self.ignored: set[str] = set()
        self.skip: set[str] = set()
        self.absent: set[str] = set()
        self.settings: dict[str, Any] = dict(settings or {})
        self.adapters: dict[str, Doorway] = {}
        self._gateway: Gateway | None = None
        self._reader: sqlite3.Connection | None = None
        self._grouped = grouped
        self._pauses = pauses
        self._adapter = adapter
        self._wakeups = wakeups
        self._local: Local = FakeLocal()
        self._http: Server = FakeServer()
        # What lives as long as the world, and what lives as long as one life of the gateway.
        self._servers = AsyncExitStack()
        self._around = AsyncExitStack()

    @property
    def paper(self) -> PaperServer:
        return next(iter(self.papers.values()))

    @property
    def platform(self) -> SimulatedPlatform[Any, Any, Any]:
        """The platform that the story is about."""
        return self.paper

    @property
    def gateway(self) -> Gateway:
        assert self._gateway is not None, "the gateway is not running"
        return self._gateway

    async def __aenter__(self) -> Self:
        for paper in self.papers.values():
            await self._servers.enter_async_context(paper)
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.end()
        for agent in self.agents.values():
            # As the composition root does: what an agent has opened ends with the gateway.
            if close := getattr(agent, "close", None):
                await close()
        await self._servers.aclose()
        if error is None:
            invariants.check(self)

    async def start(self, *, attached: bool = True) -> None:
        """Returns when every platform is attached, unless the test says that none will be."""
        await self._open_listeners()
        gateway = Gateway(
            self.home,
            self._core(),
            self._platforms(),
            Team(self.agents, next(iter(self.agents)), self.kinds, lambda bot_of: self.commands),
            self._local,
            self._http,
            Options(
                clock=self.clock,
                grouped=self._grouped,
                owner=self.owner,
                notices=self.notices,
                pauses=self._pauses,
                wakeups=self._wakeups,
            ),
        )
        await gateway.__aenter__()
        self._gateway = gateway
        if attached:
            await self._attach()

    def _core(self) -> Core:
        access = {"allow": tuple(self.allow), "owners": tuple(self.owners), **self.access}
        return Core(
            access=Access(**access),
            limits=Limits(**{"burst_seconds": 0, **self.limits}),
            work=Work(**self.work),
            terminal=Terminal(**self.terminal),
            board=Board(**self.board),
            allowances=Allowances(**self.allowances),
            groups=Groups(**self.groups),
            approvals=Approvals(**self.approvals),
            rules=self.rules,
        )

    async def _open_listeners(self) -> None:
        """A world whose gateway listens opens its servers here, `_around` one life of the gateway."""

    def _platforms(self) -> list[Platform]:
        return [Platform(name, "main", self._builder(name)) for name in self._present()]

    async def _attach(self) -> None:
        """Returns when every platform is attached."""
        for name in self._present():
            await self.papers[name].until(lambda paper: paper.attached())

    def _present(self) -> list[str]:
        return [name for name in self.papers if name not in self.absent]

    async def admit(self, who: str, role: Role | None = None) -> PersonLine:
        """As the owner at the machine does."""
        return await self.gateway.desk.people.admit(OWNER, who, role)

    async def remove(self, who: str) -> PersonLine:
        return await self.gateway.desk.people.remove(OWNER, who)

    async def set_home(self, target: Target) -> None:
        await self.gateway.desk.set_home(OWNER, target)

    async def stop(self) -> None:
        await self.settled()
        await self.end()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def cut_off(self) -> None:
        """A clean stop without patience: what is in flight is cancelled in the middle."""
        await self.end()

    async def crash(self) -> None:
        """What is in memory dies; what the store had committed at this moment is all that remains."""
        database, frozen = self.home / DATABASE, self.home / "frozen.db"
        with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(frozen)) as copy:
            source.backup(copy)
        await self.end()
        for suffix in ("", "-wal", "-shm"):
            Path(f"{database}{suffix}").unlink(missing_ok=True)
        frozen.rename(database)

    async def settled(self) -> None:
        """Waits for the database to owe nothing, however the work is spread over threads and sockets."""
        with opened(self.home) as connection:
            await self.eventually(lambda: not unsettled(connection), lambda: f"not settled: {unsettled(connection)}")

    async def eventually(self, holds: Callable[[], object], complaint: Callable[[], str] = lambda: "never") -> None:
        deadline = time.monotonic() + SETTLE_SECONDS
        while not holds():
            assert time.monotonic() < deadline, complaint()
            await asyncio.sleep(0.005)

    async def rest(self) -> None:
        """Returns when nothing goes on by itself: only time, the test or a gate can bring the next event."""
        deadline = time.monotonic() + REST_SECONDS
        before: list[int] = []
        while time.monotonic() < deadline:
            marks = self._marks()
            for _ in range(STORE_ROUNDS):
                if self._gateway is not None:
                    marks.append(await self._gateway._store.read(_count_changes))
                await calm(LOOP_TURNS)
            if marks == before and not self._moving():
                return
            before = marks

    def _marks(self) -> list[int]:
        """Counts that grow while anything goes on."""
        return [len(log) for paper in self.papers.values() for log in (paper.truth.effects, paper.truth.calls)]

    def _moving(self) -> bool:
        """A call that the platform has taken and not decided is held there by the test."""
        for name, paper in self.papers.items():
            held = sum(not call.verdict for call in paper.calls())
            adapter = self.adapters.get(name)
            if adapter is not None and adapter.open_calls > held:
                return True
            if self._gateway is not None and paper.attached() and paper.unconfirmed:
                return True
        return False

    async def until(self, holds: Callable[[], object], *, limit: float = 3600.0, real_limit: float = 30.0) -> None:
        """Waits for a state of the world; an owned clock goes from timer to timer meanwhile."""
        if not isinstance(self.clock, FakeClock):
            await self.platform.until(lambda _: holds(), real_limit)
            return
        try:
            await self.clock.advance_until(holds, limit=limit, real_limit=real_limit)
        except TimeoutError:
            calls = [(call.method, call.verdict or "open") for call in self.platform.calls()[-10:]]
            owed = [tuple(row) for row in self.rows("SELECT kind, state, reason FROM deliveries ORDER BY seq")]
            raise TimeoutError(f"not so: posts {self.posts[-10:]}, last calls {calls}, owed {owed[-10:]}") from None

    async def receive(self, inbound: Inbound, note: Note | None = None) -> Admission:
        adapter = self.adapters[inbound.target.adapter]
        return await adapter.receive(inbound, note)

    def rows(self, sql: str, *values: object) -> list[sqlite3.Row]:
        if self._reader is not None:
            return self._reader.execute(sql, values).fetchall()
        with opened(self.home) as connection:
            return connection.execute(sql, values).fetchall()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Whoever asks often and waits for nothing meanwhile shares one connection."""
        with opened(self.home) as self._reader:
            try:
                yield
            finally:
                self._reader = None

    def runs(self) -> list[sqlite3.Row]:
        """The rows that are runs, oldest first."""
        return self.rows("SELECT * FROM inbox WHERE state IN ('waiting', 'running', 'done') ORDER BY seq")

    def run(self, key: str) -> sqlite3.Row:
        """The row of a message, whatever became of it."""
        found = self.rows("SELECT * FROM inbox WHERE key = ?", key)
        assert len(found) == 1, f"{len(found)} rows for {key}"
        return found[0]

    async def outcome(self, key: str) -> Ended:
        """Waits for the run of a message to end, by following it as any reader would."""
        async with asyncio.timeout(SETTLE_SECONDS):
            async for entry in self.gateway.desk.follow(self.run(key)["run"]):
                if isinstance(entry.event, Ended):
                    return entry.event
        raise AssertionError("a journal ended without its terminal event")

    def events(self, key: str) -> list[JournalEvent]:
        """The stored journal of a message's run."""
        return [_event(row["event"]) for row in self.journal(self.run(key)["run"])]

    @property
    def posts(self) -> list[str]:
        return self.platform.posts

    async def end(self) -> None:
        gateway, self._gateway = self._gateway, None
        if gateway is not None:
            await gateway.__aexit__(None, None, None)
        await self._around.aclose()

    def _builder(self, name: str) -> Callable[[Host], Doorway]:
        def build(host: Host) -> Doorway:
            adapter = self._adapter("main", settings_for(self.papers[name], **{"name": name, **self.settings}), host)
            self.adapters[name] = adapter
            return adapter

        return build

    def _unsettled(self) -> list[str]:
        with opened(self.home) as connection:
            return unsettled(connection)

    def journal(self, run: str) -> list[sqlite3.Row]:
        return self.rows("SELECT seq, kind, event FROM journal WHERE run = ? ORDER BY seq", run)


@contextmanager
def opened(home: Path) -> Iterator[sqlite3.Connection]:
    """To open the database and to learn its tables takes longer than to ask it something."""
    with closing(sqlite3.connect(home / DATABASE)) as connection:
        connection.row_factory = sqlite3.Row
        yield connection


def unsettled(connection: sqlite3.Connection) -> list[str]:
    """What runs, waits or is on its way; a run that waits for an answer of people may do so for long."""
    rows = connection.execute(
        "SELECT run || ' ' || state FROM inbox WHERE state IN ('waiting', 'running') AND asking = ''"
        " UNION ALL SELECT id || ' ' || state FROM deliveries WHERE state IN ('waiting', 'doubtful')"
    )
    return [row[0] for row in rows.fetchall()]


def _count_changes(tx: Transaction) -> int:
    """How many rows the store has ever written through its connection."""
    row = tx.one("SELECT total_changes() AS n")
    assert row is not None
    return int(row["n"])

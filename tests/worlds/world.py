"""A gateway in a box: a home, paper platforms and scripted agents, started, stopped and killed by the test.

    async with World(tmp_path, Scripted("hello")) as world:
        world.paper.says("hi")
        await world.paper.until(lambda paper: paper.posts == ["hello"])

World(home, agent, ...)   agent is one Agent or {name: Agent}; sender "7" is allowed on every paper platform;
                          limits={"runs": 1}, work={"depth": 1}, allow=[...], kind=Kind(...) for the one platform
                          "paper" or platforms={"paper": Kind(...), "other": Kind(...)}, clock=FakeClock(), kinds=,
                          commands=, rules=, owner=, owners=[...]; settings={"call_seconds": 0.1} changes what the
                          adapters are configured with, and adapter= their class, a subclass of Doorway
world.paper, .papers[n]   the platforms, which outlive the gateway
world.gateway             the running gateway, which is also the desk
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

On leaving, the gateway is ended abruptly and `invariants(world)` is checked.
"""

from __future__ import annotations

import asyncio
import heapq
import inspect
import json
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
from tests.simulators.paper.wire import Ask
from tests.worlds import builders
from tests.worlds.fakes import FakeClock, FakeLocal, FakeServer, calm, settle
from tidings.core import failpoints, ids
from tidings.core.adapter import Host, Platform, Receive, Taken
from tidings.core.agent import Agent, Ended, Event, Finished, JournalEvent, Restarted, TextDelta, Turn
from tidings.core.clock import Clock
from tidings.core.gateway.gateway import Gateway
from tidings.core.inbound.commands import Command
from tidings.core.settings import Access, Board, Core, Limits, Rule, Work
from tidings.core.store.sqlite import DATABASE
from tidings.core.store.store import Transaction
from tidings.core.types import Absent, Admission, Inbound, Note, Part, Receipt, Signal, Target, Unreadable, View
from tidings.core.work.tasks.tasks import TaskKind

# A key that lives for long: what a test does not ask about is never in doubt.
KEYED = Kind(keyed_for=3600.0)
SETTLE_SECONDS = 30.0
# Longer than any call of the paper adapter hangs.
REST_SECONDS = 6.0
# Between two writes of a chain lie no more reads than this.
STORE_ROUNDS = 3
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


class Doorway(PaperAdapter):
    """The paper adapter, with its door left ajar for `World.receive`, and a count of its open calls."""

    receive: Receive
    open_calls = 0

    async def listen(self, receive: Receive) -> None:
        self.receive = receive
        await super().listen(receive)

    async def send(self, part: Part) -> Receipt:
        return await self._counted(super().send(part))

    async def show(self, view: View, text: str) -> View:
        return await self._counted(super().show(view, text))

    async def find(self, part: Part, is_taken: Taken) -> Receipt | Absent | Unreadable:
        return await self._counted(super().find(part, is_taken))

    async def signal(self, target: Target, signal: Signal) -> None:
        await self._counted(super().signal(target, signal))

    async def _counted(self, call: Awaitable[T]) -> T:
        self.open_calls += 1
        try:
            return await call
        finally:
            self.open_calls -= 1


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
        limits: Mapping[str, float] | None = None,
        work: Mapping[str, Any] | None = None,
        board: Mapping[str, Any] | None = None,
        owner: Target | None = None,
        kinds: Iterable[TaskKind] = (),
        commands: Iterable[Command] = (),
        rules: Iterable[Rule] = (),
        limit: int = 2000,
        grouped: bool = True,
        settings: Mapping[str, Any] | None = None,
        adapter: type[Doorway] = Doorway,
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
        self.notices: list[str] = []
        self.limits: dict[str, Any] = {"drain_seconds": 0, **(limits or {})}
        self.work: dict[str, Any] = dict(work or {})
        self.board: dict[str, Any] = dict(board or {})
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
        self._adapter = adapter
        self._servers = AsyncExitStack()

    @property
    def paper(self) -> PaperServer:
        return next(iter(self.papers.values()))

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
            invariants(self)

    async def start(self, *, attached: bool = True) -> None:
        """Returns when every platform is attached, unless the test says that none will be."""
        settings = Core(
            access=Access(allow=tuple(self.allow), owners=tuple(self.owners)),
            limits=Limits(**self.limits),
            work=Work(**self.work),
            board=Board(**self.board),
            rules=self.rules,
        )
        present = [name for name in self.papers if name not in self.absent]
        platforms = [Platform(name, "main", self._builder(name)) for name in present]
        default = next(iter(self.agents))
        gateway = Gateway(
            self.home,
            settings,
            platforms,
            self.agents,
            default,
            FakeLocal(),
            FakeServer(),
            self.kinds,
            self.commands,
            clock=self.clock,
            grouped=self._grouped,
            owner=self.owner,
            notices=self.notices,
        )
        await gateway.__aenter__()
        self._gateway = gateway
        for name in present if attached else ():
            await self.papers[name].until(lambda paper: paper.attached())

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
            marks = [len(log) for paper in self.papers.values() for log in (paper.truth.effects, paper.truth.calls)]
            for _ in range(STORE_ROUNDS):
                if self._gateway is not None:
                    marks.append(await self._gateway._store.read(_count_changes))
                await calm(LOOP_TURNS)
            if marks == before and not self._moving():
                return
            before = marks

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
            await self.paper.until(lambda _: holds(), real_limit)
            return
        try:
            await self.clock.advance_until(holds, limit=limit, real_limit=real_limit)
        except TimeoutError:
            calls = [(call.method, call.verdict or "open") for call in self.paper.calls()[-10:]]
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
            async for entry in self.gateway.follow(self.run(key)["run"]):
                if isinstance(entry.event, Ended):
                    return entry.event
        raise AssertionError("a journal ended without its terminal event")

    def events(self, key: str) -> list[JournalEvent]:
        """The stored journal of a message's run."""
        return [_event(row["event"]) for row in self.journal(self.run(key)["run"])]

    @property
    def posts(self) -> list[str]:
        return self.paper.posts

    async def end(self) -> None:
        gateway, self._gateway = self._gateway, None
        if gateway is not None:
            await gateway.__aexit__(None, None, None)

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
    """What runs, waits or is on its way."""
    rows = connection.execute(
        "SELECT run || ' ' || state FROM inbox WHERE state IN ('waiting', 'running')"
        " UNION ALL SELECT id || ' ' || state FROM deliveries WHERE state IN ('waiting', 'doubtful')"
    )
    return [row[0] for row in rows.fetchall()]


def _count_changes(tx: Transaction) -> int:
    """How many rows the store has ever written through its connection."""
    row = tx.one("SELECT total_changes() AS n")
    assert row is not None
    return int(row["n"])


# The invariants of guarantees.md, over the database and the platforms' ground truth. Each yields what is wrong.


def invariants(world: World) -> None:
    checks = {name: check for name, check in CHECKS.items() if name not in world.skip}
    with world.reading():
        broken = {name: found for name, check in checks.items() if (found := [*check(world)])}
    assert broken == {}, broken


def _confirmed_is_stored(world: World) -> Iterator[str]:
    for name, paper in world.papers.items():
        stored = {row["key"] for row in world.rows("SELECT key FROM inbox WHERE adapter = ?", name)}
        yield from (key for key in paper.confirmed if key not in stored | world.ignored)


def _one_row_per_key(world: World) -> Iterator[str]:
    rows = world.rows("SELECT key, count(*) AS n FROM inbox GROUP BY adapter, account, key HAVING n > 1")
    yield from (row["key"] for row in rows)


def _one_outcome_each(world: World) -> Iterator[str]:
    for row in world.runs():
        ends = [_event(entry["event"]) for entry in world.journal(row["run"]) if entry["kind"] == "ended"]
        expected = [row["outcome"]] if row["state"] == "done" else []
        if [end.kind for end in ends if isinstance(end, Ended)] != expected:
            yield f"{row['run']} is {row['state']} with {ends}"


def _one_final_per_done_run(world: World) -> Iterator[str]:
    for row in world.runs():
        finals = world.rows("SELECT 1 FROM deliveries WHERE run = ? AND kind = 'final'", row["run"])
        # Of an errand's end tells whoever sent it.
        is_errand = json.loads(row["message"]).get("errand")
        expected = 0 if is_errand else _finals_expected(world, row, bool(finals))
        if len(finals) != expected:
            yield f"{row['run']} is {row['state']} with {len(finals)} finals"


def _finals_expected(world: World, row: sqlite3.Row, found: bool) -> int:
    # Only a run without a person may end in silence, and then nothing is owed.
    silent = row["outcome"] == "completed" and json.loads(row["message"]).get("origin", "person") != "person"
    spoken = row["state"] == "done" and _kind(world, row["adapter"]).async_delivery
    return int(spoken and not (silent and not found))


def _promises_are_kept(world: World) -> Iterator[str]:
    """Each task's end is told as it was promised: once."""
    for row in world.rows("SELECT id, state, manner FROM tasks"):
        key, ended = f"end/{row['id']}", row["state"] not in ("waiting", "running")
        notices = len(world.rows("SELECT 1 FROM deliveries WHERE key = ?", key))
        turns = len(world.rows("SELECT 1 FROM inbox WHERE key = ?", key))
        if (notices, turns) != (int(ended and row["manner"] == "tell"), int(ended and row["manner"] == "wake")):
            yield f"{row['id']} is {row['state']} with {notices} notices and {turns} turns"


def _delivered_is_there(world: World) -> Iterator[str]:
    for delivery, part, target, messages in _delivered_parts(world):
        paper = world.papers[target.adapter]
        effects = {effect.message: effect for effect in paper.effects if effect.act in ("post", "stream")}
        for id in messages:
            if id not in effects:
                yield f"{delivery['id']}.{part['position']} was delivered as {id}, which nobody posted"


def _in_the_right_place(world: World) -> Iterator[str]:
    moves = world.rows("SELECT * FROM aliases")
    origins = {(row["adapter"], row[name]): row["origin"] for row in moves for name in ("chat", "moved_to")}
    for delivery, _, target, messages in _delivered_parts(world):
        began = origins.get((target.adapter, target.chat), target.chat)
        for effect in world.papers[target.adapter].effects:
            ours = effect.act in ("post", "stream") and effect.message in messages
            there = origins.get((target.adapter, effect.chat), effect.chat)
            if ours and not (there == began and effect.thread == target.thread):
                yield f"{delivery['id']} went to {effect.chat}:{effect.thread}"


def _no_key_twice(world: World) -> Iterator[str]:
    for paper in world.papers.values():
        keys = [message.key for message in paper.sent if message.key]
        yield from {key for key in keys if keys.count(key) > 1}


def _one_body_per_key(world: World) -> Iterator[str]:
    for paper in world.papers.values():
        bodies: dict[str, set[Ask]] = {}
        for call in paper.calls():
            if call.ask.key:
                bodies.setdefault(call.ask.key, set()).add(msgspec.structs.replace(call.ask, chat=""))
        yield from (key for key, asked in bodies.items() if len(asked) > 1)


def _in_order(world: World) -> Iterator[str]:
    """Of what went out at the first attempt and without a view, each lane shows it in order of creation."""
    order = {message.id: message.order for paper in world.papers.values() for message in paper.sent}
    lanes: dict[str, list[tuple[int, str]]] = {}
    for delivery, part, _, messages in _delivered_parts(world):
        if part["attempts"] == 1 and not part["view"] and part["kind"] == "plain" and not part["marked"]:
            lanes.setdefault(delivery["lane"], []).extend((order[id], delivery["id"]) for id in messages if id in order)
    for shown in lanes.values():
        if shown != sorted(shown):
            yield f"{[id for _, id in shown]} appeared as {[id for _, id in sorted(shown)]}"


def _journals_are_whole(world: World) -> Iterator[str]:
    for row in world.runs():
        entries = world.journal(row["run"])
        kinds = [entry["kind"] for entry in entries]
        if [entry["seq"] for entry in entries] != list(range(1, len(entries) + 1)):
            yield f"{row['run']} has gaps"
        if "ended" in kinds[:-1]:
            yield f"{row['run']} goes on after its end"
        if row["state"] == "done":
            yield from _text_is_deltas(row["run"], [_event(entry["event"]) for entry in entries])


def _text_is_deltas(run: str, events: list[JournalEvent]) -> Iterator[str]:
    text = ""
    for event in events:
        if isinstance(event, Restarted):
            text = ""
        elif isinstance(event, TextDelta):
            text += event.text
    ended = events[-1] if events else None
    if not isinstance(ended, Ended) or ended.text != text:
        yield f"{run} said {text!r} and ended with {ended}"


def _no_push_where_none_is_declared(world: World) -> Iterator[str]:
    for row in world.rows("SELECT id, target FROM deliveries"):
        target = msgspec.json.decode(row["target"], type=Target)
        if not _kind(world, target.adapter).async_delivery:
            yield f"{row['id']} is owed to {target}"


def _delivered_parts(world: World) -> Iterator[tuple[sqlite3.Row, sqlite3.Row, Target, tuple[str, ...]]]:
    for delivery in world.rows("SELECT * FROM deliveries ORDER BY seq"):
        target = msgspec.json.decode(delivery["target"], type=Target)
        if target.adapter not in world.papers:
            continue
        for part in world.rows("SELECT * FROM parts WHERE delivery = ? ORDER BY position", delivery["id"]):
            if part["state"] == "delivered":
                yield delivery, part, target, msgspec.json.decode(part["receipt"], type=Receipt).ids


def _kind(world: World, adapter: str) -> Kind:
    return world.papers[adapter].kind if adapter in world.papers else KEYED


CHECKS: dict[str, Callable[[World], Iterator[str]]] = {
    "I1": _confirmed_is_stored,
    "I2": _one_row_per_key,
    "I3": _one_outcome_each,
    "I4": _one_final_per_done_run,
    "I5": _delivered_is_there,
    "I6": _no_key_twice,
    "I7": _in_the_right_place,
    "I8": _in_order,
    "I10": _journals_are_whole,
    "I13": _no_push_where_none_is_declared,
    "promises": _promises_are_kept,
    "I24": _one_body_per_key,
}

"""Builds the parts in order and runs them: store, recovery, courier, dispatcher, adapters; and is the desk."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from msgspec.json import decode, encode

from tidings.core.adapter import Adapter, Host, Local, MenuItem, NearbyHost, Platform, Server
from tidings.core.agent import Agent
from tidings.core.clock import Clock
from tidings.core.errors import ConfigError, StandingBy
from tidings.core.failpoints import fail_here
from tidings.core.gateway import restarts
from tidings.core.gateway.desk import FrontDesk
from tidings.core.gateway.parts import Office
from tidings.core.gateway.reports import AccountReports
from tidings.core.gateway.supervisor import USUAL, Pauses, Supervisor
from tidings.core.inbound import access, recovery
from tidings.core.inbound.access import Access
from tidings.core.inbound.bots import Bots
from tidings.core.inbound.commands import Command, Commands
from tidings.core.inbound.dispatcher import Dispatcher
from tidings.core.inbound.door import Door
from tidings.core.inbound.settlement import Settlement
from tidings.core.inbound.slots import Slots
from tidings.core.operations import overview
from tidings.core.operations.erasure import Erasure
from tidings.core.operations.upkeep import Upkeep
from tidings.core.outbound import draft, outbox
from tidings.core.outbound.courier import Courier
from tidings.core.outbound.draft import Drafts
from tidings.core.runs.feed import Feed
from tidings.core.settings import Board, Core, Rule
from tidings.core.store import steady_time
from tidings.core.store.adapter_state import StoredNotebook
from tidings.core.store.lock import HomeLock
from tidings.core.store.sqlite import DATABASE, open_store
from tidings.core.store.store import Store
from tidings.core.store.wakeups import Wakeups
from tidings.core.telemetry.alarms import Alarms
from tidings.core.telemetry.metrics import Meters
from tidings.core.types import Body, Target
from tidings.core.work.schedules import rows as schedule_rows
from tidings.core.work.tasks import rows as task_rows
from tidings.core.work.tasks.tasks import TaskKind

log = logging.getLogger(__name__)

# How often a live process looks for what was forgotten.
SWEEP_SECONDS = 15.0
LAST_SECONDS = 5.0
# The rooms whose rows wait by steady time.
POSTPONED = (outbox.postpone, task_rows.postpone, schedule_rows.postpone)
UNCONFIRMED = (
    "the machine has rebooted, and its clock is more than a day off from the last use: check the date. Nothing expires"
    " or is pruned until a time server has set the clock or the machine has run for an hour"
)


class Gateway(FrontDesk):
    """One home, one process. `async with` opens, recovers and listens; leaving it drains and closes."""

    def __init__(
        self,
        home: Path,
        settings: Core,
        platforms: Sequence[Platform],
        bots: Mapping[str, Agent],
        default_bot: str,
        local: Local,
        server: Server,
        kinds: Sequence[TaskKind] = (),
        commands: Sequence[Command] = (),
        clock: Clock | None = None,
        grouped: bool = True,
        owner: Target | None = None,
        notices: Sequence[str] = (),
        governed: bool = False,
        pauses: Pauses = USUAL,
        wakeups: Wakeups | None = None,
    ) -> None:
        """`governed` slows down starts that follow each other quickly; `pauses` are those of the supervisor."""
        _check_bots(settings.rules, bots, default_bot, settings.board)
        self._home = home
        self._settings = settings
        self._platforms = platforms
        self._bots = Bots(bots, default_bot, settings.rules)
        self._local = local
        self._server = server
        self._kinds = kinds
        self._commands = Commands(commands, lambda: self._clock.wall())
        self._given_clock = clock
        self._owner = owner
        self._notices = notices
        self._clock: Clock
        self._grouped = grouped
        self._governed = governed
        self._pauses = pauses
        self._wakeups = wakeups
        self._lock = HomeLock(home)
        self._adapters: dict[tuple[str, str], Adapter] = {}
        self._access = Access(settings.access)

    async def __aenter__(self) -> Gateway:
        self._lock.take()
        phases = _Phases()
        try:
            self._store: Store = await open_store(self._home / DATABASE, grouped=self._grouped, wakeups=self._wakeups)
            phases.over("opening the store")
        except BaseException:
            self._lock.release()
            raise
        try:
            await self._start(phases)
        except BaseException:
            await self._store.close()
            self._lock.release()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._supervisor.stop()
        self._dispatcher.pause()
        await self._office.pause()
        await self.upkeep.stop()
        await self._drain()
        # What is already being written or sent may end, so that a clean stop leaves no doubt behind.
        patience = min(self._settings.limits.drain_seconds, LAST_SECONDS)
        await self._dispatcher.stop(patience)
        await self._office.stop()
        await self._courier.stop(patience)
        for adapter in self._adapters.values():
            await adapter.close()
        await self._store.close()
        self._lock.release()

    async def _start(self, phases: _Phases) -> None:
        await self._set_the_clock()
        self._build_the_way_out()
        self._build_the_way_in()
        self._build_the_office()
        for platform in self._platforms:
            self._adapters[platform.name, platform.account] = platform.build(self._host(platform))
        phases.over("building the platforms")
        await self._go_on(phases)
        self._listen()

    async def _set_the_clock(self) -> None:
        """And whatever is told of this life of the gateway."""
        self._steady = await self._store.insist(steady_time.steady_clock)
        self._clock = self._given_clock or self._steady
        self._alarms = Alarms(self._clock)
        if not self._clock.confirmed:
            self._alarms.sound("clock", UNCONFIRMED)
        for notice in self._notices:
            self._alarms.sound("settings", notice)
        self._started = self._clock.wall()
        self._moments = await self._store.read(lambda tx: overview.moments(tx, self._clock.ahead))
        self.meters = Meters()

    def _build_the_way_out(self) -> None:
        self._supervisor = Supervisor(self._clock, self._alarms, self._pauses)
        self._feed = Feed(self._store)
        self._courier = Courier(self._store, self._clock, self._adapters, self._alarms, self.meters)
        self.upkeep = Upkeep(
            self._store, self._clock, self._courier, self._alarms, self._settings.retention, self._home
        )
        self._drafts = Drafts(self._clock, self._courier.views, self._feed.follow, draft.tail(self._compose))

    def _build_the_way_in(self) -> None:
        limits, workspaces = self._settings.limits, self._home / "workspaces"
        self._settlement = Settlement(self._clock, self._courier.can)
        self._slots = Slots(limits.runs)
        self._erasure = Erasure(self._store, self._clock, self._home, self._feed.is_followed)
        self._dispatcher = Dispatcher(
            self._store,
            self._clock,
            limits,
            self._bots,
            self._courier,
            self._drafts,
            workspaces,
            self.meters,
            self._settlement,
            self._access,
            self._slots,
        )
        self._dispatcher.desk = self
        self._door = Door(
            self._store,
            self._clock,
            limits,
            self._access,
            self._commands,
            self._dispatcher,
            self._courier,
            self.meters,
            self._settlement,
            tell_strangers=self._settings.access.tell_strangers,
        )
        self._courier.views.on_stop = self._door.stop_for_sender

    def _build_the_office(self) -> None:
        self._office = Office(
            self._store,
            self._clock,
            self._settings.work,
            self._courier,
            self._slots,
            self._door,
            self._feed.follow,
            self._settlement,
            self._alarms,
            self._kinds,
            self._home,
            self._owner,
            self._supervisor.is_down,
            self._settings.board,
            self._bots,
            self._access,
        )
        self._commands.add(self._office.commands())

    async def _go_on(self, phases: _Phases) -> None:
        """With everything that was open when the last process ended."""
        self._access.load(await self._store.read(access.admitted))
        await recovery.recover(self._store, self._clock, self._settlement)
        phases.over("looking over what the last process left open")
        await self._office.start()
        await self._courier.start()
        await self._dispatcher.start()
        phases.over("taking up what waits")

    def _listen(self) -> None:
        self._supervisor.keep("sweeper", self._sweep)
        nearby = {(platform.name, platform.account) for platform in self._platforms if platform.nearby}
        for (name, account), adapter in self._adapters.items():
            governed = self._governed and (name, account) not in nearby
            self._supervisor.keep(f"{name}@{account}", self._listening(adapter, governed))
        self._office.hear()

    def _listening(self, adapter: Adapter, governed: bool) -> Callable[[], Awaitable[None]]:
        receive = self._door.receive_for(adapter.name, adapter.account)
        notebook = StoredNotebook(self._store, adapter.name, adapter.account)
        started = not governed

        async def listen() -> None:
            nonlocal started
            if not started:
                try:
                    await _wait_after_quick_starts(notebook, self._clock.now())
                except StandingBy as error:
                    name = f"{adapter.name}@{adapter.account}"
                    self._alarms.sound("restarts", f"{name}: {error}", name)
                    raise
                started = True
            # A new lifetime may mean that what was held can go.
            await self._courier.try_again(adapter.name, adapter.account)
            await adapter.listen(receive)

        return listen

    def _host(self, platform: Platform) -> Host:
        host = Host(
            reports=AccountReports(self, platform.name, platform.account),
            notebook=StoredNotebook(self._store, platform.name, platform.account),
            knows=self.knows,
            clock=self._clock,
            server=self._server,
            menu=tuple(
                MenuItem(each.name, each.help, each.runs or each.handler is None) for each in self._commands.all()
            ),
            attachments=self._home / "attachments" / f"{platform.name}@{platform.account}",
        )
        return NearbyHost(**vars(host), desk=self, local=self._local) if platform.nearby else host

    def _compose(self, target: Target, body: Body) -> tuple[Body, ...]:
        adapter = self._adapters.get((target.adapter, target.account))
        return adapter.compose(target, body) if adapter else (body,)

    async def _sweep(self) -> None:
        while True:
            await self._clock.sleep(SWEEP_SECONDS)
            # A write, so that a store that is well again is known to be, and steady time survives a reboot.
            now = self._clock.now()
            await self._store.insist(lambda tx, now=now: steady_time.mark(tx, now))  # type: ignore[misc]
            if not self._steady.confirmed and await self._store.insist(
                lambda tx: steady_time.confirm(tx, self._steady, POSTPONED)
            ):
                log.info("the clock is confirmed: time has caught up with it")
            await self._dispatcher.sweep()
            await self._courier.sweep()
            await self._feed.sweep()
            await self._office.sweep()
            await self._erasure.sweep()
            await self.upkeep.sweep()

    def _is_busy(self) -> bool:
        return self._dispatcher.busy or self._courier.busy or self._office.busy

    async def _drain(self) -> None:
        """Lets running answers end and reach their chats; what remains is resumed at the next start."""
        fail_here("shutdown.drain")
        deadline = self._clock.now() + self._settings.limits.drain_seconds
        while self._is_busy() and self._clock.now() < deadline:
            await self._clock.sleep(0.05)

    def renew(
        self, settings: Core, bots: Mapping[str, Agent], default_bot: str, commands: Sequence[Command]
    ) -> tuple[str, ...]:
        """Other bots, rules, access and limits from now on; a run that goes on keeps the agent it began with.

        Returns the misconfigured platforms, which are tried again at once. Raises ConfigError, and then nothing has
        changed.
        """
        _check_bots(settings.rules, bots, default_bot, settings.board)
        self._settings = self._settings.model_copy(
            update={"access": settings.access, "limits": settings.limits, "rules": settings.rules}
        )
        self._bots.renew(bots, default_bot, settings.rules)
        self._commands.renew(commands)
        self._door.renew(settings.limits, tell_strangers=settings.access.tell_strangers)
        self._dispatcher.renew(settings.limits)
        self._access.renew(settings.access)
        self._end_lapsed()
        return self._supervisor.try_misconfigured()

    async def released(self, agents: Sequence[Agent]) -> None:
        """Returns when none of these agents is at work any more."""
        await self._dispatcher.released(agents)


class _Phases:
    """Says of each step of the start how long it took: whoever waits should see for what."""

    def __init__(self) -> None:
        self._since = time.perf_counter()

    def over(self, step: str) -> None:
        now = time.perf_counter()
        log.info("start: %s took %.0f ms", step, (now - self._since) * 1000)
        self._since = now


async def _wait_after_quick_starts(notebook: StoredNotebook, now: float) -> None:
    """Returns when the adapter may listen in this process, and has counted that. Raises StandingBy."""
    stored = await notebook.read("starts")
    last = decode(stored, type=restarts.Starts) if stored else None
    if (wait := restarts.wait(last, now)) > 0 and last is not None:
        raise StandingBy(
            f"the gateway was started {last.quick + 1} times in quick succession, so it listens only in {wait:.0f} s;"
            " the log says why it ended",
            wait,
        )
    await notebook.write("starts", encode(restarts.begun(last, now)).decode())


def _check_bots(rules: Sequence[Rule], bots: Mapping[str, Agent], default_bot: str, board: Board) -> None:
    if twice := sorted(set(bots) & set(board.workers)):
        raise ConfigError(f"[board.workers] {twice[0]}: there is a bot of that name; give the worker another")
    if default_bot not in bots:
        raise ConfigError(f"there is no bot named {default_bot!r}; there are: {', '.join(sorted(bots))}")
    for number, rule in enumerate(rules, start=1):
        if rule.bot not in bots:
            places = ((name, getattr(rule, name)) for name in ("platform", "account", "chat", "thread"))
            where = ", ".join(f"{name} {value}" for name, value in places if value) or "everywhere"
            known = ", ".join(sorted(bots))
            raise ConfigError(f"[[rules]] {number} ({where}): there is no bot named {rule.bot!r}; there are: {known}")
    lists = {f"[[rules]] {number}": rule.assignees or () for number, rule in enumerate(rules, start=1)}
    for place, assignees in {"[board]": board.assignees, **lists}.items():
        for name in assignees:
            if name not in bots and name not in board.workers:
                known = ", ".join(sorted((*bots, *board.workers)))
                words = f"there is no bot or worker named {name!r}; there are: {known}"
                raise ConfigError(f"{place} assignees: {words}")

"""The gateway: builds its parts in order, recovers, runs them, and stops them again."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import TracebackType

from msgspec.json import decode, encode

from tidings.core.adapter import Adapter, Host, Local, MenuItem, NearbyHost, Platform, Server
from tidings.core.agent import Agent
from tidings.core.errors import ConfigError, StandingBy
from tidings.core.failpoints import fail_here
from tidings.core.gateway import restarts
from tidings.core.gateway.desk import GatewayDesk
from tidings.core.gateway.options import ORDINARY, Options, Team
from tidings.core.gateway.parts import Parts, build
from tidings.core.gateway.reports import AccountReports, Reported
from tidings.core.gateway.supervisor import Supervisor, sweep_each
from tidings.core.inbound import approval_rows, attention
from tidings.core.inbound.approvals import Endings
from tidings.core.inbound.commands import Commands
from tidings.core.inbound.dispatcher import Dispatcher
from tidings.core.inbound.door import Door
from tidings.core.inbound.turns import Turns
from tidings.core.memory import history
from tidings.core.operations import overview
from tidings.core.outbound import draft, outbox
from tidings.core.outbound.draft import Drafts
from tidings.core.settings import Board, Core, Rule
from tidings.core.store import steady_time
from tidings.core.store.adapter_state import StoredNotebook
from tidings.core.store.essentials import Essentials
from tidings.core.store.lock import HomeLock
from tidings.core.store.sqlite import DATABASE, open_store
from tidings.core.store.store import Store
from tidings.core.telemetry.alarms import Alarms
from tidings.core.telemetry.metrics import Meters
from tidings.core.work.schedules import rows as schedule_rows
from tidings.core.work.tasks import rows as task_rows

log = logging.getLogger(__name__)

# How often the gateway sweeps: looks for due rows whose wake-up was missed.
SWEEP_SECONDS = 15.0
LAST_SECONDS = 5.0
# Rooms with rows that wait by steady time.
POSTPONED = (
    outbox.postpone,
    task_rows.postpone,
    schedule_rows.postpone,
    approval_rows.postpone,
    attention.postpone,
)
UNCONFIRMED = (
    "the machine has rebooted, and its clock is more than a day off from the last use: check the date. Nothing expires"
    " or is pruned until a time server has set the clock or the machine has run for an hour"
)


class Gateway:
    """One gateway for one home: `async with` opens, recovers and listens; leaving it drains and closes."""

    # Set when the gateway is entered.
    desk: GatewayDesk

    def __init__(
        self,
        home: Path,
        settings: Core,
        platforms: Sequence[Platform],
        team: Team,
        local: Local,
        server: Server,
        options: Options = ORDINARY,
    ) -> None:
        _check_bots(settings.rules, team, settings.board)
        self._home = home
        self._settings = settings
        self._platforms = platforms
        self._team = team
        self._local = local
        self._server = server
        self._options = options
        self._lock = HomeLock(home)

    async def __aenter__(self) -> Gateway:
        self._lock.take()
        phases = _Phases()
        try:
            self._store = await self._open()
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

    async def _open(self) -> Store:
        options = self._options
        return await open_store(self._home / DATABASE, grouped=options.grouped, wakeups=options.wakeups)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._parts.supervisor.stop()
        for part in self._in_order:
            part.pause()
        await self._drain()
        # Writes and sends under way may end, so that a clean stop leaves no doubt behind.
        patience = min(self._settings.limits.drain_seconds, LAST_SECONDS)
        for part in (self._parts.alerts, *reversed(self._in_order)):
            await part.stop(patience)
        for adapter in self._parts.accounts.values():
            await adapter.close()
        await self._store.close()
        self._lock.release()

    async def _start(self, phases: _Phases) -> None:
        self._steady = await self._store.insist(steady_time.steady_clock)
        self._clock = self._options.clock or self._steady
        essentials = Essentials(self._store, self._clock, self._settings.limits, Alarms(self._clock), Meters())
        self._tell_at_start(essentials.alarms)
        supervisor = Supervisor(self._clock, essentials.alarms, self._options.pauses)
        self._parts = parts = build(essentials, self._home, self._settings, self._team, self._options, supervisor)
        self.desk = GatewayDesk(parts, await self._store.read(lambda tx: overview.moments(tx, self._clock.ahead)))
        of_bots = self._team.commands(parts.bots.find)
        self._commands = Commands(of_bots, parts.commands, parts.people, parts.stopping)
        self._dispatcher, self._door = self._build_the_way_in(parts)
        self._in_order = parts.in_order(self._dispatcher)
        self._reported = Reported(essentials, supervisor, parts.courier)
        for platform in self._platforms:
            parts.accounts[platform.name, platform.account] = platform.build(self._host(platform))
        phases.over("building the platforms")
        await self._go_on(phases)

    def _tell_at_start(self, alarms: Alarms) -> None:
        if not self._clock.confirmed:
            alarms.sound("clock", UNCONFIRMED)
        for notice in self._options.notices:
            alarms.sound("settings", notice)

    def _build_the_way_in(self, parts: Parts) -> tuple[Dispatcher, Door]:
        essentials, courier, people = parts.essentials, parts.courier, parts.people
        endings = Endings(parts.settlement, parts.asking, parts.approvals, parts.affording)
        workspaces = self._home / "workspaces"
        turns = Turns(parts.bots, self.desk, parts.accounts.can, workspaces, people, parts.allowances)
        drafts = Drafts(self._clock, courier.views, parts.feed.follow, draft.tail(parts.accounts.compose))
        dispatcher = Dispatcher(essentials, turns, courier, drafts, endings, parts.busy, parts.slots)
        door = Door(essentials, parts.entrance, self._commands, dispatcher, courier, endings)
        return dispatcher, door

    async def _go_on(self, phases: _Phases) -> None:
        """Recovers and continues what was open when the last process ended."""
        fail_here("boot.pre_recover")
        for part in self._in_order:
            await part.recover()
        fail_here("boot.post_recover")
        phases.over("looking over what the last process left open")
        for part in self._in_order:
            await part.start()
        phases.over("taking up what waits")
        self._listen()
        # The platforms are known only now.
        await self._parts.alerts.start()

    def _listen(self) -> None:
        self._parts.supervisor.keep("sweeper", self._sweep)
        nearby = {(platform.name, platform.account) for platform in self._platforms if platform.nearby}
        for (name, account), adapter in self._parts.accounts.items():
            governed = self._options.governed and (name, account) not in nearby
            self._parts.supervisor.keep(f"{name}@{account}", self._listening(adapter, governed))

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
                    self._parts.essentials.alarms.sound("restarts", f"{name}: {error}", name)
                    raise
                started = True
            # A new start of the adapter may mean that held deliveries can be sent.
            await self._parts.courier.try_again(adapter.name, adapter.account)
            await adapter.listen(receive)

        return listen

    def _host(self, platform: Platform) -> Host:
        host = Host(
            reports=AccountReports(self._reported, platform.name, platform.account),
            notebook=StoredNotebook(self._store, platform.name, platform.account),
            knows=self._is_spoken_in,
            wants=self._door.wants,
            clock=self._clock,
            server=self._server,
            menu=tuple(
                MenuItem(each.name, each.help, each.runs or each.handler is None) for each in self._commands.all()
            ),
            attachments=self._home / "attachments" / f"{platform.name}@{platform.account}",
        )
        return NearbyHost(**vars(host), desk=self.desk, local=self._local) if platform.nearby else host

    async def _is_spoken_in(self, conversation: str) -> bool:
        return await self._store.read(lambda tx: history.is_spoken_in(tx, conversation))

    async def _sweep(self) -> None:
        while True:
            await self._clock.sleep(SWEEP_SECONDS)
            # This write shows whether the store has recovered, and keeps steady time across a reboot.
            now = self._clock.now()
            await self._store.insist(lambda tx, now=now: steady_time.mark(tx, now))  # type: ignore[misc]
            if not self._steady.confirmed and await self._store.insist(
                lambda tx: steady_time.confirm(tx, self._steady, POSTPONED)
            ):
                log.info("the clock is confirmed: time has caught up with it")
            await sweep_each(self._in_order)

    async def _drain(self) -> None:
        """Waits for running answers to end and arrive; unfinished ones resume at the next start."""
        fail_here("shutdown.drain")
        deadline = self._clock.now() + self._settings.limits.drain_seconds
        while any(part.busy for part in self._in_order) and self._clock.now() < deadline:
            await self._clock.sleep(0.05)

    def renew(self, settings: Core, team: Team) -> tuple[str, ...]:
        """Applies new bots, rules, access, limits and memory of groups; a run in progress keeps its agent.

        Returns the misconfigured platforms, which are tried again at once. Raises ConfigError and then changes nothing.
        """
        _check_bots(settings.rules, team, settings.board)
        self._settings = self._settings.model_copy(
            update={
                "access": settings.access,
                "allowances": settings.allowances,
                "approvals": settings.approvals,
                "groups": settings.groups,
                "limits": settings.limits,
                "rules": settings.rules,
            }
        )
        self._parts.bots.renew(team.agents, team.default, settings.rules, team.busy)
        self._commands.renew(team.commands(self._parts.bots.find))
        self._door.renew(settings.limits, settings.groups)
        self._dispatcher.renew(settings.limits)
        self._parts.busy.renew(settings.limits)
        self._parts.people.renew(settings.permissions)
        self._parts.allowances.renew(settings.allowances)
        self._parts.asking.renew(settings.approvals)
        self._parts.approvals.renew(settings.approvals)
        return self._parts.supervisor.try_misconfigured()

    async def released(self, agents: Sequence[Agent]) -> None:
        """Returns when no run of these agents is in progress."""
        await self._dispatcher.released(agents)


class _Phases:
    """Logs how long each step of the start took."""

    def __init__(self) -> None:
        self._since = time.perf_counter()

    def over(self, step: str) -> None:
        now = time.perf_counter()
        log.info("start: %s took %.0f ms", step, (now - self._since) * 1000)
        self._since = now


async def _wait_after_quick_starts(notebook: StoredNotebook, now: float) -> None:
    """Counts this start and returns when the adapter may listen; raises StandingBy while it must wait."""
    stored = await notebook.read("starts")
    last = decode(stored, type=restarts.Starts) if stored else None
    if (wait := restarts.wait(last, now)) > 0 and last is not None:
        raise StandingBy(
            f"the gateway was started {last.quick + 1} times in quick succession, so it listens only in {wait:.0f} s;"
            " the log says why it ended",
            wait,
        )
    await notebook.write("starts", encode(restarts.begun(last, now)).decode())


def _check_bots(rules: Sequence[Rule], team: Team, board: Board) -> None:
    bots, default_bot = team.agents, team.default
    if twice := sorted(set(bots) & set(board.workers)):
        raise ConfigError(f"[board.workers] {twice[0]}: there is a bot of that name; give the worker another")
    if default_bot not in bots:
        raise ConfigError(f"there is no bot named {default_bot!r}; there are: {', '.join(sorted(bots))}")
    for number, rule in enumerate(rules, start=1):
        if rule.bot and rule.bot not in bots:
            fields = ("platform", "account", "server", "chat", "thread", "person")
            named = ((name, getattr(rule, name)) for name in fields)
            where = ", ".join(f"{name} {value}" for name, value in named if value) or "everywhere"
            known = ", ".join(sorted(bots))
            raise ConfigError(f"[[rules]] {number} ({where}): there is no bot named {rule.bot!r}; there are: {known}")
    lists = {f"[[rules]] {number}": rule.assignees or () for number, rule in enumerate(rules, start=1)}
    for place, assignees in {"[board]": board.assignees, **lists}.items():
        for name in assignees:
            if name not in bots and name not in board.workers:
                known = ", ".join(sorted((*bots, *board.workers)))
                words = f"there is no bot or worker named {name!r}; there are: {known}"
                raise ConfigError(f"{place} assignees: {words}")

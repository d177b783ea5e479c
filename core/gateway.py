"""Builds the parts in order and runs them: store, recovery, courier, dispatcher, adapters; and is the desk."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from types import TracebackType

from msgspec.json import decode
from msgspec.structs import replace

from core import clock as clocks
from core import context, ids
from core.adapter import Adapter, Host, Local, MenuItem, Platform, Server
from core.agent import Agent
from core.alarms import Alarms
from core.clock import Clock, SystemClock
from core.desk import ConversationLine, Health, HistoryLine, Numbered, Remembered, Run
from core.errors import ConfigError, Unknown, Unsupported
from core.failpoints import fail_here
from core.inbound import notes, policy, records, recovery
from core.inbound.commands import Command, Commands
from core.inbound.dispatcher import Bots, Dispatcher
from core.inbound.door import Door
from core.inbound.notebook import StoredNotebook
from core.meters import Meters
from core.outbound import draft, outbox
from core.outbound.courier import Courier
from core.outbound.draft import Drafts
from core.outbound.outbox import Class, Owed
from core.runs.feed import Feed
from core.settings import Core, Rule
from core.store.database import Store, Transaction
from core.store.lock import HomeLock
from core.store.sqlite import open_store
from core.supervisor import Supervisor
from core.types import Attachment, Body, Delivery, Entry, Inbound, Target
from core.work.tasks import TaskKind, Tasks

log = logging.getLogger(__name__)

DATABASE = "tidings.db"
# How often a live process looks for what was forgotten.
SWEEP_SECONDS = 15.0
LAST_SECONDS = 5.0
# Who is told that something may have been missed: whoever spoke within a week, within reason.
RECENT_SECONDS = 7 * 86_400.0
RECENT_CONVERSATIONS = 100


class Gateway:
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
    ) -> None:
        if default_bot not in bots:
            raise ConfigError(f"there is no bot named {default_bot!r}; there are: {', '.join(sorted(bots))}")
        _check_rules(settings.rules, bots)
        self._home = home
        self._settings = settings
        self._platforms = platforms
        self._bots = Bots(bots, default_bot, settings.rules)
        self._local = local
        self._server = server
        self._kinds = kinds
        self._commands = Commands(commands, lambda: self._clock.wall())
        self._given_clock = clock
        self._clock: Clock
        self._grouped = grouped
        self._lock = HomeLock(home)
        self._adapters: dict[tuple[str, str], Adapter] = {}
        self._allowed: set[str] = set(settings.access.allow)

    async def __aenter__(self) -> Gateway:
        self._lock.take()
        try:
            self._store: Store = await open_store(self._home / DATABASE, grouped=self._grouped)
        except BaseException:
            self._lock.release()
            raise
        try:
            await self._start()
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
        await self._drain()
        # What is already being written or sent may end, so that a clean stop leaves no doubt behind.
        patience = min(self._settings.limits.drain_seconds, LAST_SECONDS)
        await self._dispatcher.stop(patience)
        await self._tasks.stop()
        await self._courier.stop(patience)
        for adapter in self._adapters.values():
            await adapter.close()
        await self._store.close()
        self._lock.release()

    async def _start(self) -> None:
        steady: Clock = await self._store.insist(_steady_clock)
        self._clock = self._given_clock or steady
        self._alarms = Alarms(self._clock)
        self.meters = Meters()
        self._supervisor = Supervisor(self._clock, self._alarms)
        self._feed = Feed(self._store)
        self._courier = Courier(self._store, self._clock, self._adapters, self._alarms, self.meters)
        self._drafts = Drafts(self._clock, self._courier.views, self._feed.follow, draft.tail(self._compose))
        limits, workspaces = self._settings.limits, self._home / "workspaces"
        self._dispatcher = Dispatcher(
            self._store,
            self._clock,
            limits,
            self._bots,
            self._feed,
            self._courier,
            self._drafts,
            workspaces,
            self.meters,
        )
        self._dispatcher.desk = self
        self._tasks = Tasks(self._store, self._clock, self._courier, self._kinds, workspaces)
        self._door = Door(
            self._store,
            self._clock,
            limits,
            self._allowed,
            self._commands,
            self._dispatcher,
            self._courier,
            self._feed.publish,
            self.meters,
            tell_strangers=self._settings.access.tell_strangers,
        )
        for platform in self._platforms:
            self._adapters[platform.name, platform.account] = platform.build(self._host(platform))
        self._allowed |= await self._store.read(_admitted)
        await recovery.recover(self._store, self._clock, self._courier.can)
        await self._tasks.start()
        await self._courier.start()
        await self._dispatcher.start()
        self._supervisor.keep("sweeper", self._sweep)
        for (name, account), adapter in self._adapters.items():
            self._supervisor.keep(f"{name}@{account}", self._listening(adapter))

    def _listening(self, adapter: Adapter) -> Callable[[], Awaitable[None]]:
        receive = self._door.receive_for(adapter.name, adapter.account)

        async def listen() -> None:
            # A new lifetime may mean that what was held can go.
            await self._courier.reachable(adapter.name, adapter.account)
            await adapter.listen(receive)

        return listen

    def _host(self, platform: Platform) -> Host:
        notebook = StoredNotebook(self._store, platform.name, platform.account)
        menu = tuple(MenuItem(each.name, each.help, each.runs or each.handler is None) for each in self._commands.all())
        attachments = self._home / "attachments" / f"{platform.name}@{platform.account}"
        return Host(notebook, self, self._clock, self._local, self._server, menu, attachments)

    def _compose(self, target: Target, body: Body) -> tuple[Body, ...]:
        adapter = self._adapters.get((target.adapter, target.account))
        return adapter.compose(target, body) if adapter else (body,)

    async def _sweep(self) -> None:
        while True:
            await self._clock.sleep(SWEEP_SECONDS)
            # A write, so that a store that is well again is known to be, and steady time survives a reboot.
            now = self._clock.now()
            await self._store.insist(lambda tx, now=now: tx.execute("UPDATE epoch SET latest = ?", now))  # type: ignore[misc]
            await self._dispatcher.sweep()
            await self._courier.sweep()
            await self._tasks.sweep()

    async def _drain(self) -> None:
        """Lets running answers end and reach their chats; what remains is resumed at the next start."""
        fail_here("shutdown.drain")
        deadline = self._clock.now() + self._settings.limits.drain_seconds
        while (self._dispatcher.busy or self._courier.busy) and self._clock.now() < deadline:
            await self._clock.sleep(0.05)

    def follow(self, run: str, after: int = 0) -> AsyncIterator[Numbered]:
        return self._feed.follow(run, after)

    async def stop(self, run: str, by: str) -> bool:
        return await self._door.stop(run, by)

    def bots(self) -> tuple[str, ...]:
        others = sorted(name for name in self._bots.agents if name != self._bots.default)
        return (self._bots.default, *others)

    async def run(self, id: str) -> Run:
        run = await self._store.read(lambda tx: records.run(tx, id, self._ahead))
        return replace(run, bot=self._bots.find(run.message))

    async def conversations(self, adapter: str, chat: str, limit: int, before: int) -> list[ConversationLine]:
        return await self._store.read(lambda tx: records.conversations(tx, adapter, chat, limit, before, self._ahead))

    async def memory(self, conversation: str, before: str, limit: int) -> tuple[Entry, ...]:
        return await self._store.read(lambda tx: records.memory(tx, conversation, before, limit))

    async def history(self, conversation: str, limit: int, after: int) -> list[HistoryLine]:
        return await self._store.read(lambda tx: records.history(tx, conversation, limit, after))

    @property
    def _ahead(self) -> float:
        """What the wall clock shows more; to a tenth, so that one moment is told alike whenever one asks."""
        return round(self._clock.wall() - self._clock.now(), 1)

    async def permitted(self, target: Target) -> bool:
        # Without a chat it is the platform's own place, such as the owner's console.
        if not target.chat or not self._allowed.isdisjoint(policy.names_of(target)):
            return True
        return await self._store.read(lambda tx: records.is_known(tx, self._courier.origin(target)))

    async def owe(self, target: Target, body: Body, cause: str, key: str = "", digest: str = "") -> str:
        can = self._courier.can(target)
        if can is None:
            known = ", ".join(sorted({name for name, _ in self._adapters})) or "none"
            raise Unknown(f"no platform {target.adapter}@{target.account} is configured (there are: {known})")
        wishes = {"async_delivery": True, "threads": target.thread, "files": body.files, "buttons": body.choices}
        for ability, wanted in wishes.items():
            if wanted and not getattr(can, ability):
                raise Unsupported(ability, str(target))
        owed = Owed(ids.new("dlv"), Class.REPLY, target, body, None, cause, key, digest)
        delivery = await self._store.write(lambda tx: outbox.put_once(tx, owed, self._clock.now()))
        self._courier.wake(target.lane)
        return delivery

    async def delivery(self, id: str) -> Delivery:
        return await self._store.read(lambda tx: outbox.lookup(tx, id))

    async def begin(self, kind: str, argument: str, after: float) -> str:
        return await self._tasks.begin(kind, argument, after)

    async def allow(self, id: str) -> bool:
        added = await self._store.write(lambda tx: admit(tx, id, self._clock.now()))
        self._allowed.add(id)
        return added

    async def reachable(self, adapter: str, account: str) -> None:
        await self._courier.reachable(adapter, account)

    async def moved(self, adapter: str, account: str, chat: str, to: str) -> None:
        await self._courier.move(adapter, account, chat, to)

    async def missed(self, adapter: str, account: str, words: str, *, tell: bool) -> None:
        self._alarms.sound("gap", f"{adapter}@{account}: {words}")
        if tell:
            since = self._clock.now() - RECENT_SECONDS
            lanes = await self._store.write(lambda tx: _tell_recent(tx, adapter, account, words, since, self._clock))
            for lane in lanes:
                self._courier.wake(lane)

    async def fetch(self, attachment: Attachment) -> Path:
        target = context.current().target
        adapter = self._adapters.get((target.adapter, target.account))
        if adapter is None:
            raise Unknown(f"no platform {target.adapter}@{target.account} is configured")
        return await adapter.fetch(attachment)

    async def knows(self, conversation: str) -> bool:
        return await self._store.read(lambda tx: records.knows(tx, conversation))

    async def remember(self, text: str) -> bool:
        person = policy.name_of(context.current().target, context.current().sender)
        return await self._store.write(lambda tx: notes.keep(tx, person, text, self._clock.wall()))

    async def recall(self, words: str, limit: int) -> list[Remembered]:
        person = policy.name_of(context.current().target, context.current().sender)
        return await self._store.read(lambda tx: notes.find(tx, person, words, limit))

    async def health(self) -> Health:
        return Health(
            version=version("tidings"),
            store=self._store.fault or "ok",
            parts=self._supervisor.health(),
            running=self._dispatcher.running,
            queued=self._dispatcher.queued,
            deliveries={} if self._store.fault else await self._store.read(outbox.counts),
            alarms=self._alarms.all(),
        )


def _check_rules(rules: Sequence[Rule], bots: Mapping[str, Agent]) -> None:
    for number, rule in enumerate(rules, start=1):
        if rule.bot not in bots:
            places = ((name, getattr(rule, name)) for name in ("platform", "account", "chat", "thread"))
            where = ", ".join(f"{name} {value}" for name, value in places if value) or "everywhere"
            known = ", ".join(sorted(bots))
            raise ConfigError(f"[[rules]] {number} ({where}): there is no bot named {rule.bot!r}; there are: {known}")


def _steady_clock(tx: Transaction) -> SystemClock:
    """Within one boot steady time goes on where it was; after a reboot the wall clock sets it, never backwards."""
    row = tx.one("SELECT boot, clock_offset, latest FROM epoch")
    boot = clocks.boot_id()
    if row and boot and row["boot"] == boot:
        clock = SystemClock(row["clock_offset"])
    else:
        clock = SystemClock()
        latest = max(row["latest"], *_newest(tx)) if row else 0.0
        if clock.now() < latest:
            clock = SystemClock(clock.offset + latest - clock.now())
    tx.execute(
        "INSERT INTO epoch (only, boot, clock_offset, latest) VALUES (1, ?, ?, ?) ON CONFLICT (only)"
        " DO UPDATE SET boot = excluded.boot, clock_offset = excluded.clock_offset, latest = excluded.latest",
        boot,
        clock.offset,
        clock.now(),
    )
    return clock


def _newest(tx: Transaction) -> list[float]:
    """How late it was when the last process still lived: the epoch only knows when that one started."""
    accepted = tx.all("SELECT accepted AS at FROM inbox ORDER BY seq DESC LIMIT 1")
    created = tx.all("SELECT created AS at FROM deliveries ORDER BY seq DESC LIMIT 1")
    return [0.0, *(row["at"] for row in (*accepted, *created))]


def _tell_recent(tx: Transaction, adapter: str, account: str, words: str, since: float, clock: Clock) -> list[str]:
    """A notice for each conversation in which somebody spoke lately, the newest first."""
    rows = tx.all(
        "SELECT message FROM inbox WHERE seq IN (SELECT max(seq) FROM inbox"
        " WHERE adapter = ? AND account = ? AND accepted > ? GROUP BY conversation) ORDER BY seq DESC LIMIT ?",
        adapter,
        account,
        since,
        RECENT_CONVERSATIONS,
    )
    lanes = []
    for row in rows:
        target = replace(decode(row["message"], type=Inbound).target, reply_to="", handle="")
        notice = Owed(ids.new("dlv"), Class.NOTICE, target, Body(text=words), None, "gap")
        if outbox.put_notice(tx, notice, clock.now()):
            lanes.append(target.lane)
    return lanes


def _admitted(tx: Transaction) -> set[str]:
    return {row["id"] for row in tx.all("SELECT id FROM access")}


def admit(tx: Transaction, id: str, now: float) -> bool:
    if not policy.is_access_id(id):
        raise Unknown(f"{id!r} is not an id; write platform:ID, for example the one the bot told you")
    return bool(tx.execute("INSERT INTO access (id, at) VALUES (?, ?) ON CONFLICT (id) DO NOTHING", id, now))

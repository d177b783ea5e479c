"""What one may ask of a running gateway: the desk, answered by the parts that the gateway has built."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from importlib.metadata import version
from pathlib import Path

from msgspec.json import decode
from msgspec.structs import replace

from tidings.core import context, ids
from tidings.core.adapter import Adapter
from tidings.core.clock import Clock
from tidings.core.context import Session
from tidings.core.desk.board import BoardDesk
from tidings.core.desk.health import Admissions, Health, Moments, Overview, PartHealth
from tidings.core.desk.runs import ConversationLine, HistoryLine, Numbered, Remembered, Run
from tidings.core.desk.work import ProcessDesk, ScheduleDesk, TaskDesk
from tidings.core.errors import Unknown, Unstored, Unsupported
from tidings.core.gateway.parts import Office
from tidings.core.gateway.supervisor import Supervisor
from tidings.core.inbound import access, policy
from tidings.core.inbound.access import Access
from tidings.core.inbound.bots import Bots
from tidings.core.inbound.dispatcher import Dispatcher
from tidings.core.inbound.door import Door
from tidings.core.memory import history as memory_history
from tidings.core.memory import person_notes
from tidings.core.operations import overview
from tidings.core.operations.erasure import Erasure
from tidings.core.operations.upkeep import Upkeep
from tidings.core.outbound import homes, outbox
from tidings.core.outbound.courier import Courier
from tidings.core.outbound.outbox import Class, Owed
from tidings.core.runs import lookup
from tidings.core.runs.feed import Feed
from tidings.core.store.store import Store, Transaction
from tidings.core.telemetry.alarms import Alarms
from tidings.core.telemetry.metrics import Meters
from tidings.core.types import Attachment, Audience, Body, Delivery, Entry, File, Inbound, Target

# Who is told that something may have been missed: whoever spoke within a week, within reason.
RECENT_SECONDS = 7 * 86_400.0
RECENT_CONVERSATIONS = 100


class FrontDesk:
    """The gateway is one: it sets the parts before anybody can ask."""

    upkeep: Upkeep
    meters: Meters
    _home: Path
    _clock: Clock
    _store: Store
    _bots: Bots
    _feed: Feed
    _door: Door
    _dispatcher: Dispatcher
    _erasure: Erasure
    _courier: Courier
    _office: Office
    _supervisor: Supervisor
    _alarms: Alarms
    _adapters: dict[tuple[str, str], Adapter]
    _access: Access
    _started: float
    _moments: dict[str, Moments]

    def follow(self, run: str, after: int = 0) -> AsyncIterator[Numbered]:
        return self._feed.follow(run, after)

    async def stop(self, run: str, by: str) -> bool:
        return await self._door.stop(run, by)

    def bots(self) -> tuple[str, ...]:
        return self._bots.names

    async def run(self, id: str) -> Run:
        run = await self._store.read(lambda tx: lookup.run(tx, id, self._clock.ahead))
        return replace(run, bot=self._bots.find(run.message))

    async def forget(self, run: str) -> None:
        await self._erasure.forget(run)

    async def conversations(
        self, adapter: str, chat: str, limit: int, before: int, member: str = ""
    ) -> list[ConversationLine]:
        return await self._store.read(
            lambda tx: memory_history.conversations(tx, adapter, chat, limit, before, self._clock.ahead, member)
        )

    async def memory(self, conversation: str, before: str, limit: int) -> tuple[Entry, ...]:
        return await self._store.read(lambda tx: memory_history.memory(tx, conversation, before, limit))

    async def history(self, conversation: str, limit: int, after: int) -> list[HistoryLine]:
        return await self._store.read(lambda tx: memory_history.history(tx, conversation, limit, after))

    async def permitted(self, target: Target) -> bool:
        # Without a chat it is the platform's own place, such as the owner's console.
        if not target.chat or not self._access.ids.isdisjoint(policy.names_of(target)):
            return True
        place = self._courier.origin(target)
        known, last = await self._store.read(
            lambda tx: (memory_history.is_known(tx, place), memory_history.newest(tx, place))
        )
        # A group may have other members; a removed person in a private chat is told nothing more.
        is_private = last is not None and last.target.audience is Audience.PRIVATE
        return known and not (is_private and last is not None and self._access.lapsed(last.asker))

    async def owe(self, target: Target, body: Body, cause: str, key: str = "", digest: str = "") -> str:
        target = await self._store.read(lambda tx: homes.resolve(tx, target))
        self._check(target, body)
        owed = Owed(ids.new("dlv"), Class.REPLY, target, body, None, cause, key, digest, "a notice")
        return await self._store.write(lambda tx: outbox.put_once(tx, owed, self._clock.now()))

    def _check(self, target: Target, body: Body) -> None:
        """Refuses what could never arrive."""
        can = self._courier.can(target)
        if can is None:
            known = ", ".join(sorted({name for name, _ in self._adapters})) or "none"
            raise Unknown(f"no platform {target.at} is configured (there are: {known})")
        somewhere = self._courier.can(replace(target, chat="somewhere"))
        if not target.chat and not can.async_delivery and somewhere and somewhere.async_delivery:
            how = f"write /sethome in a chat there, or name one: {target}:CHAT"
            raise Unknown(f"{target} has no home yet; {how}")
        wishes = {"async_delivery": True, "threads": target.thread, "files": body.files, "buttons": body.choices}
        for ability, wanted in wishes.items():
            if wanted and not getattr(can, ability):
                raise Unsupported(ability, str(target))

    async def adopt(self, path: str) -> File:
        folder = self._home / "attachments" / "outgoing" / ids.new("file")
        try:
            await asyncio.to_thread(_copy, Path(path), folder)
        except OSError as error:
            raise Unknown(f"{path} cannot be read: {error.strerror}") from error
        return File(path=str(folder / Path(path).name), name=Path(path).name)

    async def homes(self) -> dict[str, Target]:
        return await self._store.read(homes.all_of)

    async def set_home(self, target: Target) -> None:
        self._check(target, Body())
        await self._store.write(lambda tx: homes.choose(tx, target, self._clock.now()))

    async def delivery(self, id: str) -> Delivery:
        return await self._store.read(lambda tx: outbox.lookup(tx, id))

    @property
    def board(self) -> BoardDesk:
        return self._office.board

    @property
    def tasks(self) -> TaskDesk:
        return self._office.tasks

    @property
    def processes(self) -> ProcessDesk:
        return self._office.processes

    @property
    def schedules(self) -> ScheduleDesk:
        return self._office.schedules

    async def begin(self, kind: str, argument: str, after: float) -> str:
        return await self._office.tasks.begin(kind, argument, after)

    async def allow(self, id: str) -> bool:
        if self._access.is_in_settings(id):
            return False
        added, admitted = await self._store.write(
            lambda tx: (access.admit(tx, id, self._clock.now()), access.admitted(tx))
        )
        self._access.load(admitted)
        return added

    async def withdraw(self, id: str) -> None:
        self._access.load(await self._store.write(lambda tx: access.withdraw(tx, id)))
        self._end_lapsed()

    async def admissions(self) -> Admissions:
        return self._access.lists

    def _end_lapsed(self) -> None:
        """Stops work for people who were removed; called whenever a list becomes shorter."""
        self._dispatcher.end_lapsed()
        self._office.end_lapsed()

    async def reachable(self, adapter: str, account: str) -> None:
        self._supervisor.mended(f"{adapter}@{account}")
        await self._courier.reachable(adapter, account)

    def troubled(self, adapter: str, account: str, reason: str) -> None:
        self._supervisor.troubled(f"{adapter}@{account}", reason)

    async def moved(self, adapter: str, account: str, chat: str, to: str) -> None:
        await self._courier.move(adapter, account, chat, to)

    async def missed(self, adapter: str, account: str, words: str, *, tell: bool) -> None:
        self._alarms.sound("gap", f"{adapter}@{account}: {words}", f"{adapter}@{account}")
        if tell:
            since = self._clock.now() - RECENT_SECONDS
            await self._store.write(lambda tx: _tell_recent(tx, adapter, account, words, since, self._clock))

    async def fetch(self, attachment: Attachment) -> Path:
        target = context.current().target
        adapter = self._adapters.get((target.adapter, target.account))
        if adapter is None:
            raise Unknown(f"no platform {target.adapter}@{target.account} is configured")
        return await adapter.fetch(attachment)

    async def knows(self, conversation: str) -> bool:
        return await self._store.read(lambda tx: memory_history.knows(tx, conversation))

    async def remember(self, text: str) -> bool:
        about = _reader(context.current())
        return await self._store.write(lambda tx: person_notes.keep(tx, about, text, self._clock.wall()))

    async def recall(self, words: str, limit: int) -> list[Remembered]:
        about = _reader(context.current())
        return await self._store.read(lambda tx: person_notes.find(tx, about, words, limit))

    async def health(self) -> Health:
        glance, fault = await self._glance()
        return Health(
            version=version("tidings"),
            store=fault or "ok",
            parts=tuple(map(self._with_moments, self._supervisor.health())),
            running=self._dispatcher.running,
            queued=glance.queued if glance else 0,
            deliveries=glance.deliveries if glance else {},
            alarms=self._alarms.all(),
            started=self._started,
            overview=glance,
            strangers=tuple(each for each in self._door.strangers.values() if each.id not in self._access.ids),
        )

    async def _glance(self) -> tuple[Overview | None, str]:
        """Whoever asks in the very moment in which the store fails is told of that, and of everything else."""
        if self._store.fault:
            return None, self._store.fault
        try:
            return await self._store.read(lambda tx: overview.overview(tx, self._clock.ahead)), self._store.fault
        except Unstored as error:
            return None, str(error)

    def _with_moments(self, part: PartHealth) -> PartHealth:
        past = self._moments.get(part.name, Moments())
        return replace(
            part,
            last_inbound=self.meters.heard_at.get(part.name, past.heard),
            last_outbound=self.meters.sent_at.get(part.name, past.sent),
        )


def _copy(path: Path, folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True)
    shutil.copyfile(path, folder / path.name)


def _tell_recent(tx: Transaction, adapter: str, account: str, words: str, since: float, clock: Clock) -> None:
    """A notice for each conversation in which somebody spoke lately, the newest first."""
    rows = tx.all(
        "SELECT message FROM inbox WHERE seq IN (SELECT max(seq) FROM inbox"
        " WHERE adapter = ? AND account = ? AND accepted > ? GROUP BY conversation) ORDER BY seq DESC LIMIT ?",
        adapter,
        account,
        since,
        RECENT_CONVERSATIONS,
    )
    for row in rows:
        target = decode(row["message"], type=Inbound).target.lasting()
        notice = Owed(ids.new("dlv"), Class.NOTICE, target, Body(text=words), None, "gap", source="the gateway")
        outbox.put_notice(tx, notice, clock.now())


def _reader(session: Session) -> person_notes.Reader:
    """Work without a person has the notes of whom it is done for, as they are seen where it was asked for."""
    asked = session.asker
    target, sender = (asked.target, asked.sender) if asked else (session.target, session.sender)
    private = target.audience is session.target.audience is Audience.PRIVATE
    return person_notes.Reader(session.bot, policy.name_of(target, sender), private)

"""The desk of a running gateway: answers what may be asked, from the parts that it is given."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Mapping
from importlib.metadata import version
from pathlib import Path

from msgspec.structs import replace

from tidings.core import context, ids
from tidings.core.context import Session
from tidings.core.desk.board import BoardDesk
from tidings.core.desk.health import Admissions, Health, Moments, Overview, PartHealth
from tidings.core.desk.runs import ConversationLine, HistoryLine, Numbered, Remembered, Run
from tidings.core.desk.work import ProcessDesk, ScheduleDesk, TaskDesk
from tidings.core.errors import Unknown, Unstored, Unsupported
from tidings.core.gateway.parts import Parts
from tidings.core.inbound import access, policy
from tidings.core.memory import history as memory_history
from tidings.core.memory import person_notes
from tidings.core.operations import overview
from tidings.core.outbound import homes, outbox
from tidings.core.outbound.outbox import Class, Owed
from tidings.core.runs import lookup
from tidings.core.types import Attachment, Audience, Body, Delivery, Entry, File, Target


class GatewayDesk:
    """Answers from the parts that it is given."""

    def __init__(self, parts: Parts, moments: Mapping[str, Moments]) -> None:
        """`moments` tells when each account was last active before this start."""
        self._parts = parts
        self._moments = moments
        self._store = parts.essentials.store
        self._clock = parts.essentials.clock
        self._started = self._clock.wall()
        self.upkeep = parts.upkeep
        self.meters = parts.essentials.metrics

    def follow(self, run: str, after: int = 0) -> AsyncIterator[Numbered]:
        return self._parts.feed.follow(run, after)

    async def stop(self, run: str, by: str) -> bool:
        return await self._parts.stopping.stop(run, by)

    def bots(self) -> tuple[str, ...]:
        return self._parts.bots.names

    async def run(self, id: str) -> Run:
        run = await self._store.read(lambda tx: lookup.run(tx, id, self._clock.ahead))
        return replace(run, bot=self._parts.bots.find(run.message))

    async def forget(self, run: str) -> None:
        await self._parts.erasure.forget(run)

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
        # A target without a chat is the platform's own place, such as the owner's console.
        if not target.chat or not self._parts.access.ids.isdisjoint(policy.names_of(target)):
            return True
        place = self._parts.courier.origin(target)
        known, last = await self._store.read(
            lambda tx: (memory_history.is_known(tx, place), memory_history.newest(tx, place))
        )
        # A group may have other members; a removed person in a private chat gets no more messages.
        is_private = last is not None and last.target.audience is Audience.PRIVATE
        return known and not (is_private and last is not None and self._parts.access.lapsed(last.asker))

    async def owe(self, target: Target, body: Body, cause: str, key: str = "", digest: str = "") -> str:
        target = await self._store.read(lambda tx: homes.resolve(tx, target))
        self._check(target, body)
        owed = Owed(ids.new("dlv"), Class.REPLY, target, body, None, cause, key, digest, "a notice")
        return await self._store.write(lambda tx: outbox.put_once(tx, owed, self._clock.now()))

    def _check(self, target: Target, body: Body) -> None:
        """Refuses a delivery that could never arrive."""
        can = self._parts.courier.can(target)
        if can is None:
            known = ", ".join(sorted({name for name, _ in self._parts.accounts})) or "none"
            raise Unknown(f"no platform {target.at} is configured (there are: {known})")
        somewhere = self._parts.courier.can(replace(target, chat="somewhere"))
        if not target.chat and not can.async_delivery and somewhere and somewhere.async_delivery:
            how = f"write /sethome in a chat there, or name one: {target}:CHAT"
            raise Unknown(f"{target} has no home yet; {how}")
        wishes = {"async_delivery": True, "threads": target.thread, "files": body.files, "buttons": body.choices}
        for ability, wanted in wishes.items():
            if wanted and not getattr(can, ability):
                raise Unsupported(ability, str(target))

    async def adopt(self, path: str) -> File:
        folder = self._parts.home / "attachments" / "outgoing" / ids.new("file")
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
        return self._parts.board

    @property
    def tasks(self) -> TaskDesk:
        return self._parts.tasks

    @property
    def processes(self) -> ProcessDesk:
        return self._parts.processes

    @property
    def schedules(self) -> ScheduleDesk:
        return self._parts.schedules

    async def begin(self, kind: str, argument: str, after: float) -> str:
        return await self._parts.tasks.begin(kind, argument, after)

    async def allow(self, id: str) -> bool:
        if self._parts.access.is_in_settings(id):
            return False
        added = await self._store.write(lambda tx: access.admit(tx, id, self._clock.now()))
        await self._parts.access.load()
        return added

    async def withdraw(self, id: str) -> None:
        await self._store.write(lambda tx: access.withdraw(tx, id))
        await self._parts.access.load()

    async def admissions(self) -> Admissions:
        return self._parts.access.lists

    async def fetch(self, attachment: Attachment) -> Path:
        target = context.current().target
        adapter = self._parts.accounts.of(target)
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
            parts=tuple(map(self._with_moments, self._parts.supervisor.health())),
            running=self.meters.running,
            queued=glance.queued if glance else 0,
            deliveries=glance.deliveries if glance else {},
            alarms=self._parts.essentials.alarms.all(),
            started=self._started,
            overview=glance,
            strangers=tuple(each for each in self._parts.strangers.all() if each.id not in self._parts.access.ids),
        )

    async def _glance(self) -> tuple[Overview | None, str]:
        """The overview, or None and the reason if the store fails right now."""
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


def _reader(session: Session) -> person_notes.Reader:
    """The person whose notes a session may read: for an errand, the person behind it."""
    asked = session.asker
    target, sender = (asked.target, asked.sender) if asked else (session.target, session.sender)
    private = target.audience is session.target.audience is Audience.PRIVATE
    return person_notes.Reader(session.bot, policy.name_of(target, sender), private)

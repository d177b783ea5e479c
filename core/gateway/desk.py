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
from tidings.core.desk.approvals import ApprovalDesk
from tidings.core.desk.board import BoardDesk
from tidings.core.desk.health import Health, Moments, Overview, PartHealth
from tidings.core.desk.people import PeopleDesk
from tidings.core.desk.runs import ConversationLine, HistoryLine, Numbered, Remembered, Run
from tidings.core.desk.usage import UsageDesk
from tidings.core.desk.work import ProcessDesk, ScheduleDesk, TaskDesk
from tidings.core.errors import Unknown, Unstored, Unsupported
from tidings.core.gateway.parts import Parts
from tidings.core.memory import history as memory_history
from tidings.core.memory import person_notes, talks
from tidings.core.operations import overview
from tidings.core.outbound import homes, outbox
from tidings.core.outbound.outbox import Class, Owed
from tidings.core.people import audit, names
from tidings.core.roles import Person
from tidings.core.runs import lookup
from tidings.core.store.store import Transaction
from tidings.core.types import Attachment, Audience, Body, Delivery, Entry, File, Origin, Target


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
        if not target.chat or self._parts.people.admits(target):
            return True
        place = self._parts.courier.origin(target)
        known, closed = await self._store.read(
            lambda tx: (
                memory_history.is_known(tx, place),
                memory_history.is_closed(tx, place, self._parts.people),
            )
        )
        return known and not closed

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

    async def set_home(self, by: Person, target: Target) -> None:
        self._check(target, Body())

        def unit(tx: Transaction) -> None:
            homes.choose(tx, target, self._clock.now())
            audit.write(tx, by.id, "home", str(target), self._clock.wall())

        await self._store.write(unit)

    async def delivery(self, id: str) -> Delivery:
        return await self._store.read(lambda tx: outbox.lookup(tx, id))

    @property
    def board(self) -> BoardDesk:
        return self._parts.board

    @property
    def people(self) -> PeopleDesk:
        return self._parts.people_service

    @property
    def approvals(self) -> ApprovalDesk:
        return self._parts.approvals

    @property
    def usage(self) -> UsageDesk:
        return self._parts.usage

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

    async def fetch(self, attachment: Attachment) -> Path:
        target = context.current().target
        adapter = self._parts.accounts.of(target)
        if adapter is None:
            raise Unknown(f"no platform {target.adapter}@{target.account} is configured")
        return await adapter.fetch(attachment)

    async def knows(self, conversation: str) -> bool:
        return await self._store.read(lambda tx: memory_history.knows(tx, conversation))

    async def name_talk(self, run: str, title: str) -> bool:
        return await self._store.write(lambda tx: talks.name(tx, run, title))

    async def remember(self, text: str) -> bool:
        about = _writer(context.current())
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
            strangers=tuple(
                each for each in self._parts.entrance.strangers.all() if not self._parts.people.is_known(each.id)
            ),
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
    """The person whose notes a session may read: for an errand, the person behind it.

    Private notes are only for the private chat where the work was asked for: a schedule may report somewhere else.
    """
    asked, shown = _places(session)
    sender = session.asker.sender if session.asker else session.sender
    is_private = asked.audience is shown.audience is Audience.PRIVATE
    is_same = (asked.at, asked.chat) == (shown.at, shown.chat)
    own = names.name_of(asked, sender)
    # Notes are kept by platform and sender, whatever the account.
    linked = dict.fromkeys(map(names.without_account, session.person.identities))
    others = tuple(each for each in linked if each != own)
    return person_notes.Reader(session.bot, own, is_private and is_same, others)


def _writer(session: Session) -> person_notes.Reader:
    """The person that a session keeps notes about; a note is private if it was asked for or is answered in private."""
    private = any(place.audience is Audience.PRIVATE for place in _places(session))
    return _reader(session)._replace(private=private)


def _places(session: Session) -> tuple[Target, Target]:
    """Where the work of a session was asked for, and where its answer shows."""
    asked = session.asker.target if session.asker else session.target
    # A card has no chat of its own.
    return asked, asked if session.target.adapter == Origin.CARD else session.target

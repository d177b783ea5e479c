"""A platform in memory that keeps its own truth: what was asked of it, what people see, what it has confirmed."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import NamedTuple

from tests.model.life import Life, ModelClock
from tests.worlds import builders
from tidings.core.adapter import Host, Receive, Taken
from tidings.core.errors import Doubtful, Misconfigured, RateLimited, Rejected, Unfit, Unreachable, Unstored, ViewLost
from tidings.core.outbound import splitter
from tidings.core.outbound.outbox import MARK
from tidings.core.types import (
    Absent,
    Attachment,
    Body,
    Capabilities,
    Inbound,
    Note,
    Pace,
    Part,
    PartKind,
    Receipt,
    Signal,
    Target,
    Unreadable,
    View,
)

LIMIT = 160
# A platform that finds a text too long takes a piece of this length at least.
ALWAYS_FITS = 40

# How long an adapter waits for an answer.
CALL_SECONDS = 20.0

OK = "ok"
LIMITED = "limited"
LIMITED_LONG = "limited for long"
LIMITED_UNNAMED = "limited without a time"
REJECTED = "rejected"
UNREACHABLE = "unreachable"
MISCONFIGURED = "misconfigured"
LOST_BEFORE = "connection lost before the effect"
LOST_AFTER = "connection lost after the effect"
STALLS_BEFORE = "stalls before the effect"
STALLS_AFTER = "stalls after the effect"
UNFIT = "unfit"
VERDICTS = (
    OK,
    LIMITED,
    LIMITED_LONG,
    LIMITED_UNNAMED,
    REJECTED,
    UNREACHABLE,
    MISCONFIGURED,
    LOST_BEFORE,
    LOST_AFTER,
    STALLS_BEFORE,
    STALLS_AFTER,
    UNFIT,
)
RETRY_SECONDS = {LIMITED: 7.0, LIMITED_LONG: 90.0}

TRUTH = "truth"
LATE = "not readable yet"
UNREADABLE = "unreadable"
FINDS = (TRUTH, LATE, UNREADABLE, UNREACHABLE, LIMITED)

# How a growing answer is shown.
NONE, EDITS, DRAFTS = "none", "edits", "drafts"


class Ability(NamedTuple):
    keyed_for: float = 0.0
    readback: bool = False
    streaming: str = NONE


class Place(NamedTuple):
    adapter: str
    chat: str
    thread: str


@dataclass
class Post:
    """One message that people saw, also when it was deleted since."""

    id: str
    place: Place
    reply_to: str
    kind: PartKind
    key: str
    order: int
    text: str
    # The delivery whose text it shows for good; empty while it is only a view.
    delivery: str = ""
    edited: bool = False
    deleted: bool = False

    @property
    def marked(self) -> bool:
        return self.text.startswith(MARK.strip())

    @property
    def words(self) -> list[str]:
        return self.text.removeprefix(MARK.strip()).split()


class Call(NamedTuple):
    """One request, as the platform heard it."""

    step: int
    at: float
    act: str
    key: str
    post: str


class Order:
    """Numbers what happens, over all platforms, and knows the step of the model."""

    def __init__(self) -> None:
        self._count = count(1)
        self.step = 0

    def next(self) -> int:
        return next(self._count)


class Ground:
    """The truth of one platform. It outlives every gateway."""

    def __init__(self, name: str, ability: Ability, clock: ModelClock, order: Order) -> None:
        self.name = name
        self.ability = ability
        self.clock = clock
        self.order = order
        self.posts: dict[str, Post] = {}
        self.calls: list[Call] = []
        self.signals: set[Place] = set()
        self.unconfirmed: dict[str, Inbound] = {}
        self.confirmed: list[str] = []
        self.verdicts: deque[str] = deque()
        self.finds: deque[str] = deque()
        self.violations: list[str] = []
        # By delivery: how often nobody could tell, what was refused for good, what was held, what could not be read.
        self.doubts: Counter[str] = Counter()
        self.rejected: set[str] = set()
        self.held: set[str] = set()
        self.unread: set[str] = set()
        # By key, when it was first heard of; by delivery, when it was first in doubt.
        self.heard: dict[str, float] = {}
        self.doubted: dict[str, float] = {}
        self._bodies: dict[str, str] = {}
        self._keys: dict[str, tuple[str, float]] = {}
        self._taken: set[str] = set()
        self._paused: dict[str, float] = {}
        self._late: set[str] = set()
        self._stalled: list[asyncio.Future[None]] = []

    def capabilities(self, target: Target) -> Capabilities:
        return builders.capabilities(
            keyed_for=self.ability.keyed_for,
            readback=self.ability.readback,
            streaming_edits=self.ability.streaming != NONE,
            pace=(
                Pace(key=f"{self.name} chat {target.chat}", seconds=1.0, burst=4),
                Pace(key=f"{self.name}", seconds=0.1, burst=20),
            ),
        )

    def doubt(self, delivery: str) -> None:
        """Nobody at the gateway can tell any more what became of it."""
        self.doubts[delivery] += 1
        self.doubted.setdefault(delivery, self.clock.now())

    def cut_off(self, delivery: str, key: str) -> None:
        """The process ended before it had stored a verdict on this; a pause that came with one is forgotten too."""
        self.doubt(delivery)
        self._paused.pop(key, None)

    def confirm(self, key: str) -> None:
        self.confirmed.append(key)
        self.unconfirmed.pop(key, None)

    @property
    def stalls(self) -> bool:
        return any(not stalled.done() for stalled in self._stalled)

    def release(self) -> None:
        """Whatever stalls goes on."""
        for stalled in self._stalled:
            if not stalled.done():
                stalled.set_result(None)
        self._stalled.clear()

    def forget(self) -> None:
        """The connections of a process end with it."""
        self._stalled.clear()

    def heal(self) -> None:
        self.verdicts.clear()
        self.finds.clear()

    def views(self) -> list[Post]:
        return [post for post in self.posts.values() if not post.delivery and not post.deleted]

    def copies(self, delivery: str) -> list[Post]:
        return [post for post in self.posts.values() if post.delivery == delivery]

    async def send(self, part: Part, life: Life) -> Receipt:
        self._hear(part)
        verdict = self.verdicts.popleft() if self.verdicts else OK
        if verdict == STALLS_BEFORE:
            await self._stall(part, life)
        if len(part.body.text) > self._room(part, verdict):
            raise Unfit("too long")
        self._refuse(part, verdict)
        receipt = self._take(part)
        if verdict == LOST_AFTER:
            self.doubt(delivery_of(part))
            raise Doubtful("the connection was lost")
        if verdict == STALLS_AFTER:
            await self._stall(part, life)
        return receipt

    def show(self, view: View, text: str) -> View:
        if self.ability.streaming == DRAFTS:
            return view
        post = self.posts[view.handle]
        self.calls.append(Call(self.order.step, self.clock.now(), "show", "", post.id))
        if post.deleted:
            raise ViewLost("the message is gone")
        if post.delivery:
            self.violations.append(f"I15: the answer {post.id} was overwritten by what is shown before it")
        post.text = text
        return view

    def find(self, part: Part) -> Receipt | Absent | Unreadable:
        answer = self.finds.popleft() if self.finds else TRUTH
        match answer:
            case "unreadable":
                self.unread.add(delivery_of(part))
                return Unreadable(reason="no permission")
            case "unreachable":
                raise Unreachable("no connection")
            case "limited":
                raise RateLimited(RETRY_SECONDS[LIMITED])
            case "not readable yet" if part.key not in self._late:
                # Once only: a platform that hides its messages for long could not be asked at all.
                self._late.add(part.key)
                return Absent()
        for post in self.posts.values():
            if post.key == part.key and not post.deleted:
                return self._receipt(part, post)
        return Absent()

    def _hear(self, part: Part) -> None:
        now = self.clock.now()
        self.calls.append(Call(self.order.step, now, part.kind, part.key, ""))
        self.heard.setdefault(part.key, now)
        if now < self._paused.get(part.key, 0.0) - 1e-6:
            self.violations.append(f"I18: {part.key} was sent {self._paused[part.key] - now:g} s too early")
        if self._bodies.setdefault(part.key, part.body.text) != part.body.text:
            self.violations.append(f"I24: {part.key} has two bodies")

    def _room(self, part: Part, verdict: str) -> int:
        """What it has taken once it does not find too long later."""
        return ALWAYS_FITS if verdict == UNFIT and part.key not in self._taken else LIMIT

    def _refuse(self, part: Part, verdict: str) -> None:
        match verdict:
            case "limited" | "limited for long":
                self._paused[part.key] = self.clock.now() + RETRY_SECONDS[verdict]
                raise RateLimited(RETRY_SECONDS[verdict])
            case "limited without a time":
                raise RateLimited(None)
            case "rejected":
                self.rejected.add(delivery_of(part))
                raise Rejected("not allowed here")
            case "unreachable":
                raise Unreachable("no connection")
            case "misconfigured":
                self.held.add(delivery_of(part))
                raise Misconfigured("the token was revoked")
            case "connection lost before the effect":
                self.doubt(delivery_of(part))
                raise Doubtful("the connection was lost")

    def _take(self, part: Part) -> Receipt:
        known, at = self._keys.get(part.key, ("", 0.0))
        if known and self.clock.now() - at < self.ability.keyed_for:
            return self._receipt(part, self.posts[known])
        post = self._edit(part) if part.view and part.view.anchored else self._post(part)
        return self._receipt(part, post)

    def _edit(self, part: Part) -> Post:
        assert part.view is not None
        post = self.posts[part.view.handle]
        if post.deleted:
            raise ViewLost("the message is gone")
        if post.place != place_of(part.target):
            self.violations.append(f"I7: {part.key} for {place_of(part.target)} finished a view at {post.place}")
        post.text, post.delivery, post.edited = part.body.text, delivery_of(part), True
        self._taken.add(part.key)
        return post

    def _post(self, part: Part) -> Post:
        order = self.order.next()
        post = Post(
            id=f"{self.name}-{order}",
            place=place_of(part.target),
            reply_to=part.target.reply_to,
            kind=part.kind,
            key=part.key,
            order=order,
            text=part.body.text,
            delivery=delivery_of(part) if part.kind is PartKind.PLAIN else "",
        )
        if self.ability.streaming == DRAFTS and part.kind is PartKind.OPENING:
            # A draft fades by itself: it is no message.
            post.deleted = True
        self.posts[post.id] = post
        self._keys[part.key] = post.id, self.clock.now()
        self._taken.add(part.key)
        return post

    def _receipt(self, part: Part, post: Post) -> Receipt:
        opens = part.kind in (PartKind.OPENING, PartKind.ANCHOR)
        anchored = part.kind is PartKind.ANCHOR or self.ability.streaming == EDITS
        return Receipt(ids=(post.id,), view=View(handle=post.id, anchored=anchored) if opens else None)

    async def _stall(self, part: Part, life: Life) -> None:
        """Every adapter gives up a call in time; a request that could wait for ever could also outlive its key."""
        stalled = life.loop.create_future()
        timer = self.clock.call_later(CALL_SECONDS, stalled.cancel)
        self._stalled.append(stalled)
        try:
            await asyncio.wait({stalled})
        finally:
            timer.cancel()
        life.check()
        if stalled.cancelled():
            self.doubt(delivery_of(part))
            raise Doubtful("no answer in time")


def delivery_of(part: Part) -> str:
    return part.key.partition(".")[0]


def place_of(target: Target) -> Place:
    return Place(target.adapter, target.chat, target.thread)


class GroundAdapter:
    """The adapter of such a platform: it belongs to one life, and does nothing after it."""

    account = "main"

    def __init__(self, ground: Ground, life: Life, host: Host) -> None:
        self.name = ground.name
        self.ground = ground
        self._life = life
        self._clock = host.clock
        self._receive: Receive | None = None
        self._gone: asyncio.Future[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def can(self, target: Target) -> Capabilities:
        return self.ground.capabilities(target)

    def compose(self, target: Target, body: Body) -> tuple[Body, ...]:
        return tuple(Body(text=text) for text in splitter.split(body.text, LIMIT))

    async def listen(self, receive: Receive) -> None:
        self._life.check()
        self._receive = receive
        self._gone = self._life.loop.create_future()
        try:
            # The platform keeps what was never confirmed, and brings it again in its order.
            for inbound in list(self.ground.unconfirmed.values()):
                self.arrives(inbound)
            await self._gone
        finally:
            self._receive = None
            for task in self._tasks:
                task.cancel()

    def disconnect(self) -> None:
        if self._gone is not None and not self._gone.done():
            self._gone.set_exception(Unreachable("the connection was closed"))

    def arrives(self, inbound: Inbound) -> None:
        if self._receive is not None:
            task = self._life.loop.create_task(self.take(inbound, self._receive))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def take(self, inbound: Inbound, receive: Receive) -> None:
        while True:
            try:
                await receive(inbound, Note(name="cursor", value=inbound.key))
            except Unstored:
                await self._clock.sleep(1.0)
                continue
            self.confirm(inbound)
            return

    def confirm(self, inbound: Inbound) -> None:
        self._life.check()
        self.ground.confirm(inbound.key)

    async def send(self, part: Part) -> Receipt:
        self._life.check()
        return await self.ground.send(part, self._life)

    async def show(self, view: View, text: str) -> View:
        self._life.check()
        return self.ground.show(view, text)

    async def find(self, part: Part, is_taken: Taken) -> Receipt | Absent | Unreadable:
        self._life.check()
        return self.ground.find(part)

    async def signal(self, target: Target, signal: Signal) -> None:
        self._life.check()
        self.ground.signals.add(place_of(target))

    async def fetch(self, attachment: Attachment) -> Path:
        raise NotImplementedError

    async def close(self) -> None:
        return None


Build = Callable[[Host], GroundAdapter]


def all_posts(grounds: dict[str, Ground]) -> Iterator[Post]:
    for ground in grounds.values():
        yield from ground.posts.values()

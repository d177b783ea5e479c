"""Shows on each message how it stands while its person waits: seen, waiting for its turn, at work; and how it ended."""

from __future__ import annotations

import heapq
import itertools
import logging
import math
from collections.abc import Sequence

import msgspec

from tidings.core import ids
from tidings.core.background import Background
from tidings.core.clock import Timer
from tidings.core.errors import Unstored
from tidings.core.inbound import inbox
from tidings.core.inbound.abilities import Can
from tidings.core.inbound.inbox import Claim
from tidings.core.outbound import outbox, signed_messages
from tidings.core.outbound.outbox import Class, Owed
from tidings.core.outbound.views import Views
from tidings.core.part import Part
from tidings.core.store import wakeups
from tidings.core.store.essentials import Essentials
from tidings.core.store.store import Row, Transaction
from tidings.core.types import Body, Capabilities, Inbound, Origin, Signal

log = logging.getLogger(__name__)

# A message that waits shows that it was seen, but not while it only waits for more of its sender.
SEEN_SECONDS = 1.4
# A run shows so sooner; an answer that is ready by then needs no sign.
BEGUN_SECONDS = 0.5
# A timer may be late or early by so much.
MARGIN_SECONDS = 0.1
# A message that has waited for so long shows that it waits.
WAITING_SECONDS = 5.0
# A run that lasts for so long shows that it works; sooner if its message was shown as waiting.
WORKING_SECONDS = 2.0
WORKING_SOON_SECONDS = 0.5
# When a person is told in words that their message waits: where there are reactions, and where there are none.
WORDS_SECONDS = 60.0
ONLY_WORDS_SECONDS = 20.0
# People are told so at most this often in one conversation.
WORDS_EVERY_SECONDS = 60.0
# A message that waited before the start shows so only if its run does not begin at once.
SOON_SECONDS = 1.0
# More messages than this are not followed; they show no sign until their run begins.
MOST = 20_000
# Rows that are read in one transaction, and at most in one sweep.
PAGE = 100
SWEPT = 500

BUSY_HERE = "I'm still busy with an earlier message."
# How many are ahead elsewhere is not known, so no place is named.
BUSY_ELSEWHERE = "I'm busy with other conversations right now. I'll answer you as soon as I can."
NEXT = "Yours is next."
IN_LINE = "Yours is number {place} in line."


def may_stand(claimed: Claim, now: float) -> bool:
    """Tells whether a message may carry a sign, shown by this process or by one that died."""
    if claimed.inbound.overheard:
        return False
    worked = now - claimed.began if claimed.began else 0.0
    return (
        claimed.attempt > 1
        or now - claimed.accepted >= SEEN_SECONDS - MARGIN_SECONDS
        or worked >= BEGUN_SECONDS - MARGIN_SECONDS
    )


class _Sign:
    """What one message has still to show; without a step left, it only waits for the end of its run."""

    __slots__ = ("accepted", "conversation", "reacts", "run", "steps", "target", "words")

    def __init__(self, run: str, message: Inbound, accepted: float, can: Capabilities) -> None:
        self.run = run
        self.conversation = message.conversation.id
        self.target = message.target
        self.accepted = accepted
        self.reacts = can.reactions and bool(message.target.reply_to)
        # Seconds until words; machines are not told.
        is_told = can.async_delivery and not message.sender.is_bot and not message.attended
        self.words = (WORDS_SECONDS if self.reacts else ONLY_WORDS_SECONDS) if is_told else math.inf
        # When each step is due; None stands for words.
        self.steps: list[tuple[float, Signal | None]] = []

    @property
    def has_any(self) -> bool:
        return self.reacts or self.words < math.inf

    def wait(self) -> None:
        """Plans what is shown while a new message waits."""
        if self.reacts:
            self.steps.append((self.accepted + SEEN_SECONDS, Signal.SEEN))
        self.go_on_waiting(0.0)

    def go_on_waiting(self, soonest: float) -> None:
        """Plans what is shown while a message waits that may have been marked as seen."""
        if self.reacts:
            self.steps.append((max(self.accepted + WAITING_SECONDS, soonest), Signal.WAITING))
        if self.words < math.inf:
            self.steps.append((max(self.accepted + self.words, soonest), None))

    def work(self, now: float) -> None:
        """Plans what is shown once the run is at work."""
        waited = now - self.accepted
        soon = waited >= WAITING_SECONDS
        self.steps.clear()
        if waited < SEEN_SECONDS:
            self.steps.append((min(self.accepted + SEEN_SECONDS, now + BEGUN_SECONDS), Signal.SEEN))
        self.steps.append((now + (WORKING_SOON_SECONDS if soon else WORKING_SECONDS), Signal.WORKING))

    @property
    def is_at_work(self) -> bool:
        return bool(self.steps) and self.steps[-1][1] is Signal.WORKING


class Signs(Part):
    """Follows messages from the moment they are stored until their run shows that it works, or ends."""

    def __init__(self, essentials: Essentials, can: Can, views: Views) -> None:
        self._store = store = essentials.store
        self._clock = essentials.clock
        self._can = can
        self._views = views
        self._signs: dict[str, _Sign] = {}
        # The number of the last waiting row that was looked at.
        self._looked = 0
        self._by_conversation: dict[str, dict[str, _Sign]] = {}
        # When each sign is due next, with a number that keeps the order; one timer serves them all.
        self._due: list[tuple[float, int, _Sign]] = []
        self._numbers = itertools.count()
        self._timer: Timer | None = None
        self._rings_at = math.inf
        self._checks = Background(log, "a sign could not be shown")
        self._stopped = True
        store.wakeups.subscribe(wakeups.MessageStored, self._stored)
        store.wakeups.subscribe(wakeups.RunBegan, self._began)
        store.wakeups.subscribe(wakeups.RunEnded, self._ended)

    async def start(self) -> None:
        self._stopped = False
        for ended in await self._store.insist(signed_messages.newest_ends):
            if (can := self._can(ended.target)) is not None and can.reactions:
                self._views.end(ended.run, ended.target, ended.sign)
        await self._find_waiting()

    async def sweep(self) -> None:
        """Finds waiting messages whose wake-up was missed, and forgets those that wait no longer."""
        await self._find_waiting()
        idle = itertools.islice((sign for sign in self._signs.values() if not sign.steps), SWEPT)
        await self._look_at(list(idle))

    def pause(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    async def stop(self, patience: float) -> None:
        self.pause()
        await self._checks.close()

    # What happens to messages.

    def _stored(self, stored: wakeups.MessageStored) -> None:
        if (sign := self._follow(stored.run, stored.message, stored.accepted)) is not None:
            sign.wait()
            self._plan(sign)

    def _began(self, began: wakeups.RunBegan) -> None:
        sign = self._signs.get(began.run) or self._follow(began.run, began.message, began.accepted, at_work=True)
        if sign is not None:
            self._work(sign)
        self._look_again(began.message.conversation.id, besides=began.run)

    def _ended(self, ended: wakeups.RunEnded) -> None:
        self._forget(ended.run)
        if ended.sign is not None and not self._stopped:
            for target in ended.targets:
                self._views.signal(target, ended.sign)
        self._look_again(ended.conversation)

    def _follow(self, run: str, message: Inbound, accepted: float, *, at_work: bool = False) -> _Sign | None:
        if self._stopped or run in self._signs or len(self._signs) >= MOST:
            return None
        if message.errand is not None or message.overheard or message.origin is not Origin.PERSON:
            return None
        can = self._can(message.target)
        # Words are only for messages that wait.
        if can is None or (at_work and not can.reactions):
            return None
        sign = _Sign(run, message, accepted, can)
        if not sign.has_any:
            return None
        self._signs[run] = sign
        self._by_conversation.setdefault(sign.conversation, {})[run] = sign
        return sign

    def _forget(self, run: str) -> None:
        sign = self._signs.pop(run, None)
        if sign is None:
            return
        # An entry that is due later finds no step left.
        sign.steps.clear()
        here = self._by_conversation[sign.conversation]
        del here[run]
        if not here:
            del self._by_conversation[sign.conversation]

    def _work(self, sign: _Sign) -> None:
        if not sign.reacts:
            self._forget(sign.run)
            return
        sign.work(self._clock.now())
        self._plan(sign)

    # When something is due.

    def _plan(self, sign: _Sign) -> None:
        if self._stopped or not sign.steps:
            return
        due = sign.steps[0][0]
        heapq.heappush(self._due, (due, next(self._numbers), sign))
        self._set_timer(due)

    def _set_timer(self, due: float) -> None:
        if due >= self._rings_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._rings_at = due
        self._timer = self._clock.call_later(max(due - self._clock.now(), 0.0), self._ring)

    def _ring(self) -> None:
        """Shows what is due; what holds only for a message that still waits is looked up in the store first."""
        now, self._rings_at, self._timer = self._clock.now(), math.inf, None
        unsure: list[_Sign] = []
        while self._due and self._due[0][0] <= now:
            due, _, sign = heapq.heappop(self._due)
            # An entry from before a change of plan has no step of its own any more.
            if not sign.steps or sign.steps[0][0] != due:
                continue
            if sign.steps[0][1] in (Signal.SEEN, Signal.WORKING):
                self._show(sign)
            else:
                unsure.append(sign)
        if unsure:
            self._checks.begin(self._look_at(unsure, due=now))
        if self._due and not self._stopped:
            self._set_timer(self._due[0][0])

    def _show(self, sign: _Sign) -> None:
        _, signal = sign.steps.pop(0)
        if signal is not None:
            self._views.signal(sign.target, signal)
        if signal is Signal.WORKING:
            self._forget(sign.run)
        else:
            self._plan(sign)

    def _look_again(self, conversation: str, besides: str = "") -> None:
        """Looks at the other messages of a conversation: they may have joined the run that began or ended."""
        others = [sign for sign in self._by_conversation.get(conversation, {}).values() if sign.run != besides]
        if others and not self._stopped:
            self._checks.begin(self._look_at(others))

    async def _look_at(self, signs: Sequence[_Sign], due: float = -math.inf) -> None:
        """Reads how messages stand: those that wait show what is due, those whose run began show that it works."""
        for start in range(0, len(signs), PAGE):
            page = signs[start : start + PAGE]
            states = await self._store.insist(lambda tx, page=page: [_state(tx, each.run) for each in page])  # type: ignore[misc]
            for sign, state in zip(page, states, strict=True):
                if self._signs.get(sign.run) is not sign:
                    continue
                if state == "waiting":
                    await self._pass_time(sign, due)
                elif state != "running":
                    self._forget(sign.run)
                elif not sign.is_at_work:
                    self._work(sign)

    async def _pass_time(self, sign: _Sign, due: float) -> None:
        if not sign.steps or sign.steps[0][0] > due:
            return
        # The run of the message may have begun while the store was read.
        if sign.steps[0][1] is Signal.WAITING:
            self._show(sign)
        elif sign.steps[0][1] is None:
            self._show(sign)
            await self._tell(sign)

    async def _tell(self, sign: _Sign) -> None:
        try:
            await self._store.write(lambda tx: _tell(tx, sign, self._clock.now()))
        except Unstored as error:
            log.warning("that %s waits could not be told: %s", sign.run, error)

    # After a restart.

    async def _find_waiting(self) -> None:
        """Follows waiting messages that are not followed yet: some at the start, and the others with each sweep."""
        for row in await self._store.insist(lambda tx: _waiting(tx, self._looked, SWEPT)):
            self._looked = row["seq"]
            if row["run"] in self._signs:
                continue
            message = msgspec.json.decode(row["message"], type=Inbound)
            if (sign := self._follow(row["run"], message, row["accepted"])) is not None:
                sign.go_on_waiting(self._clock.now() + SOON_SECONDS)
                self._plan(sign)


def _waiting(tx: Transaction, after: int, limit: int) -> list[Row]:
    return tx.all(
        # The sign keeps the database from going through all rows after this one instead of those that wait.
        "SELECT seq, run, accepted, message FROM inbox WHERE state = 'waiting' AND +seq > ? ORDER BY +seq LIMIT ?",
        *(after, limit),
    )


def _state(tx: Transaction, run: str) -> str:
    """How the run of a message stands: its own, or the one that it joined."""
    row = tx.one(
        "SELECT state, (SELECT l.state FROM inbox l WHERE l.run = m.joined) AS lead FROM inbox m WHERE run = ?", run
    )
    return "" if row is None else str(row["lead"] or row["state"])


def _tell(tx: Transaction, sign: _Sign, now: float) -> None:
    """Tells a person that their message waits, unless its run has begun or people are asked something there."""
    row = tx.one("SELECT said, seq FROM inbox WHERE run = ? AND state = 'waiting'", sign.run)
    if row is None or inbox.question_of(tx, sign.conversation):
        return
    text = BUSY_ELSEWHERE
    if inbox.live_run(tx, sign.conversation) is not None:
        ahead = tx.one(
            "SELECT count(*) AS n FROM inbox WHERE conversation = ? AND state = 'waiting' AND (said, seq) < (?, ?)",
            *(sign.conversation, row["said"], row["seq"]),
        )
        place = 1 + (ahead["n"] if ahead else 0)
        text = f"{BUSY_HERE} {NEXT if place == 1 else IN_LINE.format(place=place)}"
    cause = f"waiting in {sign.conversation}"
    notice = Owed(ids.new("dlv"), Class.NOTICE, sign.target, Body(text=text), None, cause)
    outbox.put_notice(tx, notice, now, every=WORDS_EVERY_SECONDS)

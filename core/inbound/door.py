"""The door, the only entrance for messages: checks access, obeys control commands and stores messages."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from tidings.core import ids
from tidings.core.adapter import Receive
from tidings.core.errors import Conflict, NotPermitted, Unknown, Unstored
from tidings.core.failpoints import fail_here
from tidings.core.inbound import answer, inbox, joining, members, policy, questions
from tidings.core.inbound.albums import EarlyParts
from tidings.core.inbound.approvals import Endings
from tidings.core.inbound.attention import Attention, Heard
from tidings.core.inbound.bot_exchanges import BotExchanges
from tidings.core.inbound.busy_modes import BusyModes
from tidings.core.inbound.commands import Command, Commands, Handler, Obeyed
from tidings.core.inbound.continuing import Continuing
from tidings.core.inbound.dispatcher import Dispatcher
from tidings.core.inbound.inbox import Claim
from tidings.core.inbound.pairing import PREFIX, Pairing
from tidings.core.inbound.policy import Judgement
from tidings.core.inbound.queue_limit import QueueLimit
from tidings.core.inbound.slots import Slot
from tidings.core.inbound.strangers import Strangers
from tidings.core.outbound import outbox
from tidings.core.outbound.courier import Courier
from tidings.core.outbound.outbox import Class, Owed
from tidings.core.people.people import People
from tidings.core.roles import Person
from tidings.core.runs import journal
from tidings.core.settings import Groups, Limits
from tidings.core.store import adapter_state
from tidings.core.store.essentials import Essentials
from tidings.core.store.store import Step, Transaction
from tidings.core.types import (
    Admission,
    Body,
    Duplicate,
    Ignored,
    Inbound,
    Kind,
    Note,
    Refusal,
    Refused,
    Stored,
    Target,
    make_storable,
)

log = logging.getLogger(__name__)

BUSY = "Too many messages are waiting here, so I did not accept this one. Please send it again later."
TOO_LONG = "This message is too long for me, so I did not accept it."
BROKEN = "⚠ /{name} failed, and nothing was changed. The reason is in the gateway's log."
QUESTION_CLOSED = "This question is no longer open."
MAY_BE_LOST = "An earlier answer to this chat may not have arrived. If you miss one, please ask again."
# People are told about a full queue at most this often.
BUSY_SECONDS = 60.0
# NUL as escaped in JSON.
NUL = b"\\u0000"


class _Taken(NamedTuple):
    admission: Admission
    # The run that the transaction claimed, to be started after the commit.
    claimed: Claim | None = None


class Entrance(NamedTuple):
    """Who may come in, what becomes of strangers, and to which conversation a message belongs."""

    people: People
    pairing: Pairing
    strangers: Strangers
    groups: Groups
    continuing: Continuing
    busy: BusyModes
    attention: Attention
    bot_exchanges: BotExchanges


class Door:
    def __init__(
        self,
        essentials: Essentials,
        entrance: Entrance,
        commands: Commands,
        dispatcher: Dispatcher,
        courier: Courier,
        endings: Endings,
    ) -> None:
        self._store = essentials.store
        self._clock = essentials.clock
        self._limits = essentials.limits
        self._metrics = essentials.metrics
        self._people = entrance.people
        self._pairing = entrance.pairing
        self._strangers = entrance.strangers
        self._groups = entrance.groups
        self._continuing = entrance.continuing
        self._busy = entrance.busy
        self._attention = entrance.attention
        self._bot_exchanges = entrance.bot_exchanges
        self._commands = commands
        self._dispatcher = dispatcher
        self._courier = courier
        self._settlement = endings.settlement
        self._asking = endings.asking
        self._approvals = endings.approvals
        self._affording = endings.affording
        self._early = EarlyParts()
        self._queue = QueueLimit()

    def renew(self, limits: Limits, groups: Groups) -> None:
        self._limits = limits
        self._groups = groups
        self._bot_exchanges.renew(groups.bot_exchanges)

    def wants(self, inbound: Inbound) -> bool:
        """Tells whether a message would be taken, from memory alone."""
        return self._judge(self._hear(inbound)) is not Judgement.IGNORE

    def _hear(self, inbound: Inbound) -> Heard:
        return self._attention.hear(self._courier.at_home(inbound))

    def _judge(self, heard: Heard, person: Person | None = None) -> Judgement:
        known = person or self._people.find(heard.inbound)
        return policy.judge(heard.inbound, known.role, is_listening=heard.is_listening)

    def receive_for(self, adapter: str, account: str) -> Receive:
        """The door for one adapter, with that adapter's notebook."""

        async def receive(inbound: Inbound, note: Note | None = None) -> Admission:
            write_note = adapter_state.writer(adapter, account, note)
            return await self._receive(inbound, write_note)

        return receive

    async def _receive(self, inbound: Inbound, write_note: Callable[[Transaction], None] | None) -> Admission:
        """Queues the row without awaiting anything first, so that messages keep the order of the calls."""
        fail_here("in.received")
        self._metrics.inbound[inbound.target.adapter] += 1
        self._metrics.heard_at[f"{inbound.target.adapter}@{inbound.target.account}"] = self._clock.wall()
        heard = self._hear(_storable(inbound))
        inbound = members.assign(heard.inbound, self._groups.memory)
        person = self._people.find(inbound)
        judgement = self._judge(heard, person)
        if judgement is Judgement.TELL:
            self._strangers.remember(inbound, self._clock.wall())
        is_silent = self._people.strangers == "ignore" and not self._is_open(inbound)
        if judgement is Judgement.IGNORE or (judgement is Judgement.TELL and is_silent):
            if write_note:
                await self._store.write(write_note)
            return Ignored()
        may_run = inbound.kind in (Kind.MESSAGE, Kind.COMMANDED, Kind.PRESSED)
        # A message that waits for more of its sender is not run at once.
        may_begin = may_run and not self._busy.burst_of(inbound)
        slot = self._dispatcher.reserve(inbound, person) if may_begin else None

        def unit(tx: Transaction) -> _Taken:
            if write_note:
                write_note(tx)
            if judgement is Judgement.TELL:
                return self._meet_stranger(tx, inbound)
            # A hand-over that was stored just before counts already.
            followed = self._continuing.follow(tx, inbound)
            if judgement is Judgement.JOIN and not joining.continues_album(tx, followed):
                self._early.keep(followed, self._clock.now())
                return _Taken(Ignored())
            return self._take(tx, followed, slot is not None)

        fail_here("in.pre_commit")
        stored = self._store.write(unit)
        # The caller may be cancelled meanwhile; a stored message is run all the same.
        stored.add_done_callback(lambda done: self._follow_up(slot, done))
        taken = await asyncio.shield(stored)
        return taken.admission

    def _follow_up(self, slot: Slot | None, stored: asyncio.Future[_Taken]) -> None:
        taken = None if stored.cancelled() or stored.exception() else stored.result()
        if slot and (taken is None or taken.claimed is None):
            slot.give_back()
        if taken is None:
            return
        fail_here("in.post_commit")
        if slot and taken.claimed:
            self._dispatcher.begin(taken.claimed, slot)

    def _take(self, tx: Transaction, inbound: Inbound, reserved: bool) -> _Taken:
        known = inbox.find(tx, inbound)
        if known is not None:
            fail_here("in.dup")
            if inbound.digest and known.digest and inbound.digest != known.digest:
                return _Taken(Refused(reason=Refusal.CONFLICT))
            return _Taken(Duplicate(run=known.run))
        if not self._bot_exchanges.admits(tx, inbound):
            return _Taken(Ignored())
        if len(inbound.text) > self._limits.message_characters and inbound.kind in (Kind.MESSAGE, Kind.COMMANDED):
            short = msgspec.structs.replace(inbound, text=inbound.text[:1000])
            return self._refuse(tx, short, Refusal.TOO_LONG, TOO_LONG)
        command = self._command_of(inbound)
        if command is not None and (refusal := self._commands.refusal(command, inbound)):
            return self._obey(tx, inbound, command.name, lambda tx, inbound: Obeyed(refusal), reserved)
        if command is not None and command.handler is not None:
            return self._obey(tx, inbound, command.name, command.handler, reserved)
        if inbound.kind is Kind.PRESSED:
            return self._press(tx, inbound, reserved)
        if inbound.kind in (Kind.EDITED, Kind.DELETED):
            return self._amend(tx, inbound)
        return self._store_message(tx, msgspec.structs.replace(inbound, kind=Kind.MESSAGE), reserved)

    def _command_of(self, inbound: Inbound) -> Command | None:
        """The command that the sender gives; a forwarded one is somebody else's text."""
        if inbound.kind is not Kind.COMMANDED or inbound.forwarded:
            return None
        return self._commands.get(inbound.command)

    def _is_open(self, inbound: Inbound) -> bool:
        """Tells whether this is a command that strangers may use, too."""
        command = self._command_of(inbound)
        return command is not None and command.for_strangers

    def _store_message(self, tx: Transaction, inbound: Inbound, reserved: bool, afforded: bool = False) -> _Taken:
        now, run, conversation = self._clock.now(), ids.new("run"), inbound.conversation.id
        if self._is_full(tx, inbound) and joining.album_leader(tx, inbound) is None:
            return self._refuse(tx, inbound, Refusal.BUSY, BUSY)
        if inbound.busy and inbound.about and inbox.live_run(tx, conversation) != inbound.about:
            return _Taken(Refused(reason=Refusal.ENDED))
        if not afforded and (refused := self._affording.refuse(tx, inbound)):
            return _Taken(refused)
        if self._may_push(inbound.target):
            notice = Owed(ids.new("dlv"), Class.NOTICE, inbound.target, Body(text=MAY_BE_LOST), None, "lost")
            outbox.tell_losses(tx, self._courier.lanes(inbound.target), notice, now)
        became = inbox.put(tx, inbound, run, now, self._busy.burst_of(inbound))
        for part in self._early.of(inbound, now) if inbound.group else ():
            if inbox.find(tx, part) is None:
                inbox.put(tx, part, ids.new("run"), now)
        claimed = self._dispatcher.claim(tx, conversation) if reserved else None
        if became == run and (claimed is None or claimed.run != run):
            inbox.announce_waiting(tx, inbound, run, now)
        if claimed is None:
            if became == run:
                self._busy.let_wait(tx, run, inbound)
            inbox.announce_next(tx, conversation)
            self._asking.tell_waiting(tx, inbound)
        return _Taken(Stored(run=became), claimed)

    def _is_full(self, tx: Transaction, inbound: Inbound) -> bool:
        waiting, newest = inbox.measure_queue(tx, inbound.conversation.id)
        if waiting >= self._limits.queued_per_conversation:
            return True
        return self._queue.is_full(tx, self._limits, newest, self._people.find(inbound))

    def _refuse(self, tx: Transaction, inbound: Inbound, reason: Refusal, words: str) -> _Taken:
        """Refuses a message and tells the sender; the stored row only identifies a repetition."""
        now = self._clock.now()
        # A client that gave its own key and gets an answer right now may repeat the request with that key.
        if not inbound.digest:
            inbox.put_closed(tx, inbound, ids.new("run"), now, f"refused: {reason}")
        # Nobody waits for an answer to what was only overheard.
        if self._may_push(inbound.target) and not inbound.overheard:
            # The cause names the sender, so that each member of a group is told.
            cause = f"{reason} {inbound.sender.id}"
            notice = Owed(ids.new("dlv"), Class.NOTICE, inbound.target, Body(text=words), None, cause)
            outbox.put_notice(tx, notice, now, every=BUSY_SECONDS)
        log.warning("refused a message in %s: %s", inbound.conversation.id, reason)
        return _Taken(Refused(reason=reason))

    def _obey(self, tx: Transaction, inbound: Inbound, name: str, handler: Handler, reserved: bool) -> _Taken:
        """Stores a command with its reply in one transaction, so that it is obeyed exactly once."""
        run, now = ids.new("run"), self._clock.now()
        with tx.step() as obeying:
            obeyed = _asked(tx, obeying, inbound, name, handler)
            full = obeyed.again is not None and self._is_full(tx, obeyed.again)
            over = self._affording.over(tx, obeyed.again) if obeyed.again is not None and not full else None
            if full or over:
                # The command is refused as a whole, so that it can be repeated later.
                obeying.undo()
        if full:
            return self._refuse(tx, inbound, Refusal.BUSY, BUSY)
        if over:
            return _Taken(self._affording.turn_away(tx, inbound, over))
        inbox.put_closed(tx, inbound, run, now, f"obeyed: /{name}")
        if obeyed.reply and self._may_push(inbound.target):
            outbox.put(tx, Owed(ids.new("dlv"), Class.REPLY, inbound.target, Body(text=obeyed.reply), run), now)
        if obeyed.again is not None:
            return self._store_message(tx, obeyed.again, reserved, afforded=True)
        return _Taken(Stored(run=run))

    def _press(self, tx: Transaction, press: Inbound, reserved: bool) -> _Taken:
        """Turns the first press of an answer's button into a message; an unknown button gets a notice."""
        if press.choice.startswith(PREFIX):
            return self._answer_request(tx, press)
        if press.choice.startswith(questions.PREFIX):
            return self._answer_question(tx, press)
        asking, number = answer.asked_by(press.choice)
        offered = journal.outcome(tx, asking)
        question = inbox.find_message(tx, asking)
        if question is None or not _is_asked_here(question, press) or offered is None or number >= len(offered.choices):
            run, now = ids.new("run"), self._clock.now()
            inbox.put_closed(tx, press, run, now, press.kind)
            if self._may_push(press.target):
                body = Body(text=QUESTION_CLOSED)
                outbox.put_notice(tx, Owed(ids.new("dlv"), Class.NOTICE, press.target, body, None, press.key), now)
            return _Taken(Stored(run=run))
        # The key and the conversation belong to the question, so a second press finds it answered.
        said = msgspec.structs.replace(
            press,
            kind=Kind.MESSAGE,
            key=f"answer to {asking}",
            conversation=question.conversation,
            began=question.began,
            place=question.place,
            text=offered.choices[number],
        )
        known = inbox.find(tx, said)
        if known is None and self._is_full(tx, said):
            # Only the press is refused: the question may be answered later.
            return self._refuse(tx, press, Refusal.BUSY, BUSY)
        if known is None and (refused := self._affording.refuse(tx, said, press)):
            return _Taken(refused)
        inbox.put_closed(tx, press, ids.new("run"), self._clock.now(), press.kind)
        return _Taken(Duplicate(run=known.run)) if known else self._store_message(tx, said, reserved, afforded=True)

    def _answer_request(self, tx: Transaction, press: Inbound) -> _Taken:
        """Passes a press on a stranger's request to pairing; people who may not answer it are told so alone."""
        answered = self._pairing.press(tx, press)
        if answered.refused:
            return _Taken(Refused(reason=Refusal.NOT_PERMITTED))
        run, now = ids.new("run"), self._clock.now()
        inbox.put_closed(tx, press, run, now, press.kind)
        if self._may_push(press.target):
            body = Body(text=answered.words)
            outbox.put(tx, Owed(ids.new("dlv"), Class.REPLY, press.target, body, run), now)
        return _Taken(Stored(run=run))

    def _answer_question(self, tx: Transaction, press: Inbound) -> _Taken:
        """Passes a press on a question about a tool call to approvals; people who may not answer are told so alone."""
        words = ""
        try:
            self._approvals.press(tx, press)
        except NotPermitted:
            return _Taken(Refused(reason=Refusal.NOT_PERMITTED))
        except Unknown:
            words = QUESTION_CLOSED
        except Conflict as error:
            words = str(error)
        run, now = ids.new("run"), self._clock.now()
        inbox.put_closed(tx, press, run, now, press.kind)
        # The message of an answered question says how it ended, so only a late press gets a reply.
        if words and self._may_push(press.target):
            outbox.put(tx, Owed(ids.new("dlv"), Class.REPLY, press.target, Body(text=words), run), now)
        return _Taken(Stored(run=run))

    def _amend(self, tx: Transaction, change: Inbound) -> _Taken:
        """An edit corrects a waiting message and a deletion cancels it; neither becomes a run."""
        run, now = ids.new("run"), self._clock.now()
        self._pairing.amend(tx, change)
        if not change.sender.id and inbox.find_about(tx, change) is None:
            # A platform tells of every deletion, also of messages that were never taken.
            return _Taken(Ignored())
        inbox.put_closed(tx, change, run, now, change.kind)
        short = msgspec.structs.replace(change, text=change.text[: self._limits.message_characters])
        deleted = inbox.amend(tx, short)
        if deleted:
            self._settlement.cancel(tx, deleted["run"], "the message was deleted", remembered=False)
        return _Taken(Stored(run=run))

    def _meet_stranger(self, tx: Transaction, inbound: Inbound) -> _Taken:
        """Tells a stranger how to be admitted, seldom; a command that strangers may use decides by itself."""
        if inbound.kind in (Kind.EDITED, Kind.DELETED):
            self._pairing.amend(tx, inbound)
            return _Taken(Ignored())
        command = self._command_of(inbound) if inbound.argument and self._pairing.may_try(tx, inbound) else None
        if command is not None and command.for_strangers and command.handler is not None:
            if (known := inbox.find(tx, inbound)) is not None:
                return _Taken(Duplicate(run=known.run))
            return self._obey(tx, inbound, command.name, command.handler, False)
        may_tell = self._may_push(inbound.target) and self._people.strangers != "ignore"
        kept = msgspec.structs.replace(inbound, text=inbound.text[: self._limits.message_characters])
        told = may_tell and self._pairing.greet(tx, kept)
        return _Taken(Refused(reason=Refusal.NOT_ADMITTED, told=told))

    def _may_push(self, target: Target) -> bool:
        return self._settlement.may_push(target)


def _is_asked_here(question: Inbound, press: Inbound) -> bool:
    """Tells whether a button's question stands in this chat; in a continued talk, only while the talk goes on here."""
    if members.place_of(question) != members.place_of(press):
        return False
    return question.began is None or question.conversation == press.conversation


def _asked(tx: Transaction, obeying: Step, inbound: Inbound, name: str, handler: Handler) -> Obeyed:
    """Turns any exception of a handler into a reply; otherwise the platform would repeat the message for ever."""
    try:
        return handler(tx, inbound)
    except Unstored:
        # The store cannot write now; the command may succeed later.
        raise
    except BaseException as error:
        log.error("/%s failed: %r", name, error, exc_info=error)
        obeying.undo()
        return Obeyed(BROKEN.format(name=name))


def _storable(inbound: Inbound) -> Inbound:
    """Removes lone surrogates and NUL from a message, because the store does not accept them."""
    try:
        storable = NUL not in msgspec.json.encode(inbound)
    except UnicodeEncodeError:
        storable = False
    return inbound if storable else msgspec.convert(_scrub(msgspec.to_builtins(inbound)), Inbound)


def _scrub(value: object) -> object:
    match value:
        case str():
            return make_storable(value)
        case dict():
            return {name: _scrub(each) for name, each in value.items()}
        case list() | tuple():
            return [_scrub(each) for each in value]
        case _:
            return value

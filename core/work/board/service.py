"""What one can ask of the board: each verb one transaction, with what it brings about elsewhere hurried after it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tidings.core import context
from tidings.core.context import Session
from tidings.core.desk.board import BY_WORKER, Block, Board, Card, CardFile, CardState, Ending, Hand, NewCard, Order
from tidings.core.errors import Unkeepable, Unknown, Unsupported
from tidings.core.inbound import policy
from tidings.core.inbound.commands import Command, Obeyed
from tidings.core.inbound.dispatcher import Bots, Dispatcher
from tidings.core.inbound.settlement import After, Can
from tidings.core.redaction import plain
from tidings.core.runs import journal
from tidings.core.settings import Board as Settings
from tidings.core.store.store import Store, Transaction
from tidings.core.types import Audience, Inbound, Target
from tidings.core.work.board import cards as card_rows
from tidings.core.work.board import orders, verdicts
from tidings.core.work.board import rules as board_rules
from tidings.core.work.board import supervisor as foreman
from tidings.core.work.board.cards import Moment
from tidings.core.work.board.orders import Done
from tidings.core.work.board.permits import Permits
from tidings.core.work.board.rules import Added, Hold
from tidings.core.work.board.supervisor import Foreman

LISTED = 200
NAME_CHARACTERS = 60
# Nobody's name has an id in it that is not theirs.
BRACKETS = str.maketrans("", "", "()")


class Clerk:
    def __init__(
        self,
        store: Store,
        settings: Settings,
        dispatcher: Dispatcher,
        can: Can,
        foreman: Foreman,
        bots: Bots,
    ) -> None:
        self._store = store
        self._settings = settings
        self._dispatcher = dispatcher
        self._can = can
        self._foreman = foreman
        self._permits = Permits(settings, bots)
        self._orders = orders.Orders(self._add, self._may_tell, self._permits)
        self.renew(bots)

    def renew(self, bots: Bots) -> None:
        self._bots = bots
        self._permits.renew(bots)

    def commands(self) -> tuple[Command, ...]:
        return (Command("board", "cards that agents work on: add, show, comment, unblock, …", self._obey_in_chat),)

    async def add(self, new: NewCard, hand: Hand) -> Card:
        def unit(tx: Transaction, at: Moment) -> Done:
            added = self._add(tx, new, hand, at)
            return Done(str(added.card["id"]), after=added.after)

        return await self._write(unit)

    async def get(self, id: str) -> Card:
        return await self._store.read(lambda tx: card_rows.card(tx, id, self._foreman.moment.ahead))

    async def all(self, states: tuple[CardState, ...], limit: int, *, assignee: str = "") -> Board:
        ahead = self._foreman.moment.ahead
        return await self._store.read(lambda tx: card_rows.board(tx, states, min(limit, LISTED), assignee, ahead))

    async def link(self, parent: str, child: str, hand: Hand) -> Card:
        may_change = self._permits.may_change
        return await self._change(child, hand, lambda tx, at: board_rules.link(tx, parent, child, hand, at, may_change))

    async def comment(self, id: str, text: str, hand: Hand, key: str = "") -> None:
        if not text.strip():
            raise Unkeepable("there is nothing in this comment")

        def unit(tx: Transaction, at: Moment) -> After:
            card_rows.comment(tx, card_rows.find(tx, id)["id"], hand.name, text, at, key)
            return After()

        await self._change(id, hand, unit)

    async def attach(self, id: str, file: CardFile, hand: Hand) -> None:
        def unit(tx: Transaction, at: Moment) -> After:
            card_rows.attach(tx, card_rows.find(tx, id)["id"], file)
            return After()

        await self._change(id, hand, unit)

    async def unblock(self, id: str, comment: str, hand: Hand) -> Card:
        return await self._change(id, hand, lambda tx, at: board_rules.unblock(tx, id, comment, hand, at))

    async def finish(self, id: str, summary: str, hand: Hand) -> Card:
        return await self._change(id, hand, lambda tx, at: board_rules.finish(tx, id, summary, hand, at))

    async def set_aside(self, id: str, kind: Block, reason: str, hand: Hand) -> Card:
        return await self._change(id, hand, lambda tx, at: board_rules.set_aside(tx, id, kind, reason, hand, at))

    async def archive(self, id: str, hand: Hand) -> Card:
        def unit(tx: Transaction, at: Moment) -> Done:
            self._permits.check(tx, id, hand)
            freed = board_rules.archive(tx, id, hand, at)
            return Done(id, after=freed.after, ended=freed.attempt)

        return await self._write(unit)

    async def watch(self, id: str, target: Target, *, on: bool) -> Card:
        if on and not self._may_tell(target):
            raise Unsupported("async_delivery", str(target))

        def unit(tx: Transaction, at: Moment) -> Done:
            card = card_rows.find(tx, id)["id"]
            if on:
                card_rows.watch(tx, card, target, None)
            else:
                card_rows.unwatch(tx, card, target)
            return Done(id)

        return await self._write(unit)

    async def obey(self, order: Order, hand: Hand) -> str:
        at = self._foreman.moment
        done = await self._store.write(lambda tx: self._orders.obey(tx, order, hand, at))
        await self._follow_up(done)
        return done.words

    async def heartbeat(self, note: str) -> None:
        session = _worker()

        def unit(tx: Transaction, at: Moment) -> Done:
            hold = _hold(tx, session.run)
            board_rules.renew(tx, hold, self._settings.lease_seconds, at)
            if note.strip():
                card_rows.beat(tx, hold.card, note, session.bot, at)
            return Done(str(hold.card))

        await self._write(unit)

    async def complete(self, summary: str, artifacts: tuple[CardFile, ...]) -> Card:
        def verdict(tx: Transaction, hold: Hold, at: Moment) -> After:
            events = [entry.event for entry in journal.read(tx, run, 0, journal.last(tx, run))]
            if verdicts.denied(events):
                raise Unkeepable(
                    "an approval was denied in this attempt, so it cannot be complete: block it with the kind approval"
                )
            return board_rules.complete(tx, hold, summary, artifacts, at)

        run = context.current().run
        return await self._verdict(Ending.COMPLETE, verdict)

    async def block(self, kind: Block, reason: str, notes: str) -> Card:
        if kind not in BY_WORKER:
            raise Unkeepable(f"a worker cannot say {kind}; there are: {', '.join(BY_WORKER)}")
        return await self._verdict(
            Ending.BLOCKED, lambda tx, hold, at: board_rules.block(tx, hold, kind, reason, notes, at)
        )

    async def request_review(self, summary: str) -> Card:
        return await self._verdict(Ending.REVIEW, lambda tx, hold, at: board_rules.review(tx, hold, summary, at))

    async def _verdict(self, ending: Ending, give: Callable[[Transaction, Hold, Moment], After]) -> Card:
        """A run that was cut off right behind its verdict gives it again, and that is no second one."""
        session = _worker()

        def unit(tx: Transaction, at: Moment) -> Done:
            given = tx.one("SELECT * FROM card_attempts WHERE run = ? AND run <> ''", session.run)
            if given is not None and given["ending"] == ending:
                return Done(str(given["card"]))
            hold = _hold(tx, session.run)
            return Done(str(hold.card), after=give(tx, hold, at))

        return await self._write(unit)

    def _add(self, tx: Transaction, new: NewCard, hand: Hand, at: Moment) -> Added:
        named = msgspec.structs.replace(new, assignee=new.assignee or self._permits.own_bot(hand))
        self._permits.check_assignee(named.assignee, hand)
        told, most = self._orders.reachable(hand), self._settings.open_cards
        return board_rules.add(tx, named, told, self._foreman.roster, most, at, self._permits.may_change)

    async def _change(self, id: str, hand: Hand, change: Callable[[Transaction, Moment], After]) -> Card:
        def unit(tx: Transaction, at: Moment) -> Done:
            self._permits.check(tx, id, hand)
            return Done(id, after=change(tx, at))

        return await self._write(unit)

    async def _write(self, unit: Callable[[Transaction, Moment], Done]) -> Card:
        at = self._foreman.moment

        def whole(tx: Transaction) -> tuple[Done, Card]:
            done = unit(tx, at)
            return done, card_rows.card(tx, done.card, at.ahead)

        done, card = await self._store.write(whole)
        await self._follow_up(done)
        return card

    def _may_tell(self, target: Target) -> bool:
        """Promise or refuse: where no platform is, nobody is told either."""
        abilities = self._can(target)
        if abilities is None:
            raise Unknown(f"no platform {target.adapter}@{target.account} is configured")
        # What one person alone sees inside a group cannot be told later.
        return abilities.async_delivery and target.audience is not Audience.ONE

    async def _follow_up(self, done: Done) -> None:
        self._dispatcher.hurry(done.after)
        if done.ended is not None:
            await self._foreman.end(done.ended, "the board")
        self._foreman.wake()

    def _obey_in_chat(self, tx: Transaction, inbound: Inbound) -> Obeyed:
        """In the transaction that stores the command: obeyed once, or not at all."""
        bot, place = self._bots.find(inbound), (inbound.target, inbound.conversation, inbound.sender)
        hand = Hand(_who(inbound), *place, is_answered=True, bot=bot, asker=inbound.asker)
        tx.execute("SAVEPOINT board")
        try:
            done = self._orders.obey(tx, orders.parse(inbound.argument), hand, self._foreman.moment)
        except orders.Refusals as error:
            tx.execute("ROLLBACK TO board")
            return Obeyed(plain(f"{str(error)[:1].upper()}{str(error)[1:]}."))
        finally:
            tx.execute("RELEASE board")
        ended = done.ended
        return Obeyed(done.words, after=done.after, then=lambda: self._foreman.hurry(ended))


def _who(inbound: Inbound) -> str:
    """A name is whatever somebody calls themselves; the id behind it is theirs alone."""
    name = " ".join(inbound.sender.name.translate(BRACKETS).split())[:NAME_CHARACTERS]
    id = policy.names(inbound)[0]
    return f"{name} ({id})" if name else id


def _worker() -> Session:
    session = context.current()
    if session.errand is None or session.conversation.adapter != foreman.ADAPTER:
        raise Unkeepable("only whoever works on a card can say how it ends")
    return session


def _hold(tx: Transaction, run: str) -> Hold:
    row = tx.one("SELECT * FROM card_attempts WHERE run = ? AND run <> ''", run)
    if row is None:
        raise Unkeepable("only whoever works on a card can say how it ends")
    hold = Hold(row["card"], row["number"], row["fence"])
    board_rules.held(tx, hold)
    return hold

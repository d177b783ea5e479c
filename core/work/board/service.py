"""The board's service: carries out every order, from chat, tool, API or command line, in one transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from tidings.core import context
from tidings.core.clock import Clock
from tidings.core.context import Session
from tidings.core.desk.board import (
    BY_WORKER,
    Answer,
    Block,
    Board,
    Card,
    CardFile,
    CardState,
    Ending,
    Hand,
    NewCard,
    Order,
)
from tidings.core.errors import Unkeepable, Unknown, Unsupported
from tidings.core.inbound.abilities import Can
from tidings.core.inbound.bots import Bots
from tidings.core.inbound.commands import Command, Obeyed
from tidings.core.people.people import People
from tidings.core.roles import Permission
from tidings.core.runs import journal
from tidings.core.settings import Board as Settings
from tidings.core.store.store import Store, Transaction
from tidings.core.types import Audience, Inbound, Target, parse_target
from tidings.core.work.board import card_news, commands, verdicts
from tidings.core.work.board import cards as card_rows
from tidings.core.work.board import rules as board_rules
from tidings.core.work.board import text as board_text
from tidings.core.work.board.cards import Moment
from tidings.core.work.board.permissions import Permissions, check_stop
from tidings.core.work.board.rules import Hold

# How many cards a list contains at most, as data and as text.
LISTED = 200
SHOWN = 40


class Done(NamedTuple):
    """The card of an order, and the words of the reply."""

    card: str
    words: str = ""


class BoardService:
    def __init__(
        self,
        store: Store,
        settings: Settings,
        clock: Clock,
        can: Can,
        bots: Bots,
        people: People,
    ) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._can = can
        self._bots = bots
        self._permissions = Permissions(settings, bots)
        self._people = people

    def commands(self) -> tuple[Command, ...]:
        return (
            Command(
                "board",
                "cards that agents work on: add, show, comment, unblock, …",
                self._obey_in_chat,
                Permission.WORK,
            ),
        )

    async def get(self, id: str) -> Card:
        return await self._store.read(lambda tx: card_rows.card(tx, id, Moment.of(self._clock).ahead))

    async def all(self, states: tuple[CardState, ...], limit: int, *, assignee: str = "") -> Board:
        ahead = Moment.of(self._clock).ahead
        return await self._store.read(lambda tx: card_rows.board(tx, states, min(limit, LISTED), assignee, ahead))

    async def obey(self, order: Order, hand: Hand) -> Answer:
        return await self._write(lambda tx, at: self._carry_out(tx, order, hand, at))

    def _obey_in_chat(self, tx: Transaction, inbound: Inbound) -> Obeyed:
        """Carries out /board in the transaction that stores the command, so that it is obeyed exactly once."""
        hand = commands.hand_of(inbound, self._bots.find(inbound))
        try:
            order = commands.parse(inbound.argument, tuple(VERBS))
            if isinstance(order, str):
                return Obeyed(order)
            with tx.step():
                return Obeyed(self._carry_out(tx, order, hand, Moment.of(self._clock)).words)
        except commands.REFUSALS as error:
            return Obeyed(commands.refusal(error))

    def _carry_out(self, tx: Transaction, order: Order, hand: Hand, at: Moment) -> Done:
        """Carries out an order; raises Unknown or Unkeepable with words for the person, and then changes nothing."""
        verb = VERBS.get(order.verb)
        if verb is None:
            raise Unkeepable(f"the board has no command {order.verb!r}")
        if verb.changes:
            self._permissions.check(tx, verb.changes(order), hand)
        if verb.stops:
            check_stop(tx, order.id, hand, self._people)
        return verb.act(self, tx, order, hand, at)

    def _list(self, tx: Transaction, order: Order, hand: Hand, at: Moment) -> Done:
        states = tuple(CardState(name) for name in order.other.split() if name in list(CardState))
        if order.other and not states:
            raise Unkeepable(f"{order.other!r} is not a state; there are: {', '.join(CardState)}")
        return Done("", words=board_text.board(card_rows.board(tx, states, SHOWN, "", at.ahead), at.wall))

    def _add(self, tx: Transaction, order: Order, hand: Hand, at: Moment) -> Done:
        new = order.new or NewCard("")
        named = msgspec.structs.replace(new, assignee=new.assignee or self._permissions.own_bot(hand))
        self._permissions.check_assignee(named.assignee, hand)
        told, most = self._reachable(hand), self._settings.open_cards
        may_change = self._permissions.may_change
        card = board_rules.add(tx, named, told, self._permissions.roster, most, at, may_change)
        words = f"Card {card_news.named(card)} for {card['assignee']} is {card_news.state(card)}."
        return Done(str(card["id"]), words=words)

    def _show(self, tx: Transaction, order: Order, hand: Hand, at: Moment) -> Done:
        card = card_rows.card(tx, order.id, at.ahead)
        return Done(card.id, words=board_text.card(card, at.wall))

    def _comment(self, tx: Transaction, order: Order, hand: Hand, at: Moment) -> Done:
        if not order.text.strip():
            raise Unkeepable("this comment is empty")
        row = card_rows.find(tx, order.id)
        card_rows.comment(tx, row["id"], hand.name, order.text, at, order.key)
        return Done(str(row["id"]), words=f"Written on {card_news.named(row)}.")

    def _attach(self, tx: Transaction, order: Order, hand: Hand, at: Moment) -> Done:
        row = card_rows.find(tx, order.id)
        if order.file is None:
            raise Unkeepable("there is nothing to attach; name a file or a link")
        card_rows.attach(tx, row["id"], msgspec.structs.replace(order.file, by=hand.name))
        return Done(str(row["id"]), words=f"Attached to {card_news.named(row)}: {order.file.name}.")

    def _unblock(self, tx: Transaction, order: Order, hand: Hand, at: Moment) -> Done:
        board_rules.unblock(tx, order.id, order.text, hand, at)
        return _moved(tx, order.id)

    def _finish(self, tx: Transaction, order: Order, hand: Hand, at: Moment) -> Done:
        board_rules.finish(tx, order.id, order.text, hand, at)
        return _moved(tx, order.id)

    def _set_aside(self, tx: Transaction, order: Order, hand: Hand, at: Moment) -> Done:
        board_rules.set_aside(tx, order.id, order.kind, order.text, hand, at)
        return _moved(tx, order.id)

    def _link(self, tx: Transaction, order: Order, hand: Hand, at: Moment) -> Done:
        if not order.other:
            raise Unkeepable("say which card waits for this one")
        board_rules.link(tx, order.id, order.other, hand, at, self._permissions.may_change)
        return _moved(tx, order.other)

    def _archive(self, tx: Transaction, order: Order, hand: Hand, at: Moment) -> Done:
        board_rules.archive(tx, order.id, hand, at)
        return _moved(tx, order.id)

    def _watch(self, tx: Transaction, order: Order, hand: Hand, at: Moment) -> Done:
        row, target = card_rows.find(tx, order.id), _watcher(order, hand)
        if not self._may_tell(target):
            raise Unsupported("async_delivery", str(target))
        card_rows.watch(tx, row["id"], target, None if order.target else hand.memory)
        return Done(str(row["id"]), words=f"{target} is told when {card_news.named(row)} is done or blocked.")

    def _unwatch(self, tx: Transaction, order: Order, hand: Hand, at: Moment) -> Done:
        row, target = card_rows.find(tx, order.id), _watcher(order, hand)
        heard = "no longer watches" if card_rows.unwatch(tx, row["id"], target) else "did not watch"
        return Done(str(row["id"]), words=f"{target} {heard} #{row['id']}.")

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
        def verdict(tx: Transaction, hold: Hold, at: Moment) -> None:
            events = [entry.event for entry in journal.read(tx, run, 0, journal.last(tx, run))]
            if verdicts.denied(events):
                raise Unkeepable(
                    "an approval was denied in this attempt, so it cannot be complete; block it with the kind approval"
                )
            board_rules.complete(tx, hold, summary, artifacts, at)

        run = context.current().run
        return await self._verdict(Ending.COMPLETE, verdict)

    async def block(self, kind: Block, reason: str, notes: str) -> Card:
        if kind not in BY_WORKER:
            raise Unkeepable(f"a worker cannot report {kind}; it can report: {', '.join(BY_WORKER)}")
        return await self._verdict(
            Ending.BLOCKED, lambda tx, hold, at: board_rules.block(tx, hold, kind, reason, notes, at)
        )

    async def request_review(self, summary: str) -> Card:
        return await self._verdict(Ending.REVIEW, lambda tx, hold, at: board_rules.review(tx, hold, summary, at))

    async def _verdict(self, ending: Ending, give: Callable[[Transaction, Hold, Moment], None]) -> Card:
        """Stores a worker's verdict; a run that is repeated after a crash may give the same verdict again."""
        session = _worker()

        def unit(tx: Transaction, at: Moment) -> Done:
            given = tx.one("SELECT * FROM card_attempts WHERE run = ? AND run <> ''", session.run)
            if given is not None and given["ending"] == ending:
                return Done(str(given["card"]))
            hold = _hold(tx, session.run)
            give(tx, hold, at)
            return Done(str(hold.card))

        return _card(await self._write(unit))

    async def _write(self, unit: Callable[[Transaction, Moment], Done]) -> Answer:
        at = Moment.of(self._clock)

        def whole(tx: Transaction) -> Answer:
            done = unit(tx, at)
            return Answer(done.words, card_rows.card(tx, done.card, at.ahead) if done.card else None)

        return await self._store.write(whole)

    def _reachable(self, hand: Hand) -> Hand:
        """Removes a target where no messages can be sent later, so that it does not watch the card."""
        if hand.target is None or self._may_tell(hand.target):
            return hand
        return msgspec.structs.replace(hand, target=None)

    def _may_tell(self, target: Target) -> bool:
        """Tells whether messages can be sent there later; raises Unknown for a platform that is not configured."""
        abilities = self._can(target)
        if abilities is None:
            raise Unknown(f"no platform {target.adapter}@{target.account} is configured")
        # An ephemeral reply in a group cannot be sent later.
        return abilities.async_delivery and target.audience is not Audience.ONE


class Verb(NamedTuple):
    act: Callable[[BoardService, Transaction, Order, Hand, Moment], Done]
    # The card that the order changes, for the check of permissions; None for an order that changes no card.
    changes: Callable[[Order], str] | None = lambda order: order.id
    # Whether the order keeps the card from going on.
    stops: bool = False


# Every verb of the board, with its names in chat, API, tool and command line.
VERBS = {
    "list": Verb(BoardService._list, None),
    "add": Verb(BoardService._add, None),
    "show": Verb(BoardService._show, None),
    "comment": Verb(BoardService._comment),
    "attach": Verb(BoardService._attach),
    "unblock": Verb(BoardService._unblock),
    "done": Verb(BoardService._finish),
    "block": Verb(BoardService._set_aside, stops=True),
    "link": Verb(BoardService._link, lambda order: order.other or order.id),
    "archive": Verb(BoardService._archive, stops=True),
    "watch": Verb(BoardService._watch),
    "unwatch": Verb(BoardService._unwatch),
}


def _moved(tx: Transaction, id: str) -> Done:
    row = card_rows.find(tx, id)
    return Done(str(row["id"]), words=f"{card_news.named(row)} is {card_news.state(row, ' now')}.")


def _watcher(order: Order, hand: Hand) -> Target:
    target = parse_target(order.target) if order.target else hand.target
    if target is None:
        raise Unkeepable("say who watches it: platform:CHAT or platform:CHAT:THREAD")
    return target


def _card(answer: Answer) -> Card:
    assert answer.card is not None
    return answer.card


def _worker() -> Session:
    session = context.current()
    if session.errand is None or session.conversation.adapter != card_rows.ADAPTER:
        raise Unkeepable("only the worker of a card can say how it ends")
    return session


def _hold(tx: Transaction, run: str) -> Hold:
    row = tx.one("SELECT * FROM card_attempts WHERE run = ? AND run <> ''", run)
    if row is None:
        raise Unkeepable("only the worker of a card can say how it ends")
    hold = Hold(row["card"], row["number"], row["fence"])
    board_rules.held(tx, hold)
    return hold

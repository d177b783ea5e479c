"""What people want of the board, in the same words everywhere: read from a chat, and carried out."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from tidings.core.desk.board import Block, CardFile, CardState, Hand, NewCard, Order
from tidings.core.errors import Overdrawn, Unkeepable, Unknown, Unsupported
from tidings.core.inbound.settlement import After
from tidings.core.store.store import Row, Transaction
from tidings.core.types import Target, parse_target
from tidings.core.work.board import card_news
from tidings.core.work.board import cards as card_rows
from tidings.core.work.board import rules as board_rules
from tidings.core.work.board import text as board_text
from tidings.core.work.board.cards import Moment
from tidings.core.work.board.permits import Permits
from tidings.core.work.board.rules import Added

# What may come of words that a person got wrong.
Refusals = (Overdrawn, Unkeepable, Unknown, Unsupported)
SHOWN = 40
HELP = """\
/board – what is on it (/board list done shows one state)
/board add TITLE to=BOT after=3,4 priority=2 budget=20 – a new card; further lines are its text
/board show 12 – all of one card
/board comment 12 TEXT
/board attach 12 https://example.org/plan – a link for whoever works on it
/board unblock 12 TEXT – lets it go on, with what it should know
/board done 12 – accepts it, or says that it is done
/board block 12 REASON
/board link 3 12 – 12 waits for 3
/board archive 12 – ends whoever works on it
/board watch 12, /board unwatch 12 – whether this chat hears of it"""


class Done(NamedTuple):
    """The card that was meant, and what is to follow once all is stored."""

    card: str
    words: str = ""
    after: After = After()
    # A worker that lost its card.
    ended: Row | None = None


def parse(argument: str) -> Order:
    """Raises Unkeepable with what was wrong."""
    verb, rest = _first(argument)
    verb = verb.lower()
    if not verb or verb == "list":
        return Order("list", other=rest.lower())
    if verb == "help":
        return Order("help")
    if verb == "add":
        return Order("add", new=_new(rest))
    if verb not in VERBS:
        raise Unkeepable(f"there is no /board {verb}; there are: {', '.join(('list', 'add', *VERBS))}")
    id, text = _first(rest)
    if not id:
        raise Unkeepable(f"say which card: /board {verb} 12")
    if verb == "link":
        return Order("link", id=id, other=text)
    if verb in ("watch", "unwatch"):
        # Whoever may speak here may not make us speak elsewhere.
        if text:
            raise Unkeepable(f"/board {verb} {id} is about this chat alone; only the owner names another place")
        return Order(verb, id=id)
    return Order(verb, id=id, text=text)


def _first(text: str) -> tuple[str, str]:
    """The first word, and all behind it with its lines."""
    word, *rest = text.split(maxsplit=1) or [""]
    return word, "".join(rest).strip()


def _new(text: str) -> NewCard:
    """Settings stand in the first line as name=value; the rest of it is the title, and further lines the body."""
    first, _, body = text.partition("\n")
    title, given = [], {}
    for piece in first.split():
        name, sign, value = piece.partition("=")
        if sign and name in ("to", "after", "priority", "budget", "workspace", "triage"):
            given[name] = value
        else:
            title.append(piece)
    return NewCard(
        title=" ".join(title),
        body=body.strip(),
        assignee=given.get("to", ""),
        parents=tuple(part for part in given.get("after", "").split(",") if part),
        priority=_number(given, "priority"),
        budget=_number(given, "budget"),
        workspace=given.get("workspace", ""),
        triage=given.get("triage", "") in ("yes", "true", "1"),
    )


def _number(given: dict[str, str], name: str) -> int:
    value = given.get(name, "0")
    if not value.removeprefix("-").isascii() or not value.removeprefix("-").isdigit() or len(value) > 9:
        raise Unkeepable(f"{name} is a number, not {value!r}")
    return int(value)


def is_link(text: str) -> bool:
    return text.startswith(("https://", "http://")) and len(text.split()) == 1


def link(address: str, by: str) -> CardFile:
    return CardFile(address.rstrip("/").rpartition("/")[2] or address, address, by)


class Orders:
    def __init__(
        self,
        add: Callable[[Transaction, NewCard, Hand, Moment], Added],
        may_tell: Callable[[Target], bool],
        permits: Permits,
    ) -> None:
        self._permits = permits
        self._add = add
        self._may_tell = may_tell

    def reachable(self, hand: Hand) -> Hand:
        """Whoever cannot be told later watches nothing."""
        if hand.target is None or self._may_tell(hand.target):
            return hand
        return msgspec.structs.replace(hand, target=None)

    def obey(self, tx: Transaction, order: Order, hand: Hand, at: Moment) -> Done:
        """Raises Unknown or Unkeepable in words for the person, and nothing has happened then."""
        if order.verb == "list":
            return Done("", words=self._list(tx, order, at))
        if order.verb == "help":
            return Done("", words=HELP)
        if order.verb == "add":
            card, after = self._add(tx, order.new or NewCard(""), hand, at)
            words = f"Card {card_news.named(card)} for {card['assignee']} is {card_news.state(card)}."
            return Done(str(card["id"]), words=words, after=after)
        if order.verb not in VERBS:
            raise Unkeepable(f"there is no word {order.verb!r} for the board")
        if order.verb != "show":
            # Of a link it is the second one that changes.
            self._permits.check(tx, (order.other or order.id) if order.verb == "link" else order.id, hand)
        return VERBS[order.verb](self, tx, order, hand, at)

    def _list(self, tx: Transaction, order: Order, at: Moment) -> str:
        states = tuple(CardState(name) for name in order.other.split() if name in list(CardState))
        if order.other and not states:
            raise Unkeepable(f"{order.other!r} is no state; there are: {', '.join(CardState)}")
        shown = card_rows.board(tx, states, SHOWN, "", at.ahead)
        return board_text.board(shown, at.wall)

    def show(self, tx: Transaction, order: Order, hand: Hand, at: Moment) -> Done:
        card = card_rows.card(tx, order.id, at.ahead)
        return Done(card.id, words=board_text.card(card, at.wall))

    def comment(self, tx: Transaction, order: Order, hand: Hand, at: Moment) -> Done:
        if not order.text:
            raise Unkeepable(f"say what to write: /board comment {order.id} TEXT")
        row = card_rows.find(tx, order.id)
        card_rows.comment(tx, row["id"], hand.name, order.text, at)
        return Done(str(row["id"]), words=f"Written on {card_news.named(row)}.")

    def attach(self, tx: Transaction, order: Order, hand: Hand, at: Moment) -> Done:
        row = card_rows.find(tx, order.id)
        if order.file is None and not is_link(order.text):
            raise Unkeepable(
                f"attach a link: /board attach {row['id']} https://…; words go with /board comment, and files by the"
                " command line"
            )
        file = order.file or link(order.text, hand.name)
        card_rows.attach(tx, row["id"], msgspec.structs.replace(file, by=hand.name))
        return Done(str(row["id"]), words=f"Attached to {card_news.named(row)}: {file.name}.")

    def unblock(self, tx: Transaction, order: Order, hand: Hand, at: Moment) -> Done:
        return self._moved(tx, order, board_rules.unblock(tx, order.id, order.text, hand, at))

    def finish(self, tx: Transaction, order: Order, hand: Hand, at: Moment) -> Done:
        return self._moved(tx, order, board_rules.finish(tx, order.id, order.text, hand, at))

    def block(self, tx: Transaction, order: Order, hand: Hand, at: Moment) -> Done:
        return self._moved(tx, order, board_rules.set_aside(tx, order.id, Block.NEEDS_INPUT, order.text, hand, at))

    def link(self, tx: Transaction, order: Order, hand: Hand, at: Moment) -> Done:
        if not order.other:
            raise Unkeepable("say which card waits: /board link 3 12 lets 12 wait for 3")
        after = board_rules.link(tx, order.id, order.other, hand, at, self._permits.may_change)
        return self._moved(tx, Order("link", id=order.other), after)

    def archive(self, tx: Transaction, order: Order, hand: Hand, at: Moment) -> Done:
        freed = board_rules.archive(tx, order.id, hand, at)
        return self._moved(tx, order, freed.after)._replace(ended=freed.attempt)

    def watch(self, tx: Transaction, order: Order, hand: Hand, at: Moment) -> Done:
        row = card_rows.find(tx, order.id)
        target = parse_target(order.target) if order.target else hand.target
        if target is None:
            raise Unkeepable("say who watches it: platform:CHAT or platform:CHAT:THREAD")
        if order.verb == "unwatch":
            gone = card_rows.unwatch(tx, row["id"], target)
            return Done(order.id, words=f"{target} {'no longer hears' if gone else 'did not hear'} of #{row['id']}.")
        if not self._may_tell(target):
            raise Unsupported("async_delivery", str(target))
        card_rows.watch(tx, row["id"], target, None if order.target else hand.conversation)
        return Done(order.id, words=f"{target} hears when {card_news.named(row)} is done or blocked.")

    def _moved(self, tx: Transaction, order: Order, after: After) -> Done:
        row = card_rows.find(tx, order.id)
        words = f"{card_news.named(row)} is {card_news.state(row, ' now')}."
        return Done(str(row["id"]), words=words, after=after)


VERBS = {
    "show": Orders.show,
    "comment": Orders.comment,
    "attach": Orders.attach,
    "unblock": Orders.unblock,
    "done": Orders.finish,
    "block": Orders.block,
    "link": Orders.link,
    "archive": Orders.archive,
    "watch": Orders.watch,
    "unwatch": Orders.watch,
}

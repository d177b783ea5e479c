"""The board: cards that agents work on, with the words that a chat and the command line have for them."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from tidings.adapters.api.errors import CONFLICT, FINAL, Problem
from tidings.adapters.api.guard import Call, query_of, read_json, validate
from tidings.adapters.api.identities import ADAPTER
from tidings.adapters.api.models import (
    CardAttachment,
    CardBlock,
    CardComment,
    CardParent,
    CardRequest,
    Cards,
    CardSummary,
    CardWatcher,
)
from tidings.adapters.api.service import ApiService, answer, idempotency_key
from tidings.core.desk.board import Block, Board, Card, CardFile, CardLine, CardState, Hand, NewCard, Order, link_to
from tidings.core.errors import Overdrawn, Unkeepable, Unknown, Unsupported
from tidings.core.redaction import plain
from tidings.core.roles import Permission
from tidings.core.types import parse_target

ENDED = (CardState.DONE, CardState.ARCHIVED)


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except Unknown as error:
        raise Problem(404, str(error), "card_not_found") from None
    except (Unkeepable, Overdrawn) as error:
        raise Problem(409, str(error), "card_refused") from None


async def list_all(api: ApiService, call: Call) -> web.StreamResponse:
    asked = query_of(Cards, call)
    states = (CardState(asked.state),) if asked.state else ()
    found = await (_of_its_bots if call.key.bots else _all)(api, call, asked, states)
    cards = [_line(card) for card in found.cards]
    return answer({"object": "list", "counts": {state.value: n for state, n in found.counts.items()}, "data": cards})


async def _all(api: ApiService, call: Call, asked: Cards, states: tuple[CardState, ...]) -> Board:
    return await api.desk.board.all(states, asked.limit, assignee=asked.assignee)


async def _of_its_bots(api: ApiService, call: Call, asked: Cards, states: tuple[CardState, ...]) -> Board:
    """The cards for a key that is bound to bots, bot by bot, open cards first; only the listed cards are counted."""
    bots = [bot for bot in call.key.bots if asked.assignee in ("", bot)]
    boards = [await api.desk.board.all(states, asked.limit, assignee=bot) for bot in bots]
    cards = sorted((card for board in boards for card in board.cards), key=lambda card: card.state in ENDED)
    listed = tuple(cards[: asked.limit])
    return Board(dict(Counter(card.state for card in listed)), listed)


async def create(api: ApiService, call: Call) -> web.StreamResponse:
    asked = validate(CardRequest, await read_json(call.request))
    if call.key.bots and asked.assignee and asked.assignee not in api.bots(call.key):
        raise Problem(400, f"there is no bot named {asked.assignee!r}", "invalid_card", param="assignee")
    new = NewCard(
        title=asked.title,
        body=asked.body,
        assignee=asked.assignee,
        parents=tuple(asked.parents),
        priority=asked.priority,
        workspace=asked.workspace,
        budget=asked.budget,
        triage=asked.triage,
        key=idempotency_key(call),
    )
    try:
        await _check_bound(api, call, *asked.parents)
        card = await _obey(api, call, Order("add", new=new))
    except (Unkeepable, Unknown) as error:
        raise Problem(400, str(error), "invalid_card") from None
    except Overdrawn as error:
        raise Problem(409, str(error), "overdrawn") from None
    if (card.title, card.body) != (plain(" ".join(asked.title.split())), plain(asked.body).strip()):
        raise Problem(409, CONFLICT, "idempotency_key_conflict", headers=FINAL)
    return answer({"card": _described(call, card)}, 201)


async def look(api: ApiService, call: Call) -> web.StreamResponse:
    with _told():
        return answer({"card": _described(call, await _known(api, call, call.names["id"]))})


async def comment(api: ApiService, call: Call) -> web.StreamResponse:
    asked = validate(CardComment, await read_json(call.request))
    return await _answer(api, call, Order("comment", id=call.names["id"], text=asked.text, key=idempotency_key(call)))


async def attach(api: ApiService, call: Call) -> web.StreamResponse:
    asked = validate(CardAttachment, await read_json(call.request))
    if bool(asked.url) == bool(asked.text.strip()):
        raise Problem(400, "give either url or text", "invalid_attachment", param="url")
    with _told():
        await _known(api, call, call.names["id"])
    file = link_to(asked.url, asked.name) if asked.url else await _written(api, asked)
    return await _answer(api, call, Order("attach", id=call.names["id"], file=file))


async def _written(api: ApiService, asked: CardAttachment) -> CardFile:
    """A file like any other, of which the gateway keeps its own copy."""
    name = asked.name if asked.name.strip(". ") else "text.txt"
    with tempfile.TemporaryDirectory(prefix="tidings-") as folder:
        path = Path(folder) / name
        await asyncio.to_thread(path.write_text, asked.text, encoding="utf-8")
        kept = await api.desk.adopt(str(path))
    return CardFile(kept.name, kept.path)


async def unblock(api: ApiService, call: Call) -> web.StreamResponse:
    asked = validate(CardSummary, await read_json(call.request))
    return await _answer(api, call, Order("unblock", id=call.names["id"], text=asked.text))


async def complete(api: ApiService, call: Call) -> web.StreamResponse:
    asked = validate(CardSummary, await read_json(call.request))
    return await _answer(api, call, Order("done", id=call.names["id"], text=asked.text))


async def block(api: ApiService, call: Call) -> web.StreamResponse:
    asked = validate(CardBlock, await read_json(call.request))
    order = Order("block", id=call.names["id"], text=asked.reason, kind=Block(asked.kind))
    return await _answer(api, call, order, Permission.OTHERS)


async def link(api: ApiService, call: Call) -> web.StreamResponse:
    asked = validate(CardParent, await read_json(call.request))
    return await _answer(api, call, Order("link", id=asked.parent, other=call.names["id"]))


async def archive(api: ApiService, call: Call) -> web.StreamResponse:
    return await _answer(api, call, Order("archive", id=call.names["id"]), Permission.OTHERS)


async def watch(api: ApiService, call: Call) -> web.StreamResponse:
    """Promise or refuse: only a place that can be told later, and that may be."""
    asked = validate(CardWatcher, await read_json(call.request))
    try:
        target = parse_target(asked.target)
    except Unknown as error:
        raise Problem(400, str(error), "invalid_target", param="target") from None
    await api.check_target(call, target)
    order = Order("watch" if asked.on else "unwatch", id=call.names["id"], target=asked.target)
    try:
        return await _answer(api, call, order)
    except Unsupported as error:
        raise Problem(400, f"nothing can be sent there later: {error}", "target_refused", param="target") from None


async def _answer(
    api: ApiService, call: Call, order: Order, anyones: Permission = Permission.OPERATE
) -> web.StreamResponse:
    with _told():
        await _check_bound(api, call, *filter(None, (order.id, order.other)))
        return answer({"card": _described(call, await _obey(api, call, order, anyones))})


async def _known(api: ApiService, call: Call, id: str) -> Card:
    """Raises the same Unknown for a card of a bot that the key is not bound to as for one that never was."""
    card = await api.desk.board.get(id)
    if not _is_bound(call, card):
        raise Unknown(f"there is no card #{card.id}")
    return card


async def _check_bound(api: ApiService, call: Call, *ids: str) -> None:
    """Raises Unknown if the key is bound to bots and one of these cards is for another."""
    if call.key.bots:
        for id in ids:
            await _known(api, call, id)


def _is_bound(call: Call, card: Card | CardLine) -> bool:
    """Tells whether a card is for a bot of this key; workers that are no bots are for keys without bounds."""
    return not call.key.bots or card.assignee in call.key.bots


async def _obey(api: ApiService, call: Call, order: Order, anyones: Permission = Permission.OPERATE) -> Card:
    """Gives an order as the person who asks; with the permission `anyones`, it may be about anyone's card.

    A key cannot be told later: its user looks at the card, or names a watcher.
    """
    asker, name = api.asker(call), f"api key {call.key.name}"
    bot = next(iter(api.bots(call.key)), "") if call.key.bots else ""
    hand = Hand(name, bot=bot, asker=asker)
    if not api.may(call, anyones):
        # The id tells whose card it is, because a name may be used again.
        named = f"{name} ({ADAPTER}:{asker.sender.id})"
        hand = Hand(named, conversation=asker.conversation, sender=asker.sender, bot=bot, asker=asker)
    card = (await api.desk.board.obey(order, hand)).card
    assert card is not None
    return card


def _described(call: Call, card: Card) -> dict[str, Any]:
    """A card as this key may see it: without the cards of other bots before and after it."""
    parents = tuple(each for each in card.parents if _is_bound(call, each))
    children = tuple(each for each in card.children if _is_bound(call, each))
    whole: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(card, parents=parents, children=children))
    return {"object": "card", **whole}


def _line(line: CardLine) -> dict[str, Any]:
    whole: dict[str, Any] = msgspec.to_builtins(line)
    return {"object": "card", **whole}

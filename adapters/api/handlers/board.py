"""The board: cards that agents work on, with the words that a chat and the command line have for them."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from tidings.adapters.api.errors import CONFLICT, FINAL, Problem
from tidings.adapters.api.guard import Call, query_of, read_json, validate
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
from tidings.core.desk.board import Block, Card, CardFile, CardLine, CardState, Hand, NewCard, Order, link_to
from tidings.core.errors import Overdrawn, Unkeepable, Unknown, Unsupported
from tidings.core.redaction import plain
from tidings.core.types import parse_target


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
    found = await api.desk.board.all(states, asked.limit, assignee=asked.assignee)
    cards = [_line(card) for card in found.cards]
    return answer({"object": "list", "counts": {state.value: n for state, n in found.counts.items()}, "data": cards})


async def create(api: ApiService, call: Call) -> web.StreamResponse:
    asked = validate(CardRequest, await read_json(call.request))
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
        card = await _obey(api, call, Order("add", new=new))
    except (Unkeepable, Unknown) as error:
        raise Problem(400, str(error), "invalid_card") from None
    except Overdrawn as error:
        raise Problem(409, str(error), "overdrawn") from None
    if (card.title, card.body) != (plain(" ".join(asked.title.split())), plain(asked.body).strip()):
        raise Problem(409, CONFLICT, "idempotency_key_conflict", headers=FINAL)
    return answer({"card": described(card)}, 201)


async def look(api: ApiService, call: Call) -> web.StreamResponse:
    with _told():
        return answer({"card": described(await api.desk.board.get(call.names["id"]))})


async def comment(api: ApiService, call: Call) -> web.StreamResponse:
    asked = validate(CardComment, await read_json(call.request))
    return await _answer(api, call, Order("comment", id=call.names["id"], text=asked.text, key=idempotency_key(call)))


async def attach(api: ApiService, call: Call) -> web.StreamResponse:
    asked = validate(CardAttachment, await read_json(call.request))
    if bool(asked.url) == bool(asked.text.strip()):
        raise Problem(400, "give either url or text", "invalid_attachment", param="url")
    with _told():
        await api.desk.board.get(call.names["id"])
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
    return await _answer(api, call, Order("block", id=call.names["id"], text=asked.reason, kind=Block(asked.kind)))


async def link(api: ApiService, call: Call) -> web.StreamResponse:
    asked = validate(CardParent, await read_json(call.request))
    return await _answer(api, call, Order("link", id=asked.parent, other=call.names["id"]))


async def archive(api: ApiService, call: Call) -> web.StreamResponse:
    return await _answer(api, call, Order("archive", id=call.names["id"]))


async def watch(api: ApiService, call: Call) -> web.StreamResponse:
    """Promise or refuse: only a place that can be told later, and that may be."""
    asked = validate(CardWatcher, await read_json(call.request))
    try:
        target = parse_target(asked.target)
    except Unknown as error:
        raise Problem(400, str(error), "invalid_target", param="target") from None
    if not await api.desk.permitted(target):
        words = f"{target} is neither on the access list nor a known conversation"
        raise Problem(403, words, "target_not_permitted", param="target")
    order = Order("watch" if asked.on else "unwatch", id=call.names["id"], target=asked.target)
    try:
        return await _answer(api, call, order)
    except Unsupported as error:
        raise Problem(400, f"nothing can be sent there later: {error}", "target_refused", param="target") from None


async def _answer(api: ApiService, call: Call, order: Order) -> web.StreamResponse:
    with _told():
        return answer({"card": described(await _obey(api, call, order))})


async def _obey(api: ApiService, call: Call, order: Order) -> Card:
    """A key cannot be told later: its user looks at the card, or names a watcher."""
    card = (await api.desk.board.obey(order, Hand(f"api key {call.key.name}"))).card
    assert card is not None
    return card


def described(card: Card) -> dict[str, Any]:
    whole: dict[str, Any] = msgspec.to_builtins(card)
    return {"object": "card", **whole}


def _line(line: CardLine) -> dict[str, Any]:
    whole: dict[str, Any] = msgspec.to_builtins(line)
    return {"object": "card", **whole}

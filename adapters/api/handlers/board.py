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

from tidings.adapters.api.adapter import ApiAdapter, answer, idempotency_key
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
from tidings.core.desk.board import Block, Card, CardFile, CardLine, CardState, Hand, NewCard
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


async def list_all(api: ApiAdapter, call: Call) -> web.StreamResponse:
    asked = query_of(Cards, call)
    states = (CardState(asked.state),) if asked.state else ()
    found = await api.host.desk.board.all(states, asked.limit, assignee=asked.assignee)
    cards = [_line(card) for card in found.cards]
    return answer({"object": "list", "counts": {state.value: n for state, n in found.counts.items()}, "data": cards})


async def create(api: ApiAdapter, call: Call) -> web.StreamResponse:
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
        card = await api.host.desk.board.add(new, _hand(call))
    except (Unkeepable, Unknown) as error:
        raise Problem(400, str(error), "invalid_card") from None
    except Overdrawn as error:
        raise Problem(409, str(error), "overdrawn") from None
    if (card.title, card.body) != (plain(" ".join(asked.title.split())), plain(asked.body).strip()):
        raise Problem(409, CONFLICT, "idempotency_key_conflict", headers=FINAL)
    return answer({"card": described(card)}, 201)


async def look(api: ApiAdapter, call: Call) -> web.StreamResponse:
    with _told():
        return answer({"card": described(await api.host.desk.board.get(call.names["id"]))})


async def comment(api: ApiAdapter, call: Call) -> web.StreamResponse:
    asked = validate(CardComment, await read_json(call.request))
    with _told():
        await api.host.desk.board.comment(call.names["id"], asked.text, _hand(call), idempotency_key(call))
        return answer({"card": described(await api.host.desk.board.get(call.names["id"]))})


async def attach(api: ApiAdapter, call: Call) -> web.StreamResponse:
    asked = validate(CardAttachment, await read_json(call.request))
    if bool(asked.url) == bool(asked.text.strip()):
        raise Problem(400, "give either url or text", "invalid_attachment", param="url")
    hand, id = _hand(call), call.names["id"]
    with _told():
        await api.host.desk.board.get(id)
        if asked.url:
            name = asked.name or asked.url.rstrip("/").rpartition("/")[2]
            file = CardFile(name, asked.url, hand.name)
        else:
            file = await _written(api, asked, hand)
        await api.host.desk.board.attach(id, file, hand)
        return answer({"card": described(await api.host.desk.board.get(id))})


async def _written(api: ApiAdapter, asked: CardAttachment, hand: Hand) -> CardFile:
    """A file like any other, of which the gateway keeps its own copy."""
    name = asked.name if asked.name.strip(". ") else "text.txt"
    with tempfile.TemporaryDirectory(prefix="tidings-") as folder:
        path = Path(folder) / name
        await asyncio.to_thread(path.write_text, asked.text, encoding="utf-8")
        kept = await api.host.desk.adopt(str(path))
    return CardFile(kept.name, kept.path, hand.name)


async def unblock(api: ApiAdapter, call: Call) -> web.StreamResponse:
    asked = validate(CardSummary, await read_json(call.request))
    with _told():
        return answer({"card": described(await api.host.desk.board.unblock(call.names["id"], asked.text, _hand(call)))})


async def complete(api: ApiAdapter, call: Call) -> web.StreamResponse:
    asked = validate(CardSummary, await read_json(call.request))
    with _told():
        return answer({"card": described(await api.host.desk.board.finish(call.names["id"], asked.text, _hand(call)))})


async def block(api: ApiAdapter, call: Call) -> web.StreamResponse:
    asked = validate(CardBlock, await read_json(call.request))
    with _told():
        card = await api.host.desk.board.set_aside(call.names["id"], Block(asked.kind), asked.reason, _hand(call))
        return answer({"card": described(card)})


async def link(api: ApiAdapter, call: Call) -> web.StreamResponse:
    asked = validate(CardParent, await read_json(call.request))
    with _told():
        return answer({"card": described(await api.host.desk.board.link(asked.parent, call.names["id"], _hand(call)))})


async def archive(api: ApiAdapter, call: Call) -> web.StreamResponse:
    with _told():
        return answer({"card": described(await api.host.desk.board.archive(call.names["id"], _hand(call)))})


async def watch(api: ApiAdapter, call: Call) -> web.StreamResponse:
    """Promise or refuse: only a place that can be told later, and that may be."""
    asked = validate(CardWatcher, await read_json(call.request))
    try:
        target = parse_target(asked.target)
    except Unknown as error:
        raise Problem(400, str(error), "invalid_target", param="target") from None
    if not await api.host.desk.permitted(target):
        words = f"{target} is neither on the access list nor a known conversation"
        raise Problem(403, words, "target_not_permitted", param="target")
    try:
        with _told():
            card = await api.host.desk.board.watch(call.names["id"], target, on=asked.on)
    except Unsupported as error:
        raise Problem(400, f"nothing can be sent there later: {error}", "target_refused", param="target") from None
    return answer({"card": described(card)})


def _hand(call: Call) -> Hand:
    """Whoever asks by this way cannot be told later: it looks, or names a watcher."""
    return Hand(f"api key {call.key.name}")


def described(card: Card) -> dict[str, Any]:
    whole: dict[str, Any] = msgspec.to_builtins(card)
    return {"object": "card", **whole}


def _line(line: CardLine) -> dict[str, Any]:
    whole: dict[str, Any] = msgspec.to_builtins(line)
    return {"object": "card", **whole}

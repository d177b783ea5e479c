"""Conversations: what was said, page by page, the same before and after a restart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from aiohttp import web

from adapters.api.adapter import ADAPTER, ApiAdapter, answer
from adapters.api.gate import Call, query_of
from adapters.api.keys import Scope
from adapters.api.models import Page
from adapters.api.problem import not_found
from core.desk import ConversationLine, HistoryLine
from core.types import Conversation

L = TypeVar("L", ConversationLine, HistoryLine)


async def list_all(api: ApiAdapter, call: Call) -> web.StreamResponse:
    """The newest first; a key sees its own, an admin everybody's."""
    page = query_of(Page, call)
    mine = Scope.ADMIN not in call.key.scopes
    adapter, chat = (ADAPTER, call.key.id) if mine else ("", "")
    lines = await api.host.desk.conversations(adapter, chat, page.limit + 1, page.after)
    return answer(_list(lines, page.limit, _conversation))


async def messages(api: ApiAdapter, call: Call) -> web.StreamResponse:
    page = query_of(Page, call)
    place = await _known(api, call)
    lines = await api.host.desk.history(place, page.limit + 1, page.after)
    return answer(_list(lines, page.limit, _message))


async def _known(api: ApiAdapter, call: Call) -> str:
    """The id as it was listed, put into the path as it is or encoded once more."""
    own = Conversation(adapter=ADAPTER, account=api.account, chat=call.key.id).id
    for place in (call.request.rel_url.raw_path.split("/")[3], call.names["id"]):
        mine = Scope.ADMIN in call.key.scopes or place.startswith(f"{own}:")
        if mine and await api.host.desk.knows(place):
            return place
    raise not_found("conversation")


def _list(lines: list[L], limit: int, describe: Callable[[L], dict[str, Any]]) -> dict[str, Any]:
    """One line more than asked for tells that there is another page."""
    following = str(lines[limit - 1].seq) if len(lines) > limit else None
    return {"object": "list", "data": [describe(line) for line in lines[:limit]], "next": following}


def _conversation(line: ConversationLine) -> dict[str, Any]:
    return {"object": "conversation", "id": line.id, "messages": line.messages, "updated_at": line.updated}


def _message(line: HistoryLine) -> dict[str, Any]:
    roles = {"person": "user", "bot": "assistant", "notice": "notice"}
    entry = line.entry
    return {
        "object": "message",
        "id": str(line.seq),
        "role": roles[entry.author],
        "content": entry.text,
        "run_id": entry.run,
        "created_at": entry.at,
    }

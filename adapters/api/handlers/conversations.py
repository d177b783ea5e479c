"""Conversations: what was said, page by page, the same before and after a restart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from aiohttp import web

from tidings.adapters.api.errors import not_found
from tidings.adapters.api.guard import Call, query_of
from tidings.adapters.api.identities import ADAPTER
from tidings.adapters.api.models import Page
from tidings.adapters.api.service import ApiService, answer
from tidings.core.desk.runs import ConversationLine, HistoryLine
from tidings.core.types import Conversation

# In the id of a conversation that has a member.
COLONS = 4

L = TypeVar("L", ConversationLine, HistoryLine)


async def list_all(api: ApiService, call: Call) -> web.StreamResponse:
    """The newest first; a person sees their own, a key those of all its people, an owner with an admin key all."""
    page = query_of(Page, call)
    adapter, chat = ("", "") if api.sees_all(call) else (ADAPTER, call.key.id)
    lines = await api.desk.conversations(adapter, chat, page.limit + 1, page.after, call.user)
    return answer(_list(lines, page.limit, _conversation))


async def messages(api: ApiService, call: Call) -> web.StreamResponse:
    page = query_of(Page, call)
    place = await _known(api, call)
    lines = await api.desk.history(place, page.limit + 1, page.after)
    return answer(_list(lines, page.limit, _message))


async def _known(api: ApiService, call: Call) -> str:
    """The id as it was listed, put into the path as it is or encoded once more."""
    for place in (call.request.rel_url.raw_path.split("/")[3], call.names["id"]):
        mine = api.sees_all(call) or _is_of(place, api.account, call.key.id, call.user)
        if mine and await api.desk.knows(place):
            return place
    raise not_found("conversation")


def _is_of(place: str, account: str, key: str, person: str) -> bool:
    """Is it a conversation of that key, and where a person is named, theirs?"""
    own = f"{Conversation(adapter=ADAPTER, account=account, chat=key).id}:"
    if not person:
        return place.startswith(own)
    # Without the thread, which is whatever they called it.
    end = Conversation(adapter=ADAPTER, account=account, chat=key, member=person).id.removeprefix(own)
    return place.startswith(own) and place.endswith(end) and place.count(":") == COLONS


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

"""Usage: what people, bots or chats have used; a person without the right to see others' gets their own."""

from __future__ import annotations

import msgspec
from aiohttp import web

from tidings.adapters.api.errors import Problem
from tidings.adapters.api.guard import Call, query_of
from tidings.adapters.api.models import UsageQuery
from tidings.adapters.api.service import ApiService, answer
from tidings.core.desk.usage import Scope
from tidings.core.errors import NotPermitted


async def report(api: ApiService, call: Call) -> web.StreamResponse:
    asked = query_of(UsageQuery, call)
    try:
        found = await api.desk.usage.report(call.person, Scope(asked.by), asked.since)
    except NotPermitted as error:
        raise Problem(403, str(error), "missing_role") from None
    data = [{"object": "usage", **msgspec.to_builtins(each)} for each in found.figures]
    total = msgspec.to_builtins(found.total)
    return answer({"object": "list", "by": found.by, "since": found.since, "data": data, "total": total})

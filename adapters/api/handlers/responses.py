"""Responses: answers that can be fetched again and built upon."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from aiohttp import web

from tidings.adapters.api import approvals, messages, response_items, sse
from tidings.adapters.api.callers import conversation_named, person_named
from tidings.adapters.api.errors import not_found, status_of_failure, stopping
from tidings.adapters.api.guard import Call, query_of, read_json, validate
from tidings.adapters.api.models import Again, InputItems, ResponseRequest
from tidings.adapters.api.response_body import Building
from tidings.adapters.api.response_items import built, finished, items_given, stored
from tidings.adapters.api.service import ApiService, answer
from tidings.core.desk.runs import Run
from tidings.core.errors import Unknown
from tidings.core.types import Given


async def create(api: ApiService, call: Call) -> web.StreamResponse:
    body = await read_json(call.request)
    asked = validate(ResponseRequest, body)
    user = person_named(call, asked.user)
    given = Given()
    follows = before = ""
    if asked.previous_response_id:
        given, follows, before = await response_items.chain(api, call, asked.previous_response_id, user)
    said = messages.of_input(await response_items.resolve(api, call, asked.input, user), asked.instructions, given)
    name = before or conversation_named(call, said, asked.conversation)
    alone = name is None or bool(follows)
    conversation = api.conversation(call.key, name, user)
    attended = api.settings.stop_when_gone and not asked.background
    bot = api.bot(call.key, asked.model)
    begun = await api.ask(
        call,
        said,
        conversation,
        bot,
        body,
        alone=alone,
        attended=attended,
        impatient=not asked.stream and not asked.background,
        follows=follows,
        forget=not asked.store,
    )
    run = begun.run
    try:
        looked = await api.desk.run(run)
        if asked.stream:
            streamed = await sse.stream(call.request, _frames(api, looked))
            await _erase_unstored(api, looked)
            return streamed
        if asked.background:
            api.leave(begun)
            return answer(await _shown(api, looked))
        building = await finished(api, looked)
    except BaseException:
        api.leave(begun)
        raise
    await _erase_unstored(api, looked)
    if building.outcome is None:
        raise stopping()
    response = building.response()
    return answer(response, *status_of_failure(building.outcome)) if response["error"] else answer(response)


async def look(api: ApiService, call: Call) -> web.StreamResponse:
    run, again = await stored(api, call, call.names["id"]), query_of(Again, call)
    if again.stream:
        return await sse.stream(call.request, _frames(api, run, again.starting_after))
    return answer(await _shown(api, run))


async def input_items(api: ApiService, call: Call) -> web.StreamResponse:
    run, page = await stored(api, call, call.names["id"]), query_of(InputItems, call)
    items = items_given(run)
    if page.order == "desc":
        items.reverse()
    ids = [item["id"] for item in items]
    if page.after and page.after not in ids:
        raise not_found("item")
    begin = ids.index(page.after) + 1 if page.after else 0
    shown = items[begin : begin + page.limit]
    ends = {"first_id": shown[0]["id"] if shown else None, "last_id": shown[-1]["id"] if shown else None}
    return answer({"object": "list", "data": shown, **ends, "has_more": begin + page.limit < len(items)})


async def cancel(api: ApiService, call: Call) -> web.StreamResponse:
    """Asks a response to end; its status changes once it has. An ended response stays as it is."""
    run = await stored(api, call, call.names["id"])
    if run.outcome is None and await api.desk.stop(run.id, call.key.name):
        await api.outcome(run.id)
    return answer((await built(api, await api.desk.run(run.id))).response())


async def delete(api: ApiService, call: Call) -> web.StreamResponse:
    run = await stored(api, call, call.names["id"])
    try:
        await api.desk.forget(run.id)
    except Unknown:
        raise not_found("response") from None
    return answer({"id": call.names["id"], "object": "response", "deleted": True})


async def _shown(api: ApiService, run: Run) -> dict[str, Any]:
    """The response as it is now; while it waits for an answer of people, with their question."""
    response = (await built(api, run)).response()
    question = await api.desk.approvals.of_run(run.id) if run.state == "asking" else None
    return response | ({"approval": approvals.waiting(question)} if question else {})


async def _erase_unstored(api: ApiService, run: Run) -> None:
    """Erases an unstored response at once, since its client has been answered."""
    if run.forgotten:
        # A second request with the same key may have erased it already.
        with suppress(Unknown):
            await api.desk.forget(run.id)


async def _frames(api: ApiService, run: Run, after: int = -1) -> AsyncIterator[bytes]:
    """The events after a number; an event has the same number in every reading."""
    building = Building(run, api.settings.tool_items)
    number = 0
    for event in building.begin():
        if number > after:
            yield _frame(event, number)
        number += 1
    async for journalled in api.told(run.id, run.void):
        for event in building.take(journalled):
            if number > after:
                yield _frame(event, number)
            number += 1


def _frame(event: dict[str, Any], number: int) -> bytes:
    """A question has a type that every client knows, and a name of its own."""
    name = event["approval"]["event"] if "approval" in event else event["type"]
    return sse.frame({**event, "sequence_number": number}, event=name)

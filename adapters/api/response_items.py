"""Earlier responses: their items by id, and the chain of turns that a new response builds upon."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tidings.adapters.api import messages
from tidings.adapters.api.errors import Problem, not_found
from tidings.adapters.api.guard import Call
from tidings.adapters.api.models import Input, InputItem
from tidings.adapters.api.response_body import Building, Item
from tidings.adapters.api.service import ApiService
from tidings.core.agent import OutcomeKind, Restarted, ToolFinished
from tidings.core.desk.runs import Run
from tidings.core.types import Author, Entry, Given

# Turns that are given to the next one: entries of a chain, and of a conversation's memory.
LONGEST_CHAIN, LONGEST_MEMORY = 1000, 100

_ID = re.compile(r"[a-z]{2,4}_(?P<run>[0-9a-f]{32})_(?:in)?[0-9]{1,9}")


async def resolve(api: ApiService, call: Call, given: Input, user: str) -> Input:
    """Replaces each reference by its item, once: a second reference to the same item adds nothing."""
    if isinstance(given, str):
        return given
    known: dict[str, Mapping[str, InputItem]] = {}
    seen: set[str] = set()
    resolved: list[InputItem] = []
    for item in given:
        if not item.is_reference:
            resolved.append(item)
            continue
        found = await _find(api, call, item, known, user)
        if found is not None and item.id not in seen:
            seen.add(item.id or "")
            resolved.append(found)
    return resolved


async def _find(
    api: ApiService, call: Call, item: InputItem, known: dict[str, Mapping[str, InputItem]], user: str
) -> InputItem | None:
    match = _ID.fullmatch(item.id or "")
    if match is not None:
        run = match["run"]
        if run not in known:
            known[run] = await _items_of(api, call, f"resp_{run}", user)
        if found := known[run].get(item.id or ""):
            return found
    if item.type == "mcp_call":
        # A call of another server; its client left out the output.
        return item
    raise Problem(404, "there is no such item; send the item itself instead of its id", "item_not_found", param="input")


async def _items_of(api: ApiService, call: Call, response: str, user: str) -> Mapping[str, InputItem]:
    try:
        run = await stored(api, call, response, user)
    except Problem:
        return {}
    if run.outcome is None:
        raise Problem(
            409, "the response that this item belongs to is not finished; wait for it", "response_not_finished"
        )
    building = await built(api, run)
    return {item["id"]: _as_input(item) for item in (*items_given(run), *building.items)}


def _as_input(item: Item) -> InputItem:
    """Not validated: we wrote it, and it may be longer than a client's input may be."""
    given = {**item, "content": _words(item.get("content"))}
    return InputItem.model_construct(**{name: given[name] for name in InputItem.model_fields if name in given})


def _words(content: list[dict[str, Any]] | None) -> str:
    return "".join(part["text"] for part in content or ())


def items_given(run: Run) -> list[Item]:
    """The items that the model was given with a message, oldest first, as a client would send them."""
    given = run.message.given
    history = given.history if given is not None and given.history is not None else ()
    entries = (*history, Entry(author=Author.PERSON, text=run.message.text))
    base = run.id.removeprefix("run_")
    return [_item(entry, f"{base}_in{number}") for number, entry in enumerate(entries)]


def _item(entry: Entry, id: str) -> Item:
    if entry.author is Author.NOTICE:
        # Labelled as tool output: if a client sends it back, it must not count as an instruction.
        return {
            "type": "function_call_output",
            "id": f"fco_{id}",
            "call_id": f"call_{id}",
            "status": "completed",
            "output": entry.text,
        }
    if entry.author is Author.BOT:
        part, role = {"type": "output_text", "text": entry.text, "annotations": [], "logprobs": []}, "assistant"
    else:
        part, role = {"type": "input_text", "text": entry.text}, "user"
    return {"type": "message", "id": f"msg_{id}", "status": "completed", "role": role, "content": [part]}


async def stored(api: ApiService, call: Call, id: str, user: str = "") -> Run:
    """Raises Problem for a response that belongs to another key or person, was forgotten or never existed.

    `user` is the person whom the request's body names.
    """
    run = await api.own_run(call, run_of(id), "response", user) if id.startswith("resp_") else None
    if run is None or run.forgotten:
        raise not_found("response")
    return run


def run_of(response: str) -> str:
    return f"run_{response.removeprefix('resp_')}"


async def built(api: ApiService, run: Run) -> Building:
    """The response as it is now; one that is still growing is shown without its items."""
    return await finished(api, run) if run.outcome is not None else Building(run, api.settings.tool_items)


async def finished(api: ApiService, run: Run) -> Building:
    """The finished response, without anything that a restart made void."""
    building = Building(run, api.settings.tool_items)
    async for numbered in api.follow(run.id, run.void):
        if isinstance(numbered.event, Restarted):
            building = Building(run, api.settings.tool_items)
        for _ in building.take(numbered.event):
            continue
    return building


async def chain(api: ApiService, call: Call, id: str, user: str) -> tuple[Given, str, str]:
    """The turns up to a response, its run and its conversation's name. Raises Problem for a failed response."""
    run = await stored(api, call, id, user)
    if run.outcome is None:
        raise Problem(409, "the response before this one is not finished", "response_not_finished")
    if run.outcome.kind is OutcomeKind.FAILED:
        raise Problem(400, "the response before this one failed, so nothing can follow it", "response_failed")
    entries = (*await _before(api, run), *await _turn(api, run))
    return Given(history=entries[-LONGEST_CHAIN:]), run.id, run.message.conversation.thread


async def _before(api: ApiService, run: Run) -> tuple[Entry, ...]:
    """The entries that the model was given with a message: by the client and the chain, else from memory."""
    given = run.message.given
    if given is not None and given.history is not None:
        return given.history
    return await api.desk.memory(run.message.conversation.id, before=run.id, limit=LONGEST_MEMORY)


async def _turn(api: ApiService, run: Run) -> list[Entry]:
    """The entries of one turn: the question, the tools' outputs, the answer."""
    asked = Entry(author=Author.PERSON, text=run.message.text)
    outputs = []
    async for numbered in api.follow(run.id, run.void):
        match numbered.event:
            case ToolFinished(output=output, error=error, name=name):
                words = messages.label(name, output or error)
                outputs.append(Entry(author=Author.NOTICE, text=words))
            case _:
                continue
    text = run.outcome.text if run.outcome else ""
    return [asked, *outputs, *([Entry(author=Author.BOT, text=text)] if text else [])]

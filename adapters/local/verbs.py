"""The verbs of the local socket: what the command line may ask of a running gateway."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from tidings.adapters.local.socket import Handler
from tidings.adapters.shared.targets import find_target
from tidings.core.adapter import Line
from tidings.core.desk.board import CardFile, Hand, Order, is_link, link_to
from tidings.core.desk.desk import Desk
from tidings.core.desk.work import Firing, Missed, Plan, Schedule
from tidings.core.errors import Declined, Unknown
from tidings.core.types import Body, parse_target
from tidings.core.work.schedules import commands

# Deliveries in one list.
LISTED = 200
SHOWN_RUNS = 10

Message = dict[str, Any]
Verb = Callable[[Desk, Message], Awaitable[Message]]


def routes_for(desk: Desk) -> dict[str, Handler]:
    """Each verb takes one question and gives one answer."""
    routes: dict[str, Handler] = {name: partial(_reply, desk, verb) for name, verb in VERBS.items()}
    return routes | {"snapshot": partial(snapshot, desk)}


async def _reply(desk: Desk, verb: Verb, line: Line) -> None:
    await line.write(await verb(desk, await line.read() or {}))


# Messages, and who may speak.


async def notify(desk: Desk, asked: Message) -> Message:
    target = parse_target(_text(asked, "target"))
    files = tuple([await desk.adopt(str(path)) for path in asked.get("files") or ()])
    text = str(asked.get("text") or "") if files else _text(asked, "text")
    delivery = await desk.owe(target, Body(text=text, files=files), cause="notify")
    return {"owed": delivery, "target": str((await desk.delivery(delivery)).target)}


async def home(desk: Desk, asked: Message) -> Message:
    if asked.get("target"):
        await desk.set_home(parse_target(_text(asked, "target")))
    return {"homes": {name: str(target) for name, target in (await desk.homes()).items()}}


async def allow(desk: Desk, asked: Message) -> Message:
    match asked.get("do"):
        case "list":
            admissions: Message = msgspec.to_builtins(await desk.admissions())
            return admissions
        case "remove":
            await desk.withdraw(_text(asked, "id"))
            return {"removed": asked["id"]}
        case _:
            return {"allowed": await desk.allow(_text(asked, "id"))}


async def deliveries(desk: Desk, asked: Message) -> Message:
    match asked.get("do"):
        case "retry":
            return {"words": await desk.upkeep.retry(_text(asked, "id"))}
        case "drop":
            await desk.upkeep.drop(_text(asked, "id"))
            return {"words": "is dropped, and no further notice is sent"}
        case _:
            found = await desk.upkeep.deliveries(waiting=asked.get("waiting") is True, limit=LISTED)
            return {"deliveries": msgspec.to_builtins(found)}


# The gateway's health, and the care of its store.


async def status(desk: Desk, asked: Message) -> Message:
    return {"health": msgspec.to_builtins(await desk.health())}


async def prune(desk: Desk, asked: Message) -> Message:
    older = asked.get("older_than")
    seconds = float(older) if isinstance(older, int | float) else None
    pruned = await desk.upkeep.prune(seconds, rehearsal=asked.get("dry_run") is True)
    return {"pruned": msgspec.to_builtins(pruned)}


async def snapshot(desk: Desk, line: Line) -> None:
    """The client removes the copy; when it has gone before it was told, the copy is removed here."""
    await line.read()
    path = await desk.upkeep.snapshot()
    try:
        await line.write({"snapshot": str(path)})
    except ConnectionError:
        path.unlink(missing_ok=True)
        raise


# The board.


async def board(desk: Desk, asked: Message) -> Message:
    order = _order(asked)
    if order.verb == "attach":
        file = link_to(order.text) if is_link(order.text) else await _adopted(desk, order.text)
        order = msgspec.structs.replace(order, file=file)
    done = await desk.board.obey(order, Hand("the owner", parse_target(order.target) if order.target else None))
    data = done.card if order.verb == "show" else None
    return {"words": done.words, "card": msgspec.to_builtins(data)}


async def _adopted(desk: Desk, path: str) -> CardFile:
    file = await desk.adopt(path)
    return CardFile(file.name, file.path)


def _order(asked: Message) -> Order:
    try:
        return msgspec.convert(asked.get("order"), Order)
    except msgspec.ValidationError as error:
        raise Declined(f'"order" is none: {error}') from error


# Schedules.


async def schedule(desk: Desk, asked: Message) -> Message:
    """Answers in words and as data."""
    wall = time.time()
    match asked.get("do"):
        case "add":
            return _one(await desk.schedules.add(await _plan(desk, asked)), wall)
        case "list":
            found = await desk.schedules.all()
            return {"lines": [commands.line(each, wall) for each in found], "schedules": _data(found)}
        case "firing":
            return _firing(await desk.schedules.firing(_text(asked, "firing")))
        case verb:
            return await _act(desk, verb, await _known_schedule(desk, _text(asked, "id")), wall)


async def _act(desk: Desk, verb: object, known: Schedule, wall: float) -> Message:
    match verb:
        case "show":
            runs = await desk.schedules.firings(known.id, SHOWN_RUNS)
            told = [f"{_moment(run.instant)}  {commands.outcome(run)}" for run in runs]
            return {**_one(known, wall), "words": commands.shown(known, wall), "runs": told, "firings": _data(runs)}
        case "pause":
            plan = msgspec.structs.replace(known.plan, paused=True)
            return _one(await desk.schedules.change(known.id, plan), wall)
        case "resume":
            plan = msgspec.structs.replace(known.plan, paused=False, paused_reason="")
            return _one(await desk.schedules.change(known.id, plan), wall)
        case "run":
            return {**_one(known, wall), **_firing(await desk.schedules.fire(known.id))}
        case "remove":
            await desk.schedules.remove(known.id)
            return _one(known, wall)
        case _:
            raise Declined(f"{verb!r} is nothing that can be done with a schedule")


async def _plan(desk: Desk, asked: Message) -> Plan:
    failures = str(asked.get("failures") or "")
    repeat = asked.get("repeat") or 0
    if asked.get("on_missed", "run_once") not in tuple(Missed):
        raise Declined(f"what is missed is one of: {', '.join(Missed)}")
    return Plan(
        name=_text(asked, "name"),
        when=_text(asked, "when"),
        target=await find_target(desk, str(asked.get("to") or "")),
        prompt=str(asked.get("prompt") or ""),
        command=str(asked.get("command") or ""),
        bot=str(asked.get("bot") or ""),
        zone=str(asked.get("zone") or ""),
        failures=await find_target(desk, failures) if failures else None,
        on_missed=Missed(asked.get("on_missed", "run_once")),
        repeat=repeat if isinstance(repeat, int) else 0,
    )


async def _known_schedule(desk: Desk, id: str) -> Schedule:
    """The beginning of an id is enough, where only one begins so."""
    found = [each for each in await desk.schedules.all() if each.id.startswith(id)]
    if len(found) > 1:
        raise Unknown(f"several schedules begin with {id}: write more of the id")
    return found[0] if found else await desk.schedules.get(id)


def _one(schedule: Schedule, wall: float) -> Message:
    return {"words": commands.line(schedule, wall), "schedule": msgspec.to_builtins(schedule)}


def _firing(firing: Firing) -> Message:
    return {"outcome": commands.outcome(firing), "firing": msgspec.to_builtins(firing)}


def _data(found: list[Schedule] | list[Firing]) -> list[Any]:
    return [msgspec.to_builtins(each) for each in found]


def _moment(instant: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(instant))


def _text(asked: Message, name: str) -> str:
    value = asked.get(name)
    if not isinstance(value, str) or not value.strip():
        raise Declined(f'"{name}" must be a text')
    return value


VERBS: Mapping[str, Verb] = {
    "status": status,
    "schedule": schedule,
    "board": board,
    "notify": notify,
    "home": home,
    "allow": allow,
    "prune": prune,
    "deliveries": deliveries,
}

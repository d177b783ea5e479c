"""What the owner asks of schedules over the local socket, and what both ways in make of a target's name."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from tidings.core.desk.desk import Desk
from tidings.core.desk.work import Firing, Missed, Plan, Schedule
from tidings.core.errors import Declined, Unknown
from tidings.core.types import Target, parse_target
from tidings.core.work.schedules import commands

# The owner's own place.
CONSOLE = "console"
LOCAL = "local"
SHOWN_RUNS = 10


async def answer(desk: Desk, asked: dict[str, Any]) -> dict[str, Any]:
    """One question, one answer, in words and as data."""
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
            return await _act(desk, verb, await _find(desk, _text(asked, "id")), wall)


async def _act(desk: Desk, verb: object, known: Schedule, wall: float) -> dict[str, Any]:
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
            raise Declined(f"nobody knows how to {verb!r} a schedule")


async def place(desk: Desk, name: str, say: str = "--to") -> Target:
    """A target by its name; none at all is the home, where there is one and no other. `say` is where one names it."""
    if name == LOCAL:
        return parse_target(CONSOLE)
    if name:
        return parse_target(name)
    homes = list((await desk.homes()).values())
    if len(homes) > 1:
        raise Declined(f"there are several homes ({', '.join(map(str, homes))}): say which with {say}")
    return homes[0] if homes else parse_target(CONSOLE)


async def _plan(desk: Desk, asked: dict[str, Any]) -> Plan:
    failures = str(asked.get("failures") or "")
    repeat = asked.get("repeat") or 0
    if asked.get("on_missed", "run_once") not in tuple(Missed):
        raise Declined(f"what is missed is one of: {', '.join(Missed)}")
    return Plan(
        name=_text(asked, "name"),
        when=_text(asked, "when"),
        target=await place(desk, str(asked.get("to") or "")),
        prompt=str(asked.get("prompt") or ""),
        command=str(asked.get("command") or ""),
        bot=str(asked.get("bot") or ""),
        zone=str(asked.get("zone") or ""),
        failures=await place(desk, failures) if failures else None,
        on_missed=Missed(asked.get("on_missed", "run_once")),
        repeat=repeat if isinstance(repeat, int) else 0,
    )


async def _find(desk: Desk, id: str) -> Schedule:
    """The beginning of an id is enough, where only one begins so."""
    found = [each for each in await desk.schedules.all() if each.id.startswith(id)]
    if len(found) > 1:
        raise Unknown(f"several schedules begin with {id}: write more of the id")
    return found[0] if found else await desk.schedules.get(id)


def _one(schedule: Schedule, wall: float) -> dict[str, Any]:
    return {"words": commands.line(schedule, wall), "schedule": msgspec.to_builtins(schedule)}


def _firing(firing: Firing) -> dict[str, Any]:
    return {"outcome": commands.outcome(firing), "firing": msgspec.to_builtins(firing)}


def _data(found: list[Schedule] | list[Firing]) -> list[Any]:
    return [msgspec.to_builtins(each) for each in found]


def _moment(instant: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(instant))


def _text(asked: dict[str, Any], name: str) -> str:
    value = asked.get(name)
    if not isinstance(value, str) or not value.strip():
        raise Declined(f'"{name}" must be a text')
    return value

"""Jobs: what runs by the clock, with the outcome of each run and of its delivery as two things."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from aiohttp import web
from msgspec.structs import replace

from tidings.adapters.api.errors import Problem
from tidings.adapters.api.guard import Call, query_of, read_json, validate
from tidings.adapters.api.models import JobChange, JobCommand, JobRequest, Listed, Runs
from tidings.adapters.api.service import ApiService, answer, is_within
from tidings.adapters.shared.targets import find_target
from tidings.core.desk.people import Scope
from tidings.core.desk.work import Firing, Missed, Plan, Schedule
from tidings.core.errors import Declined, Overdrawn, Unkeepable, Unknown, Unsupported
from tidings.core.roles import OWNER, Permission, Person
from tidings.core.types import Target

_ID = re.compile(r"[a-f0-9]{12}")
ON_ITS_WAY = ("waiting", "held", "doubtful")
ORIGIN = "“origin” has no meaning here: name a target such as telegram:123, or local"
COMMAND = "a command can only be planned at the command line: tidings schedule add; here a job is a prompt"
ELSEWHERE = "a job of yours reports to a chat of your own; with the scope notify, a key may name other chats"
SEVERAL = "one target for each job: make another job for the next"


class JobProblem(Problem):
    """An error as clients of jobs read it: one sentence."""

    @property
    def body(self) -> dict[str, Any]:
        return {"error": str(self)}


@contextmanager
def _told() -> Iterator[None]:
    """Every refusal in this one shape."""
    try:
        yield
    except JobProblem:
        raise
    except Problem as error:
        raise JobProblem(error.status, str(error), error.code, headers=error.headers) from None
    except Overdrawn as error:
        raise JobProblem(409, str(error), "overdrawn") from None
    except (Unkeepable, Unsupported, Unknown, Declined) as error:
        raise JobProblem(400, str(error), "invalid_job") from None


async def list_all(api: ApiService, call: Call) -> web.StreamResponse:
    with _told():
        asked = query_of(Listed, call)
        found = await api.desk.schedules.all(paused=asked.include_disabled)
        places = await api.places(call.key)
        known = [each for each in found if _may_see(api, call, each) and _is_bound(api, call, each.plan, places)]
        return answer({"jobs": [described(each) for each in known]})


async def create(api: ApiService, call: Call) -> web.StreamResponse:
    with _told():
        asked = validate(JobRequest, await _said(call))
        plan = Plan(
            name=asked.name,
            when=asked.schedule,
            target=await _target(api, call, asked.deliver),
            prompt=asked.prompt,
            bot=_bot(api, call, asked.bot),
            zone=asked.timezone,
            failures=await _target(api, call, asked.deliver_failures) if asked.deliver_failures else None,
            on_missed=Missed(asked.on_missed),
            repeat=asked.repeat or 0,
            paused=asked.paused,
            paused_reason=asked.paused_reason,
            asker=api.asker(call),
        )
        return answer({"job": described(await api.desk.schedules.add(plan))})


async def look(api: ApiService, call: Call) -> web.StreamResponse:
    with _told():
        return answer({"job": described(await _known(api, call))})


async def change(api: ApiService, call: Call) -> web.StreamResponse:
    """Fields that the request leaves out stay as they are."""
    with _told():
        asked = validate(JobChange, await _said(call))
        known = await _known(api, call)
        plan, said = known.plan, asked.model_fields_set
        maker = _maker(api, known)
        if not call.person.role.includes(maker.role):
            # The job acts with its maker's role, so this caller must not choose what it does.
            words = f"this job is the work of an {maker.role}; you may pause, run or delete it, but not change it"
            raise JobProblem(403, words, "missing_role")
        if asked.prompt is not None and plan.command:
            raise JobProblem(400, "this job is a command, which only the command line can change", "invalid_job")
        plan = replace(
            plan,
            name=asked.name or plan.name,
            when=asked.schedule or plan.when,
            prompt=plan.prompt if asked.prompt is None else asked.prompt,
            target=await _target(api, call, asked.deliver) if asked.deliver else plan.target,
            zone=asked.timezone if asked.timezone is not None else plan.zone,
            repeat=(asked.repeat or 0) if "repeat" in said else plan.repeat,
            paused=plan.paused if asked.enabled is None else not asked.enabled,
        )
        return answer({"job": described(await api.desk.schedules.change(known.id, plan))})


async def delete(api: ApiService, call: Call) -> web.StreamResponse:
    with _told():
        await api.desk.schedules.remove((await _known(api, call)).id)
        return answer({"ok": True})


async def pause(api: ApiService, call: Call) -> web.StreamResponse:
    return await _set(api, call, paused=True)


async def resume(api: ApiService, call: Call) -> web.StreamResponse:
    return await _set(api, call, paused=False)


async def _set(api: ApiService, call: Call, *, paused: bool) -> web.StreamResponse:
    with _told():
        known = await _known(api, call)
        reason = known.plan.paused_reason if paused else ""
        plan = replace(known.plan, paused=paused, paused_reason=reason)
        return answer({"job": described(await api.desk.schedules.change(known.id, plan))})


async def run(api: ApiService, call: Call) -> web.StreamResponse:
    """Begun and not waited for: its runs say how it went."""
    with _told():
        known = await _known(api, call)
        firing = await api.desk.schedules.fire(known.id)
        job = described(await api.desk.schedules.get(known.id))
        return answer({"job": job, "run": _run(firing)})


async def runs(api: ApiService, call: Call) -> web.StreamResponse:
    with _told():
        asked = query_of(Runs, call)
        known = await _known(api, call)
        found = await api.desk.schedules.firings(known.id, asked.limit)
        return answer({"runs": [_run(each) for each in found]})


async def _said(call: Call) -> bytes:
    """Reads the body; raises JobProblem for a command, which would run on this machine."""
    data = await read_json(call.request)
    if validate(JobCommand, data).command is not None:
        raise JobProblem(400, COMMAND, "command_not_permitted")
    return data


async def _known(api: ApiService, call: Call) -> Schedule:
    id = call.names["id"]
    if not _ID.fullmatch(id):
        raise JobProblem(400, "the id of a job has twelve digits from 0 to f", "invalid_job_id")
    try:
        known = await api.desk.schedules.get(id)
    except Unknown:
        known = None
    places = await api.places(call.key)
    if known is None or not _may_see(api, call, known) or not _is_bound(api, call, known.plan, places):
        raise JobProblem(404, "there is no such job", "job_not_found")
    return known


def _maker(api: ApiService, schedule: Schedule) -> Person:
    """Whose job it is; what was planned at the command line is the owner's."""
    asker = schedule.plan.asker
    return api.desk.people.find(asker) if asker else OWNER


def _may_see(api: ApiService, call: Call, schedule: Schedule) -> bool:
    """Tells whether a job exists for this person: it is their own, or they may control what others began."""
    return _maker(api, schedule).id == call.person.id or api.may(call, Permission.OTHERS)


def _is_bound(api: ApiService, call: Call, plan: Plan, places: tuple[Target, ...]) -> bool:
    """Tells whether a job exists for this key: its bot and its chats are among those that the key is bound to."""
    if not all(is_within(places, target) for target in (plan.target, plan.failures or plan.target)):
        return False
    if not call.key.bots:
        return True
    every, own = api.desk.bots(), api.bots(call.key)
    # Without a bot, or with one that is gone, the rules choose at each firing, and may choose any.
    possible = (plan.bot,) if plan.bot in every else every
    # No bot answers a command.
    return not plan.command and all(bot in own for bot in possible)


def _bot(api: ApiService, call: Call, name: str) -> str:
    """The bot for a job; a key that is bound to bots has no others."""
    bots = api.bots(call.key)
    if not call.key.bots or name in bots:
        return name
    if name or not bots:
        raise JobProblem(400, f"there is no bot named {name!r}; there are: {', '.join(bots)}", "invalid_job")
    return bots[0]


async def _target(api: ApiService, call: Call, deliver: str) -> Target:
    if deliver.strip() in ("origin", "all"):
        raise JobProblem(400, ORIGIN, "invalid_target")
    if "," in deliver:
        raise JobProblem(400, SEVERAL, "invalid_target")
    target = await find_target(api.desk, deliver.strip(), say="“deliver”")
    await api.check_target(call, target)
    is_own = any(f"{at}:{target.chat}" in call.person.identities for at in (target.adapter, target.at))
    if not (is_own or call.key.may(Scope.NOTIFY) or api.may(call, Permission.OTHERS)):
        raise JobProblem(403, ELSEWHERE, "target_not_permitted")
    return target


def described(schedule: Schedule) -> dict[str, Any]:
    plan, last = schedule.plan, schedule.last
    over = schedule.next is None and not plan.paused
    return {
        "id": schedule.id,
        "name": plan.name,
        "prompt": plan.prompt,
        "command": plan.command or None,
        "schedule": plan.when,
        "timezone": plan.zone or None,
        "deliver": str(plan.target),
        "deliver_failures": str(plan.failures) if plan.failures else None,
        "bot": plan.bot or None,
        "on_missed": plan.on_missed.value,
        "repeat": plan.repeat or None,
        "completed": schedule.fired,
        "enabled": not plan.paused,
        "state": "paused" if plan.paused else "completed" if over else "scheduled",
        "paused_reason": plan.paused_reason or None,
        "created_at": _moment(schedule.created),
        "next_run_at": _moment(schedule.next),
        "last_run_at": _moment(last.instant) if last else None,
        "last_status": status_of(last) if last else None,
        "last_error": last.reason or None if last else None,
        "last_delivery_error": last.delivery_reason or None if last else None,
    }


def status_of(firing: Firing) -> str | None:
    """One word for both outcomes; none while it goes on."""
    if firing.state in ("waiting", "running"):
        return None
    if firing.outcome != "completed":
        return "error"
    if firing.delivery == "dead":
        return "delivery_failed"
    return "delivery_queued" if firing.delivery in ON_ITS_WAY else "ok"


def _run(firing: Firing) -> dict[str, Any]:
    return {
        "id": firing.id,
        "job_id": firing.schedule,
        "scheduled_at": _moment(firing.instant),
        "started_at": _moment(firing.started),
        "ended_at": _moment(firing.ended),
        "state": firing.state,
        "status": status_of(firing),
        "outcome": firing.outcome or None,
        "error": firing.reason or None,
        "delivery": firing.delivery,
        "delivery_error": firing.delivery_reason or None,
        "run_id": firing.run or None,
        "output": firing.output,
    }


def _moment(at: float | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")

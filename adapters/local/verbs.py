"""The verbs of the local socket: what the command line may ask of a running gateway."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from tidings.adapters.local.socket import Handler
from tidings.adapters.shared.targets import find_target
from tidings.core.adapter import Line
from tidings.core.desk.approvals import Choice
from tidings.core.desk.board import CardFile, Hand, Order, is_link, link_to
from tidings.core.desk.desk import Desk
from tidings.core.desk.people import AuditLine, Key, PeopleDesk, PersonLine
from tidings.core.desk.usage import Scope
from tidings.core.desk.work import Firing, Missed, Plan, Schedule
from tidings.core.errors import Declined, Unknown
from tidings.core.inbound import questions
from tidings.core.people.names import is_identity
from tidings.core.redaction import one_line
from tidings.core.roles import GIVEN, OWNER, Permission, Role, described
from tidings.core.types import Body, parse_target
from tidings.core.work.schedules import commands

# Deliveries in one list.
LISTED = 200
SHOWN_RUNS = 10
# Of the words that say why a tool may not run.
REASON_CHARACTERS = 300

Message = dict[str, Any]


class WithPeople(Protocol):
    """The part of the desk that there is also without a running gateway."""

    @property
    def people(self) -> PeopleDesk: ...


class Verb(NamedTuple):
    """What a word of the command line asks of the gateway, and the permission that it needs."""

    answer: Callable[[Desk, Message], Awaitable[Message]]
    needs: Permission
    # Called with the answer if the client has gone before it was told.
    undo: Callable[[Message], None] | None = None


def routes_for(desk: Desk) -> dict[str, Handler]:
    """Each verb takes one question and gives one answer."""
    return {name: guarded(desk, verb.needs, partial(_reply, desk, verb)) for name, verb in VERBS.items()}


def guarded(desk: WithPeople, needs: Permission, handler: Handler) -> Handler:
    """Asks first whether the person at this machine may do this, as every door does."""

    async def handle(line: Line) -> None:
        check(desk, needs)
        await handler(line)

    return handle


def check(desk: WithPeople, needs: Permission) -> None:
    """Raises Declined unless the person at this machine may do this; only that person can reach the socket."""
    if not desk.people.may(OWNER, needs):
        raise Declined(f"this needs the permission {needs}")


async def _reply(desk: Desk, verb: Verb, line: Line) -> None:
    answer = await verb.answer(desk, await line.read() or {})
    try:
        await line.write(answer)
    except ConnectionError:
        if verb.undo is not None:
            verb.undo(answer)
        raise


# Messages, and who may speak.


async def notify(desk: Desk, asked: Message) -> Message:
    target = parse_target(_text(asked, "target"))
    files = tuple([await desk.adopt(str(path)) for path in asked.get("files") or ()])
    text = str(asked.get("text") or "") if files else _text(asked, "text")
    delivery = await desk.owe(target, Body(text=text, files=files), cause="notify")
    return {"owed": delivery, "target": str((await desk.delivery(delivery)).target)}


async def home(desk: Desk, asked: Message) -> Message:
    if asked.get("target"):
        await desk.set_home(OWNER, parse_target(_text(asked, "target")))
    return {"homes": {name: str(target) for name, target in (await desk.homes()).items()}}


async def people(desk: WithPeople, asked: Message) -> Message:
    """Everything that `tidings people` does; the person at this machine is the owner."""
    register, who = desk.people, str(asked.get("who") or "")
    match asked.get("do"):
        case "list":
            return {
                "people": msgspec.to_builtins(await register.all()),
                "waiting": msgspec.to_builtins(await register.waiting()),
                "has_owner": register.has_owner(),
            }
        case "show":
            line = await _known(register, who)
            keys = [key.name for key in _keys(register) if key.person in (line.id, *line.identities)]
            return {"person": msgspec.to_builtins(line), "keys": keys}
        case "admit":
            before = await _role_of(register, who)
            line = await register.admit(OWNER, who, _role(asked), str(asked.get("name") or ""))
            return {"person": msgspec.to_builtins(line), "before": before}
        case "remove":
            line = await register.remove(OWNER, (await _known(register, who)).id)
        case "block":
            line = await register.block(OWNER, who if is_identity(who) else (await _known(register, who)).id)
        case "role":
            line = await register.set_role(OWNER, (await _known(register, who)).id, _role(asked) or Role.STRANGER)
        case "link":
            other = _text(asked, "other")
            other = other if is_identity(other) else (await _known(register, other)).id
            line = await register.link(OWNER, (await _known(register, who)).id, other)
        case "unlink":
            line = await _known(register, who)
            await register.unlink(OWNER, who)
        case "forget":
            return {"runs": await register.forget(OWNER, (await _known(register, who)).id)}
        case verb:
            raise Declined(f"{verb!r} is nothing that can be done with people")
    return {"person": msgspec.to_builtins(line)}


def _role(asked: Message) -> Role | None:
    role = str(asked.get("role") or "")
    if role and role not in GIVEN:
        raise Declined(f"there is no role {role}; there are: {', '.join(GIVEN)}")
    return Role(role) if role else None


async def _role_of(register: PeopleDesk, who: str) -> str:
    """The role that somebody has before a change; empty for an unknown id."""
    found = [line.role for line in await register.all() if who in (line.id, *line.identities)]
    return str(found[0]) if found else ""


async def _known(register: PeopleDesk, who: str) -> PersonLine:
    """A person by id, identity or name; raises Unknown with the nearest name."""
    try:
        return await register.get(who)
    except Unknown as error:
        words = [word for line in await register.all() for word in (line.name, *line.identities) if word]
        near = get_close_matches(who, words, 1) or [word for word in words if word.casefold() == who.casefold()]
        hint = f"did you mean {near[0]}?" if near else "see who is: tidings people"
        raise Unknown(f"{error}; {hint}") from None


async def audit(desk: WithPeople, asked: Message) -> Message:
    """The newest entries first, with the names of the persons and keys in them."""
    limit, before, since = (asked.get(name) or 0 for name in ("limit", "before", "since"))
    lines = await desk.people.audit(min(int(limit) or LISTED, LISTED), int(before), float(since))
    return {"audit": msgspec.to_builtins(lines), "names": await _names(desk.people, lines)}


async def _names(register: PeopleDesk, lines: list[AuditLine]) -> dict[str, str]:
    """How the persons and keys in these entries are called; a removed person by the identity in the entries."""
    gone = {line.object: word for line in lines for word in line.detail.split()[:1] if is_identity(word)}
    known = {line.id: _label(line) for line in await register.all()}
    keys = {key.id: key.name for key in _keys(register)}
    found = gone | known | keys | {OWNER.id: OWNER.name}
    named = {word for line in lines for word in (line.actor, line.object, *line.detail.split())}
    return {id: found[id] for id in named if id in found}


def _keys(register: PeopleDesk) -> tuple[Key, ...]:
    return register.keys()


def _label(line: PersonLine) -> str:
    return described(line.name, line.identities[0] if line.identities else line.id)


async def approvals(desk: Desk, asked: Message) -> Message:
    """Everything that `tidings approvals` does; the person at this machine is the owner."""
    register = desk.approvals
    match asked.get("do"):
        case "list":
            return {"open": msgspec.to_builtins(await register.open(OWNER))}
        case "answer":
            choice = asked.get("choice")
            if choice not in tuple(Choice):
                raise Declined(f"a question is answered with one of: {', '.join(Choice)}")
            reason = one_line(str(asked.get("reason") or ""))[:REASON_CHARACTERS]
            question = await register.answer(OWNER, _text(asked, "id"), Choice(choice), reason)
            return {"question": msgspec.to_builtins(question), "words": questions.ended(question)}
        case "standing":
            return {"standing": msgspec.to_builtins(await register.standing(OWNER))}
        case "revoke":
            await register.revoke(OWNER, _text(asked, "id"))
            return {}
        case verb:
            raise Declined(f"{verb!r} is nothing that can be done with approvals")


async def usage(desk: Desk, asked: Message) -> Message:
    """Usage by person, bot or chat; the person at this machine sees everybody's."""
    by = asked.get("by") or Scope.PERSON
    if by not in (Scope.PERSON, Scope.BOT, Scope.CHAT):
        raise Declined("usage is told by person, bot or chat")
    report = await desk.usage.report(OWNER, Scope(by), str(asked.get("since") or ""))
    return {"usage": msgspec.to_builtins(report)}


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


async def snapshot(desk: Desk, asked: Message) -> Message:
    """The client removes the copy."""
    return {"snapshot": str(await desk.upkeep.snapshot())}


def _drop_snapshot(answer: Message) -> None:
    Path(answer["snapshot"]).unlink(missing_ok=True)


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


# The same permissions as for the commands of a chat and the routes of the API.
VERBS: Mapping[str, Verb] = {
    "status": Verb(status, Permission.OTHERS),
    "schedule": Verb(schedule, Permission.OPERATE),
    "board": Verb(board, Permission.WORK),
    "notify": Verb(notify, Permission.OPERATE),
    "home": Verb(home, Permission.HOME),
    "people": Verb(people, Permission.PEOPLE),
    "approvals": Verb(approvals, Permission.APPROVE_OTHERS),
    "audit": Verb(audit, Permission.OPERATE),
    "usage": Verb(usage, Permission.OTHERS),
    "prune": Verb(prune, Permission.OPERATE),
    "deliveries": Verb(deliveries, Permission.OPERATE),
    "snapshot": Verb(snapshot, Permission.OPERATE, _drop_snapshot),
}
# What needs only the store; the home is not in use then.
AT_REST: Mapping[str, Callable[[WithPeople, Message], Awaitable[Message]]] = {"people": people, "audit": audit}


def only_reads(asked: Message) -> bool:
    return asked.get("verb") == "audit" or asked.get("do") in ("list", "show")


async def answer_at_rest(desk: WithPeople, asked: Message) -> Message:
    """Answers a question while no gateway runs: by the same verb, and with the same permission."""
    name = _text(asked, "verb")
    check(desk, VERBS[name].needs)
    return await AT_REST[name](desk, asked)

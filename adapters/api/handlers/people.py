"""People: who is known, with which role, and who waits to be admitted; changes are bounded by the caller's own role."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from aiohttp import web

from tidings.adapters.api.errors import Problem, not_found
from tidings.adapters.api.guard import Call, query_of, read_json, validate
from tidings.adapters.api.models import Page, PersonChange, PersonLink, PersonRequest, is_legible
from tidings.adapters.api.service import ApiService, answer
from tidings.core.desk.people import AuditLine, PersonLine, Waiting
from tidings.core.errors import NotPermitted, Unkeepable, Unknown
from tidings.core.roles import Role


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except Unknown as error:
        raise Problem(404, str(error), "person_not_found") from None
    except NotPermitted as error:
        raise Problem(403, str(error), "missing_role") from None
    except Unkeepable as error:
        raise Problem(409, str(error), "person_refused") from None


async def list_all(api: ApiService, call: Call) -> web.StreamResponse:
    return answer({"object": "list", "data": [_person(line) for line in await api.desk.people.all()]})


async def waiting(api: ApiService, call: Call) -> web.StreamResponse:
    return answer({"object": "list", "data": [_waiting(each) for each in await api.desk.people.waiting()]})


async def admit(api: ApiService, call: Call) -> web.StreamResponse:
    """Admits an identity, or the stranger who waits with this code."""
    asked = validate(PersonRequest, await read_json(call.request))
    role = Role(asked.role) if asked.role else None
    with _told():
        return answer(_person(await api.desk.people.admit(call.person, asked.id or asked.code, role, asked.name)), 201)


async def look(api: ApiService, call: Call) -> web.StreamResponse:
    return answer(_person(await _known(api, call)))


async def change(api: ApiService, call: Call) -> web.StreamResponse:
    asked = validate(PersonChange, await read_json(call.request))
    line = await _known(api, call)
    with _told():
        if asked.role is not None:
            line = await api.desk.people.set_role(call.person, line.id, Role(asked.role))
        if asked.name is not None:
            line = await api.desk.people.rename(call.person, line.id, asked.name)
    return answer(_person(line))


async def remove(api: ApiService, call: Call) -> web.StreamResponse:
    """Removes a person from the store, and tells which role the person still has by other ways."""
    line = await _known(api, call)
    with _told():
        left = await api.desk.people.remove(call.person, line.id)
    role = max((left.role, *map(api.role_under_key, left.identities)), key=lambda each: each.rank)
    gone = {"object": "person", "id": line.id, "role": role, "deleted": not role.includes(Role.GUEST)}
    return answer(gone if gone["deleted"] else {**gone, "message": _still(left, role)})


def _still(left: PersonLine, role: Role) -> str:
    """Why a removed person may still talk, and what helps."""
    article = "an" if role in (Role.ADMIN, Role.OWNER) else "a"
    words = f"this person may still talk to the bots, as {article} {role}"
    if left.in_settings:
        return f"{words}: the settings name {', '.join(left.in_settings)}; remove it there, or block the person"
    return f"{words}; block them to keep them out"


async def block(api: ApiService, call: Call) -> web.StreamResponse:
    """Blocks a person, or an identity that was never admitted."""
    who = call.names["id"]
    if await _find(api, who) is None and (":" not in who or not is_legible(who)):
        raise not_found("person")
    with _told():
        return answer(_person(await api.desk.people.block(call.person, who)))


async def link(api: ApiService, call: Call) -> web.StreamResponse:
    asked = validate(PersonLink, await read_json(call.request))
    line = await _known(api, call)
    with _told():
        return answer(_person(await api.desk.people.link(call.person, line.id, asked.other)))


async def audit(api: ApiService, call: Call) -> web.StreamResponse:
    """The newest entries first."""
    page = query_of(Page, call)
    lines = await api.desk.people.audit(page.limit + 1, page.after)
    # One line more than asked for tells that there is another page.
    following = str(lines[page.limit - 1].seq) if len(lines) > page.limit else None
    return answer({"object": "list", "data": [_entry(line) for line in lines[: page.limit]], "next": following})


async def _known(api: ApiService, call: Call) -> PersonLine:
    line = await _find(api, call.names["id"])
    if line is None:
        raise not_found("person")
    return line


async def _find(api: ApiService, who: str) -> PersonLine | None:
    """Finds a person by id or identity; a name finds nobody, because anybody can choose any name."""
    try:
        line = await api.desk.people.get(who)
    except Unknown:
        return None
    return line if who in (line.id, *line.identities) else None


def _person(line: PersonLine) -> dict[str, Any]:
    whole: dict[str, Any] = msgspec.to_builtins(line)
    return {"object": "person", **whole}


def _waiting(stranger: Waiting) -> dict[str, Any]:
    whole: dict[str, Any] = msgspec.to_builtins(stranger)
    return {"object": "waiting", **whole}


def _entry(line: AuditLine) -> dict[str, Any]:
    whole: dict[str, Any] = msgspec.to_builtins(line)
    return {"object": "audit", **whole}

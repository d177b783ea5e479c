"""The role table: every command, button, route, tool and word of the command line, with every role.

What each asks for is read from its own registry and compared with the table here: a new one without an entry fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.scenario.spine.test_pairing import button, meet
from tests.worlds.world import Echo, Scripted, World
from tidings.adapters.api.routes import ENDPOINTS
from tidings.adapters.local import verbs
from tidings.bots.assistant.commands import commands as assistant_commands
from tidings.bots.assistant.settings import Assistant
from tidings.bots.cli.app import app
from tidings.core.agent import ChoicesOffered
from tidings.core.people import policy
from tidings.core.roles import OWNER, Permission, Person, Role

TALK, BASICS, WORK, APPROVE, APPROVE_OTHERS, OTHERS, HOME, PEOPLE, OPERATE = Permission
# Who has which role in the stories below.
PERSONS = {"1": Role.OWNER, "6": Role.ADMIN, "8": Role.MEMBER, "9": Role.GUEST, "10": Role.BLOCKED}

MAY: Mapping[Permission, set[Role]] = {
    TALK: {Role.OWNER, Role.ADMIN, Role.MEMBER, Role.GUEST},
    BASICS: {Role.OWNER, Role.ADMIN, Role.MEMBER, Role.GUEST},
    WORK: {Role.OWNER, Role.ADMIN, Role.MEMBER},
    # Members too where the settings say so.
    APPROVE: {Role.OWNER, Role.ADMIN},
    APPROVE_OTHERS: {Role.OWNER, Role.ADMIN},
    OTHERS: {Role.OWNER, Role.ADMIN},
    HOME: {Role.OWNER, Role.ADMIN},
    PEOPLE: {Role.OWNER, Role.ADMIN},
    OPERATE: {Role.OWNER},
}

COMMANDS = {
    "continue": WORK,
    "sessions": WORK,
    "approvals": APPROVE,
    "approve": APPROVE,
    "at": WORK,
    "bg": WORK,
    "board": WORK,
    "compact": WORK,
    "deny": APPROVE,
    "every": WORK,
    "help": BASICS,
    "link": WORK,
    "listen": WORK,
    "model": WORK,
    "new": BASICS,
    "people": PEOPLE,
    "persona": WORK,
    "retry": WORK,
    "schedules": WORK,
    "sethome": HOME,
    "status": BASICS,
    "stop": BASICS,
    "steer": BASICS,
    "queue": BASICS,
    "busy": WORK,
    "tasks": WORK,
    "undo": WORK,
    "usage": BASICS,
    "whoami": BASICS,
}


# None is open to everybody.
ROUTES: Mapping[str, Permission | None] = {
    "GET /health": None,
    "GET /v1/health": None,
    "GET /health/detailed": OPERATE,
    "GET /metrics": OPERATE,
    "GET /openapi.json": TALK,
    "GET /v1/models": TALK,
    "GET /v1/models/{id}": TALK,
    "GET /v1/capabilities": TALK,
    "POST /v1/chat/completions": TALK,
    "POST /v1/responses": TALK,
    "GET /v1/responses/{id}": TALK,
    "GET /v1/responses/{id}/input_items": TALK,
    "POST /v1/responses/{id}/cancel": TALK,
    "DELETE /v1/responses/{id}": TALK,
    "POST /v1/runs": TALK,
    "GET /v1/runs/{run_id}": TALK,
    "GET /v1/runs/{run_id}/events": TALK,
    "POST /v1/runs/{run_id}/stop": TALK,
    "POST /v1/runs/{run_id}/steer": TALK,
    "POST /v1/runs/{run_id}/approval": TALK,
    "GET /v1/approvals": TALK,
    "GET /v1/approvals/{request_id}": TALK,
    "POST /v1/approvals/{request_id}": TALK,
    "POST /v1/notify": WORK,
    "GET /v1/deliveries/{delivery_id}": WORK,
    "GET /v1/conversations": TALK,
    "GET /v1/conversations/{id}/messages": TALK,
    "GET /api/jobs": WORK,
    "POST /api/jobs": WORK,
    "GET /api/jobs/{id}": WORK,
    "PATCH /api/jobs/{id}": WORK,
    "DELETE /api/jobs/{id}": WORK,
    "POST /api/jobs/{id}/pause": WORK,
    "POST /api/jobs/{id}/resume": WORK,
    "POST /api/jobs/{id}/run": WORK,
    "GET /api/jobs/{id}/runs": WORK,
    "GET /api/board/cards": WORK,
    "POST /api/board/cards": WORK,
    "GET /api/board/cards/{id}": WORK,
    "POST /api/board/cards/{id}/comments": WORK,
    "POST /api/board/cards/{id}/files": WORK,
    "POST /api/board/cards/{id}/unblock": WORK,
    "POST /api/board/cards/{id}/complete": WORK,
    "POST /api/board/cards/{id}/block": WORK,
    "POST /api/board/cards/{id}/parents": WORK,
    "POST /api/board/cards/{id}/watchers": WORK,
    "POST /api/board/cards/{id}/archive": WORK,
    "GET /v1/people": PEOPLE,
    "POST /v1/people": PEOPLE,
    "GET /v1/people/waiting": PEOPLE,
    "GET /v1/people/{id}": PEOPLE,
    "PATCH /v1/people/{id}": PEOPLE,
    "DELETE /v1/people/{id}": PEOPLE,
    "POST /v1/people/{id}/block": PEOPLE,
    "POST /v1/people/{id}/link": PEOPLE,
    "GET /v1/usage": BASICS,
    "GET /v1/audit": OPERATE,
}

VERBS = {
    "approvals": APPROVE_OTHERS,
    "audit": OPERATE,
    "board": WORK,
    "deliveries": OPERATE,
    "home": HOME,
    "notify": OPERATE,
    "people": PEOPLE,
    "prune": OPERATE,
    "schedule": OPERATE,
    "snapshot": OPERATE,
    "status": OTHERS,
    "usage": OTHERS,
}
# By word: the verb of the local socket that it asks a running gateway with; empty for what only this machine can do.
WORDS = {
    **dict.fromkeys(("init", "run", "version", "config check", "doctor", "restore"), ""),
    **dict.fromkeys(("service install", "service remove", "service status"), ""),
    # They have routes of their own on the socket, which the platforms and the application open for the owner.
    **dict.fromkeys(("chat", "key add", "key list", "key revoke", "reload"), ""),
    "audit": "audit",
    "backup": "snapshot",
    "home": "home",
    "notify": "notify",
    "prune": "prune",
    "status": "status",
    "usage": "usage",
    **dict.fromkeys((f"approvals {word}" for word in ("approve", "deny", "list", "revoke", "standing")), "approvals"),
    **dict.fromkeys((f"deliveries {word}" for word in ("drop", "list", "retry")), "deliveries"),
    **dict.fromkeys(
        (f"people {word}" for word in ["admit", "block", "forget", "link", "list", "remove", "role", "show", "unlink"]),
        "people",
    ),
    **dict.fromkeys(
        (f"schedule {word}" for word in ["add", "list", "pause", "remove", "resume", "run", "show"]), "schedule"
    ),
    **dict.fromkeys(
        (
            f"board {word}"
            for word in [
                "add",
                "archive",
                "attach",
                "block",
                "comment",
                "done",
                "link",
                "list",
                "show",
                "unblock",
                "watch",
            ]
        ),
        "board",
    ),
}


@pytest.mark.parametrize("permission", Permission)
def test_one_function_answers_by_the_table(permission: Permission) -> None:
    assert {role for role in Role if policy.may(role, permission)} == MAY[permission]


def test_settings_change_the_lowest_role_of_a_permission_and_nothing_else() -> None:
    required = {**policy.REQUIRED, WORK: Role.GUEST, TALK: Role.ADMIN}
    assert policy.may(Role.GUEST, WORK, required)
    assert not policy.may(Role.MEMBER, TALK, required)
    for role in (Role.STRANGER, Role.BLOCKED):
        assert not any(policy.may(role, each, dict.fromkeys(Permission, Role.GUEST)) for each in Permission)


async def with_persons(world: World) -> None:
    for sender, role in PERSONS.items():
        if role is Role.BLOCKED:
            await world.gateway.desk.people.block(OWNER, f"paper:{sender}")
        else:
            await world.admit(f"paper:{sender}", role)


async def test_every_command_with_every_role(tmp_path: Path) -> None:
    of_bots = assistant_commands(lambda inbound: "bot", {"bot": Assistant(model="test:one")})
    async with World(tmp_path, Echo(), allow=[], commands=of_bots) as world:
        await with_persons(world)
        known = {command.name: command.needs for command in world.gateway._commands.all()}
        assert known == COMMANDS
        for name, needs in known.items():
            for sender, role in PERSONS.items():
                before = len(world.paper.posts_in(sender))
                key = world.paper.says(f"/{name}", sender=sender, chat=sender)
                if role is Role.BLOCKED:
                    world.ignored.add(key)
                    await world.paper.until(lambda paper, key=key: key in paper.confirmed)
                    continue
                await world.paper.until(lambda paper, at=sender, n=before: len(paper.posts_in(at)) > n)
                refused = world.paper.posts_in(sender)[-1].startswith(f"You can't use /{name}: you are a")
                assert refused == (role not in MAY[needs]), (name, role)
                await world.settled()
        await world.settled()
        assert world.paper.posts_in("10") == []


@pytest.mark.parametrize(("sender", "role"), PERSONS.items())
async def test_the_buttons_of_a_request_with_every_role(tmp_path: Path, sender: str, role: Role) -> None:
    async with World(tmp_path, Echo(), allow=[]) as world:
        await with_persons(world)
        world.paper.says("/sethome", sender="1", chat="1")
        await world.paper.until(lambda paper: paper.posts_in("1"))
        await meet(world, sender="20", chat="20")
        await world.paper.until(lambda paper: len(paper.posts_in("1")) == 2)
        asked = world.paper.visible("1")[-1]
        key = world.paper.presses(asked.id, button(asked, "Admit"), sender=sender)
        if role not in MAY[PEOPLE]:
            world.ignored.add(key)
        await world.paper.until(lambda paper: key in paper.confirmed)
        await world.settled()
        is_admitted = any("paper:20" in line.identities for line in await world.gateway.desk.people.all())
        assert is_admitted == (role in MAY[PEOPLE])


@pytest.mark.parametrize(("sender", "role"), [*PERSONS.items(), ("30", Role.STRANGER)])
async def test_the_buttons_of_an_answer_with_every_role(tmp_path: Path, sender: str, role: Role) -> None:
    agent = Scripted("Tea?", ChoicesOffered(("Yes",)))
    async with World(tmp_path, agent, allow=[]) as world:
        await with_persons(world)
        world.paper.says("ask", sender="1", chat="5", private=False)
        await world.paper.until(lambda paper: paper.posts_in("5"))
        await world.settled()
        (asked,) = world.paper.visible("5")
        key = world.paper.presses(asked.id, asked.choices[0].id, sender=sender)
        if role not in MAY[TALK]:
            world.ignored.add(key)
        await world.paper.until(lambda paper: key in paper.confirmed)
        await world.settled()
        assert [turn.message.text for turn in agent.turns] == ["ask", *(["Yes"] if role in MAY[TALK] else [])]


def test_every_route_has_its_entry() -> None:
    """What each role may do there is shown by test_s8_scopes, which asks every route with every role."""
    assert {f"{each.method} {each.path}": each.needs for each in ENDPOINTS} == ROUTES


@pytest.mark.parametrize("role", Role)
async def test_every_verb_of_the_local_socket_asks_the_one_function(tmp_path: Path, role: Role) -> None:
    assert {name: verb.needs for name, verb in verbs.VERBS.items()} == VERBS
    async with World(tmp_path, Echo()) as world:
        people = world.gateway.desk.people
        somebody = Person(id="paper:20", role=role)
        permitted = {name for name, verb in verbs.VERBS.items() if people.may(somebody, verb.needs)}
        assert permitted == {name for name, needs in VERBS.items() if role in MAY[needs]}


def test_every_word_of_the_command_line_has_its_entry() -> None:
    assert set(_words(typer.main.get_command(app))) == set(WORDS)
    assert set(WORDS.values()) == {"", *VERBS}


def _words(group: Any, before: str = "") -> Iterator[str]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _words(command, f"{before}{name} ")
        else:
            yield before + name

"""Calls a tool as a run does: with its arguments written as JSON, and inside a session."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.worlds.builders import capabilities, inbound
from tests.worlds.fakes import FakeDesk
from tidings.bots.assistant.tools.tool import Occasion, Result, Tool
from tidings.core import context
from tidings.core.context import Session
from tidings.core.people import policy
from tidings.core.roles import Permission, Person, Role


def permissions_of(role: Role) -> frozenset[Permission]:
    return frozenset(each for each in Permission if policy.may(role, each))


@contextmanager
def in_session(
    workspace: Path = Path("workspace"), *, run: str = "run_1", role: Role = Role.OWNER, **can: Any
) -> Iterator[Session]:
    """Binds a session that works for a person with this role."""
    message = inbound()
    session = Session(
        run=run,
        conversation=message.conversation,
        sender=message.sender,
        bot="bot",
        target=message.target,
        can=capabilities(**can),
        workspace=workspace,
        person=Person(id="paper:7", role=role, identities=("paper:7",)),
        permissions=permissions_of(role),
    )
    with context.bind(session):
        yield session


async def use(
    tools: Iterable[Tool], name: str, desk: FakeDesk | None = None, key: str = "call_1", **arguments: Any
) -> Result:
    tool = next(tool for tool in tools if tool.name == name)
    return await tool.act(json.dumps(arguments), Occasion(desk or FakeDesk(), key))

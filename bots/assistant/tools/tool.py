"""The type of a tool: a name, typed arguments, a declared effect and a function, independent of any model library."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from tidings.core import context
from tidings.core.agent import Effect
from tidings.core.context import Session
from tidings.core.desk.desk import Desk
from tidings.core.roles import Permission, Role
from tidings.core.types import Asker, File

# What a person without a permission may not have a bot do; a tool can need no other permission.
DEEDS = {
    Permission.TALK: "use tools",
    Permission.WORK: "change things, run commands or plan work",
}


class ToolError(Exception):
    """An error in a sentence for the model; every other exception is a bug in the tool."""


class Arguments(msgspec.Struct, frozen=True):
    """The typed arguments of one tool; a `msgspec.Meta(description=...)` tells the model about a field."""


@dataclass(frozen=True, slots=True)
class Occasion:
    """The call for which a tool acts; the session is bound to the task."""

    desk: Desk
    # The same when this call is repeated after a restart.
    key: str


@dataclass(frozen=True, slots=True)
class Result:
    text: str
    # Files that are sent with the answer.
    files: tuple[File, ...] = ()


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    # One or two sentences for the model.
    description: str
    # The JSON schema of the arguments: an object.
    schema: Mapping[str, Any]
    effect: Effect
    # What the person that the run works for must be permitted.
    needs: Permission
    # Takes the arguments as the model wrote them; raises ToolError that says what is wrong with them.
    act: Callable[[str, Occasion], Awaitable[Result]]
    # Whether the result was written by others, so that it is labelled for the model.
    untrusted: bool = False
    # The server's own name of the tool, if it differs.
    called: str = ""
    # Raises ToolError for arguments that the tool cannot take, so that people are asked about nothing impossible.
    check: Callable[[str], object] | None = None
    # Names the text of others that a call brings in, by its arguments, such as "the page example.org".
    source: Callable[[str], str] | None = None
    # Tells whether a call of a tool with an effect only looks, by its arguments.
    only_looks: Callable[[str], bool] | None = None


A = TypeVar("A", bound=Arguments)


def define(
    name: str,
    description: str,
    arguments: type[A],
    effect: Effect,
    needs: Permission,
    act: Callable[[A, Occasion], Awaitable[Result]],
    *,
    untrusted: bool = False,
    source: Callable[[str], str] | None = None,
) -> Tool:
    def check(written: str) -> A:
        return decode(written, arguments)

    async def decode_and_act(written: str, occasion: Occasion) -> Result:
        return await act(check(written), occasion)

    return Tool(
        name,
        description,
        schema_of(arguments),
        effect,
        needs,
        decode_and_act,
        untrusted,
        check=check,
        source=source,
    )


def decode(written: str, arguments: type[A]) -> A:
    try:
        # A model may write nothing instead of an empty object, and numbers as text.
        return msgspec.convert(msgspec.json.decode(written or "{}"), arguments, strict=False)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise ToolError(f"the arguments are wrong: {error}") from error


def may_change(asker: Asker | None, occasion: Occasion) -> bool:
    """Tells whether the person of this run may change work that was begun for `asker`: their own, or as an admin."""
    session = context.current()
    if barred(session, occasion.desk, Permission.OTHERS) is None:
        return True
    return asker is not None and occasion.desk.people.find(asker).id == session.person.id


def barred(session: Session, desk: Desk, needs: Permission) -> Role | None:
    """The role for which a tool may not act: as the run began, or as it is by now; None if the tool may act.

    A higher role counts from the next run on, because the model was told what it can do when this one began.
    """
    if needs not in session.permissions:
        return session.person.role
    person = desk.people.find(session.asker) if session.asker else session.person
    return None if desk.people.may(person, needs) else person.role


def not_for(role: Role, name: str, needs: Permission) -> str:
    """Why a tool does not run for the person that a run works for, in words for the model."""
    article = "an" if role[0] in "aeiou" else "a"
    return (
        f"{name} did not run: you work for {article} {role}, who may not have you {DEEDS[needs]}. "
        "Tell them that an owner or admin can give them another role."
    )


def schema_of(arguments: type[Arguments]) -> dict[str, Any]:
    _, components = msgspec.json.schema_components([arguments])
    schema: dict[str, Any] = components[arguments.__name__]
    return {"type": "object", "properties": schema.get("properties", {}), "required": schema.get("required", [])}

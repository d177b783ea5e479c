"""Plans work for later in this conversation; only for bots whose settings name the tool."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from tidings.bots.assistant.tools.tool import Arguments, Occasion, Result, ToolError, decode, define, may_change
from tidings.core import context
from tidings.core.agent import Effect
from tidings.core.desk.work import Plan, Schedule
from tidings.core.errors import Overdrawn, Unkeepable, Unknown, Unstored, Unsupported
from tidings.core.roles import Permission

NAME_CHARACTERS = 60
HEADLESS = "This is itself scheduled or delegated work, which may plan nothing. Do what can be done now."
UNDELIVERABLE = "Nothing can be planned here: nothing can be delivered to this conversation later. Say so."

NOT_THEIRS = "Nothing was changed: somebody else planned “{name}”. They can change it, and so can an owner or admin."


class Wish(Arguments, frozen=True):
    action: Literal["add", "list", "pause", "resume", "remove"]
    when: Annotated[
        str,
        Meta(
            description="For add: every day at 9:00, every 30m, every monday at 8:30, 0 9 * * 1-5, 18:30,"
            " tomorrow 9:00, in 20m or 2026-03-01 09:00."
        ),
    ] = ""
    prompt: Annotated[
        str,
        Meta(description="For add: what to do then, understandable without this conversation, which you will not see."),
    ] = ""
    name: Annotated[str, Meta(description="For add: a few words by which the person knows it.")] = ""
    zone: Annotated[str, Meta(description="The person's time zone, such as Europe/Berlin; empty is the machine's.")] = (
        ""
    )
    id: Annotated[str, Meta(description="For pause, resume and remove: which, as the list says.")] = ""


async def act(asked: Wish, occasion: Occasion) -> Result:
    if asked.action == "list":
        found = await occasion.desk.schedules.all(context.current().conversation.id)
        return Result("\n".join(map(_line, found)) if found else "Nothing is planned in this conversation.")
    session = _checked()
    try:
        if asked.action == "add":
            prompt = asked.prompt.strip()
            if not prompt:
                raise ToolError("Say in prompt what to do then.")
            plan = Plan(
                name=asked.name.strip() or prompt[:NAME_CHARACTERS],
                when=asked.when,
                target=session.target,
                prompt=prompt,
                bot=session.bot,
                zone=asked.zone,
                conversation=session.conversation.id,
                sender=session.sender.id,
                asker=session.asker,
            )
            return Result(f"Planned: {_line(await occasion.desk.schedules.add(plan))}")
        known = await _find(occasion, session, asked.id)
        if not may_change(known.plan.asker, occasion):
            raise ToolError(NOT_THEIRS.format(name=known.plan.name))
        if asked.action == "remove":
            await occasion.desk.schedules.remove(known.id)
            return Result(f"{known.id} is removed.")
        paused = asked.action == "pause"
        changed = msgspec.structs.replace(known.plan, paused=paused, paused_reason="")
        return Result(_line(await occasion.desk.schedules.change(known.id, changed)))
    except (Unkeepable, Unknown, Unsupported, Overdrawn, Unstored) as error:
        raise ToolError(f"Nothing was changed: {error}.") from error


def _checked() -> context.Session:
    """Checks that the promise can be kept, before anything is stored."""
    session = context.current()
    if session.errand is not None:
        raise ToolError(HEADLESS)
    try:
        session.require("async_delivery")
    except Unsupported as error:
        raise ToolError(UNDELIVERABLE) from error
    return session


async def _find(occasion: Occasion, session: context.Session, id: str) -> Schedule:
    """The schedule with this id, if it belongs to this conversation; other schedules are unknown here."""
    for known in await occasion.desk.schedules.all(session.conversation.id):
        if id and known.id == id:
            return known
    raise Unknown(f"there is no schedule {id or 'without an id'} in this conversation")


def _line(schedule: Schedule) -> str:
    from tidings.core.work.schedules import commands

    return commands.line(schedule, time.time())


def _only_looks(written: str) -> bool:
    return decode(written, Wish).action == "list"


_TOOL = define(
    "schedules",
    "Plans something for you to do later, once or repeatedly; lists and changes what was planned in this "
    "conversation. What you answer then is sent here as a message of its own.",
    Wish,
    Effect.EFFECT,
    Permission.WORK,
    act,
)
TOOLS = (replace(_TOOL, only_looks=_only_looks),)

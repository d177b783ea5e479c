"""Sends messages to other chats; only for bots whose settings name the tool, and only to permitted targets."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from tidings.bots.assistant.tools.tool import Arguments, Occasion, Result, Tool, ToolError, define
from tidings.core import context
from tidings.core.agent import Effect
from tidings.core.errors import ConfigError, Conflict, Unknown, Unstored, Unsupported
from tidings.core.roles import Permission
from tidings.core.types import Body, Target, parse_target

DESCRIPTION = "Sends a message to another conversation. Answers to this one need no tool: just say them."


class Message(Arguments, frozen=True):
    target: Annotated[
        str, Meta(description="platform:CHAT or platform:CHAT:THREAD, such as telegram:123; or console for the owner.")
    ]
    text: str


def tools(send_to: Iterable[str]) -> tuple[Tool, ...]:
    """`send_to` lists the permitted targets; empty means every target that the desk permits."""
    places = tuple(_configured(place) for place in send_to)

    async def act(asked: Message, occasion: Occasion) -> Result:
        return await _send(asked, occasion, places)

    return (define("send_message", DESCRIPTION, Message, Effect.EFFECT, Permission.WORK, act),)


def _configured(place: str) -> Target:
    try:
        return parse_target(place)
    except Unknown as error:
        raise ConfigError(f"send_to: {error}") from error


async def _send(asked: Message, occasion: Occasion, places: tuple[Target, ...]) -> Result:
    text = asked.text
    if not text.strip():
        raise ToolError("An empty message cannot be sent.")
    digest = hashlib.sha256(f"{asked.target}\n{text}".encode()).hexdigest()
    cause = f"tool/{context.current().run}"
    try:
        target = parse_target(asked.target)
        if places and not any(_covers(place, target) for place in places):
            raise ToolError(
                f"The settings of this bot do not let it write to {target}; the owner can add it to send_to."
            )
        if not await occasion.desk.permitted(target):
            raise ToolError(f"{target} has neither written to this bot nor been admitted: it may not write there.")
        await occasion.desk.owe(target, Body(text=text), cause, occasion.key, digest)
    except (Unknown, Unsupported, Conflict, Unstored) as error:
        raise ToolError(f"Nothing was sent: {error}.") from error
    return Result(f"The message is stored; it goes to {target} as soon as that can be reached.")


def _covers(place: Target, target: Target) -> bool:
    """Whether a permitted target covers another; a chat covers its threads."""
    if (place.adapter, place.account, place.chat) != (target.adapter, target.account, target.chat):
        return False
    return place.thread in ("", target.thread)

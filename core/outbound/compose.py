"""Turns a body into messages: missing abilities become words, and long text is cut to fit."""

from __future__ import annotations

import asyncio
import logging

import msgspec

from tidings.core.adapter import Adapter
from tidings.core.outbound import outbox, splitter
from tidings.core.types import Body, Capabilities, Target

log = logging.getLogger(__name__)


# Composing a longer text would noticeably delay other conversations.
QUICK_CHARACTERS = 16_000


def is_quick(body: Body) -> bool:
    return len(body.text) <= QUICK_CHARACTERS


async def compose_aside(adapter: Adapter, target: Target, body: Body, can: Capabilities) -> tuple[Body, ...]:
    """Composes a long body in another thread, so that the event loop stays free."""
    if is_quick(body):
        return compose(adapter, target, body, can)
    return await asyncio.to_thread(compose, adapter, target, body, can)


async def smaller_aside(adapter: Adapter, target: Target, body: Body, *, marked: bool) -> tuple[Body, ...]:
    if is_quick(body):
        return smaller(adapter, target, body, marked=marked)
    return await asyncio.to_thread(smaller, adapter, target, body, marked=marked)


def compose(adapter: Adapter, target: Target, body: Body, can: Capabilities) -> tuple[Body, ...]:
    return _cut(adapter, target, declared(body, can))


def smaller(adapter: Adapter, target: Target, body: Body, *, marked: bool) -> tuple[Body, ...]:
    """Cuts a body that the platform found too long: by the adapter if that now finds smaller pieces, else in halves."""
    bodies = _cut(adapter, target, body)
    if len(bodies) < 2 and len(body.text) > 1:
        halves = splitter.split(body.text, max(len(body.text) // 2, 1))
        bodies = tuple(msgspec.structs.replace(body, text=text) for text in halves)
    if not marked:
        return bodies
    # Each piece of a second copy gets a mark, unless the mark makes the piece too long.
    copies = [outbox.marked(each) for each in bodies]
    fits = [len(_cut(adapter, target, copy)) == 1 for copy in copies]
    return tuple(copy if fit else each for each, copy, fit in zip(bodies, copies, fits, strict=True))


def _cut(adapter: Adapter, target: Target, body: Body) -> tuple[Body, ...]:
    """A body that the adapter cannot cut is sent whole; if the platform refuses it, it is cut in halves."""
    try:
        return adapter.compose(target, body) or (body,)
    except Exception:
        log.exception("%s could not compose a body for %s", adapter.name, target)
        return (body,)


def declared(body: Body, can: Capabilities) -> Body:
    """Replaces files and buttons by words where the platform declares no such ability, so that nothing is dropped."""
    lines = [body.text] if body.text else []
    if body.files and not can.files:
        lines += [f"(The file {file.name} cannot be sent here.)" for file in body.files]
        body = msgspec.structs.replace(body, files=())
    if body.choices and not can.buttons:
        lines += [f"• {choice.label}" for choice in body.choices]
        body = msgspec.structs.replace(body, choices=())
    return msgspec.structs.replace(body, text="\n\n".join(lines))

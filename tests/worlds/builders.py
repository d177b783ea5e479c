"""Builders for the nouns, so that a test names only what it is about."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tidings.core.store import migrate
from tidings.core.types import (
    Audience,
    Body,
    Capabilities,
    Choice,
    Conversation,
    File,
    Inbound,
    Kind,
    Pace,
    Part,
    PartKind,
    Sender,
    SendProof,
    Target,
    View,
)

_count = itertools.count(1)


def conversation(
    chat: str = "1", *, thread: str = "", adapter: str = "paper", account: str = "main", member: str = ""
) -> Conversation:
    return Conversation(adapter=adapter, account=account, chat=chat, thread=thread, member=member)


def target(
    chat: str = "1",
    *,
    thread: str = "",
    adapter: str = "paper",
    account: str = "main",
    reply_to: str = "",
    audience: Audience = Audience.PRIVATE,
    handle: str = "",
) -> Target:
    return Target(
        adapter=adapter,
        account=account,
        chat=chat,
        thread=thread,
        reply_to=reply_to,
        audience=audience,
        handle=handle,
    )


def inbound(
    text: str = "hi",
    *,
    chat: str = "1",
    thread: str = "",
    sender: str = "7",
    key: str = "",
    adapter: str = "paper",
    account: str = "main",
    private: bool = True,
    kind: Kind = Kind.MESSAGE,
    **fields: Any,
) -> Inbound:
    """A key of its own unless one is given; a text with a slash is a command; any other field by its name."""
    key = key or f"m{next(_count)}"
    if kind is Kind.MESSAGE and text.startswith("/"):
        kind = Kind.COMMANDED
        fields.setdefault("command", text[1:].split(" ")[0])
    built = Inbound(
        key=key,
        kind=kind,
        conversation=conversation(chat, thread=thread, adapter=adapter, account=account),
        target=target(
            chat,
            thread=thread,
            adapter=adapter,
            account=account,
            reply_to=key,
            audience=Audience.PRIVATE if private else Audience.GROUP,
        ),
        sender=Sender(id=sender),
        text=text,
    )
    return replace(built, **fields)


def body(text: str = "hi", *, files: tuple[File, ...] = (), choices: tuple[tuple[str, str], ...] = ()) -> Body:
    """Choices are given as (id, label)."""
    return Body(text=text, files=files, choices=tuple(Choice(id=id, label=label) for id, label in choices))


def part(
    text: str = "hi",
    *,
    key: str = "",
    chat: str = "1",
    thread: str = "",
    kind: PartKind = PartKind.PLAIN,
    view: View | None = None,
    to: Target | None = None,
    what: Body | None = None,
    position: int = 1,
    count: int = 1,
    age: float = 0.0,
) -> Part:
    """`to` and `what` take the place of chat, thread and text."""
    return Part(
        key=key or f"k{next(_count)}",
        kind=kind,
        target=to or target(chat, thread=thread),
        body=what or body(text),
        position=position,
        count=count,
        view=view,
        age=age,
    )


def capabilities(*, keyed_for: float = 0.0, readback: bool = False, **fields: Any) -> Capabilities:
    """Everything is possible, and nothing can be proved, unless said otherwise."""
    able = Capabilities(
        async_delivery=True,
        streaming_edits=True,
        send_proof=SendProof(keyed_for=keyed_for, readback=readback),
        threads=True,
        reactions=True,
        buttons=True,
        files=True,
        typing=True,
        hears_all=True,
        pace=(Pace(key="paper chat", seconds=0.001, burst=1000),),
        show_pace=(),
        signal_pace=(),
    )
    able = replace(able, **fields)
    return able if "signal_pace" in fields else replace(able, signal_pace=able.pace)


@contextmanager
def store_of_version(path: Path, version: int) -> Iterator[sqlite3.Connection]:
    """A store as an earlier version left it."""
    with closing(sqlite3.connect(path)) as store:
        for _, file in migrate.files()[:version]:
            for statement in migrate.statements(file.read_text(encoding="utf-8")):
                store.execute(statement)
        store.execute(f"PRAGMA application_id = {migrate.APPLICATION_ID}")
        store.execute(f"PRAGMA user_version = {version}")
        yield store
        store.commit()


async def untaken(id: str) -> bool:
    """No message is the receipt of another part."""
    return False

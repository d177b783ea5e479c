"""Home chats: the chat of each account that gets the gateway's alerts; owners choose it among known chats."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tidings.core import ids
from tidings.core.outbound import outbox
from tidings.core.outbound.outbox import Class, Owed
from tidings.core.store.store import Transaction
from tidings.core.types import Audience, Body, Target, encode


def as_home(target: Target) -> Target:
    """The target without what expires: no handle, no message to reply to, and readable by everyone in the chat."""
    audience = Audience.GROUP if target.audience is Audience.ONE else target.audience
    return msgspec.structs.replace(target.lasting(), audience=audience)


def choose(tx: Transaction, target: Target, now: float) -> None:
    """Stores the new home and tells the old one, so that people there do not wait for alerts."""
    home = as_home(target)
    before = find(tx, home.adapter, home.account)
    tx.execute(
        "INSERT INTO homes (adapter, account, target) VALUES (?, ?, ?)"
        " ON CONFLICT (adapter, account) DO UPDATE SET target = excluded.target",
        home.adapter,
        home.account,
        encode(home),
    )
    if before is None or before.lane == home.lane:
        return
    words = f"Gateway alerts are now sent to {home} instead of this chat."
    outbox.put(tx, Owed(ids.new("dlv"), Class.NOTICE, before, Body(text=words), None, "home"), now)


def remove(tx: Transaction, target: Target) -> None:
    """Leaves the account without a home; nobody is told, because the people there may no longer be."""
    tx.execute("DELETE FROM homes WHERE adapter = ? AND account = ?", target.adapter, target.account)


def find(tx: Transaction, adapter: str, account: str) -> Target | None:
    row = tx.one("SELECT target FROM homes WHERE adapter = ? AND account = ?", adapter, account)
    return msgspec.json.decode(row["target"], type=Target) if row else None


def all_of(tx: Transaction) -> dict[str, Target]:
    rows = tx.all("SELECT adapter, account, target FROM homes ORDER BY adapter, account")
    return {f"{row['adapter']}@{row['account']}": msgspec.json.decode(row["target"], type=Target) for row in rows}


def resolve(tx: Transaction, target: Target) -> Target:
    """Replaces a target without a chat by the account's home, if one was chosen."""
    if target.chat:
        return target
    return find(tx, target.adapter, target.account) or target


def elsewhere(tx: Transaction, about: str, fallback: Target | None, is_down: Callable[[str], bool]) -> Target | None:
    """A home for an alert about an account: best one on another working account, last the troubled account's own."""
    homes = all_of(tx)
    places = [*homes.values(), *([fallback] if fallback else [])]
    others = [place for place in places if place.at != about]
    well = [place for place in others if not is_down(place.at)]
    return next(iter([*well, *others]), homes.get(about))

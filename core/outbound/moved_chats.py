"""Chats whose id has changed: deliveries go to the new id, and the conversation keeps the first one."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tidings.core.store.store import Transaction
from tidings.core.types import Inbound, Target

Place = tuple[str, str, str]


class Aliases:
    """The ids of moved chats: one row for each former id, with the present and the first id.

    Memory mirrors the rows. The store's thread reads it too, so values are replaced, never changed.
    """

    def __init__(self) -> None:
        self._moved: dict[Place, str] = {}
        self._origins: dict[Place, str] = {}
        # The former ids of a chat, by its present id.
        self._former: dict[Place, tuple[str, ...]] = {}

    def load(self, tx: Transaction) -> None:
        for row in tx.all("SELECT adapter, account, chat, moved_to, origin FROM aliases"):
            adapter, account, here = row["adapter"], row["account"], (row["adapter"], row["account"], row["moved_to"])
            self._moved[adapter, account, row["chat"]] = row["moved_to"]
            self._origins[adapter, account, row["chat"]] = self._origins[here] = row["origin"]
            self._former[here] = (*self._former.get(here, ()), row["chat"])

    def move(self, adapter: str, account: str, chat: str, to: str) -> Callable[[Transaction], None]:
        """Redirects a chat to its new id at once; the returned function stores the move."""
        old, new = (adapter, account, chat), (adapter, account, to)
        origin = self._origins.get(old, chat)
        known = (*self._former.pop(old, ()), *self._former.get(new, ()), chat)
        # A chat may also return to a former id.
        self._former[new] = tuple(dict.fromkeys(each for each in known if each != to))
        self._moved.update({(adapter, account, each): to for each in self._former[new]})
        self._moved.pop(new, None)
        self._origins[old] = self._origins[new] = origin

        def store(tx: Transaction) -> None:
            tx.execute(
                "UPDATE aliases SET moved_to = ? WHERE adapter = ? AND account = ? AND moved_to = ?",
                to,
                adapter,
                account,
                chat,
            )
            tx.execute("DELETE FROM aliases WHERE adapter = ? AND account = ? AND chat = ?", *new)
            tx.execute(
                "INSERT INTO aliases (adapter, account, chat, moved_to, origin) VALUES (?, ?, ?, ?, ?)"
                " ON CONFLICT (adapter, account, chat)"
                " DO UPDATE SET moved_to = excluded.moved_to, origin = excluded.origin",
                *(*old, to, origin),
            )

        return store

    def where(self, target: Target) -> Target:
        chat = self._moved.get((target.adapter, target.account, target.chat))
        return msgspec.structs.replace(target, chat=chat) if chat else target

    def origin(self, target: Target) -> Target:
        chat = self._origins.get((target.adapter, target.account, target.chat))
        return msgspec.structs.replace(target, chat=chat) if chat else target

    def lanes(self, target: Target) -> tuple[str, ...]:
        """The lanes of a target under every id that its chat has had."""
        here = self.where(target)
        former = self._former.get((here.adapter, here.account, here.chat), ())
        return tuple(msgspec.structs.replace(here, chat=chat).lane for chat in (*former, here.chat))

    def at_home(self, inbound: Inbound) -> Inbound:
        """Assigns a message from a moved chat to the conversation that began under the first id."""
        conversation = inbound.conversation
        origin = self._origins.get((conversation.adapter, conversation.account, conversation.chat))
        if origin is None:
            return inbound
        return msgspec.structs.replace(inbound, conversation=msgspec.structs.replace(conversation, chat=origin))

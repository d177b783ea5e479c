"""Chats that go on under another id: what is owed follows them, and their conversation stays the one it was."""

from __future__ import annotations

import msgspec

from core.store.database import Transaction
from core.types import Inbound, Target

Place = tuple[str, str, str]


class Aliases:
    """One row for each chat that moved; memory only repeats what the rows say."""

    def __init__(self) -> None:
        self._moved: dict[Place, str] = {}
        self._origins: dict[Place, str] = {}

    def load(self, tx: Transaction) -> None:
        for row in tx.all("SELECT adapter, account, chat, moved_to FROM aliases"):
            self.remember(row["adapter"], row["account"], row["chat"], row["moved_to"])

    def store(self, tx: Transaction, adapter: str, account: str, chat: str, to: str) -> None:
        tx.execute(
            "INSERT INTO aliases (adapter, account, chat, moved_to) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (adapter, account, chat) DO UPDATE SET moved_to = excluded.moved_to",
            adapter,
            account,
            chat,
            to,
        )

    def where(self, target: Target) -> Target:
        chat = self._moved.get((target.adapter, target.account, target.chat))
        return msgspec.structs.replace(target, chat=chat) if chat else target

    def origin(self, target: Target) -> Target:
        chat = self._origins.get((target.adapter, target.account, target.chat))
        return msgspec.structs.replace(target, chat=chat) if chat else target

    def at_home(self, inbound: Inbound) -> Inbound:
        """What is said in the new place belongs to the conversation that began in the old one."""
        conversation = inbound.conversation
        origin = self._origins.get((conversation.adapter, conversation.account, conversation.chat))
        if origin is None:
            return inbound
        return msgspec.structs.replace(inbound, conversation=msgspec.structs.replace(conversation, chat=origin))

    def remember(self, adapter: str, account: str, chat: str, to: str) -> None:
        self._moved[adapter, account, chat] = to
        self._origins[adapter, account, to] = self._origins.get((adapter, account, chat), chat)

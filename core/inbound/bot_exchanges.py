"""Limits how many messages of other bots are answered in a chat, so that two bots never talk without end."""

from __future__ import annotations

import logging

from tidings.core.inbound import inbox, joining, members
from tidings.core.part import Part
from tidings.core.store.store import Store, Transaction
from tidings.core.types import Inbound, Kind

log = logging.getLogger(__name__)

SPOKEN = (Kind.MESSAGE, Kind.COMMANDED, Kind.PRESSED)


class BotExchanges(Part):
    """Counts in the transaction of each message, by rows that only a message of a person removes.

    Remembers which chats may have a row, so that messages of people elsewhere cost nothing; the rows decide.
    """

    def __init__(self, store: Store, most: int) -> None:
        self._store = store
        self._most = most
        # The store's thread reads and adds, so the set is replaced, never changed in place.
        self._chats: frozenset[str] = frozenset()
        # Chats in which a bot's message was ignored since the last message of a person.
        self._told: set[str] = set()

    def renew(self, most: int) -> None:
        self._most = most

    async def recover(self) -> None:
        await self._store.insist(self._load)

    async def sweep(self) -> None:
        if self._chats:
            await self._store.insist(self._load)

    def _load(self, tx: Transaction) -> None:
        self._chats = frozenset(row["chat"] for row in tx.all("SELECT chat FROM bot_exchanges"))

    def admits(self, tx: Transaction, inbound: Inbound) -> bool:
        """Tells whether a new message is taken, and counts it; a person's message lets the count begin anew."""
        place = members.place_of(inbound)
        chat = f"{place.adapter}:{place.chat}"
        if inbound.sender.is_bot:
            return self._admits_bot(tx, inbound, chat)
        if inbound.kind in SPOKEN and chat in self._chats:
            tx.execute("DELETE FROM bot_exchanges WHERE chat = ?", chat)
            self._told.discard(chat)
        return True

    def _admits_bot(self, tx: Transaction, inbound: Inbound, chat: str) -> bool:
        if inbound.kind not in SPOKEN:
            # Bots edit their answers as these grow; only an edit of a message that was taken matters.
            return inbox.find_about(tx, inbound) is not None
        if joining.album_leader(tx, inbound) is not None:
            return True
        row = tx.one("SELECT answered FROM bot_exchanges WHERE chat = ?", chat)
        if (row["answered"] if row else 0) >= self._most:
            if chat not in self._told:
                self._told.add(chat)
                log.info("bots are not answered in %s until a person writes there (groups.bot_exchanges)", chat)
            return False
        tx.execute(
            "INSERT INTO bot_exchanges (chat, answered) VALUES (?, 1)"
            " ON CONFLICT (chat) DO UPDATE SET answered = bot_exchanges.answered + 1",
            chat,
        )
        self._chats |= {chat}
        return True

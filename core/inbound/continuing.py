"""Lets a chat go on with another conversation: messages written there are handled as part of that conversation."""

from __future__ import annotations

import logging

from msgspec.structs import replace

from tidings.core.background import Background
from tidings.core.memory import conversations, handovers, ownership
from tidings.core.memory.handovers import Handover
from tidings.core.part import Part
from tidings.core.people.people import People
from tidings.core.store.store import Store, Transaction
from tidings.core.types import Asker, Audience, Conversation, Inbound, Kind

log = logging.getLogger(__name__)

# Edits and deletions find their message by its key, in whichever conversation it is.
FOLLOWING = (Kind.MESSAGE, Kind.COMMANDED, Kind.PRESSED)


class Continuing(Part):
    """Remembers which chats may have a hand-over, so that all others cost nothing; the rows decide."""

    def __init__(self, store: Store, people: People) -> None:
        self._store = store
        # Conversations of chats. The store's thread reads and adds, so the set is replaced, never shrunk in place.
        self._chats: frozenset[str] = frozenset()
        self._checking = Background(log, "hand-overs could not be checked")
        people.subscribe(self._people_changed)

    def _people_changed(self) -> None:
        self._checking.begin(self._check())

    async def recover(self) -> None:
        await self._check()

    async def sweep(self) -> None:
        """Another process may have stored a hand-over."""
        await self._store.insist(self._load)

    async def stop(self, patience: float) -> None:
        await self._checking.close()

    async def _check(self) -> None:
        """Ends hand-overs to conversations that are no longer the person's own."""
        await self._store.insist(self._end_foreign)

    def _end_foreign(self, tx: Transaction) -> None:
        for each in self._load(tx):
            if not self._is_own(tx, each, each.asker):
                handovers.end(tx, each.conversation)

    def _load(self, tx: Transaction) -> list[Handover]:
        found = handovers.all_of(tx)
        self._chats |= {each.conversation for each in found}
        return found

    def follow(self, tx: Transaction, inbound: Inbound) -> Inbound:
        """The message as part of the conversation that its chat goes on with, which is mostly the chat's own."""
        chat = inbound.conversation.id
        if chat not in self._chats or inbound.kind not in FOLLOWING:
            return inbound
        found = handovers.find(tx, chat)
        if found is None or found.continues.id == chat:
            return inbound
        if not self._is_own(tx, found, inbound):
            if inbound.kind is Kind.MESSAGE:
                handovers.end(tx, chat)
            return inbound
        return replace(
            inbound,
            conversation=found.continues,
            began=inbound.conversation,
            place=found.place,
            bot=inbound.bot or found.bot,
        )

    def _is_own(self, tx: Transaction, handover: Handover, said: Inbound | Asker) -> bool:
        """Tells whether this person may go on with the conversation, in this chat."""
        if said.target.audience is not Audience.PRIVATE:
            there, here = handover.continues, said.conversation
            if (there.adapter, there.account, there.chat) != (here.adapter, here.account, here.chat):
                return False
            if there.thread != here.thread and (said.target.secluded or (handover.place and handover.place.secluded)):
                return False
            if not handover.owner:
                return True
        return ownership.is_owner(tx, handover.owner, said)

    def begin(self, tx: Transaction, handover: Handover, at: float) -> None:
        """Lets a chat go on with another conversation, in the transaction of the command."""
        self._chats |= {handover.conversation}
        handovers.put(tx, handover, at)

    def end(self, tx: Transaction, own: Conversation) -> bool:
        """Lets a chat return to its own conversation, as it was before; false if it is there already."""
        found = handovers.find(tx, own.id)
        if found is None:
            return False
        handovers.end(tx, own.id)
        if found.before:
            conversations.return_to(tx, own.id, found.before)
        return True

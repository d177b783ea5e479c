"""Passes an adapter's reports to the gateway, together with the adapter's own account."""

from __future__ import annotations

from msgspec.json import decode

from tidings.core import ids
from tidings.core.clock import Clock
from tidings.core.gateway.supervisor import Supervisor
from tidings.core.outbound import outbox
from tidings.core.outbound.courier import Courier
from tidings.core.outbound.outbox import Class, Owed
from tidings.core.store.essentials import Essentials
from tidings.core.store.store import Transaction
from tidings.core.types import Body, Inbound

# Only chats with a message within this time are told of a gap, the newest first.
RECENT_SECONDS = 7 * 86_400.0
RECENT_CONVERSATIONS = 100


class Reported:
    """Handles the reports of all accounts."""

    def __init__(self, essentials: Essentials, supervisor: Supervisor, courier: Courier) -> None:
        self._essentials = essentials
        self._supervisor = supervisor
        self._courier = courier

    async def reachable(self, adapter: str, account: str) -> None:
        self._supervisor.mended(f"{adapter}@{account}")
        await self._courier.reachable(adapter, account)

    def troubled(self, adapter: str, account: str, reason: str) -> None:
        self._supervisor.troubled(f"{adapter}@{account}", reason)

    async def moved(self, adapter: str, account: str, chat: str, to: str) -> None:
        await self._courier.move(adapter, account, chat, to)

    async def missed(self, adapter: str, account: str, words: str, *, tell: bool) -> None:
        self._essentials.alarms.sound("gap", f"{adapter}@{account}: {words}", f"{adapter}@{account}")
        if tell:
            clock = self._essentials.clock
            since = clock.now() - RECENT_SECONDS
            await self._essentials.store.write(lambda tx: _tell_recent(tx, adapter, account, words, since, clock))


class AccountReports:
    """The reports of one account, so that an adapter cannot speak for another."""

    def __init__(self, reported: Reported, adapter: str, account: str) -> None:
        self._reported = reported
        self._adapter = adapter
        self._account = account

    async def reachable(self) -> None:
        await self._reported.reachable(self._adapter, self._account)

    def troubled(self, reason: str) -> None:
        self._reported.troubled(self._adapter, self._account, reason)

    async def moved(self, chat: str, to: str) -> None:
        await self._reported.moved(self._adapter, self._account, chat, to)

    async def missed(self, words: str, *, tell: bool) -> None:
        await self._reported.missed(self._adapter, self._account, words, tell=tell)


def _tell_recent(tx: Transaction, adapter: str, account: str, words: str, since: float, clock: Clock) -> None:
    """Stores a notice for each recently active conversation, the newest first."""
    rows = tx.all(
        "SELECT message FROM inbox WHERE seq IN (SELECT max(seq) FROM inbox"
        " WHERE adapter = ? AND account = ? AND accepted > ? GROUP BY conversation) ORDER BY seq DESC LIMIT ?",
        adapter,
        account,
        since,
        RECENT_CONVERSATIONS,
    )
    for row in rows:
        target = decode(row["message"], type=Inbound).target.lasting()
        notice = Owed(ids.new("dlv"), Class.NOTICE, target, Body(text=words), None, "gap", source="the gateway")
        outbox.put_notice(tx, notice, clock.now())

"""Passes an adapter's reports to the gateway, together with the adapter's own account."""

from __future__ import annotations

from typing import Protocol


class Listener(Protocol):
    """Handles the reports of all accounts."""

    async def reachable(self, adapter: str, account: str) -> None: ...
    def troubled(self, adapter: str, account: str, reason: str) -> None: ...
    async def moved(self, adapter: str, account: str, chat: str, to: str) -> None: ...
    async def missed(self, adapter: str, account: str, words: str, *, tell: bool) -> None: ...


class AccountReports:
    """The reports of one account, so that an adapter cannot speak for another."""

    def __init__(self, listener: Listener, adapter: str, account: str) -> None:
        self._listener = listener
        self._adapter = adapter
        self._account = account

    async def reachable(self) -> None:
        await self._listener.reachable(self._adapter, self._account)

    def troubled(self, reason: str) -> None:
        self._listener.troubled(self._adapter, self._account, reason)

    async def moved(self, chat: str, to: str) -> None:
        await self._listener.moved(self._adapter, self._account, chat, to)

    async def missed(self, words: str, *, tell: bool) -> None:
        await self._listener.missed(self._adapter, self._account, words, tell=tell)

"""Who may talk to the bots: one list from the settings, and one from `tidings allow`."""

from __future__ import annotations

import logging
from collections.abc import Callable

from tidings.core.background import Background
from tidings.core.desk.health import Admissions
from tidings.core.errors import Unknown
from tidings.core.inbound import policy
from tidings.core.settings import Access as Settings
from tidings.core.store.store import Store, Transaction
from tidings.core.store.wakeups import AccessChanged
from tidings.core.types import Asker, Inbound

log = logging.getLogger(__name__)


class Access:
    """Both access lists; a change takes effect at the next check."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._hearers: list[Callable[[], None]] = []
        self._reading = Background(log, "the list of admitted people could not be read")
        self._settings = settings
        self._command: frozenset[str] = frozenset()
        self.ids = frozenset(settings.allow)
        store.wakeups.subscribe(AccessChanged, self._reload)

    def subscribe(self, hear: Callable[[], None]) -> None:
        """`hear` is called when people were removed from a list."""
        self._hearers.append(hear)

    def renew(self, settings: Settings) -> None:
        self._settings = settings
        self._change()

    async def load(self) -> None:
        """Reads the list of `tidings allow`."""
        self._command = await self._store.insist(admitted)
        self._change()

    def _reload(self, due: AccessChanged) -> None:
        self._reading.begin(self.load())

    async def close(self) -> None:
        await self._reading.close()

    def _change(self) -> None:
        before, self.ids = self.ids, frozenset(self._settings.allow) | self._command
        if not before <= self.ids:
            for hear in self._hearers:
                hear()

    @property
    def tells_strangers(self) -> bool:
        return self._settings.tell_strangers

    @property
    def lists(self) -> Admissions:
        return Admissions(tuple(sorted(self._settings.allow)), tuple(sorted(self._command)))

    def is_in_settings(self, id: str) -> bool:
        return id in self._settings.allow

    def is_owner(self, inbound: Inbound) -> bool:
        """Tells whether the sender is an owner, by the person's own id and never by their group."""
        return inbound.sender.trusted or not set(self._settings.owners).isdisjoint(policy.own_names(inbound))

    def lapsed(self, asker: Asker | None) -> str:
        """Why work for this person may no longer start; empty if it may."""
        if asker is None or asker.sender.trusted or not self.ids.isdisjoint(policy.names(asker)):
            return ""
        return f"{policy.names(asker)[0]} may no longer talk to the bot"


def admitted(tx: Transaction) -> frozenset[str]:
    return frozenset(row["id"] for row in tx.all("SELECT id FROM access"))


def admit(tx: Transaction, id: str, now: float) -> bool:
    if not policy.is_access_id(id):
        raise Unknown(f"{id!r} is not an id; write platform:ID, for example the one the bot told you")
    added = bool(tx.count("INSERT INTO access (id, at) VALUES (?, ?) ON CONFLICT (id) DO NOTHING", id, now))
    if added:
        tx.announce(AccessChanged())
    return added


def withdraw(tx: Transaction, id: str) -> None:
    if not tx.count("DELETE FROM access WHERE id = ?", id):
        raise Unknown(f"{id} was not admitted with tidings allow")
    tx.announce(AccessChanged())

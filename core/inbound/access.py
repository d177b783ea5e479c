"""Who may talk to the bots: one list from the settings, and one from `tidings allow`."""

from __future__ import annotations

from tidings.core.desk.health import Admissions
from tidings.core.errors import Unknown
from tidings.core.inbound import policy
from tidings.core.settings import Access as Settings
from tidings.core.store.store import Transaction
from tidings.core.types import Asker, Inbound


class Access:
    """Both access lists; a change takes effect at the next check."""

    def __init__(self, settings: Settings) -> None:
        self._command: frozenset[str] = frozenset()
        self.renew(settings)

    def renew(self, settings: Settings) -> None:
        self._settings = settings
        self.ids = frozenset(settings.allow) | self._command

    def load(self, command: frozenset[str]) -> None:
        self._command = command
        self.renew(self._settings)

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
    return bool(tx.count("INSERT INTO access (id, at) VALUES (?, ?) ON CONFLICT (id) DO NOTHING", id, now))


def withdraw(tx: Transaction, id: str) -> frozenset[str]:
    """Returns the ids that are still admitted."""
    if not tx.count("DELETE FROM access WHERE id = ?", id):
        raise Unknown(f"{id} was not admitted with tidings allow")
    return admitted(tx)

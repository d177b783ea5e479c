"""Requests about people: who is known, what they may do, their keys, and the audit trail."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

import msgspec

from tidings.core.roles import Permission, Person, Role
from tidings.core.types import Asker, Inbound


class PersonLine(msgspec.Struct, frozen=True):
    """A person in a list: the role that applies, and where it comes from."""

    id: str
    name: str
    role: Role
    identities: tuple[str, ...]
    # The role in the store; empty if only the settings give this person a role.
    stored: str = ""
    # The identities that the settings name.
    in_settings: tuple[str, ...] = ()
    # Who admitted or blocked this person, as a person's id, and when, by the wall clock; empty and 0 for the settings.
    by: str = ""
    at: float = 0.0


class Waiting(msgspec.Struct, frozen=True):
    """A stranger who waits to be admitted; times are by the wall clock."""

    id: str
    identity: str
    name: str
    # Where a message reaches this stranger.
    target: str
    at: float
    expires: float


class AuditLine(msgspec.Struct, frozen=True):
    """One entry of the audit trail: ids, never words."""

    seq: int
    at: float
    # The person who acted, as a person's id.
    actor: str
    # What was done, such as admitted, role, key added, tool.
    action: str
    # What it was done to: a person, an identity, a key, a chat, a tool.
    object: str
    # More ids, such as the new role or the run.
    detail: str = ""


class Scope(StrEnum):
    """What a key may be used for; a closed list."""

    CHAT = "chat"
    RUNS = "runs"
    NOTIFY = "notify"
    APPROVE = "approve"
    PEOPLE = "people"
    USAGE = "usage"
    BOARD = "board"
    SCHEDULES = "schedules"
    SETTINGS = "settings"
    AUDIT = "audit"
    # Everything, and the objects of every other key.
    ADMIN = "admin"


class Key(msgspec.Struct, frozen=True):
    """A key of the HTTP API. `id` is what its conversations belong to: a new key with an old name finds nothing."""

    id: str
    name: str
    digest: str
    scopes: tuple[Scope, ...]
    created: float
    # The id of the person whose key it is; a request may do what the key and this person's role permit.
    person: str = "owner"
    # The bots and targets that the key is bound to; empty means all.
    bots: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()

    def may(self, scope: Scope) -> bool:
        return scope in self.scopes or Scope.ADMIN in self.scopes


class PeopleDesk(Protocol):
    def find(self, said: Inbound | Asker) -> Person:
        """Who this is, with the role that applies right now."""
        ...

    def holder(self, key: Key) -> Person:
        """The person whose key this is; a removed person has the role of a stranger."""
        ...

    def may(self, person: Person, permission: Permission) -> bool:
        """Answers "may this person do this?" for every door."""
        ...

    def has_owner(self) -> bool:
        """Tells whether anybody besides the person at the machine is an owner."""
        ...

    async def all(self) -> list[PersonLine]:
        """Everybody whom the store or the settings know, owners first."""
        ...

    async def get(self, who: str) -> PersonLine:
        """Finds a person by id, by the beginning of an id, by identity or by name; raises Unknown."""
        ...

    async def waiting(self) -> list[Waiting]: ...

    async def admit(self, by: Person, who: str, role: Role | None = None, name: str = "") -> PersonLine:
        """Admits an identity, or the stranger with this code or pairing id; without a role, as a member.

        Raises Unknown for what is neither, and Unkeepable for a role that `by` may not give.
        """
        ...

    async def remove(self, by: Person, who: str) -> PersonLine:
        """Removes a person with all identities and keys: running work stops, planned work does not start.

        Raises Unknown, and Unkeepable for a person whom the settings name.
        """
        ...

    async def block(self, by: Person, who: str) -> PersonLine:
        """Removes a person and ignores their identities from now on."""
        ...

    async def set_role(self, by: Person, who: str, role: Role) -> PersonLine: ...

    async def rename(self, by: Person, who: str, name: str) -> PersonLine: ...

    async def link(self, by: Person, who: str, other: str) -> PersonLine:
        """Makes two persons or identities one person; the higher role must be `who`'s."""
        ...

    async def unlink(self, by: Person, identity: str) -> None:
        """Takes one identity from a person who has several."""
        ...

    async def forget(self, by: Person, who: str) -> int:
        """Removes a person and erases their notes and private conversations; returns how many runs are erased."""
        ...

    def keys(self) -> tuple[Key, ...]: ...

    async def add_key(self, by: Person, key: Key) -> None:
        """Raises Conflict for a name that is taken."""
        ...

    async def revoke_key(self, by: Person, name: str) -> None: ...

    def subscribe(self, hear: Callable[[], None]) -> None:
        """`hear` is called after people, roles or keys have changed."""
        ...

    async def note_settings(self, by: Person, changed: tuple[str, ...]) -> None:
        """Writes to the audit trail which settings a reload changed: their names, never their values."""
        ...

    async def audit(self, limit: int, before: int = 0, since: float = 0.0) -> list[AuditLine]:
        """The newest entries first; `before` of 0 means the first page."""
        ...

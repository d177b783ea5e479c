"""Who is known at one moment, with the role that applies: the stored people and those whom the settings name."""

from __future__ import annotations

from typing import NamedTuple

from tidings.core.desk.people import Key
from tidings.core.people import policy
from tidings.core.people.rows import UNREAD, Changes, Stored
from tidings.core.roles import Permission, Person, Role
from tidings.core.settings import Access


class Known(NamedTuple):
    """Never changed but replaced by an amended copy, because the store's thread reads it too."""

    settings: Access
    # The roles that the settings give, by identity.
    named: dict[str, Role]
    required: dict[Permission, Role]
    # By identity, with the role that applies.
    persons: dict[str, Person]
    # By id.
    stored: dict[str, Stored]
    keys: dict[str, Key]
    version: int

    def amended(self, changes: Changes) -> Known:
        """What is known after a change; `stored` and `persons` are the same objects if no person has changed."""
        found = {**dict.fromkeys(self.stored), **changes.persons} if changes.is_whole else changes.persons
        changed = {id: person for id, person in found.items() if person != self.stored.get(id)}
        known = self._replace(keys=changes.keys, version=changes.version)
        return known._with(changed) if changed else known

    def _with(self, changed: dict[str, Stored | None]) -> Known:
        stored, persons = self.stored.copy(), self.persons.copy()
        # An identity may move from one person to another, so all are taken away before any is given.
        for id in changed.keys() & stored.keys():
            for identity in stored.pop(id).identities:
                persons.pop(identity, None)
                if identity in self.named:
                    persons[identity] = named_person(identity, self.named[identity])
        for person in changed.values():
            if person is not None:
                stored[person.id] = person
                persons.update((identity, self._person(person, identity)) for identity in person.identities)
        return self._replace(stored=stored, persons=persons)

    def _person(self, stored: Stored, identity: str) -> Person:
        return Person(id=stored.id, role=self._role(stored, identity), name=stored.name, identities=stored.identities)

    def _role(self, stored: Stored, identity: str) -> Role:
        """A block holds; else the role is the highest of the stored one and those of the settings."""
        if stored.role == Role.BLOCKED:
            return Role.BLOCKED
        if self.settings.settings_only:
            # A link is stored, too: each identity has only what the settings give it.
            return self.named.get(identity, Role.STRANGER)
        given = (self.named[each] for each in stored.identities if each in self.named)
        return max((Role(stored.role or Role.STRANGER), *given), key=lambda role: role.rank)

    def by_id(self, id: str) -> Person | None:
        """The stored person with this id; None for one without an identity, who has nothing that could give a role."""
        stored = self.stored.get(id)
        return self.persons[stored.identities[0]] if stored and stored.identities else None

    def all(self) -> list[Person]:
        stored = [person for id in self.stored if (person := self.by_id(id)) is not None]
        return [*stored, *(self.persons[each] for each in self.named if self.persons[each].id == each)]

    def admits_members(self, name: str) -> bool:
        """Tells whether this may be a group whose members are guests: one in `allow`, or a stored guest or member.

        People in [access] owners and admins are persons.
        """
        person = self.persons.get(name)
        if person is None or person.role is Role.BLOCKED:
            return False
        stored = None if self.settings.settings_only else self.stored.get(person.id)
        return (stored is not None and stored.role in (Role.GUEST, Role.MEMBER)) or name in self.settings.allow


def of_settings(settings: Access) -> Known:
    """Those whom the settings name, before anything is read from the store."""
    named = named_roles(settings)
    persons = {identity: named_person(identity, role) for identity, role in named.items()}
    return Known(settings, named, {**policy.REQUIRED, **settings.requires}, persons, {}, {}, UNREAD)


def named_roles(settings: Access) -> dict[str, Role]:
    """The roles that the settings give, by identity; the highest counts."""
    lists = ((Role.MEMBER, settings.allow), (Role.ADMIN, settings.admins), (Role.OWNER, settings.owners))
    return {identity: role for role, identities in lists for identity in identities}


def named_person(identity: str, role: Role) -> Person:
    return Person(id=identity, role=role, identities=(identity,))

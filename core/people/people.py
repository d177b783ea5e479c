"""People: finds the person behind a message, and answers what that person may do, from the settings and the store."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple

from msgspec.structs import replace

from tidings.core.background import Background
from tidings.core.desk.people import Key, PersonLine
from tidings.core.errors import Unknown
from tidings.core.part import Part
from tidings.core.people import names, policy, rows
from tidings.core.people.rows import Snapshot, Stored
from tidings.core.roles import OWNER, Permission, Person, Role
from tidings.core.settings import Access
from tidings.core.store.store import Store
from tidings.core.store.wakeups import PeopleChanged
from tidings.core.types import Asker, Audience, Inbound, Target

log = logging.getLogger(__name__)


class _Known(NamedTuple):
    """Who is known at this moment; replaced as a whole, because the store's thread reads it too."""

    snapshot: Snapshot
    # By identity, with the role that applies; by id; and by identity without an account.
    persons: dict[str, Person]
    by_id: dict[str, Person]
    by_plain: dict[str, list[Person]]
    # The ids that admit the members of a group as guests.
    groups: frozenset[str]
    required: dict[Permission, Role]


class People(Part):
    """A change of the settings or of the store takes effect at the next check."""

    def __init__(self, store: Store, settings: Access) -> None:
        self._store = store
        self._settings = settings
        self._hearers: list[Callable[[], None]] = []
        self._reading = Background(log, "people could not be read")
        self._known = _known(settings, Snapshot())
        store.wakeups.subscribe(PeopleChanged, self._reload)

    def subscribe(self, hear: Callable[[], None]) -> None:
        """`hear` is called after people, roles or keys have changed."""
        self._hearers.append(hear)

    def renew(self, settings: Access) -> None:
        self._settings = settings
        self.become(self._known.snapshot)

    async def recover(self) -> None:
        await self.load()

    async def sweep(self) -> None:
        if await self._store.insist(rows.version) != self._known.snapshot.version:
            await self.load()

    async def load(self) -> None:
        self.become(await self._store.insist(rows.read))

    async def stop(self, patience: float) -> None:
        await self._reading.close()

    def _reload(self, due: PeopleChanged) -> None:
        self._reading.begin(self.load())

    def become(self, snapshot: Snapshot) -> None:
        before, self._known = self._known, _known(self._settings, snapshot)
        if before._replace(snapshot=before.snapshot._replace(version=snapshot.version)) != self._known:
            for hear in self._hearers:
                hear()

    @property
    def version(self) -> int:
        """Changes with every change of stored people; a change of the settings is heard by those who subscribe."""
        return self._known.snapshot.version

    @property
    def settings(self) -> Access:
        return self._settings

    @property
    def strangers(self) -> str:
        """What strangers get: pair, tell or ignore. Where only the settings admit people, a code could not."""
        wanted = self._settings.strangers
        return "tell" if wanted == "pair" and self._settings.settings_only else wanted

    def find(self, said: Inbound | Asker) -> Person:
        """The person behind a message or a piece of work, with the role that applies right now."""
        sender = said.sender
        if sender.key:
            return self._find_under_key(said)
        own = names.own_names(said)
        found = _highest(self._known.persons[name] for name in own if name in self._known.persons)
        if sender.trusted:
            known = found or replace(OWNER, identities=own[:1])
            return replace(known, role=Role.OWNER)
        if _is_chat_itself(said):
            # An anonymous admin writes in the name of the group: nobody knows who that is.
            found = None
        if found is not None and found.role.includes(Role.GUEST):
            return found
        is_guest = not self._known.groups.isdisjoint(names.chat_names(said))
        if found is not None:
            # A block holds everywhere, also in an admitted group.
            return replace(found, role=Role.GUEST) if is_guest and found.role is not Role.BLOCKED else found
        role = Role.GUEST if is_guest else Role.STRANGER
        return Person(id=own[0], role=role, name=sender.name, identities=own[:1])

    def _find_under_key(self, said: Inbound | Asker) -> Person:
        """The holder of a key, or a person whom the key's client names; that person never outranks the holder."""
        identity = names.name_of(said.target, said.sender)
        key = self._known.snapshot.keys.get(said.sender.key)
        holder = OWNER if said.sender.key == OWNER.id else self.holder(key) if key else None
        if holder is None:
            return Person(id=identity, role=Role.STRANGER, name=said.sender.name, identities=(identity,))
        if said.sender.id == said.sender.key:
            return replace(holder, identities=tuple(dict.fromkeys((*holder.identities, identity))))
        found = self._known.persons.get(identity)
        role = _lower(found.role if found else Role.MEMBER, holder.role)
        if found is not None:
            return replace(found, role=role)
        return Person(id=identity, role=role, name=said.sender.name, identities=(identity,))

    def holder(self, key: Key) -> Person:
        """The person whose key this is; a removed person has the role of a stranger."""
        if key.person == OWNER.id:
            return OWNER
        stored = self._known.snapshot.persons.get(key.person)
        # A stored person without an identity has nothing left that could give a role.
        identity = (*stored.identities, "")[0] if stored else key.person
        return self._known.persons.get(identity) or Person(id=key.person, role=Role.STRANGER)

    def owned_names(self, said: Inbound | Asker) -> frozenset[str]:
        """Everything that this person is called as the owner of a conversation: identities, and the keys they hold."""
        person, sender = self.find(said), said.sender
        held = {key.id for key in self.keys() if key.person in (person.id, *person.identities)}
        if sender.trusted or sender.key == sender.id == OWNER.id:
            # The person at the machine, who also has the key in the gateway's home.
            held |= {OWNER.id, *(key.id for key in self.keys() if key.person == OWNER.id)}
        if sender.key and sender.id == sender.key:
            held.add(sender.key)
        own = () if sender.key else (names.name_of(said.target, sender),)
        plain = map(names.without_account, person.identities)
        return frozenset((*own, *person.identities, *plain, *map(names.key_name, held)))

    def owned_by(self, line: PersonLine) -> tuple[str, ...]:
        """The same for a person in a list."""
        held = [names.key_name(key.id) for key in self.keys() if key.person in (line.id, *line.identities)]
        return (*dict.fromkeys((*line.identities, *map(names.without_account, line.identities))), *held)

    def keys(self) -> tuple[Key, ...]:
        return tuple(self._known.snapshot.keys.values())

    def key(self, id: str) -> Key | None:
        return self._known.snapshot.keys.get(id)

    def may(self, person: Person, permission: Permission) -> bool:
        return policy.may(person.role, permission, self._known.required)

    def permissions(self, person: Person) -> frozenset[Permission]:
        return frozenset(each for each in Permission if self.may(person, each))

    def of_asker(self, asker: Asker | None) -> Person:
        """The person for whom work is done; work without one is the owner's."""
        return OWNER if asker is None else self.find(asker)

    def lapsed(self, asker: Asker | None, permission: Permission = Permission.TALK) -> str:
        """Why work for this person may no longer start; empty if it may."""
        person = self.of_asker(asker)
        if self.may(person, permission):
            return ""
        known = person.identities[0] if person.identities else person.id
        if self.may(person, Permission.TALK):
            return f"{known} is only a {person.role} now"
        return f"{known} may no longer talk to the bot"

    def called(self, asker: Asker | None) -> tuple[str, ...]:
        """Everything that the settings may call this person: the stored id and all identities."""
        person = self.of_asker(asker)
        return (person.id, *person.identities, *(names.own_names(asker) if asker else ()))

    def is_own(self, asker: Asker | None, person: Person) -> bool:
        """Tells whether this work was begun by this person."""
        return self.of_asker(asker).id == person.id

    def admits(self, target: Target) -> bool:
        """Tells whether somebody, or a group, is admitted under the id of this chat."""
        return any(
            name in self._known.groups
            or (name in self._known.persons and self._known.persons[name].role.includes(Role.GUEST))
            for name in names.names_of(target)
        )

    def is_known(self, identity: str) -> bool:
        """Tells whether this identity is admitted or blocked."""
        found = self._known.persons.get(identity)
        return found is not None and found.role is not Role.STRANGER

    def standing(self, identity: str) -> Role:
        """The highest role of anybody who has this id on this platform, whatever the account; a block counts least."""
        found = self._known.by_plain.get(names.without_account(identity), ())
        return max((person.role for person in found), key=lambda role: role.rank, default=Role.STRANGER)

    def has_owner(self) -> bool:
        """Tells whether anybody besides the person at the machine is an owner."""
        return any(person.role is Role.OWNER for person in self._known.persons.values())

    def settings_role(self, identity: str) -> Role:
        return settings_role(self._settings, identity)

    def stored(self, id: str) -> Stored | None:
        return self._known.snapshot.persons.get(id)

    def all(self) -> list[PersonLine]:
        """Everybody whom the store or the settings know, owners first."""
        lines = [self._line(person) for person in self._known.by_id.values()]
        return sorted(lines, key=lambda line: (-line.role.rank, line.name.casefold(), line.identities))

    def get(self, who: str) -> PersonLine:
        """Finds a person by id, by the beginning of an id, by identity or by name; raises Unknown."""
        who = who.strip()
        if (exact := self._known.persons.get(who) or self._known.by_id.get(who)) is not None:
            return self._line(exact)
        if names.is_identity(who):
            # People choose their names: a name must never stand for somebody else's identity.
            raise Unknown(f"nobody is known as {who}")
        lines = self.all()
        same = [line for line in lines if line.name and line.name.casefold() == who.casefold()]
        begun = [line for line in lines if len(who) > len("psn_") and line.id.startswith(who)]
        found = same or begun
        if len(found) > 1:
            raise Unknown(f"several people are called {who}; write an id: {', '.join(line.id for line in found)}")
        if not found:
            raise Unknown(f"nobody is known as {who}")
        return found[0]

    def _line(self, person: Person) -> PersonLine:
        stored = self.stored(person.id)
        named = tuple(each for each in person.identities if self.settings_role(each) is not Role.STRANGER)
        return PersonLine(
            id=person.id,
            name=person.name,
            role=person.role,
            identities=person.identities,
            stored=stored.role if stored else "",
            in_settings=named,
            by=stored.made_by if stored else "",
            at=stored.at if stored else 0.0,
        )


def _is_chat_itself(said: Inbound | Asker) -> bool:
    in_group = said.target.audience is not Audience.PRIVATE
    return in_group and said.sender.id in (said.target.chat, said.conversation.chat)


def _known(settings: Access, snapshot: Snapshot) -> _Known:
    persons: dict[str, Person] = {}
    for stored in snapshot.persons.values():
        role = _role_of(settings, stored)
        person = Person(id=stored.id, role=role, name=stored.name, identities=stored.identities)
        persons.update(dict.fromkeys(stored.identities, person))
        for identity in stored.identities if settings.settings_only and role is not Role.BLOCKED else ():
            # A link is stored, too: each identity has only what the settings give it.
            persons[identity] = replace(person, role=settings_role(settings, identity))
    for identity in (*settings.owners, *settings.admins, *settings.allow):
        if identity not in persons:
            role = settings_role(settings, identity)
            persons[identity] = Person(id=identity, role=role, identities=(identity,))
    # People in [access] owners and admins are persons; only `allow` and stored guests and members may be groups.
    stored_groups = (
        each
        for stored in snapshot.persons.values()
        if stored.role in (Role.GUEST, Role.MEMBER) and not settings.settings_only
        for each in stored.identities
    )
    blocked = {name for name, person in persons.items() if person.role is Role.BLOCKED}
    groups = frozenset((*settings.allow, *stored_groups)) - blocked
    by_plain: dict[str, list[Person]] = {}
    for identity, person in persons.items():
        by_plain.setdefault(names.without_account(identity), []).append(person)
    by_id = {person.id: person for person in persons.values()}
    return _Known(snapshot, persons, by_id, by_plain, groups, {**policy.REQUIRED, **settings.requires})


def _role_of(settings: Access, stored: Stored) -> Role:
    """The role of a stored person: a block holds, else the highest of the stored one and those of the settings."""
    if stored.role == Role.BLOCKED:
        return Role.BLOCKED
    kept = Role(stored.role) if stored.role and not settings.settings_only else Role.STRANGER
    return max((kept, *(settings_role(settings, each) for each in stored.identities)), key=lambda role: role.rank)


def settings_role(settings: Access, identity: str) -> Role:
    lists = ((Role.OWNER, settings.owners), (Role.ADMIN, settings.admins), (Role.MEMBER, settings.allow))
    return next((role for role, ids in lists if identity in ids), Role.STRANGER)


def _highest(persons: Iterable[Person]) -> Person | None:
    """A block first, then the highest role."""
    found = sorted(persons, key=lambda person: (person.role is Role.BLOCKED, person.role.rank))
    return found[-1] if found else None


def _lower(one: Role, other: Role) -> Role:
    return min(one, other, key=lambda role: role.rank)

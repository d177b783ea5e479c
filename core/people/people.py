"""People: finds the person behind a message, and answers what that person may do, from the settings and the store."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from tidings.core.background import Background
from tidings.core.desk.people import Key, PersonLine
from tidings.core.errors import Unknown
from tidings.core.part import Part
from tidings.core.people import known, names, policy, rows
from tidings.core.people.rows import Changes, Stored
from tidings.core.roles import OWNER, Permission, Person, Role
from tidings.core.settings import Access
from tidings.core.store.store import Store, Transaction
from tidings.core.store.wakeups import PeopleChanged
from tidings.core.types import Asker, Inbound, Sender, Target

log = logging.getLogger(__name__)


class People(Part):
    """A change of the settings or of the store takes effect at the next check."""

    def __init__(self, store: Store, settings: Access) -> None:
        self._store = store
        self._hearers: list[Callable[[], None]] = []
        self._reading = Background(log, "people could not be read")
        self._known = known.of_settings(settings)
        store.wakeups.subscribe(PeopleChanged, self._reload)

    def subscribe(self, hear: Callable[[], None]) -> None:
        """`hear` is called after people, roles or keys have changed."""
        self._hearers.append(hear)

    def renew(self, settings: Access) -> None:
        before = self._known
        everybody = Changes({**before.stored}, before.keys, before.version)
        self._known = known.of_settings(settings).amended(everybody)
        if self._known != before:
            self._tell()

    async def recover(self) -> None:
        await self.load()

    async def sweep(self) -> None:
        if await self._store.insist(rows.version) != self._known.version:
            await self.load()

    async def load(self) -> None:
        """Takes over what others have changed since the last load; it takes effect before the caller goes on."""
        self.become(await self._store.insist(self.read))

    def read(self, tx: Transaction) -> Changes:
        return rows.read(tx, self._known.version)

    def become(self, changes: Changes) -> None:
        before, self._known = self._known, self._known.amended(changes)
        if self._known.stored is not before.stored or self._known.keys != before.keys:
            self._tell()

    async def stop(self, patience: float) -> None:
        await self._reading.close()

    def _reload(self, due: PeopleChanged) -> None:
        self._reading.begin(self.load())

    def _tell(self) -> None:
        for hear in self._hearers:
            hear()

    @property
    def version(self) -> int:
        """Changes with every change of stored people; a change of the settings is heard by those who subscribe."""
        return self._known.version

    @property
    def settings(self) -> Access:
        return self._known.settings

    @property
    def strangers(self) -> str:
        """What strangers get: pair, tell or ignore. Where only the settings admit people, a code could not."""
        wanted = self.settings.strangers
        return "tell" if wanted == "pair" and self.settings.settings_only else wanted

    def find(self, said: Inbound | Asker) -> Person:
        """The person behind a message or a piece of work, with the role that applies right now."""
        sender = said.sender
        if sender.key:
            return self._find_under_key(said)
        own = names.own_names(said)
        if sender.is_bot:
            return self._find_bot(own, sender)
        found = _highest(self._known.persons[name] for name in own if name in self._known.persons)
        if sender.trusted:
            known = found or replace(OWNER, identities=own[:1])
            return replace(known, role=Role.OWNER)
        if names.is_chat_itself(said):
            # An anonymous admin writes in the name of the group: nobody knows who that is.
            found = None
        if found is not None and found.role.includes(Role.GUEST):
            return found
        is_guest = any(map(self._known.admits_members, names.chat_names(said)))
        if found is not None:
            # A block holds everywhere, also in an admitted group.
            return replace(found, role=Role.GUEST) if is_guest and found.role is not Role.BLOCKED else found
        role = Role.GUEST if is_guest else Role.STRANGER
        return Person(id=own[0], role=role, name=sender.name, identities=own[:1])

    def _find_bot(self, own: tuple[str, ...], sender: Sender) -> Person:
        """Another bot: a guest if [access] bots names it, and else nobody, whatever admits people or groups."""
        known = self._known
        is_blocked = any(name in known.persons and known.persons[name].role is Role.BLOCKED for name in own)
        is_let_in = not is_blocked and any(name in known.settings.bots for name in own)
        role = Role.GUEST if is_let_in else Role.BLOCKED
        return Person(id=own[0], role=role, name=sender.name, identities=own[:1])

    def _find_under_key(self, said: Inbound | Asker) -> Person:
        """The holder of a key, or a person whom the key's client names; that person never outranks the holder."""
        identity = names.name_of(said.target, said.sender)
        key = self._known.keys.get(said.sender.key)
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

    def answerable_for(self, asker: Asker | None) -> Person | None:
        """The holder of a key who answers for a person whom the key's client names, and who may be made up.

        None for people who are known themselves, and for those whom an owner's or an admin's key names.
        """
        if asker is None or asker.sender.key in ("", asker.sender.id):
            return None
        key = self.key(asker.sender.key)
        is_known = self.is_known(names.name_of(asker.target, asker.sender))
        holder = self.holder(key) if key and not is_known else None
        return None if holder is None or holder.role.includes(Role.ADMIN) else holder

    def holder(self, key: Key) -> Person:
        """The person whose key this is; a removed person has the role of a stranger."""
        return self.with_id(key.person)

    def with_id(self, id: str) -> Person:
        """The person with this id, with the role that applies right now; a removed one has the role of a stranger."""
        if id == OWNER.id:
            return OWNER
        # Whoever is only named by the settings has an identity as id.
        return self._known.by_id(id) or self._known.persons.get(id) or Person(id=id, role=Role.STRANGER)

    def keys(self) -> tuple[Key, ...]:
        return tuple(self._known.keys.values())

    def key(self, id: str) -> Key | None:
        return self._known.keys.get(id)

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
        found = [self._known.persons[name] for name in names.names_of(target) if name in self._known.persons]
        return any(person.role.includes(Role.GUEST) for person in found)

    def is_known(self, identity: str) -> bool:
        """Tells whether this identity is admitted or blocked."""
        found = self._known.persons.get(identity)
        return found is not None and found.role is not Role.STRANGER

    def has_owner(self) -> bool:
        """Tells whether anybody besides the person at the machine is an owner."""
        return any(person.role is Role.OWNER for person in self._known.persons.values())

    def settings_role(self, identity: str) -> Role:
        return self._known.named.get(identity, Role.STRANGER)

    def namesakes_role(self, identity: str) -> Role:
        """The highest role that the settings give anybody who has this id on this platform, whatever the account."""
        found = [role for each, role in self._known.named.items() if names.is_same(each, identity)]
        return max(found, key=lambda role: role.rank, default=Role.STRANGER)

    def stored(self, id: str) -> Stored | None:
        return self._known.stored.get(id)

    def all(self) -> list[PersonLine]:
        """Everybody whom the store or the settings know, owners first."""
        bots = (Person(id=each, role=Role.GUEST, identities=(each,)) for each in self.settings.bots)
        strangers = [each for each in bots if each.id not in self._known.persons]
        lines = [self._line(person) for person in (*self._known.all(), *strangers)]
        return sorted(lines, key=lambda line: (-line.role.rank, line.name.casefold(), line.identities))

    def get(self, who: str) -> PersonLine:
        """Finds a person by id, by the beginning of an id, by identity or by name; raises Unknown."""
        who = who.strip()
        if (exact := self._known.persons.get(who) or self._known.by_id(who)) is not None:
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
        bots = self.settings.bots
        named = tuple(
            each for each in person.identities if self.settings_role(each) is not Role.STRANGER or each in bots
        )
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


def _highest(persons: Iterable[Person]) -> Person | None:
    """A block first, then the highest role."""
    found = sorted(persons, key=lambda person: (person.role is Role.BLOCKED, person.role.rank))
    return found[-1] if found else None


def _lower(one: Role, other: Role) -> Role:
    return min(one, other, key=lambda role: role.rank)

"""Changes of people: each is one function of a transaction, permitted by rank, and written to the audit trail."""

from __future__ import annotations

from msgspec.structs import replace

from tidings.core import ids
from tidings.core.desk.people import Key, PersonLine
from tidings.core.errors import Conflict, NotPermitted, Unkeepable, Unknown
from tidings.core.people import audit, names, policy, rows
from tidings.core.people.people import People
from tidings.core.people.rows import Stored
from tidings.core.roles import GIVEN, OWNER, Permission, Person, Role, plain_name
from tidings.core.store.store import Transaction
from tidings.core.store.wakeups import PeopleChanged

Somebody = PersonLine | Person


class Register:
    """Every decision is made on the rows of the transaction; only what the settings say comes from `People`."""

    def __init__(self, people: People, owner: str = "") -> None:
        """`owner` is the platform on which only the person at the machine speaks; its identities are an owner's."""
        self._people = people
        self._owner = owner

    def admit(self, tx: Transaction, by: Person, identity: str, role: Role | None, name: str, wall: float) -> str:
        """Gives an identity a role and returns the person's id; raises Unknown or Unkeepable."""
        if not names.is_identity(identity):
            raise Unknown(f"{identity!r} is not an id; write platform:ID, for example the one the bot told you")
        if self._people.settings.settings_only and not self._people.settings_role(identity).includes(Role.GUEST):
            raise Unkeepable(f"[access] settings_only is on: add {identity} to the settings, then run: tidings reload")
        known = self._find(tx, identity)
        before = self._role(known, known.identities if known else (identity,))
        role = role or (before if before.includes(Role.MEMBER) else Role.MEMBER)
        self._check(tx, by, (identity,), before, role)
        if before.includes(role) and (known is None or known.role in ("", role)):
            # The settings give this role already, or nothing changes; the store never repeats the settings.
            return known.id if known else identity
        name = plain_name(name)
        person = Stored(ids.new("psn"), name, role, by.id, wall, (identity,))
        if known is not None:
            person = known._replace(role=role, name=name or known.name)
        rows.put_person(tx, person)
        self._tell(tx, by, "admitted", person.id, wall, f"{identity} {role}")
        return person.id

    def set_role(self, tx: Transaction, by: Person, line: PersonLine, role: Role, wall: float) -> None:
        if role not in GIVEN:
            raise Unkeepable(f"there is no role {role}; there are: {', '.join(GIVEN)}")
        known = self._known(tx, by, line, wall)
        before = self._role(known, known.identities)
        self._check(tx, by, known.identities, before, role)
        named = max(known.identities, key=lambda each: self._people.settings_role(each).rank)
        highest = self._people.settings_role(named)
        if not role.includes(highest):
            raise Unkeepable(f"the settings make {named} {a(highest)}; change that there")
        rows.put_person(tx, known._replace(role=role))
        self._tell(tx, by, "role", known.id, wall, f"{before} {role}")

    def rename(self, tx: Transaction, by: Person, line: PersonLine, name: str, wall: float) -> None:
        known = self._known(tx, by, line, wall)
        self._check(tx, by, known.identities, self._role(known, known.identities), Role.STRANGER)
        rows.put_person(tx, known._replace(name=plain_name(name)))
        self._tell(tx, by, "renamed", known.id, wall)

    def remove(self, tx: Transaction, by: Person, line: PersonLine, wall: float) -> None:
        """Removes a person from the store; raises Unkeepable for one whom only the settings know."""
        known = self._find(tx, line.id)
        identities = known.identities if known else line.identities
        self._check(tx, by, identities, self._role(known, identities), Role.STRANGER)
        if known is None:
            named = line.in_settings[0] if line.in_settings else line.id
            raise Unkeepable(f"{named} is named in the settings; remove it there, then run: tidings reload")
        rows.drop_person(tx, known.id)
        self._tell(tx, by, "removed", known.id, wall, " ".join(known.identities))

    def block(self, tx: Transaction, by: Person, identity: str, name: str, wall: float) -> None:
        """Blocks the person with this identity, or a stranger; a blocked person's keys are gone."""
        if not names.is_identity(identity):
            raise Unknown(f"{identity!r} is not an id; write platform:ID")
        known = self._find(tx, identity)
        identities = known.identities if known else (identity,)
        self._check(tx, by, identities, self._role(known, identities), Role.BLOCKED)
        person = known or Stored(ids.new("psn"), plain_name(name), "", by.id, wall, (identity,))
        rows.drop_person(tx, person.id)
        rows.drop_keys(tx, identity)
        rows.put_person(tx, person._replace(role=Role.BLOCKED, made_by=by.id, at=wall))
        self._tell(tx, by, "blocked", person.id, wall, identity)

    def link(self, tx: Transaction, by: Person, first: Somebody, other: Somebody, wall: float) -> str:
        """Makes two persons one, with the first one's name and role.

        Raises Unkeepable if the other ranks higher, if one of them is blocked, or if only the settings admit people.
        """
        known, joined = self._find(tx, first.id), self._find(tx, other.id)
        owned, added = (known or first).identities, (joined or other).identities
        role, lower = self._standing(first, known), self._standing(other, joined)
        if not set(owned).isdisjoint(added):
            raise Unkeepable("these are already the same person")
        if Role.BLOCKED in (role, lower):
            raise Unkeepable("a blocked person cannot be linked")
        if not role.includes(Role.GUEST):
            raise Unkeepable(f"{owned[0]} is not admitted any more")
        if lower.rank > role.rank:
            words = f"{added[0]} is {a(lower)}, and {owned[0]} only {a(role)}"
            raise Unkeepable(f"{words}; name the higher one first")
        if self._people.settings.settings_only and any(
            not self._people.settings_role(each).includes(Role.GUEST) for each in added
        ):
            raise Unkeepable(f"[access] settings_only is on: add {added[0]} to the settings, then run: tidings reload")
        if known is None:
            # Whom only the settings know keeps that role: if the settings drop them, the link gives them nothing.
            given, name = (str(Role.OWNER), "") if first.id == OWNER.id else ("", plain_name(first.name))
            known = Stored(ids.new("psn"), name, given, by.id, wall, owned)
            rows.put_person(tx, known)
        for identity in added:
            rows.put_identity(tx, identity, known.id, wall)
        if joined is not None:
            rows.merge(tx, known.id, joined.id)
            self._tell(tx, by, "merged", joined.id, wall, known.id)
            if _rank(joined.role) > _rank(known.role):
                # What the other was given in the store stays, also if the settings drop the first.
                rows.put_person(tx, known._replace(role=joined.role))
        self._tell(tx, by, "linked", known.id, wall, " ".join(added))
        return known.id

    def check_link(self, tx: Transaction, by: Person, first: Somebody, other: Somebody) -> None:
        """Raises NotPermitted unless `by` may link others: admins only known people below them, owners everybody."""
        for each in (first, other):
            known = self._find(tx, each.id)
            identities = (known or each).identities
            self._check(tx, by, identities, self._role(known, identities), Role.STRANGER)
            is_known = known is not None or any(
                self._people.settings_role(identity) is not Role.STRANGER for identity in identities
            )
            if not is_known and self._actor(tx, by) is not Role.OWNER:
                raise NotPermitted(f"only an owner may link {identities[0]}, who was never admitted; admit them first")

    def unlink(self, tx: Transaction, by: Person, identity: str, wall: float) -> None:
        """Takes an identity from its person; without a role of its own, it is a stranger's from then on."""
        known = self._find(tx, identity)
        if known is None or identity not in known.identities or len(known.identities) < 2:
            raise Unknown(f"{identity} is not linked with another identity")
        rows.drop_identity(tx, identity)
        self._tell(tx, by, "unlinked", known.id, wall, identity)

    def add_key(self, tx: Transaction, by: Person, key: Key, wall: float) -> None:
        if not rows.put_key(tx, key):
            raise Conflict(f"there is a key named {key.name} already; revoke it first, or choose another name")
        self._tell(tx, by, "key added", key.id, wall, f"{key.person} {' '.join(key.scopes)}")

    def revoke_key(self, tx: Transaction, by: Person, name: str, wall: float) -> None:
        gone = tx.one("SELECT id FROM keys WHERE name = ?", name)
        if gone is None or not rows.drop_key(tx, name):
            raise Unknown(f"there is no key named {name}; list them with: tidings key list")
        self._tell(tx, by, "key revoked", gone["id"], wall)

    def _find(self, tx: Transaction, who: str) -> Stored | None:
        """The stored person with this id or identity, as the transaction sees it."""
        return rows.read_one(tx, who)

    def _known(self, tx: Transaction, by: Person, line: PersonLine, wall: float) -> Stored:
        """The stored person, or a new row for one whom the settings know; raises Unknown for one who has just gone."""
        known = self._find(tx, line.id)
        if known is None and not line.in_settings:
            raise Unknown(f"nobody is known as {line.id}")
        return known or Stored(ids.new("psn"), line.name, "", by.id, wall, line.identities)

    def _role(self, known: Stored | None, identities: tuple[str, ...]) -> Role:
        """The role that the rows and the settings give this person."""
        if known is not None and known.role == Role.BLOCKED:
            return Role.BLOCKED
        kept = Role((known.role if known else "") or Role.STRANGER)
        return max((kept, *map(self._people.settings_role, identities)), key=lambda role: role.rank)

    def _standing(self, somebody: Somebody, known: Stored | None) -> Role:
        """The role for a link; the person at the machine is an owner without any row."""
        if somebody.id == OWNER.id:
            return Role.OWNER
        return self._role(known, (known or somebody).identities)

    def _actor(self, tx: Transaction, by: Person) -> Role:
        """The role of the person who asks, as the transaction sees it: they may have been removed just before."""
        if by.id == OWNER.id:
            return Role.OWNER
        now = self._role(self._find(tx, by.id), by.identities or (by.id,))
        return by.role if by.role.rank <= now.rank else now

    def _check(self, tx: Transaction, by: Person, identities: tuple[str, ...], before: Role, after: Role) -> None:
        """Raises NotPermitted if a person with one of these ids, on whatever account, is not below the one who asks."""
        role = self._actor(tx, by)
        if not self._people.may(replace(by, role=role), Permission.PEOPLE):
            raise NotPermitted("only an owner or admin may do this")
        namesakes = (person for each in identities for person in rows.read_namesakes(tx, each))
        held = (self._role(person, person.identities) for person in namesakes)
        named = map(self._people.namesakes_role, identities)
        highest = max(before, after, *held, *named, key=lambda each: each.rank)
        if any(each.partition(":")[0].partition("@")[0] == self._owner for each in identities):
            highest = Role.OWNER
        if not policy.may_change(role, highest, after):
            raise NotPermitted(f"only an owner may do this: you are {a(role)}, and this is about {a(highest)}")

    def _tell(self, tx: Transaction, by: Person, action: str, object: str, wall: float, detail: str = "") -> None:
        audit.write(tx, by.id, action, object, wall, detail)
        tx.announce(PeopleChanged())


def a(role: Role) -> str:
    """A role with its article."""
    return f"{'an' if role in (Role.ADMIN, Role.OWNER) else 'a'} {role}"


def _rank(role: str) -> int:
    return Role(role or Role.STRANGER).rank

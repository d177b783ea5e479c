"""The service for people: carries out every request about them, from chat, button, API or command line."""

from __future__ import annotations

from collections.abc import Callable

from tidings.core.allowances import rows as spending
from tidings.core.clock import Clock
from tidings.core.desk.people import AuditLine, Key, PersonLine, Waiting
from tidings.core.errors import NotPermitted, Unknown
from tidings.core.inbound import forgetting, inbox
from tidings.core.inbound.pairing import OVER, WRONG, Pairing
from tidings.core.inbound.settlement import Settlement
from tidings.core.memory import conversations, ownership, person_notes, talks
from tidings.core.people import audit, codes, names, rows
from tidings.core.people.people import People
from tidings.core.people.register import Register
from tidings.core.roles import Permission, Person, Role
from tidings.core.store.store import Store, Transaction
from tidings.core.types import Asker, Inbound


class PeopleService:
    """Each change is one transaction, and takes effect before its caller goes on."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        people: People,
        register: Register,
        pairing: Pairing,
        settlement: Settlement,
    ) -> None:
        self._store = store
        self._clock = clock
        self._people = people
        self._register = register
        self._pairing = pairing
        self._settlement = settlement

    def find(self, said: Inbound | Asker) -> Person:
        return self._people.find(said)

    def holder(self, key: Key) -> Person:
        return self._people.holder(key)

    def may(self, person: Person, permission: Permission) -> bool:
        return self._people.may(person, permission)

    def subscribe(self, hear: Callable[[], None]) -> None:
        self._people.subscribe(hear)

    def has_owner(self) -> bool:
        return self._people.has_owner()

    async def all(self) -> list[PersonLine]:
        return self._people.all()

    async def get(self, who: str) -> PersonLine:
        return self._people.get(who)

    async def waiting(self) -> list[Waiting]:
        now, ahead = self._clock.now(), self._clock.ahead
        return [
            Waiting(each.id, each.identity, each.name, str(each.message.target), each.at, each.expires + ahead)
            for each in await self._store.read(lambda tx: codes.waiting(tx, now))
        ]

    async def admit(self, by: Person, who: str, role: Role | None = None, name: str = "") -> PersonLine:
        id = await self._store.write(lambda tx: self.admit_in(tx, by, who, role, name))
        if id is None:
            raise Unknown(WRONG)
        await self._people.load()
        return self._people.get(id)

    def admit_in(self, tx: Transaction, by: Person, who: str, role: Role | None, name: str = "") -> str | None:
        """Admits an identity, or the stranger with this code or pairing id; None for a wrong code."""
        self._check(by)
        who, now = who.strip(), self._clock.now()
        if who.startswith("code_"):
            code = codes.get(tx, who, now)
            if code is None:
                raise Unknown(OVER)
        elif codes.looks_like(who):
            code = self._pairing.find(tx, by, who)
            if code is None:
                return None
        else:
            code = codes.of(tx, codes.PAIRING, who, now)
        if code is not None:
            return self._pairing.admit(tx, by, code, role, name)
        return self._register.admit(tx, by, who, role, name, self._clock.wall())

    async def remove(self, by: Person, who: str) -> PersonLine:
        line = self._people.get(who)
        await self._change(lambda tx: self.remove_in(tx, by, line))
        return self._after(line)

    def remove_in(self, tx: Transaction, by: Person, line: PersonLine) -> None:
        self._check(by)
        self._register.remove(tx, by, line, self._clock.wall())

    async def block(self, by: Person, who: str) -> PersonLine:
        identity = self.identity_of(who)
        await self._change(lambda tx: self.block_in(tx, by, identity))
        return self._people.get(identity)

    def identity_of(self, who: str) -> str:
        """The identity of a known person, or the identity that was written."""
        try:
            return self._people.get(who).identities[0]
        except Unknown:
            if not names.is_identity(who):
                raise
            return who.strip()

    def block_in(self, tx: Transaction, by: Person, identity: str) -> None:
        self._check(by)
        name = self._pairing.withdraw(tx, identity)
        self._register.block(tx, by, identity, name, self._clock.wall())

    async def set_role(self, by: Person, who: str, role: Role) -> PersonLine:
        line = self._people.get(who)
        await self._change(lambda tx: self.set_role_in(tx, by, line, role))
        return self._after(line)

    def set_role_in(self, tx: Transaction, by: Person, line: PersonLine, role: Role) -> None:
        self._check(by)
        self._register.set_role(tx, by, line, role, self._clock.wall())

    async def rename(self, by: Person, who: str, name: str) -> PersonLine:
        line = self._people.get(who)

        def unit(tx: Transaction) -> None:
            self._check(by)
            self._register.rename(tx, by, line, name, self._clock.wall())

        await self._change(unit)
        return self._after(line)

    async def link(self, by: Person, who: str, other: str) -> PersonLine:
        first = self._people.get(who)
        await self._change(lambda tx: self.link_in(tx, by, first, other))
        return self._after(first)

    def link_in(self, tx: Transaction, by: Person, first: PersonLine, other: str) -> None:
        """Links a known person with another one, or with an identity that was never admitted."""
        self._check(by)
        try:
            joined: PersonLine | Person = self._people.get(other)
        except Unknown:
            if not names.is_identity(other):
                raise
            joined = Person(id=other, role=Role.STRANGER, identities=(other,))
        self._register.check_link(tx, by, first, joined)
        self._register.link(tx, by, first, joined, self._clock.wall())
        for identity in joined.identities:
            self._pairing.withdraw(tx, identity)

    async def unlink(self, by: Person, identity: str) -> None:
        await self._change(lambda tx: self.unlink_in(tx, by, identity))

    def unlink_in(self, tx: Transaction, by: Person, identity: str) -> None:
        """Takes an identity from a person below the one who asks."""
        line = self._people.get(identity)
        self._register.check_link(tx, by, line, line)
        self._register.unlink(tx, by, identity, self._clock.wall())

    async def forget(self, by: Person, who: str) -> int:
        line = self._people.get(who)

        def unit(tx: Transaction) -> int:
            self._check(by)
            known = rows.read_one(tx, line.id)
            # Their keys are known only before they are removed.
            owned = ownership.names_of(tx, line.id, (known or line).identities)
            if known is not None or not line.in_settings:
                self._register.remove(tx, by, line, self._clock.wall())
            for owner in owned:
                person_notes.forget(tx, owner)
                codes.forget(tx, owner)
            audit.write(tx, by.id, "forgotten", line.id, self._clock.wall())
            found = talks.conversations_of(tx, owned)
            spending.forget(tx, (line.id, *owned), found)
            return sum(self._forget_conversation(tx, conversation) for conversation in found)

        runs = await self._store.write(unit)
        await self._people.load()
        return runs

    def _forget_conversation(self, tx: Transaction, conversation: str) -> int:
        """Ends what goes on in a conversation without a word, and leaves the rest to the erasure."""
        for run in inbox.waiting_runs(tx, conversation):
            self._settlement.drop(tx, run, forgetting.FORGOTTEN)
        if (live := inbox.live_run(tx, conversation)) is not None:
            inbox.ask_stop(tx, live, "the owner")
        conversations.begin_forgetting(tx, conversation, self._clock.now())
        return forgetting.ask_for_conversation(tx, conversation)

    def keys(self) -> tuple[Key, ...]:
        return self._people.keys()

    async def add_key(self, by: Person, key: Key) -> None:
        await self._change(lambda tx: self._register.add_key(tx, by, key, self._clock.wall()))

    async def revoke_key(self, by: Person, name: str) -> None:
        await self._change(lambda tx: self._register.revoke_key(tx, by, name, self._clock.wall()))

    async def note_settings(self, by: Person, changed: tuple[str, ...]) -> None:
        detail, wall = ", ".join(changed), self._clock.wall()
        await self._store.write(lambda tx: audit.write(tx, by.id, "settings", "reload", wall, detail))

    async def audit(self, limit: int, before: int = 0, since: float = 0.0) -> list[AuditLine]:
        return await self._store.read(lambda tx: audit.read(tx, limit, before, since))

    async def _change(self, unit: Callable[[Transaction], None]) -> None:
        await self._store.write(unit)
        await self._people.load()

    def _after(self, line: PersonLine) -> PersonLine:
        """The person as they are after a change; removed people have no role any more."""
        for who in (line.id, *line.identities):
            try:
                return self._people.get(who)
            except Unknown:
                continue
        return PersonLine(line.id, line.name, Role.STRANGER, line.identities)

    def _check(self, by: Person) -> None:
        if not self._people.may(by, Permission.PEOPLE):
            raise NotPermitted("only an owner or admin may do this")

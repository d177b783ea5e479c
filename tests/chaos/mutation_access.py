"""Seeded bugs in who may do what: at the door, with the home, at the board, and long after it was asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec.structs import replace

from tests.chaos.mutation_seams import later, swap
from tidings.adapters.api.settings import HttpSettings
from tidings.bots import main
from tidings.core.desk.board import Hand
from tidings.core.inbound import door, people_commands
from tidings.core.inbound.commands import Command, Commands
from tidings.core.inbound.door import Door
from tidings.core.inbound.pairing import WELCOME, Pairing
from tidings.core.people import codes, names, policy, rows
from tidings.core.people.codes import Code
from tidings.core.people.people import People
from tidings.core.people.register import Register, Somebody
from tidings.core.people.rows import Changes
from tidings.core.redaction import remember
from tidings.core.roles import Permission, Person, Role
from tidings.core.store.store import Transaction
from tidings.core.store.wakeups import PeopleChanged
from tidings.core.types import Asker, Inbound
from tidings.core.work.board import cards as card_rows
from tidings.core.work.board.permissions import Permissions
from tidings.core.work.mandates import Mandates


def empty_list_admits_everybody() -> None:
    """Settings that name nobody seem to say that all may speak."""
    real = People.find

    def find(self: People, said: Inbound | Asker) -> Person:
        found = real(self, said)
        return found if self.all() else replace(found, role=Role.MEMBER)

    swap(People, "find", find)


def removed_people_go_on() -> None:
    """Admission is looked at when somebody speaks, and not when what they have planned begins."""

    def lapsed(self: People, asker: Asker | None, permission: Permission = Permission.TALK) -> str:
        return ""

    swap(People, "lapsed", lapsed)


def removed_entry_still_admits() -> None:
    """A person who was once admitted stays in the cache."""
    real = People.become

    def become(self: People, changes: Changes) -> None:
        still = {id: person for id, person in changes.persons.items() if person is not None}
        real(self, changes._replace(persons=still))

    swap(People, "become", become)


def second_change_unseen() -> None:
    """Of several changes since the last look, only the newest is taken over."""
    real = rows.read

    def read(tx: Transaction, since: int) -> Changes:
        changes = real(tx, since)
        if changes.is_whole or not changes.persons:
            return changes
        newest = tx.one("SELECT object FROM audit WHERE seq = ?", changes.version)
        persons = {id: person for id, person in changes.persons.items() if newest and id == newest["object"]}
        return changes._replace(persons=persons)

    swap(rows, "read", read)


def merged_person_stays() -> None:
    """The trail names the person who got the identities, and not the one who is gone."""
    real = Register._tell

    def tell(
        self: Register, tx: Transaction, by: Person, action: str, object: str, wall: float, detail: str = ""
    ) -> None:
        if action != "merged":
            real(self, tx, by, action, object, wall, detail)

    swap(Register, "_tell", tell)


def lists_merge() -> None:
    """Whom the settings name is stored too, and stays when the settings no longer name them."""

    def settings_role(self: People, identity: str) -> Role:
        return Role.STRANGER

    swap(People, "settings_role", settings_role)


def anybody_takes_the_home() -> None:
    """Whoever may speak may have the alerts of the gateway sent to themselves."""
    real = policy.may

    def may(role: Role, permission: Permission, required: Mapping[Permission, Role] = policy.REQUIRED) -> bool:
        return real(role, Permission.TALK if permission is Permission.HOME else permission, required)

    swap(policy, "may", may)


def owner_by_group() -> None:
    """Whoever speaks in a group that the owners' list names is an owner."""
    real = People.find

    def find(self: People, said: Inbound | Asker) -> Person:
        found = real(self, said)
        by_group = not set(self.settings.owners).isdisjoint(names.chat_names(said))
        return replace(found, role=Role.OWNER) if by_group else found

    swap(People, "find", find)


def door_without_the_check() -> None:
    """A command is obeyed whoever gives it."""

    def refusal(self: Commands, command: Command, inbound: Inbound) -> str:
        return ""

    swap(Commands, "refusal", refusal)


def reusable_code() -> None:
    """A code that has admitted somebody admits again."""

    def close(tx: Transaction, id: str, state: str = "used") -> bool:
        return True

    swap(codes, "close", close)


def expired_code() -> None:
    """A code works however old it is."""
    real = codes.find

    def find(tx: Transaction, kind: str, text: str, now: float) -> Code | None:
        return real(tx, kind, text, 0.0)

    by_id = codes.get

    def get(tx: Transaction, id: str, now: float) -> Code | None:
        return by_id(tx, id, 0.0)

    def purge(tx: Transaction, now: float) -> None:
        return

    swap(codes, "find", find)
    swap(codes, "get", get)
    # The sweep would remove the code before anybody could use it.
    swap(codes, "purge", purge)


def codes_without_limit() -> None:
    """Codes may be guessed as often as one likes."""

    def is_closed(tx: Transaction, guesser: str, now: float, limit: int = codes.WRONG_CODES) -> bool:
        return False

    swap(codes, "is_closed", is_closed)


def link_by_text() -> None:
    """Whoever says who they are is believed: an identity links as a code does."""
    real = codes.find

    def find(tx: Transaction, kind: str, text: str, now: float) -> Code | None:
        return real(tx, kind, text, now) or codes.of(tx, kind, text, now)

    swap(codes, "find", find)


def link_raises_its_maker() -> None:
    """A code that a member made and an owner enters makes the member an owner."""
    real = Register.link

    def link(self: Register, tx: Transaction, by: Person, first: Somebody, other: Somebody, wall: float) -> str:
        return real(self, tx, by, replace(first, role=Role.OWNER), other, wall)

    swap(Register, "link", link)
    swap(people_commands, "outranks", lambda person, maker: False)


def admitted_after_the_welcome() -> None:
    """A stranger is told that they are in, and only then, in another transaction, they are."""
    pending: list[Callable[[Transaction], str]] = []

    def admit(self: Pairing, tx: Transaction, by: Person, code: Code, role: Role | None, name: str = "") -> str:
        codes.close(tx, code.id)
        wall = self._clock.wall()
        pending.append(lambda tx: self._register.admit(tx, by, code.identity, role, name or code.name, wall))
        tx.announce(PeopleChanged())
        self._welcome(tx, code.message, WELCOME)
        return code.identity

    real = rows.read

    def read(tx: Transaction, since: int) -> Changes:
        while pending:
            pending.pop(0)(tx)
        return real(tx, since)

    swap(Pairing, "admit", admit)
    swap(rows, "read", read)


def owner_asked_behind_the_code() -> None:
    """A stranger has a code at once; the owner hears of it in another transaction, or after a kill never."""
    real = Pairing._ask_owner

    def ask_owner(self: Pairing, tx: Transaction, id: str, identity: str, inbound: Inbound, now: float) -> None:
        store = self._people._store
        asking = lambda tx: real(self, tx, id, identity, inbound, now)  # noqa: E731
        store._loop.call_soon_threadsafe(lambda: later(store.insist(asking)))  # type: ignore[attr-defined]

    swap(Pairing, "_ask_owner", ask_owner)


def paired_message_under_another_key() -> None:
    """What brought a stranger is stored as something new; told again by the platform, it is answered again."""
    real = Pairing._welcome

    def welcome(self: Pairing, tx: Transaction, message: Inbound, words: str) -> None:
        real(self, tx, replace(message, key=f"paired {message.key}"), words)

    swap(Pairing, "_welcome", welcome)


def press_not_stored() -> None:
    """A press is answered and forgotten: told again after a kill, it is answered again."""
    real = Door._answer_request

    def answer_request(self: Door, tx: Transaction, press: Inbound) -> door._Taken:
        taken = real(self, tx, press)
        tx.execute("DELETE FROM inbox WHERE adapter = ? AND key = ?", press.target.adapter, press.key)
        return taken

    swap(Door, "_answer_request", answer_request)


def lapsed_plans_fire() -> None:
    """What a removed person has planned is not looked at again when it comes due."""

    def lapsed(self: Mandates, asker: Asker | None) -> str:
        return ""

    swap(Mandates, "lapsed", lapsed)


def card_for_anybody() -> None:
    """A card from a chat goes to whatever bot it names."""

    def check_assignee(self: Permissions, assignee: str, hand: Hand) -> None:
        return

    swap(Permissions, "check_assignee", check_assignee)


def folder_of_others() -> None:
    """Whoever knows the name of a folder works in it."""

    def may_share(tx: Transaction, folder: str, asker: Asker | None) -> bool:
        return True

    swap(card_rows, "may_share", may_share)


def key_in_the_journal() -> None:
    """The owner's key is told to whatever reads along."""
    real = main._with_key

    def with_key(home: Path, http: HttpSettings) -> tuple[HttpSettings, str]:
        settings, _ = real(home, http)
        remember(settings.key.get_secret_value())
        return settings, f"the key of the HTTP API is {settings.key.get_secret_value()}"

    swap(main, "_with_key", with_key)

"""The commands /people, for those who admit others, and /link, by which a person brings along another identity."""

from __future__ import annotations

from tidings.core import ids
from tidings.core.clock import Clock
from tidings.core.desk.people import PersonLine
from tidings.core.errors import TidingsError, Unkeepable, Unknown
from tidings.core.inbound.commands import Command, Obeyed
from tidings.core.inbound.pairing import WRONG, Pairing, guessers
from tidings.core.inbound.people_service import PeopleService
from tidings.core.outbound import outbox
from tidings.core.outbound.outbox import Class, Owed
from tidings.core.people import codes, names
from tidings.core.people.people import People
from tidings.core.people.register import Register, a
from tidings.core.roles import GIVEN, Permission, Person, Role, described
from tidings.core.store.store import Transaction
from tidings.core.types import Audience, Body, Inbound

LISTED = 50
HELP = """\
/people – everybody who is known
/people admit CODE, or /people admit platform:ID, with a role if not member
/people role WHO ROLE – guest, member, admin or owner
/people remove WHO – their planned work will not run
/people block WHO – they get no answer at all
/people link WHO OTHER – two identities of one person; /people unlink ID takes one away"""
LIST_IN_PRIVATE = "Please send me /people in a private chat: the list is not for everyone who reads this group."
PRIVATE = "Please send me /link in a private chat: a code in a group is for everyone who reads it."
LINK_CODE = (
    "Your code is {code}. Within five minutes, send /link {code} (or !link {code}) to me from your other account. Keep"
    " the code to yourself: it makes the other account yours."
)
LINK_TWICE = (
    "This makes you and {who} one person: you will share notes, conversations and permissions. If both are you, send"
    " the same command once more."
)
LINKED = "Done: this is now also you, {who}. /continue goes on with a conversation from there."
LINKED_THERE = "{identity} is now linked with you. If that was not you, send: /link remove {identity}"
LOWER = "This account may do more than the one that made the code. Send /link here, and the code there."
LINK_CLOSED = "Too many wrong codes. Please try again in an hour."
REFUSALS = (Unknown, Unkeepable)


class PeopleCommands:
    def __init__(
        self, clock: Clock, people: People, register: Register, service: PeopleService, pairing: Pairing
    ) -> None:
        self._clock = clock
        self._people = people
        self._register = register
        self._service = service
        self._pairing = pairing

    def commands(self) -> tuple[Command, ...]:
        return (
            Command("people", "who may talk to me; /people help says more", self._manage, Permission.PEOPLE),
            Command(
                "link", "bring along your account on another platform", self._link, Permission.WORK, for_strangers=True
            ),
        )

    def _manage(self, tx: Transaction, inbound: Inbound) -> Obeyed:
        by, words = self._people.find(inbound), inbound.argument.split()
        if not words and inbound.target.audience is Audience.GROUP:
            return Obeyed(LIST_IN_PRIVATE)
        try:
            return Obeyed(self._obey(tx, by, words))
        except REFUSALS as error:
            return Obeyed(_sentence(error))

    def _obey(self, tx: Transaction, by: Person, words: list[str]) -> str:
        match words:
            case []:
                return self._list(tx)
            case ["admit", who] | ["admit", who, ("guest" | "member" | "admin" | "owner")]:
                return self._admit(tx, by, who, Role(words[2]) if len(words) > 2 else None)
            case ["role", who, role]:
                return self._set_role(tx, by, who, role)
            case ["remove", who]:
                line = self._people.get(who)
                self._service.remove_in(tx, by, line)
                if line.in_settings:
                    still = f"the settings still name {line.in_settings[0]}; remove it there"
                    return f"{_called(line)} is removed from the store, but {still}."
                return f"{_called(line)} may no longer talk to the bot; their planned work will not run."
            case ["block", who]:
                identity = self._service.identity_of(who)
                self._service.block_in(tx, by, identity)
                return f"{identity} is blocked."
            case ["link", who, other]:
                line = self._people.get(who)
                self._service.link_in(tx, by, line, other)
                return f"{_called(line)} and {other} are one person now."
            case ["unlink", identity]:
                self._service.unlink_in(tx, by, identity)
                return f"{identity} is on its own now."
            case _:
                return HELP

    def _admit(self, tx: Transaction, by: Person, who: str, role: Role | None) -> str:
        id = self._service.admit_in(tx, by, who, role)
        if id is None:
            return f"{WRONG[0].upper()}{WRONG[1:]}."
        return f"{who if names.is_identity(who) else 'They'} may talk to the bot now."

    def _set_role(self, tx: Transaction, by: Person, who: str, role: str) -> str:
        if role not in GIVEN:
            raise Unkeepable(f"there is no role {role}; there are: {', '.join(GIVEN)}")
        line = self._people.get(who)
        self._service.set_role_in(tx, by, line, Role(role))
        return f"{_called(line)} is {a(Role(role))} now."

    def _list(self, tx: Transaction) -> str:
        lines = [_line(each) for each in self._people.all()]
        more = [f"… and {len(lines) - LISTED} more"] if len(lines) > LISTED else []
        waiting = [described(each.name, each.identity) for each in codes.waiting(tx, self._clock.now())]
        asking = [f"Waiting to be admitted: {', '.join(waiting)}"] if waiting else []
        return "\n".join([*(lines[:LISTED] or ["Nobody is admitted yet."]), *more, *asking, "/people help says more."])

    def _link(self, tx: Transaction, inbound: Inbound) -> Obeyed:
        if inbound.target.audience is not Audience.PRIVATE:
            return Obeyed(PRIVATE)
        person = self._people.find(inbound)
        try:
            match inbound.argument.split():
                case [] if self._people.may(person, Permission.WORK):
                    return self._make_code(tx, inbound)
                case ["remove", identity] if person.role is not Role.STRANGER:
                    return Obeyed(self._take_back(tx, inbound, person, identity))
                case [*words] if words:
                    return Obeyed(self._join(tx, inbound, person, "".join(words)))
                case _:
                    return Obeyed("Send /link to me from an account that I know first; it gives you a code.")
        except REFUSALS as error:
            return Obeyed(_sentence(error))

    def _make_code(self, tx: Transaction, inbound: Inbound) -> Obeyed:
        now, identity = self._clock.now(), names.name_of(inbound.target, inbound.sender)
        _, code = codes.make(tx, codes.LINK, identity, inbound, now, self._clock.wall())
        return Obeyed(LINK_CODE.format(code=code))

    def _take_back(self, tx: Transaction, inbound: Inbound, person: Person, identity: str) -> str:
        """Unlinks one of the person's own identities; an identity that came later never throws out an earlier one."""
        own = next((each for each in names.own_names(inbound) if each in person.identities), "")
        if identity not in person.identities or not own:
            return f"{identity} is not linked with you."
        if person.identities.index(identity) < person.identities.index(own):
            return f"Send this from {identity}, or ask an owner or admin: it was there before this account."
        self._register.unlink(tx, person, identity, self._clock.wall())
        return f"{identity} is no longer linked with you."

    def _join(self, tx: Transaction, inbound: Inbound, person: Person, text: str) -> str:
        """Links the chat where a code is written with the chat that made it."""
        now, own = self._clock.now(), names.name_of(inbound.target, inbound.sender)
        is_stranger = person.role is Role.STRANGER
        counted = guessers(inbound, is_stranger=is_stranger)
        if any(codes.is_closed(tx, guesser, now, limit) for guesser, limit in counted):
            return LINK_CLOSED
        code = codes.find(tx, codes.LINK, text, now)
        if code is None or code.identity == own:
            for guesser, limit in counted:
                codes.count_wrong(tx, guesser, now, limit)
            is_silent = is_stranger and self._people.strangers == "ignore"
            return "" if is_silent else f"{WRONG[0].upper()}{WRONG[1:]}."
        maker = self._people.find(code.message)
        if not self._people.may(maker, Permission.WORK):
            return f"{WRONG[0].upper()}{WRONG[1:]}."
        if outranks(person, maker):
            return LOWER
        if not is_stranger and code.repeat_by != own:
            codes.ask_again(tx, code.id, own)
            return LINK_TWICE.format(who=maker.label)
        self._register.link(tx, maker, maker, person, self._clock.wall())
        codes.close(tx, code.id)
        self._pairing.withdraw(tx, own)
        told = Body(text=LINKED_THERE.format(identity=own))
        target = code.message.target.lasting()
        outbox.put(tx, Owed(ids.new("dlv"), Class.NOTICE, target, told, None, "linked"), now)
        return LINKED.format(who=maker.label)


def outranks(person: Person, maker: Person) -> bool:
    """Tells whether the chat that enters a code may do more than its maker: a code never raises the maker."""
    return person.role.rank > maker.role.rank


def _line(line: PersonLine) -> str:
    others = f", also {', '.join(line.identities[1:])}" if line.identities[1:] else ""
    source = " (settings)" if line.in_settings else ""
    return f"• {_called(line)}{others}: {line.role}{source}"


def _called(line: PersonLine) -> str:
    return described(line.name, line.identities[0] if line.identities else line.id)


def _sentence(error: TidingsError) -> str:
    words = str(error)
    return f"{words[:1].upper()}{words[1:]}."

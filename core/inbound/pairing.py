"""Pairing: a stranger who writes in private gets a code, the owner is asked, and the message is answered later."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from tidings.core import ids
from tidings.core.clock import Clock
from tidings.core.errors import Unkeepable, Unknown
from tidings.core.inbound import inbox
from tidings.core.outbound import homes, outbox
from tidings.core.outbound.outbox import Class, Owed
from tidings.core.part import Part
from tidings.core.people import audit, codes, names
from tidings.core.people.codes import Code
from tidings.core.people.people import People
from tidings.core.people.register import Register
from tidings.core.roles import Permission, Person, Role, described
from tidings.core.store.store import Store, Transaction
from tidings.core.types import Body, Choice, Inbound, Kind, Target

log = logging.getLogger(__name__)

# The buttons below the question to the owner; the prefix tells them from the buttons of an answer.
PREFIX = "code_"
ADMIT, IGNORE, BLOCK = "admit", "ignore", "block"
LABELS = {ADMIT: "Admit", IGNORE: "Ignore", BLOCK: "Block"}
CODE = "I don't know you yet. Your code is {code}: give it to the person who runs this bot. It works for one hour."
FULL = "I don't know you yet, and too many people are waiting right now. Please try again in an hour."
TOLD = "I don't know you yet, so I can't answer. Your id is {id}. If this is your bot, run: tidings people admit {id}"
ASKED = "{who} would like to talk to the bot.\nAdmit them with /people admit {id}, or use the buttons."
WELCOME = "You're in. Write to me, and I answer. /help lists the commands."
AT_HOME = "Gateway alerts come here; /sethome in another chat changes that."
OVER = "This request has already been answered or has expired."
CLOSED = "too many wrong codes; admitting by code is closed for an hour"
WRONG = "this code is wrong, expired or already used"


class Answered(NamedTuple):
    """What became of a pressed button: words for the chat, or `refused` if the presser's role does not permit it."""

    words: str = ""
    refused: bool = False


class Pairing(Part):
    def __init__(
        self,
        store: Store,
        people: People,
        register: Register,
        clock: Clock,
        owner: Target | None,
        is_down: Callable[[str], bool],
    ) -> None:
        self._store = store
        self._people = people
        self._register = register
        self._clock = clock
        self._owner = owner
        self._is_down = is_down

    async def sweep(self) -> None:
        now = self._clock.now()
        await self._store.insist(lambda tx: codes.purge(tx, now))

    def greet(self, tx: Transaction, inbound: Inbound) -> bool:
        """Gives a stranger a code and asks the owner, or says what else the settings want; seldom, and in one line.

        Returns whether the stranger was told anything this time.
        """
        now, identity = self._clock.now(), names.name_of(inbound.target, inbound.sender)
        if self._people.strangers != "pair":
            return outbox.put_notice(tx, _line_for(inbound, TOLD.format(id=identity)), now)
        kept = replace(inbound, target=inbound.target.lasting())
        waiting = codes.of(tx, codes.PAIRING, identity, now)
        if waiting is not None and waiting.message.kind is not Kind.MESSAGE and inbound.kind is Kind.MESSAGE:
            # A chat is often opened by a command; what the stranger says first is what will be answered.
            codes.keep_instead(tx, waiting.id, kept)
        if not codes.may_ask(tx, identity, now):
            return False
        if codes.is_full(tx, inbound.target.at, now):
            return outbox.put_notice(tx, _line_for(inbound, FULL), now)
        id, code = codes.make(tx, codes.PAIRING, identity, kept, now, self._clock.wall())
        outbox.put(tx, _line_for(inbound, CODE.format(code=code)), now)
        self._ask_owner(tx, id, identity, inbound, now)
        return True

    def may_try(self, tx: Transaction, inbound: Inbound) -> bool:
        """Tells whether a code from this stranger is looked at: not after too many wrong ones, to store few rows."""
        now = self._clock.now()
        return not any(codes.is_closed(tx, who, now, limit) for who, limit in guessers(inbound, is_stranger=True))

    def _ask_owner(self, tx: Transaction, id: str, identity: str, inbound: Inbound, now: float) -> None:
        home = homes.elsewhere(tx, "", self._owner, self._is_down)
        if home is None:
            return
        text = ASKED.format(who=described(inbound.sender.name, identity), id=identity)
        choices = tuple(Choice(id=f"{id}/{what}", label=label) for what, label in LABELS.items())
        body = Body(text=text, choices=choices)
        outbox.put(tx, Owed(ids.new("dlv"), Class.REPLY, home, body, None, "pairing", f"asked about {id}"), now)

    def press(self, tx: Transaction, press: Inbound) -> Answered:
        """Answers a pressed button: only people who may admit others can, and only once."""
        id, _, what = press.choice.partition("/")
        person = self._people.find(press)
        if not self._people.may(person, Permission.PEOPLE):
            return Answered(refused=True)
        code = codes.get(tx, id, self._clock.now())
        if code is None or what not in LABELS:
            return Answered(OVER)
        who = described(code.name, code.identity)
        try:
            if what == ADMIT:
                self.admit(tx, person, code, None)
                return Answered(f"{who} is admitted as a member.")
            if what == BLOCK:
                self._register.block(tx, person, code.identity, code.name, self._clock.wall())
        except (Unkeepable, Unknown) as error:
            return Answered(f"{who} cannot be changed: {error}.")
        codes.close(tx, code.id, "ignored")
        if what == BLOCK:
            return Answered(f"{who} is blocked.")
        return Answered(f"{who} is ignored; they can ask again in an hour.")

    def find(self, tx: Transaction, by: Person, text: str) -> Code | None:
        """The open code that an approver wrote; a wrong one is counted, so the transaction must be kept.

        Raises Unkeepable after too many wrong ones.
        """
        now = self._clock.now()
        if codes.is_closed(tx, by.id, now):
            raise Unkeepable(CLOSED)
        code = codes.find(tx, codes.PAIRING, text, now)
        if code is None:
            codes.count_wrong(tx, by.id, now)
        return code

    def admit(self, tx: Transaction, by: Person, code: Code, role: Role | None, name: str = "") -> str:
        """Admits the stranger of this code, tells them, and takes the message that brought them."""
        if codes.get(tx, code.id, self._clock.now()) is None:
            raise Unknown(OVER)
        person = self._register.admit(tx, by, code.identity, role, name or code.name, self._clock.wall())
        codes.close(tx, code.id)
        # The owner need not be asked any more, for example at a console that nobody has opened since.
        outbox.withdraw(tx, f"asked about {code.id}", self._clock.now())
        has_home = role is Role.OWNER and self._give_home(tx, by, code.message.target)
        self._welcome(tx, code.message, f"{WELCOME} {AT_HOME}" if has_home else WELCOME)
        return person

    def amend(self, tx: Transaction, change: Inbound) -> None:
        """Corrects or drops the message of a stranger who has changed it before they were admitted."""
        for code in codes.waiting(tx, self._clock.now()):
            if (code.account, code.message.key) != (change.target.at, change.about):
                continue
            if change.kind is Kind.EDITED:
                codes.keep_instead(tx, code.id, replace(code.message, text=change.text))
            else:
                # Nothing is left to answer, as after a command.
                codes.keep_instead(tx, code.id, replace(code.message, kind=change.kind, text="", attachments=()))

    def withdraw(self, tx: Transaction, identity: str) -> str:
        """Ends the request of somebody who was linked or blocked instead; returns the name that they gave."""
        code = codes.of(tx, codes.PAIRING, identity, self._clock.now())
        if code is None:
            return ""
        codes.close(tx, code.id, "ignored")
        outbox.withdraw(tx, f"asked about {code.id}", self._clock.now())
        return code.name

    def _give_home(self, tx: Transaction, by: Person, target: Target) -> bool:
        """Makes an owner's private chat the home of an account that has none, so that its alerts reach somebody."""
        if homes.find(tx, target.adapter, target.account) is not None:
            return False
        homes.choose(tx, target, self._clock.now())
        audit.write(tx, by.id, "home", str(target), self._clock.wall())
        return True

    def _welcome(self, tx: Transaction, message: Inbound, words: str) -> None:
        """Tells a person that they are in, and answers the message that they wrote as a stranger."""
        now = self._clock.now()
        outbox.put(tx, Owed(ids.new("dlv"), Class.REPLY, message.target, Body(text=words), None, "pairing"), now)
        # A command, such as the /start of a chat's first opening, has nothing left to answer.
        if message.kind is Kind.MESSAGE and inbox.find(tx, message) is None:
            inbox.put_unclaimed(tx, message, ids.new("run"), now)


def guessers(inbound: Inbound, *, is_stranger: bool) -> list[tuple[str, int]]:
    """Whose wrong codes are counted: the sender's, and those of all strangers on this account; each with its limit."""
    own = (names.name_of(inbound.target, inbound.sender), codes.WRONG_CODES)
    strangers = (f"strangers of {inbound.target.at}", codes.WRONG_BY_STRANGERS)
    return [own, strangers] if is_stranger else [own]


def _line_for(inbound: Inbound, words: str) -> Owed:
    return Owed(ids.new("dlv"), Class.NOTICE, inbound.target, Body(text=words), None, "stranger")

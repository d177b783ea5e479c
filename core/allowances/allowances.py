"""Allowances: decide whether a run may start, reserve what it may use, and charge what it has used."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from tidings.core.agent import Outcome, OutcomeKind, Rest, Usage
from tidings.core.allowances import reservation as reservations
from tidings.core.allowances import rows, windows, wording
from tidings.core.allowances.mirror import Mirror
from tidings.core.allowances.reservation import Held, Payer, Reservation
from tidings.core.allowances.rows import Change
from tidings.core.allowances.wording import Over
from tidings.core.clock import Clock
from tidings.core.desk.usage import ALL_TIME, Counts, Key, Scope, SpentRow
from tidings.core.part import Part
from tidings.core.people import names
from tidings.core.people.people import People
from tidings.core.settings import Allowance, PersonAllowance
from tidings.core.settings import Allowances as Settings
from tidings.core.store.store import Store, Transaction
from tidings.core.store.wakeups import Loosened, RunEnded, Spent
from tidings.core.types import Audience, Inbound, encode, is_passing

log = logging.getLogger(__name__)

# How long a message waits before it is looked at again, while runs that have not ended hold the rest of an allowance;
# and how many such messages are looked at in a second.
WAIT_SECONDS = 1.0
LOOKS = 50
# After so many runs without any usage, a bot is taken for one that asks no model.
FREE_RUNS = 3
UNLIMITED = Allowance()


class Start(NamedTuple):
    """The run may start; what it has reserved is stored with it."""

    reservation: bytes | None = None


class Wait(NamedTuple):
    """Runs that have not ended hold what is left; they may use less than they hold."""

    seconds: float = WAIT_SECONDS


Weighed = Start | Wait | Over
# Called with the gateway's row after each change of it.
Watch = Callable[[Transaction, Payer, Counts], None]


class Allowances(Part):
    def __init__(
        self,
        store: Store,
        clock: Clock,
        settings: Settings,
        people: People,
        bot_of: Callable[[Inbound], str],
        watch: Watch = lambda tx, payer, counts: None,
    ) -> None:
        """`bot_of` tells which bot answers a message."""
        self._store = store
        self._clock = clock
        self._people = people
        self._bot_of = bot_of
        self._watch = watch
        self.settings = settings
        self.mirror = Mirror()
        # When the last of the messages that wait is looked at again.
        self._next_look = 0.0
        # By run: what it holds, if that has changed since it was claimed.
        self._loosened: dict[str, bytes] = {}
        store.wakeups.subscribe(Spent, lambda due: self.mirror.take(due.rows))
        store.wakeups.subscribe(Loosened, self._note_loosened)
        store.wakeups.subscribe(RunEnded, self._drop_loosened)

    def renew(self, settings: Settings) -> None:
        """Applies new allowances to what comes from now on; the counts stay."""
        self.settings = settings

    async def recover(self) -> None:
        """Reads what was used today, so that the door knows it."""
        if not self.settings.is_empty:
            yesterday = windows.days_back(self._clock.wall(), self.settings.zone, 1)
            for scope in (Scope.PERSON, Scope.CHAT, Scope.BOT, Scope.GATEWAY):
                self.mirror.take(await self._store.insist(lambda tx, scope=scope: rows.since(tx, scope, yesterday)))  # type: ignore[misc]

    def _note_loosened(self, due: Loosened) -> None:
        self._loosened[due.run] = due.reservation

    def _drop_loosened(self, due: RunEnded) -> None:
        self._loosened.pop(due.run, None)

    # Who is charged.

    def payers(self, inbound: Inbound) -> tuple[Payer, Payer, Payer, Payer]:
        """The person, the chat, the bot and the gateway that a message is charged to."""
        return self._person(inbound), self._chat(inbound), self._bot(self._bot_of(inbound)), self.gateway()

    def gateway(self) -> Payer:
        return self._payer(Scope.GATEWAY, ("",), self.settings.gateway)

    def _person(self, inbound: Inbound) -> Payer:
        """The person behind a message or an errand; what any of their identities has used counts."""
        asker, settings = inbound.asker, self.settings
        person, called = self._people.of_asker(asker), self._people.called(asker)
        holder = self._people.answerable_for(asker)
        if holder is not None:
            asker, person, called = None, holder, (holder.id, *holder.identities)
        own = next((settings.people[name] for name in called if name in settings.people), None)
        allowance: PersonAllowance | None = own or settings.roles.get(person.role)
        # Written under the identity, which stays when people are linked or parted; a key and the machine have none.
        is_owned = asker is None or asker.sender.trusted or asker.sender.key == asker.sender.id
        name = person.id if asker is None or is_owned else names.name_of(asker.target, asker.sender)
        known = tuple(dict.fromkeys((name, *called, *map(names.without_account, person.identities))))
        payer = self._payer(Scope.PERSON, known, allowance or UNLIMITED, allowance.zone if allowance else "")
        return payer._replace(heard_as=person.id)

    def _chat(self, inbound: Inbound) -> Payer:
        said = inbound.asker or inbound
        target, began = said.target, said.conversation.chat
        called = (*names.names_of(target), f"{target.adapter}:{began}", f"{target.at}:{began}")
        found = next((self.settings.chats[name] for name in called if name in self.settings.chats), UNLIMITED)
        return self._payer(Scope.CHAT, (f"{target.at}:{began}",), found)

    def _bot(self, name: str) -> Payer:
        return self._payer(Scope.BOT, (name,), self.settings.bots.get(name, UNLIMITED))

    def _payer(self, scope: Scope, called: tuple[str, ...], allowance: Allowance, zone: str = "") -> Payer:
        zone = zone or self.settings.zone
        return Payer(scope, called[0], called, windows.day_of(self._clock.wall(), zone), zone, allowance, called[0])

    # At the door.

    def arrive(self, tx: Transaction, inbound: Inbound) -> Over | None:
        """Counts a message, and tells which allowance it finds used up."""
        if self.settings.is_empty:
            return None
        payers = self.payers(inbound)
        if over := self._over(payers, {payer.scope: self.mirror.sum(payer.day_keys()) for payer in payers}):
            return over
        if not any(payer.allowance.messages for payer in payers):
            return None
        wall = self._clock.wall()
        heard = rows.hear(tx, [(payer.scope, payer.heard_as) for payer in payers], windows.minute_of(wall))
        for payer in payers:
            if 0 < payer.allowance.messages < heard[payer.scope]:
                until = windows.end_of_minute(wall)
                limit = wording.messages(payer.allowance.messages)
                return Over(payer.scope, f"minute {until:.0f}", limit, payer.zone, until, until - wall)
        return None

    def _over(self, payers: tuple[Payer, ...], used: Mapping[Scope, Counts]) -> Over | None:
        """The allowance that is used up for the longest time."""
        found = [over for payer in payers if (over := self._over_of(payer, used[payer.scope]))]
        return max(found, key=lambda over: over.until, default=None)

    def _over_of(self, payer: Payer, used: Counts) -> Over | None:
        allowed, limit = payer.allowance, ""
        if 0 < allowed.runs <= used.runs:
            limit = wording.answers(allowed.runs)
        elif 0 < allowed.tokens <= used.tokens:
            limit = wording.tokens(allowed.tokens)
        elif 0 < allowed.money <= used.cost:
            limit = wording.dollars(allowed.money)
        if not limit:
            return None
        wall = self._clock.wall()
        until = windows.end_of_day(wall, payer.zone)
        return Over(payer.scope, payer.span, limit, payer.zone, until, until - wall)

    # When a run is claimed.

    def weigh(self, tx: Transaction, inbound: Inbound) -> Weighed:
        """Decides in the transaction that claims a run whether it starts, and reserves what it may use."""
        if self.settings.is_empty:
            return Start()
        payers = self.payers(inbound)
        if not any(payer.allowance.has_day for payer in payers):
            return Start()
        bot = Key(Scope.BOT, payers[2].name, ALL_TIME)
        found = rows.read(tx, [bot, *(key for payer in payers for key in payer.day_keys())])
        used = {payer.scope: _sum(found, payer.day_keys()) for payer in payers}
        if over := self._over(payers, used):
            return over
        if any(_is_held(payer.allowance, used[payer.scope]) for payer in payers):
            return self._wait()
        held = [_held(payer, used[payer.scope], found.get(bot, Counts())) for payer in payers]
        changes = [Change(each.key, runs=1, reserved_tokens=each.tokens, reserved_cost=each.cost) for each in held]
        after = rows.reserve(tx, changes)
        self._look_at_gateway(tx, after)
        # What others have used under this person's other names is known now, too.
        others = [SpentRow(key, counts) for key, counts in found.items()]
        tx.announce(Spent((*others, *after)))
        return Start(encode(Reservation(rows=tuple(held))))

    def _wait(self) -> Wait:
        """Spreads the looks of many waiting messages over time, so that they do not keep the store busy."""
        now = self._clock.now()
        self._next_look = max(now + WAIT_SECONDS, self._next_look + 1 / LOOKS)
        return Wait(self._next_look - now)

    # While it runs.

    def loosen(self, tx: Transaction, reservation: bytes, used: Usage | None) -> bytes:
        """Gives back what a run holds beyond what it has used so far; returns what it still holds."""
        own, spent = reservations.read(reservation), used or Usage()
        assert own is not None, "it holds something"
        tokens = spent.input_tokens + spent.output_tokens
        kept = [replace(held, tokens=min(held.tokens, tokens), cost=min(held.cost, spent.cost)) for held in own.rows]
        changes = [
            Change(now.key, reserved_tokens=now.tokens - held.tokens, reserved_cost=now.cost - held.cost)
            for held, now in zip(own.rows, kept, strict=True)
        ]
        tx.announce(Spent(tuple(rows.reserve(tx, changes))))
        return encode(Reservation(rows=tuple(kept)))

    def rest(self, run: str, inbound: Inbound, reservation: bytes | None) -> Rest:
        """What the allowances leave to a run, all that it has used included: not what other runs used or hold."""
        if self.settings.is_empty:
            return Rest()
        tokens: int | None = None
        money: float | None = None
        own = reservations.read(self._loosened.get(run, reservation))
        # Whose tokens are the fewest, and whose money.
        fewest, least = None, None
        for payer in self.payers(inbound):
            held = own.of(payer.scope) if own else None
            used = self.mirror.sum(payer.day_keys(held.span if held else None))
            if limit := payer.allowance.tokens:
                left = limit - used.tokens - (used.reserved_tokens - (held.tokens if held else 0))
                if tokens is None or left < tokens:
                    tokens, fewest = left, payer.scope
            if allowed := payer.allowance.money:
                rest = allowed - used.cost - (used.reserved_cost - (held.cost if held else 0.0))
                if money is None or rest < money:
                    money, least = rest, payer.scope
        return Rest(tokens, money, wording.rest_words({each for each in (fewest, least) if each is not None}))

    # When it has ended.

    def settle(self, tx: Transaction, inbound: Inbound, reservation: bytes | None, outcome: Outcome) -> None:
        """Charges what a run has used, and gives back what it had reserved, in the transaction that ends it."""
        own, spent = reservations.read(reservation), outcome.usage or Usage()
        payers = self.payers(inbound)
        changes = [*_charges(payers, own, spent)]
        bot = (own.of(Scope.BOT) if own else None) or payers[2]
        peak = Change(
            Key(Scope.BOT, bot.name, ALL_TIME),
            runs=1,
            used=spent,
            peak_tokens=spent.input_tokens + spent.output_tokens,
            peak_cost=spent.cost,
        )
        conversation, day = inbound.conversation.id, windows.day_of(self._clock.wall(), self.settings.zone)
        # Nobody asks what was used in a conversation that is never continued, and there is one for each request.
        spans = () if is_passing(conversation) else (day, ALL_TIME)
        talks = [Change(Key(Scope.CONVERSATION, conversation, span), 1, spent) for span in spans]
        if outcome.kind is OutcomeKind.CANCELLED and _is_forgotten(tx, own):
            is_private = inbound.target.audience is Audience.PRIVATE
            named = (Scope.PERSON, Scope.CHAT) if is_private else (Scope.PERSON,)
            after = rows.settle(tx, [*(each for each in changes if each.key.scope not in named), peak])
        else:
            after = rows.settle(tx, [*changes, peak, *talks])
        if not self.settings.is_empty:
            self._look_at_gateway(tx, after)
            tx.announce(Spent(tuple(each for each in after if each.key.scope is not Scope.CONVERSATION)))

    def _look_at_gateway(self, tx: Transaction, after: list[SpentRow]) -> None:
        gateway = self.gateway()
        for row in after:
            if row.key in gateway.day_keys():
                self._watch(tx, gateway, row.counts)


def _sum(found: Mapping[Key, Counts], keys: list[Key]) -> Counts:
    total = Counts()
    for key in keys:
        total += found.get(key, Counts())
    return total


def _is_forgotten(tx: Transaction, own: Reservation | None) -> bool:
    """Tells whether the person was forgotten during the run, so that no figure may bear their name again."""
    held = own.of(Scope.PERSON) if own else None
    return held is not None and not rows.read(tx, [held.key])


def _is_held(allowance: Allowance, used: Counts) -> bool:
    """Tells whether runs that have not ended hold all that is left."""
    by_tokens = 0 < allowance.tokens <= used.tokens + used.reserved_tokens
    return by_tokens or 0 < allowance.money <= used.cost + used.reserved_cost


def _held(payer: Payer, used: Counts, bot: Counts) -> Held:
    """What a run reserves: the most that one run of its bot has used, or all that is left while that is unknown."""
    is_known = bot.peak_tokens > 0 or bot.runs >= FREE_RUNS
    tokens_left = max(payer.allowance.tokens - used.tokens - used.reserved_tokens, 0)
    money_left = max(payer.allowance.money - used.cost - used.reserved_cost, 0.0)
    return Held(
        scope=payer.scope,
        name=payer.name,
        span=payer.span,
        tokens=min(bot.peak_tokens, tokens_left) if is_known else tokens_left,
        cost=min(bot.peak_cost, money_left) if is_known else money_left,
    )


def _charges(payers: tuple[Payer, ...], own: Reservation | None, spent: Usage) -> Iterator[Change]:
    for payer in payers:
        if held := own.of(payer.scope) if own else None:
            # The run was counted when it reserved.
            yield Change(held.key, 0, spent, -held.tokens, -held.cost)
        else:
            yield Change(Key(payer.scope, payer.name, payer.span), 1, spent)

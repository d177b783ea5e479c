"""The service for usage: what people, chats, bots and conversations have used, and what is left of each allowance."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tidings.core.allowances import rows, windows, wording
from tidings.core.allowances.allowances import Allowances
from tidings.core.clock import Clock
from tidings.core.desk.usage import ALL_TIME, Counts, Figure, Key, Report, Scope, SpentRow
from tidings.core.errors import NotPermitted
from tidings.core.people import names
from tidings.core.people.people import People
from tidings.core.roles import Permission, Person
from tidings.core.store.store import Store, Transaction
from tidings.core.types import Inbound

# The days before today that /usage lists one by one.
DAYS = 7
NOT_OTHERS = "only an owner or admin may see what others use"


class UsageService:
    def __init__(self, store: Store, clock: Clock, people: People, allowances: Allowances) -> None:
        self._store = store
        self._clock = clock
        self._people = people
        self._allowances = allowances

    async def report(self, by: Person, scope: Scope, since: str) -> Report:
        return await self._store.read(lambda tx: self.report_in(tx, by, scope, since))

    def report_in(self, tx: Transaction, by: Person, scope: Scope, since: str) -> Report:
        """Usage from a day on; raises NotPermitted where somebody may only see their own."""
        since = since or self.day()
        sees_all = self._people.may(by, Permission.OTHERS)
        if scope is Scope.PERSON and not sees_all:
            own = sorted({*_names(by.id, by.identities)})
            found = [row for name in own for row in rows.days_of(tx, scope, name, since)]
        elif not sees_all:
            raise NotPermitted(NOT_OTHERS)
        else:
            found = rows.since(tx, scope, since)
        figures = self._as_people(found) if scope is Scope.PERSON else rows.figures(found)
        total = sum((row.counts for row in found), Counts())
        return Report(by=scope, since=since, figures=tuple(figures), total=rows.figure_of("", total))

    def _as_people(self, found: list[SpentRow]) -> list[Figure]:
        """What all identities of a person have used is one figure."""
        owners = {name: line for line in self._people.all() for name in _names(line.id, line.identities)}
        merged = [
            row._replace(key=row.key._replace(name=owners[row.key.name].id if row.key.name in owners else row.key.name))
            for row in found
        ]
        labels = {line.id: line.name for line in owners.values()}
        return [msgspec.structs.replace(each, label=labels.get(each.name, "")) for each in rows.figures(merged)]

    def day(self, back: int = 0) -> str:
        """Today, or a day before, as the gateway counts days."""
        return windows.days_back(self._clock.wall(), self._allowances.settings.zone, back)

    # For /usage.

    def told(self, tx: Transaction, inbound: Inbound) -> str:
        """This conversation's use, the person's own today, and what is left of each allowance, in words."""
        payers = self._allowances.payers(inbound)
        used = {payer.scope: sum(rows.read(tx, payer.day_keys()).values(), Counts()) for payer in payers}
        lines = self._told_of_conversation(tx, inbound.conversation.id)
        if used[Scope.PERSON].tokens:
            lines.append(f"You today, in all conversations: {wording.amount(used[Scope.PERSON])}")
        left = [wording.left(payer.scope, payer.allowance, used[payer.scope]) for payer in payers]
        return "\n".join([*lines, *filter(None, left)])

    def _told_of_conversation(self, tx: Transaction, conversation: str) -> list[str]:
        """Today, each recent day with any use, and the total."""
        total = sum(rows.read(tx, [Key(Scope.CONVERSATION, conversation, ALL_TIME)]).values(), Counts())
        if not (total.requests or total.tokens):
            return ["No usage yet: no model has been asked in this conversation."]
        found = rows.days_of(tx, Scope.CONVERSATION, conversation, self.day(DAYS))
        days = {row.key.span: wording.amount(row.counts) for row in found}
        lines = [f"Today: {days.pop(self.day(), 'nothing yet')}"]
        lines += [f"{day}: {amount}" for day, amount in days.items()]
        return ["Used in this conversation:", *lines, f"Total: {wording.amount(total)}"]


def _names(id: str, identities: Sequence[str]) -> tuple[str, ...]:
    """The names under which a person's use is written."""
    return id, *identities, *map(names.without_account, identities)

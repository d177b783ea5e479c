"""The command /usage: what a person and a conversation have used, and for admins what others have."""

from __future__ import annotations

from tidings.core.allowances import wording
from tidings.core.allowances.usage import UsageService
from tidings.core.desk.usage import Counts, Figure, Scope
from tidings.core.errors import NotPermitted
from tidings.core.inbound.commands import Command, Obeyed
from tidings.core.people.people import People
from tidings.core.roles import Permission, described
from tidings.core.store.store import Transaction
from tidings.core.types import Inbound

# What /usage can be asked for, besides one's own.
WORDS = {"people": Scope.PERSON, "bots": Scope.BOT, "chats": Scope.CHAT}
SHOWN = 15


class UsageCommands:
    def __init__(self, usage: UsageService, people: People) -> None:
        self._usage = usage
        self._people = people

    def commands(self) -> tuple[Command, ...]:
        return (Command("usage", "what you and this conversation have used", self._obey, Permission.BASICS),)

    def _obey(self, tx: Transaction, inbound: Inbound) -> Obeyed:
        scope = WORDS.get(inbound.argument.lower())
        if scope is None:
            return Obeyed(self._usage.told(tx, inbound))
        person = self._people.find(inbound)
        if not self._people.may(person, Permission.OTHERS):
            return Obeyed("Only an owner or admin can see what others use. /usage shows your own.")
        try:
            report = self._usage.report_in(tx, person, scope, "")
        except NotPermitted as error:
            return Obeyed(f"{error}.")
        if not report.figures:
            return Obeyed("Nothing was used today.")
        lines = [f"{_named(each)}: {_amount(each)}" for each in report.figures[:SHOWN]]
        more = len(report.figures) - SHOWN
        if more > 0:
            lines.append(f"… and {more} more: tidings usage --by {scope}")
        return Obeyed("\n".join(["Used today:", *lines, f"Together: {_amount(report.total)}"]))


def _named(figure: Figure) -> str:
    return described(figure.label, figure.name) if figure.label else figure.name


def _amount(figure: Figure) -> str:
    return wording.amount(
        Counts(
            runs=figure.runs,
            input_tokens=figure.input_tokens,
            output_tokens=figure.output_tokens,
            requests=figure.requests,
            cost=figure.cost,
        )
    )

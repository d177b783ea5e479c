"""The command /listen: for a while, all that somebody writes in a group is for the bot, without a mention."""

from __future__ import annotations

import re

from tidings.core.clock import Clock
from tidings.core.inbound.abilities import Can
from tidings.core.inbound.attention import EVERYBODY, Attention, Listened
from tidings.core.inbound.commands import Command, Obeyed
from tidings.core.inbound.questions import clock_time
from tidings.core.people import names
from tidings.core.people.people import People
from tidings.core.roles import Permission, described
from tidings.core.store.store import Transaction
from tidings.core.types import Audience, Inbound, Sender

LONGEST_SECONDS = 24 * 3600.0
UNITS = (86_400, 3600, 60, 1)
_DURATION = re.compile(r"(?:(\d{1,4})d)?(?:(\d{1,4})h)?(?:(\d{1,6})m(?:in)?)?(?:(\d{1,7})s)?")
ALL = ("all", "everybody", "everyone")
OFF = ("off", "stop")

HELP = """\
/listen 10m – for ten minutes, everything you write here is for me, without a mention
/listen 10m all – the same for everybody here (for owners and admins); /listen 10m ID for one person
/listen off – I stop listening
/listen – who I am listening to"""
IN_PRIVATE = "There is no need for /listen here: in a private chat, everything you write is for me."
HIDDEN = (
    "I can't: as far as I know, messages here that do not mention me are not shown to me. The person who runs me can"
    " change that: tidings doctor says how."
)
TOO_LONG = "I can listen for 24 hours at most. Please give a shorter time, such as /listen 24h."
NOT_OTHERS = "You can only let me listen to yourself: /listen {time}. An owner or admin can do it for others."
NOBODY = "I am not listening to anybody in particular here."
# What the bot hears besides is up to the settings of the chat.
ENDED = "I have stopped listening. From now on, mention me when you mean me."
STILL_ALL = "I still listen to everybody until {until}; an owner or admin can end that."


class ListenCommand:
    def __init__(self, clock: Clock, attention: Attention, people: People, can: Can) -> None:
        self._clock = clock
        self._attention = attention
        self._people = people
        self._can = can

    def commands(self) -> tuple[Command, ...]:
        return (Command("listen", "answer without a mention for a while", self._listen, Permission.WORK),)

    def _listen(self, tx: Transaction, inbound: Inbound) -> Obeyed:
        if inbound.target.audience is Audience.PRIVATE:
            return Obeyed(IN_PRIVATE)
        match inbound.argument.split():
            case []:
                return Obeyed(self._tell(tx, inbound))
            case [word] if word.lower() in OFF:
                return Obeyed(self._end(tx, inbound))
            case [time]:
                return Obeyed(self._begin(tx, inbound, time, inbound.sender))
            case [time, who] if who.lower() in ALL:
                return Obeyed(self._begin(tx, inbound, time, Sender(id=EVERYBODY)))
            case [time, who]:
                return Obeyed(self._begin(tx, inbound, time, Sender(id=who.removeprefix("@"))))
            case _:
                return Obeyed(HELP)

    def _begin(self, tx: Transaction, inbound: Inbound, time: str, who: Sender) -> str:
        seconds = _seconds(time)
        if not seconds:
            return HELP
        if seconds > LONGEST_SECONDS:
            return TOO_LONG
        if who.id != inbound.sender.id and not self._may_for_others(inbound):
            return NOT_OTHERS.format(time=time)
        abilities = self._can(inbound.target)
        if abilities is not None and not abilities.hears_all:
            return HIDDEN
        name = described(who.name, names.name_of(inbound.target, who)) if who.id else "everybody"
        self._attention.give(tx, inbound, Listened(who.id, name, self._clock.now() + seconds))
        until = clock_time(self._clock.wall() + seconds)
        whose = "you write" if who.id == inbound.sender.id else f"{name} writes"
        return f"Until {until}, everything {whose} here is for me. /listen off ends it."

    def _end(self, tx: Transaction, inbound: Inbound) -> str:
        """Ends what somebody may end: an admin all of it, anybody else their own."""
        known = self._attention.all_in(tx, inbound)
        mine = [each for each in known if self._may_for_others(inbound) or each.sender == inbound.sender.id]
        for each in mine:
            self._attention.end(tx, inbound, each)
        left = [each for each in known if each not in mine and each.sender == EVERYBODY]
        if left:
            return STILL_ALL.format(until=self._until(left[0]))
        return ENDED if mine else NOBODY

    def _tell(self, tx: Transaction, inbound: Inbound) -> str:
        known = self._attention.all_in(tx, inbound)
        lines = [f"{each.name} until {self._until(each)}" for each in known]
        return "\n".join(["I listen to:", *lines]) if lines else f"{NOBODY}\n{HELP}"

    def _until(self, listened: Listened) -> str:
        return clock_time(self._clock.wall() + listened.until - self._clock.now())

    def _may_for_others(self, inbound: Inbound) -> bool:
        return self._people.may(self._people.find(inbound), Permission.OTHERS)


def _seconds(time: str) -> int:
    """A time such as 10m or 1h30m; 0 for anything else."""
    found = _DURATION.fullmatch(time.lower())
    return sum(int(count) * unit for count, unit in zip(found.groups(), UNITS, strict=True) if count) if found else 0

"""The waiting line: which conversation gets the next free slot, so that a crowd keeps nobody else waiting.

The slot goes to the conversation for whose bot, and for whose person or chat, the fewest slots are held; among equals,
to the one that has waited longest, counted from when its person or chat last took a slot or gave one back. So with a
single slot, too, each has a turn before one has two. A pick looks at the front of a few heaps, never at all that wait.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Mapping
from typing import NamedTuple

from tidings.core.inbound.parties import Parties, Party
from tidings.core.inbound.slots import Slots

# Outdated entries that a heap may have beside twice its parties.
OUTDATED = 64


class _Group:
    """The waiting conversations of one person, in one chat, for one bot, in order of arrival."""

    __slots__ = ("places", "who")

    def __init__(self, who: Parties) -> None:
        self.who = who
        self.places: deque[tuple[int, str]] = deque()


class _First(NamedTuple):
    # Slots held for the group's bot, and for its person or chat, whichever holds more.
    held: int
    since: int
    place: int
    group: _Group
    line: _BotLine


class WaitingLine:
    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._count = 0
        # By conversation: its group, and its place in the order of arrival.
        self._places: dict[str, tuple[_Group, int]] = {}
        self._groups: dict[Parties, _Group] = {}
        self._bots: dict[Party, _BotLine] = {}
        # When a party last took a slot or gave one back, in the order of arrival; kept while anybody waits.
        self._served: dict[Party, int] = {}
        # With more of these times than this, those that matter no longer are dropped.
        self._served_most = OUTDATED
        slots.watch(self._moved)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, conversation: str) -> bool:
        return conversation in self._places

    def add(self, conversation: str, who: Parties) -> None:
        """Lets a conversation wait; one that waits already keeps its place, unless its next message is for others."""
        waits = self._places.get(conversation)
        if waits is not None and waits[0].who == who:
            return
        self._count += 1
        group = self._groups.get(who)
        is_new = group is None
        if group is None:
            group = self._groups[who] = _Group(who)
        group.places.append((self._count, conversation))
        self._places[conversation] = group, self._count
        if is_new:
            self._park(group)

    def lets_continue(self, who: Parties) -> bool:
        """Tells whether a conversation may keep its slot for its next message: no other one waits that may take it."""
        if not self._slots.may_take(who, returning=1):
            return False
        if not self._places:
            return True
        self._slots.lend_out(who, -1)
        try:
            return self._first() is None
        finally:
            self._slots.lend_out(who, 1)

    def pop(self) -> tuple[str, Parties] | None:
        """Takes out the conversation that gets the next free slot; None if no slot is free for any of them."""
        if not self._places or (first := self._first()) is None:
            return None
        _, conversation = first.group.places.popleft()
        del self._places[conversation]
        first.line.unpark()
        if self._head(first.group) is None:
            del self._groups[first.group.who]
        else:
            self._park(first.group)
        if not self._places:
            self._served.clear()
        return conversation, first.group.who

    def _park(self, group: _Group) -> None:
        line = self._bots.get(group.who.bot)
        if line is None:
            line = self._bots[group.who.bot] = _BotLine(self._slots, self._served)
        line.park(group)

    def _moved(self, party: Party) -> None:
        if not self._places:
            return
        self._count += 1
        self._served[party] = self._count
        if len(self._served) > self._served_most:
            self._forget_served()
        for line in self._bots.values():
            line.renew(party)

    def _forget_served(self) -> None:
        """Drops the times before all that wait have arrived, since they change no order."""
        oldest = min(place for _, place in self._places.values())
        for party in [each for each, served in self._served.items() if served < oldest]:
            del self._served[party]
        # While one conversation waits for very long, hardly any can be dropped: the next look is far away.
        self._served_most = 2 * (len(self._served) + len(self._places)) + OUTDATED

    def _head(self, group: _Group) -> int | None:
        """The place of the group's first conversation, without those that wait elsewhere by now."""
        while group.places:
            place, conversation = group.places[0]
            if self._places.get(conversation) == (group, place):
                return place
            group.places.popleft()
        return None

    def _first(self) -> _First | None:
        found: _First | None = None
        for bot, line in tuple(self._bots.items()):
            first = self._first_of(line)
            if first is None:
                del self._bots[bot]
                continue
            held, since, group = first
            held, since = held + self._slots.held(bot), max(since, self._served.get(bot, 0))
            place = group.places[0][0]
            if (found is None or (held, since, place) < found[:3]) and self._slots.may_take(group.who):
                found = _First(held, since, place, group, line)
        return found

    def _first_of(self, line: _BotLine) -> tuple[int, int, _Group] | None:
        while (first := line.first()) is not None:
            group = first[2]
            place = group.places[0][0]
            head = self._head(group)
            if head == place:
                return first
            # Its first conversation waits elsewhere by now.
            line.unpark()
            if head is None:
                del self._groups[group.who]
            else:
                line.park(group)
        return None


class _BotLine:
    """The groups that wait for one bot, each parked with its person or its chat, whichever holds more slots."""

    def __init__(self, slots: Slots, served: Mapping[Party, int]) -> None:
        self._slots = slots
        self._served = served
        # By party: its groups, by the place of their first conversation.
        self._parked: dict[Party, list[tuple[int, _Group]]] = {}
        # How many groups wait for a party, wherever they are parked.
        self._groups: Counter[Party] = Counter()
        # Slots held, since when the first group waits, and the party; outdated once one of these has changed.
        self._order: list[tuple[int, int, Party]] = []

    def park(self, group: _Group) -> None:
        # Among equals the party with more groups, so that few groups move when it takes a slot.
        party = max(group.who[:2], key=lambda each: (*self._weight(each), self._groups[each]))
        self._groups.update(group.who[:2])
        groups = self._parked.setdefault(party, [])
        heapq.heappush(groups, (group.places[0][0], group))
        if groups[0][1] is group:
            self.renew(party)

    def unpark(self) -> None:
        """Takes out the first group, as `first` has just found it."""
        self._take_from(self._order[0][2])

    def renew(self, party: Party) -> None:
        """The party holds more or fewer slots than before, or another of its groups is the first."""
        groups = self._parked.get(party)
        if groups:
            heapq.heappush(self._order, self._entry(party))
            if len(self._order) > 2 * len(self._parked) + OUTDATED:
                self._order = [self._entry(each) for each in self._parked]
                heapq.heapify(self._order)

    def first(self) -> tuple[int, int, _Group] | None:
        """The group with the fewest slots, then the longest wait: the slots, since when it waits, and the group."""
        while self._order:
            held, since, party = self._order[0]
            if party not in self._parked or self._order[0] != self._entry(party):
                heapq.heappop(self._order)
                continue
            group = self._parked[party][0][1]
            if self._weight(party) == max(map(self._weight, group.who[:2])):
                return held, since, group
            # By now its other party holds more.
            self._take_from(party)
            self.park(group)
        return None

    def _entry(self, party: Party) -> tuple[int, int, Party]:
        return self._slots.held(party), max(self._parked[party][0][0], self._served.get(party, 0)), party

    def _weight(self, party: Party) -> tuple[int, int]:
        """A group counts with its person or its chat: who holds more slots, then who was served later."""
        return self._slots.held(party), self._served.get(party, 0)

    def _take_from(self, party: Party) -> None:
        groups = self._parked[party]
        _, group = heapq.heappop(groups)
        for each in group.who[:2]:
            self._groups[each] -= 1
            if not self._groups[each]:
                del self._groups[each]
        if groups:
            self.renew(party)
        else:
            del self._parked[party]

"""The waiting line picks as its rule says, whatever comes and goes; checked against a search through all that wait."""

import random

import pytest

from tidings.core.inbound.parties import Parties
from tidings.core.inbound.slots import Slot, Slots
from tidings.core.inbound.waiting_line import WaitingLine


class Searched:
    """The same rule, by looking at everything."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._count = 0
        self._served: dict[str, int] = {}
        self.waiting: dict[str, tuple[int, Parties]] = {}
        slots.watch(self._note)

    def _note(self, party: str) -> None:
        if self.waiting:
            self._count += 1
            self._served[party] = self._count

    def add(self, conversation: str, who: Parties) -> None:
        if conversation not in self.waiting or self.waiting[conversation][1] != who:
            self._count += 1
            self.waiting[conversation] = self._count, who

    def pop(self) -> tuple[str, Parties] | None:
        # Of each bot only its first counts: the others of that bot are behind it.
        firsts = {who.bot: min(self._rank(each) for each in self._of(who.bot)) for _, who in self.waiting.values()}
        free = []
        for bot, (held, since, _, conversation) in firsts.items():
            place, who = self.waiting[conversation]
            if self._slots.may_take(who):
                key = held + self._slots.held(bot), max(since, self._served.get(bot, 0)), place
                free.append((key, conversation))
        if not free:
            return None
        conversation = min(free)[1]
        who = self.waiting.pop(conversation)[1]
        if not self.waiting:
            self._served.clear()
        return conversation, who

    def _of(self, bot: str) -> list[str]:
        return [each for each, (_, who) in self.waiting.items() if who.bot == bot]

    def _rank(self, conversation: str) -> tuple[int, int, int, str]:
        place, who = self.waiting[conversation]
        held, served = max((self._slots.held(party), self._served.get(party, 0)) for party in who[:2])
        return held, max(place, served), place, conversation


@pytest.mark.parametrize("seed", range(30))
def test_the_line_picks_as_a_search_through_all_would(seed: int) -> None:
    chance = random.Random(seed)
    slots = Slots(chance.choice((1, 2, 3, 5, 10)), lambda: 3)
    line, searched = WaitingLine(slots), Searched(slots)
    running: list[Slot] = []
    picks = 0
    for number in range(400):
        if chance.random() < 0.55:
            who = Parties(*(f"{kind} {chance.randrange(4)}" for kind in ("person", "chat", "bot")))
            conversation = f"c{chance.randrange(number + 1)}"
            line.add(conversation, who)
            searched.add(conversation, who)
        elif running:
            running.pop(chance.randrange(len(running))).give_back()
        while True:
            found = line.pop()
            expected = searched.pop()
            assert (found is None) == (expected is None)
            if found is None or expected is None:
                break
            picks += 1
            assert found == expected
            running.append(slots.take(found[1]))
        assert len(line) == len(searched.waiting)
    assert picks > 20


@pytest.mark.parametrize(("count", "one_person"), [(1, 1), (2, 1), (3, 2), (4, 2), (10, 8), (1000, 900)])
def test_one_person_leaves_the_kept_slots(count: int, one_person: int) -> None:
    slots, who = Slots(count), Parties("person", "chat", "bot")
    while slots.may_take(who):
        slots.take(who)
    assert slots.held("person") == one_person


def test_a_slot_is_lent_once_however_many_runs_its_holder_waits_for() -> None:
    slots, who = Slots(1), Parties("person", "chat", "bot")
    slot = slots.take(who)
    slot.serve("run_1", who)
    with slots.lent("run_1"), slots.lent("run_1"):
        assert slots.may_take(who)
        slots.take(who)
        assert not slots.may_take(who)
    assert slots.held("person") == 2


class Counting(WaitingLine):
    looks = 0

    def _forget_served(self) -> None:
        self.looks += 1
        super()._forget_served()


def test_one_that_waits_for_very_long_makes_nothing_slower_for_thousands_of_others() -> None:
    slots = Slots(2)
    line = Counting(slots)
    held = slots.take(Parties("person 0", "chat 0", "bot"))
    line.add("waits", Parties("person 0", "chat 00", "bot"))
    for number in range(1, 2000):
        who = Parties(f"person {number}", f"chat {number}", "bot")
        line.add(f"conversation {number}", who)
        assert line.pop() == (f"conversation {number}", who)
        slots.take(who).give_back()
    assert line.looks < 20
    held.give_back()
    assert line.pop() is not None

"""Slots for runs: how many runs may go on at once, who holds them, and how many are kept for others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tidings.core.inbound.parties import Parties, Party

# With fewer slots, one is kept for other people and chats, and none for other bots.
ENOUGH_FOR_BOTS = 4


class Slots:
    """The last slots are kept: for people and chats that hold few, and the very last ones for bots that hold few.

    So one person or one chat never holds all of them, as long as there are two; nor does one bot, if there are four.
    """

    def __init__(self, count: int, bots: Callable[[], int] = lambda: 1) -> None:
        """`bots` tells how many bots there are: for a single one nothing is kept from the others."""
        self._count = count
        self._free = count
        self._bots = bots
        self._held: dict[Party, int] = {}
        self._serving: dict[str, Slot] = {}
        self._hearers: list[Callable[[], None]] = []
        self._watchers: list[Callable[[Party], None]] = []

    def subscribe(self, hear: Callable[[], None]) -> None:
        """`hear` is called whenever a slot may have become free."""
        self._hearers.append(hear)

    def watch(self, hear: Callable[[Party], None]) -> None:
        """`hear` is called whenever a party holds more or fewer slots than before."""
        self._watchers.append(hear)

    def held(self, party: Party) -> int:
        """How many slots are held for a person, a chat or a bot."""
        return self._held.get(party, 0)

    def may_take(self, who: Parties, returning: int = 0) -> bool:
        """Tells whether a slot is free for these parties, if they gave so many back first."""
        free, kept = self._free + returning, kept_for_people(self._count)
        if free > kept:
            return True
        holds_few = max(self.held(who.person), self.held(who.chat)) - returning < kept
        return free > 0 and holds_few and self._is_free_for_bot(who.bot, free, returning)

    def _is_free_for_bot(self, bot: Party, free: int, returning: int) -> bool:
        bots = self._bots()
        return bots < 2 or free > kept_for_bots(self._count) or self.held(bot) - returning < self._count // bots

    def take(self, who: Parties) -> Slot:
        """Takes a slot, even beyond the limit, for a run that is already claimed."""
        slot = Slot(self, who)
        self.lend_out(who, 1)
        return slot

    def renew(self, count: int) -> None:
        """Changes the number of slots; runs in progress keep theirs, even if there are now fewer."""
        more, self._count = count - self._count, count
        self._free += more
        self.tell()

    @contextmanager
    def lent(self, run: str) -> Iterator[None]:
        """Frees the slot of a run while it waits for other runs."""
        slot = self._serving.get(run)
        if slot is None:
            yield
            return
        slot.lend()
        try:
            yield
        finally:
            slot.reclaim()

    def lend_out(self, who: Parties, slots: int) -> None:
        """Counts so many slots more for these parties; a negative number gives slots back, and tells nobody yet."""
        self._free -= slots
        for party in who:
            now = self._held.get(party, 0) + slots
            if now:
                self._held[party] = now
            else:
                del self._held[party]
            for hear in self._watchers:
                hear(party)

    def serve(self, run: str, slot: Slot) -> None:
        self._serving[run] = slot

    def serve_no_more(self, run: str) -> None:
        self._serving.pop(run, None)

    def tell(self) -> None:
        for hear in self._hearers:
            hear()


class Slot:
    """A slot that is held; it serves one run after the other."""

    __slots__ = ("_lent", "_run", "_slots", "who")

    def __init__(self, slots: Slots, who: Parties) -> None:
        self._slots = slots
        self._run = ""
        # How many runs the holder waits for; the slot is free while it waits for any.
        self._lent = 0
        self.who = who

    def serve(self, run: str, who: Parties) -> None:
        """Counts the slot for the parties of this run from now on."""
        if who != self.who:
            self._slots.lend_out(self.who, -1)
            self.who = who
            self._slots.lend_out(who, 1)
        self._slots.serve_no_more(self._run)
        self._run = run
        self._slots.serve(run, self)

    def give_back(self) -> None:
        self._slots.serve_no_more(self._run)
        self._slots.lend_out(self.who, -1)
        self._slots.tell()

    def lend(self) -> None:
        self._lent += 1
        if self._lent == 1:
            self._slots.lend_out(self.who, -1)
            self._slots.tell()

    def reclaim(self) -> None:
        self._lent -= 1
        if self._lent == 0:
            self._slots.lend_out(self.who, 1)


def kept_for_people(count: int) -> int:
    """How many of the slots only people and chats that hold fewer than so many may take: a tenth, at least two."""
    if count < ENOUGH_FOR_BOTS:
        return min(1, count - 1)
    return max(2, count // 10)


def kept_for_bots(count: int) -> int:
    """How many of these only bots may take that hold less than their share of all slots."""
    return kept_for_people(count) // 2

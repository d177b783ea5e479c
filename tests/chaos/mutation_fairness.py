"""Seeded bugs in how slots are shared out."""

from __future__ import annotations

from tests.chaos.mutation_seams import swap
from tidings.core.inbound import queue_limit
from tidings.core.inbound.dispatcher import Dispatcher
from tidings.core.inbound.parties import Parties
from tidings.core.inbound.slots import Slot
from tidings.core.inbound.waiting_line import WaitingLine
from tidings.core.roles import Person
from tidings.core.store.store import Transaction
from tidings.core.types import Inbound

ANYBODY = Parties("person", "chat", "bot")


def first_in_first_out() -> None:
    """All that waits is one queue, whoever it is for."""
    real = WaitingLine.add

    def add(self: WaitingLine, conversation: str, who: Parties) -> None:
        real(self, conversation, ANYBODY)

    swap(WaitingLine, "add", add)


def door_gives_kept_slots_away() -> None:
    """The door takes any free slot."""

    def reserve(self: Dispatcher, inbound: Inbound, person: Person) -> Slot | None:
        free = self._slots._free > 0 and not self._stopped
        return self._slots.take(self._turns.parties(inbound, person)) if free else None

    swap(Dispatcher, "reserve", reserve)


def one_person_fills_the_queue() -> None:
    """Only the queue of all is bounded."""

    def of_person(tx: Transaction, person: Person) -> int:
        return 0

    swap(queue_limit, "_of_person", of_person)

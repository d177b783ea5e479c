"""Checks that the person who asked for work may still have it done; otherwise the work does not start."""

from __future__ import annotations

import logging
from collections.abc import Callable

from tidings.core import ids
from tidings.core.clock import Clock
from tidings.core.outbound import homes, outbox
from tidings.core.outbound.outbox import Class, Owed
from tidings.core.people.people import People
from tidings.core.roles import Permission, Person
from tidings.core.store.store import Transaction
from tidings.core.types import Asker, Body, Target

log = logging.getLogger(__name__)


class Mandates:
    def __init__(self, people: People, clock: Clock, owner: Target | None, is_down: Callable[[str], bool]) -> None:
        self._people = people
        self._clock = clock
        self._owner = owner
        self._is_down = is_down

    def subscribe(self, hear: Callable[[], None]) -> None:
        """`hear` is called when people have changed, and work for them may have to end."""
        self._people.subscribe(hear)

    def person_of(self, asker: Asker | None) -> tuple[Person, frozenset[Permission]]:
        """The person for whom work is done, and what that person may do."""
        person = self._people.of_asker(asker)
        return person, self._people.permissions(person)

    def lapsed(self, asker: Asker | None) -> str:
        """Why work for this person may not start; empty if it may."""
        return self._people.lapsed(asker, Permission.WORK)

    def is_gone(self, asker: Asker | None) -> bool:
        """Tells whether this person may no longer even talk, and so is told nothing any more in private."""
        return bool(self._people.lapsed(asker))

    def tell(self, tx: Transaction, what: str, why: str, key: str) -> None:
        """Tells the owner once per key, in the transaction that keeps the work from starting."""
        log.warning("%s, because %s", what, why)
        home = homes.elsewhere(tx, "", self._owner, self._is_down)
        if home is None:
            return
        body = Body(text=f"{what}, because {why}.")
        outbox.put_once(tx, Owed(ids.new("dlv"), Class.REPLY, home, body, None, "lapsed", key), self._clock.now())

"""Checks that the person who asked for work is still admitted; otherwise the work does not start."""

from __future__ import annotations

import logging
from collections.abc import Callable

from tidings.core import ids
from tidings.core.clock import Clock
from tidings.core.inbound.access import Access
from tidings.core.outbound import homes, outbox
from tidings.core.outbound.outbox import Class, Owed
from tidings.core.store.store import Transaction
from tidings.core.types import Asker, Body, Target

log = logging.getLogger(__name__)


class Mandates:
    def __init__(self, access: Access, clock: Clock, owner: Target | None, is_down: Callable[[str], bool]) -> None:
        self._access = access
        self._clock = clock
        self._owner = owner
        self._is_down = is_down

    def subscribe(self, hear: Callable[[], None]) -> None:
        """`hear` is called when people were removed, and work for them may have to end."""
        self._access.subscribe(hear)

    def lapsed(self, asker: Asker | None) -> str:
        """Why work for this person may not start; empty if it may."""
        return self._access.lapsed(asker)

    def tell(self, tx: Transaction, what: str, why: str, key: str) -> None:
        """Tells the owner once per key, in the transaction that keeps the work from starting."""
        log.warning("%s, because %s", what, why)
        home = homes.elsewhere(tx, "", self._owner, self._is_down)
        if home is None:
            return
        body = Body(text=f"{what}, because {why}.")
        outbox.put_once(tx, Owed(ids.new("dlv"), Class.REPLY, home, body, None, "lapsed", key), self._clock.now())

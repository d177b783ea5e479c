"""The last strangers who wrote, so that the owner can admit them without asking for their ids."""

from __future__ import annotations

from tidings.core.desk.health import Stranger
from tidings.core.people import names
from tidings.core.types import Inbound

# Older strangers are forgotten.
KEPT = 8


class Strangers:
    def __init__(self) -> None:
        self._known: dict[str, Stranger] = {}

    def remember(self, inbound: Inbound, wall: float) -> None:
        name = names.name_of(inbound.target, inbound.sender)
        self._known.pop(name, None)
        self._known[name] = Stranger(name, inbound.sender.name, wall, str(inbound.target))
        if len(self._known) > KEPT:
            del self._known[next(iter(self._known))]

    def all(self) -> tuple[Stranger, ...]:
        return tuple(self._known.values())

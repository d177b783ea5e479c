"""What a run has reserved: the rows that its settlement gives back and charges, whatever day it is then."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from tidings.core.desk.usage import Key, Scope
from tidings.core.settings import Allowance
from tidings.core.types import Value


class Held(Value, frozen=True, kw_only=True):
    """One row that the run was counted in, and what it reserved there."""

    scope: Scope
    name: str
    span: str
    tokens: int = 0
    cost: float = 0.0

    @property
    def key(self) -> Key:
        return Key(self.scope, self.name, self.span)


class Reservation(Value, frozen=True, kw_only=True):
    rows: tuple[Held, ...]

    def of(self, scope: Scope) -> Held | None:
        return next((each for each in self.rows if each.scope is scope), None)


def read(stored: bytes | None) -> Reservation | None:
    return msgspec.json.decode(stored, type=Reservation) if stored else None


class Payer(NamedTuple):
    """A person, chat, bot or the gateway that a run is charged to, and the allowance that it has."""

    scope: Scope
    # Under this name its use is written, and under all of these it is read: linked identities are one person.
    name: str
    names: tuple[str, ...]
    # The day, in the zone that applies.
    span: str
    zone: str
    allowance: Allowance
    # Under this name messages are counted by the minute: one for all identities of a person.
    heard_as: str

    def day_keys(self, span: str | None = None) -> list[Key]:
        day = self.span if span is None else span
        return [Key(self.scope, name, day) for name in self.names]

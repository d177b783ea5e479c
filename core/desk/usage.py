"""Requests about usage: what people, chats, bots, conversations and the gateway have used, and what is left."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, Protocol

from tidings.core.roles import Person
from tidings.core.types import Value

# The window of a row that counts since the first run.
ALL_TIME = ""
# The window of a row that counts the messages of one minute.
MINUTE = "minute"


class Scope(StrEnum):
    """What usage is counted for."""

    PERSON = "person"
    CHAT = "chat"
    BOT = "bot"
    GATEWAY = "gateway"
    CONVERSATION = "conversation"


class Key(NamedTuple):
    """Names one row: the scope, which one of it, and the window of time."""

    scope: Scope
    name: str
    span: str


class Counts(Value, frozen=True, kw_only=True):
    """What was used, and what runs that have not ended have reserved."""

    runs: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    requests: int = 0
    # US dollars; 0 where no price is known.
    cost: float = 0.0
    reserved_tokens: int = 0
    reserved_cost: float = 0.0
    # The most that one run has used.
    peak_tokens: int = 0
    peak_cost: float = 0.0
    # The share of the allowance, in percent, of which the owner was told.
    told: int = 0

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            runs=self.runs + other.runs,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            requests=self.requests + other.requests,
            # Ten times a tenth is one, also in fractions of two.
            cost=round(self.cost + other.cost, 9),
            reserved_tokens=self.reserved_tokens + other.reserved_tokens,
            reserved_cost=round(self.reserved_cost + other.reserved_cost, 9),
            peak_tokens=max(self.peak_tokens, other.peak_tokens),
            peak_cost=max(self.peak_cost, other.peak_cost),
            told=max(self.told, other.told),
        )


class SpentRow(NamedTuple):
    key: Key
    counts: Counts


class Figure(Value, frozen=True, kw_only=True):
    """What one person, chat, bot or conversation has used in a time."""

    name: str
    # How people know it, such as a person's name; empty if the name says it.
    label: str = ""
    runs: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    requests: int = 0
    cost: float = 0.0


class Report(Value, frozen=True, kw_only=True):
    """Usage by one scope from a day on, the largest first."""

    by: Scope
    # The first day that counts, as 2026-11-18.
    since: str
    figures: tuple[Figure, ...]
    # The sum of all figures.
    total: Figure


class UsageDesk(Protocol):
    async def report(self, by: Person, scope: Scope, since: str) -> Report:
        """Usage from a day on; somebody who may not see others gets their own alone. An empty day is today.

        Raises NotPermitted for usage by chat or bot, which is everybody's.
        """
        ...
